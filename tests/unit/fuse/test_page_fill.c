// SPDX-License-Identifier: Apache-2.0
#include "support/fuse_kernel.h"
#include "support/tree.h"

#include "fuse/page_fill.h"
#include "veneer/fuse/session.h"
#include "veneer/passthrough/passthrough_select.h"
#include "veneer/passthrough/passthrough_table.h"

#include <string.h>
#include <sys/socket.h>

#define LARGE (PASSTHROUGH_SELECT_SMALL_BYTES + 1)

static int refuse_open(int devfd, int fd)
{
	(void)devfd, (void)fd;
	return -EPERM;
}

static int refuse_close(int devfd, uint32_t id)
{
	(void)devfd, (void)id;
	return 0;
}

static const struct passthrough_table_device device = { refuse_open, refuse_close };

struct filling {
	struct tree_dirs *d;
	struct fuse_kernel k;
};

static int setup(void **state)
{
	struct filling *f = calloc(1, sizeof(*f));
	struct passthrough_table *b;

	if (!f || tree_setup((void **)&f->d) < 0)
		return -1;
	tree_put_text(f->d, "lower/file", "text");
	tree_put_text(f->d, "lower/other", "text");
	free(tree_put_pattern(f->d, "lower/large", LARGE, 1));
	tree_mount(f->d, "volatile,io=cached");
	fuse_kernel_open(&f->k, 0);
	fuse_kernel_start(&f->k, &f->d->m);
	assert_int_equal(passthrough_table_new(-1, &device, 16, &b), 0);
	f->d->t->backing = b;
	negotiate_request_extra.notify_fd = session_fd(f->k.session);
	*state = f;
	return 0;
}

static int teardown(void **state)
{
	struct filling *f = *state;

	fuse_kernel_close(&f->k);
	tree_teardown((void **)&f->d);
	free(f);
	return 0;
}

/* An open on pages, as counted before the reply. */
static void count_open(struct filling *f, uint64_t node)
{
	const struct passthrough_table_ask ask = { .wish = PASSTHROUGH_TABLE_WAY_CACHED,
						   .otherwise = PASSTHROUGH_TABLE_WAY_CACHED };
	uint32_t id;

	assert_int_equal(
		passthrough_table_take(f->d->t->backing, inode_slot(f->d->t, node), &ask, 0, &id),
		PASSTHROUGH_TABLE_WAY_CACHED);
}

/* The number of bytes that the kernel is given; 0: none. */
static uint32_t sent(struct filling *f)
{
	struct {
		struct fuse_out_header head;
		struct fuse_notify_store_out store;
		char bytes[64];
	} m;
	ssize_t n = recv(f->k.fd, &m, sizeof(m), MSG_DONTWAIT);

	if (n < 0)
		return 0;
	assert_true(n >= (ssize_t)(sizeof(m.head) + sizeof(m.store)));
	assert_int_equal(m.head.unique, 0);
	assert_int_equal(m.head.error, FUSE_NOTIFY_STORE);
	assert_int_equal(m.store.offset, 0);
	assert_memory_equal(m.bytes, "text", 4);
	return m.store.size;
}

static void test_page_fill__first_open_alone_brings_the_bytes(void **state)
{
	struct filling *f = *state;
	const uint64_t node = fuse_kernel_node(&f->k, "file");
	struct inode *i = tree_get(f->d, "file");

	/* Nobody has it open. */
	page_fill_send(&f->d->m, i, node, 4);
	assert_int_equal(sent(f), 0);
	count_open(f, node);
	page_fill_send(&f->d->m, i, node, 4);
	assert_int_equal(sent(f), 4);
	/* The kernel has them. */
	page_fill_send(&f->d->m, i, node, 4);
	assert_int_equal(sent(f), 0);
	page_fill_wait(i);
	tree_forget(f->d, i);
}

static void test_page_fill__second_open_of_a_node_fills_nothing(void **state)
{
	struct filling *f = *state;
	const uint64_t node = fuse_kernel_node(&f->k, "file");
	struct inode *i = tree_get(f->d, "file");

	count_open(f, node);
	count_open(f, node);
	page_fill_send(&f->d->m, i, node, 4);
	assert_int_equal(sent(f), 0);
	tree_forget(f->d, i);
}

static void test_page_fill__changed_file_is_not_filled(void **state)
{
	struct filling *f = *state;
	const uint64_t node = fuse_kernel_node(&f->k, "file");
	struct inode *i;

	assert_int_equal(fuse_kernel_write(&f->k, node, 0, "T", 1), 1);
	i = tree_get(f->d, "file");
	count_open(f, node);
	page_fill_send(&f->d->m, i, node, 4);
	assert_int_equal(sent(f), 0);
	tree_forget(f->d, i);
}

static void test_page_fill__size_that_is_not_small_or_not_so_fills_nothing(void **state)
{
	struct filling *f = *state;
	const uint64_t node = fuse_kernel_node(&f->k, "file");
	const uint64_t large = fuse_kernel_node(&f->k, "large");
	struct inode *i = tree_get(f->d, "file"), *l = tree_get(f->d, "large");

	count_open(f, node);
	count_open(f, large);
	page_fill_send(&f->d->m, l, large, LARGE);
	page_fill_send(&f->d->m, i, node, 0);
	page_fill_send(&f->d->m, i, node, -1);
	page_fill_send(&f->d->m, i, 4711, 4);
	assert_int_equal(sent(f), 0);
	/* It has become shorter since. */
	page_fill_send(&f->d->m, i, node, 100);
	assert_int_equal(sent(f), 0);
	tree_forget(f->d, i);
	tree_forget(f->d, l);
}

static void test_page_fill__member_of_a_shared_superblock_has_no_pages_of_its_own(void **state)
{
	struct filling *f = *state;
	const uint64_t node = fuse_kernel_node(&f->k, "other");
	struct inode *i = tree_get(f->d, "other");

	count_open(f, node);
	f->d->m.is_sb_member = true;
	page_fill_send(&f->d->m, i, node, 4);
	f->d->m.is_sb_member = false;
	assert_int_equal(sent(f), 0);
	tree_forget(f->d, i);
}

#define row(test) cmocka_unit_test_setup_teardown(test, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		row(test_page_fill__first_open_alone_brings_the_bytes),
		row(test_page_fill__second_open_of_a_node_fills_nothing),
		row(test_page_fill__changed_file_is_not_filled),
		row(test_page_fill__size_that_is_not_small_or_not_so_fills_nothing),
		row(test_page_fill__member_of_a_shared_superblock_has_no_pages_of_its_own),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
