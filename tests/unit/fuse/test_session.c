// SPDX-License-Identifier: Apache-2.0
#include "support/fuse_kernel.h"
#include "support/tree.h"

#include "veneer/base/buf.h"
#include "veneer/base/cleanup.h"
#include "veneer/fuse/session.h"

#include <fuse_lowlevel.h>
#include <sys/socket.h>

static void test_session__answers_init_and_then_requests(void **state)
{
	struct tree_dirs *d = *state;
	struct fuse_kernel k;
	const struct fuse_in_header *first;
	size_t len;

	tree_put_text(d, "lower/file", "bytes");
	tree_mount(d, "volatile");
	fuse_kernel_open(&k, FUSE_ASYNC_READ | FUSE_PARALLEL_DIROPS);
	fuse_kernel_start(&k, &d->m);
	assert_true(d->m.has_begun);
	assert_ptr_equal(session_mount(k.session), &d->m);
	assert_int_not_equal(session_fd(k.session), k.fuse_fd);
	/* What the next server learns the agreement from. */
	first = session_init(k.session, &len);
	assert_int_equal(first->opcode, FUSE_INIT);
	assert_int_equal(first->len, len);
	assert_int_equal(fuse_kernel_attr(&k, fuse_kernel_node(&k, "file")).size, 5);
	fuse_kernel_close(&k);
}

static void test_session__resumed_one_goes_on_with_the_same_nodes(void **state)
{
	_cleanup_(buf_release) struct buf init = { 0 };
	struct tree_dirs *d = *state;
	struct fuse_kernel k;
	const void *first;
	uint64_t node;
	char err[256];
	size_t len;

	tree_put_text(d, "lower/file", "bytes");
	tree_mount(d, "volatile");
	fuse_kernel_open(&k, 0);
	fuse_kernel_start(&k, &d->m);
	node = fuse_kernel_node(&k, "file");
	first = session_init(k.session, &len);
	assert_int_equal(buf_put(&init, first, len), 0);
	session_leave(k.session);

	d->m.has_begun = false;
	assert_int_equal(session_resume(&d->m,
					&(struct session_saved){ k.fuse_fd, IO_CACHED, &init },
					&k.session, err, sizeof(err)),
			 0);
	assert_true(d->m.has_begun);
	assert_int_equal(d->m.io, IO_CACHED);
	/* The kernel, which has its answer, refuses a second one. The socket does not. */
	fuse_kernel_take_init(&k);
	assert_int_equal(fuse_kernel_attr(&k, node).size, 5);
	fuse_kernel_close(&k);
}

static void test_session__connection_that_is_gone_is_an_error_with_a_sentence(void **state)
{
	struct tree_dirs *d = *state;
	struct session *s = NULL;
	char err[256] = "";
	int ends[2];

	tree_mount(d, "volatile");
	assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends), 0);
	close(ends[0]);
	assert_int_equal(session_start(&d->m, ends[1], &s, err, sizeof(err)), -EIO);
	assert_string_equal(err, "the kernel closed the mount at /nowhere");
	assert_int_equal(session_start(&d->m, -1, &s, err, sizeof(err)), -EIO);
	assert_null(s);
	close(ends[1]);
}

static void test_session__broken_connection_is_an_error_and_the_buffer_is_freed_once(void **state)
{
	struct fuse_buf buf = { .mem = NULL };
	struct tree_dirs *d = *state;
	struct fuse_kernel k;

	tree_mount(d, "volatile");
	fuse_kernel_open(&k, 0);
	fuse_kernel_start(&k, &d->m);
	shutdown(k.fd, SHUT_WR);
	/* A device gives ENODEV here, and a socket an empty message. */
	assert_int_equal(session_receive(k.session, &buf), -EIO);
	session_free_buffer(&buf);
	assert_null(buf.mem);
	session_free_buffer(&buf);
	fuse_kernel_close(&k);
}

static bool take_getattr(void *arg, const struct fuse_buf *buf)
{
	const struct fuse_in_header *in = buf->mem;

	if (in->opcode != FUSE_GETATTR)
		return false;
	++*(unsigned *)arg;
	return true;
}

static void test_session__diverted_requests_are_not_its_own(void **state)
{
	const struct fuse_getattr_in in = { .dummy = 0 };
	struct tree_dirs *d = *state;
	struct fuse_kernel k;
	unsigned n = 0;

	tree_mount(d, "volatile");
	fuse_kernel_open(&k, 0);
	fuse_kernel_start(&k, &d->m);
	session_divert(k.session, take_getattr, &n);
	fuse_kernel_tell(&k, &(struct fuse_question){ .opcode = FUSE_GETATTR,
						      .node = FUSE_ROOT_ID,
						      .head = &in,
						      .head_len = sizeof(in) });
	assert_int_equal(n, 1);
	assert_int_equal(fuse_kernel_ask_name(&k, FUSE_LOOKUP, FUSE_ROOT_ID, "..no", NULL, 0),
			 sizeof(struct fuse_entry_out));
	fuse_kernel_close(&k);
}

/* What a program of any user may provoke, or a kernel that is broken: never the server's end. */
static void test_session__requests_that_are_short_or_unknown_are_refused(void **state)
{
	static const uint32_t opcodes[] = { FUSE_LOOKUP,  FUSE_SETATTR,	 FUSE_WRITE, FUSE_READ,
					    FUSE_RENAME2, FUSE_SETXATTR, 4000,	     FUSE_MKNOD };
	struct tree_dirs *d = *state;
	struct fuse_kernel k;

	tree_mount(d, "volatile");
	fuse_kernel_open(&k, 0);
	fuse_kernel_start(&k, &d->m);
	for (size_t i = 0; i < sizeof(opcodes) / sizeof(*opcodes); i++)
		assert_true(fuse_kernel_ask(&k,
					    &(struct fuse_question){ .opcode = opcodes[i],
								     .node = 1u << 30 },
					    NULL, 0) < 0);
	assert_true(S_ISDIR(fuse_kernel_attr(&k, FUSE_ROOT_ID).mode));
	fuse_kernel_close(&k);
}

#define row(test) cmocka_unit_test_setup_teardown(test, tree_setup, tree_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		row(test_session__answers_init_and_then_requests),
		row(test_session__resumed_one_goes_on_with_the_same_nodes),
		row(test_session__connection_that_is_gone_is_an_error_with_a_sentence),
		row(test_session__broken_connection_is_an_error_and_the_buffer_is_freed_once),
		row(test_session__diverted_requests_are_not_its_own),
		row(test_session__requests_that_are_short_or_unknown_are_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
