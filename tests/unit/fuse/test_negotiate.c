// SPDX-License-Identifier: Apache-2.0
#include "support/fuse_kernel.h"
#include "support/tree.h"

#include "fuse/op.h"

/* But for FUSE_INIT_RESERVED, whose definition shifts a sign bit. */
#define ALL_FLAGS (~((uint64_t)1 << 31))

static uint64_t flags_of(const struct fuse_kernel *k)
{
	return k->agreed.flags | (uint64_t)k->agreed.flags2 << 32;
}

/* The agreement with a kernel that can all of it. */
static struct fuse_kernel agree(struct tree_dirs *d, const char *options)
{
	struct fuse_kernel k;

	tree_mount(d, options);
	fuse_kernel_open(&k, ALL_FLAGS);
	fuse_kernel_start(&k, &d->m);
	return k;
}

static void test_negotiate__bounds_are_what_buffers_hold(void **state)
{
	struct fuse_kernel k = agree(*state, "volatile");

	assert_int_equal(k.agreed.max_write, SESSION_MAX_WRITE);
	assert_int_equal(k.agreed.max_background, 64);
	assert_int_equal(k.agreed.congestion_threshold, 48);
	assert_int_equal(k.agreed.time_gran, 1);
	fuse_kernel_close(&k);
}

static void test_negotiate__set_id_bits_are_ours_and_handles_are_not_exported(void **state)
{
	struct fuse_kernel k = agree(*state, "volatile");
	const uint64_t flags = flags_of(&k);

	assert_true(flags & FUSE_PARALLEL_DIROPS);
	assert_true(flags & FUSE_DO_READDIRPLUS);
	assert_true(flags & FUSE_HANDLE_KILLPRIV_V2);
	assert_false(flags & FUSE_HANDLE_KILLPRIV);
	assert_false(flags & FUSE_EXPORT_SUPPORT);
	assert_false(flags & FUSE_ATOMIC_O_TRUNC);
	assert_false(flags & FUSE_AUTO_INVAL_DATA);
	assert_false(flags & FUSE_WRITEBACK_CACHE);
	assert_true(negotiate_has_setxattr_ext());
	fuse_kernel_close(&k);
}

static void test_negotiate__nothing_is_kept_without_a_timeout(void **state)
{
	struct fuse_kernel k = agree(*state, "volatile,timeout=0");
	const uint64_t flags = flags_of(&k);

	assert_true(flags & FUSE_AUTO_INVAL_DATA);
	assert_false(flags & FUSE_CACHE_SYMLINKS);
	fuse_kernel_close(&k);
}

static void test_negotiate__writes_are_kept_where_that_is_asked_for(void **state)
{
	struct fuse_kernel k = agree(*state, "volatile,writeback=on,io=cached");

	assert_true(flags_of(&k) & FUSE_WRITEBACK_CACHE);
	fuse_kernel_close(&k);
}

static void test_negotiate__locks_are_the_servers_where_that_is_asked_for(void **state)
{
	struct fuse_kernel k = agree(*state, "volatile,locks=server");
	struct tree_dirs *d = *state;

	assert_non_null(d->t->locks);
	assert_true(flags_of(&k) & FUSE_POSIX_LOCKS);
	assert_true(flags_of(&k) & FUSE_FLOCK_LOCKS);
	fuse_kernel_close(&k);
}

static void test_negotiate__kernel_that_can_nothing_gets_nothing(void **state)
{
	struct tree_dirs *d = *state;
	struct fuse_kernel k;

	tree_mount(d, "volatile");
	fuse_kernel_open(&k, 0);
	fuse_kernel_start(&k, &d->m);
	assert_false(flags_of(&k) &
		     (FUSE_HANDLE_KILLPRIV_V2 | FUSE_POSIX_LOCKS | FUSE_WRITEBACK_CACHE));
	assert_false(d->m.has_passthrough);
	assert_false(negotiate_has_setxattr_ext());
	fuse_kernel_close(&k);
}

struct whole {
	struct fuse_in_header in;
	union {
		struct fuse_write_in write;
		struct fuse_setattr_in setattr;
		struct fuse_setxattr_in setxattr;
	};
};

/* What is noted of a request; size: of its bytes. */
static struct negotiate_request_extra noted(const struct whole *w, size_t size)
{
	const struct fuse_buf buf = { .size = size, .mem = (void *)(uintptr_t)w };

	negotiate_note_extra(NULL, &buf);
	return negotiate_request_extra;
}

static void test_negotiate__flags_that_libfuse_drops_are_noted(void **state)
{
	struct whole w = { .in = { .unique = 40 | OP_UNIQUE_RESENT, .opcode = FUSE_WRITE } };
	struct fuse_kernel k = agree(*state, "volatile");

	assert_false(noted(&w, sizeof(w)).kills_setid);
	w.write.write_flags = FUSE_WRITE_KILL_SUIDGID;
	assert_true(noted(&w, sizeof(w)).kills_setid);
	assert_int_equal(noted(&w, sizeof(w)).unique, 40);
	assert_true(noted(&w, sizeof(w)).is_resent);
	/* A request that is cut short has no flags. */
	assert_false(noted(&w, sizeof(w.in) + sizeof(w.write) - 1).kills_setid);
	assert_int_equal(noted(&w, sizeof(w.in) - 1).unique, 0);
	assert_false(noted(&w, 0).is_resent);

	w = (struct whole){ .in = { .opcode = FUSE_SETATTR },
			    .setattr = { .valid = FATTR_KILL_SUIDGID } };
	assert_true(noted(&w, sizeof(w)).kills_setid);
	w.in.opcode = FUSE_READ;
	assert_false(noted(&w, sizeof(w)).kills_setid);

	w = (struct whole){ .in = { .opcode = FUSE_SETXATTR },
			    .setxattr = { .setxattr_flags = FUSE_SETXATTR_ACL_KILL_SGID } };
	assert_true(noted(&w, sizeof(w)).kills_acl_setgid);
	assert_false(noted(&w, sizeof(w.in) + 8).kills_acl_setgid);
	fuse_kernel_close(&k);
}

#define row(test) cmocka_unit_test_setup_teardown(test, tree_setup, tree_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		row(test_negotiate__bounds_are_what_buffers_hold),
		row(test_negotiate__set_id_bits_are_ours_and_handles_are_not_exported),
		row(test_negotiate__nothing_is_kept_without_a_timeout),
		row(test_negotiate__writes_are_kept_where_that_is_asked_for),
		row(test_negotiate__locks_are_the_servers_where_that_is_asked_for),
		row(test_negotiate__kernel_that_can_nothing_gets_nothing),
		row(test_negotiate__flags_that_libfuse_drops_are_noted),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
