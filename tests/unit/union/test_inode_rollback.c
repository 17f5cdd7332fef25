// SPDX-License-Identifier: Apache-2.0
#include "support/recovery.h"

#include "veneer/data/copyup.h"
#include "veneer/layer/branch_dir.h"
#include "veneer/union/inode_rollback.h"
#include "veneer/union/lookup.h"
#include "veneer/union/upper.h"

#include <fcntl.h>

#define KEPT 0x1234567812345678u

static void put_layers(struct recovery *h)
{
	tree_put_text(h->d, "lower/dir/f", "text");
	tree_put_text(h->d, "lower/dir/g", "more");
}

/* The mount went back: its chain has changed. */
static void put_chain(struct recovery *h)
{
	struct branch_chain c = { .head = KEPT };
	const struct branch_chain_entry e = { .id = KEPT, .name = "kept" };
	char *text;
	size_t len;

	assert_int_equal(branch_chain_add(&c, &e), 0);
	assert_int_equal(branch_chain_format(&c, &text, &len), 0);
	tree_put(h->d, "upper/" BRANCH_DIR_NAME "/chain", text, len);
	tree_put_dir(h->d, "upper/" BRANCH_DIR_NAME "/1234567812345678");
	branch_chain_release(&c);
	free(text);
}

static void live_going_back(struct tree_dirs *d, struct will *w)
{
	struct inode *f = tree_get(d, "dir/f");
	int fd = -1;

	recovery_grant(d, w, 0, tree_get(d, "dir"));
	recovery_grant(d, w, 1, f);
	recovery_grant(d, w, 2, tree_get(d, "dir/g"));
	inode_rollback_begin(d->t, KEPT);
	assert_int_equal(copyup_nameless(d->t, f, &fd), 0);
	assert_int_equal(pwrite(fd, "copy", 4, 0), 4);
	inode_rollback_keep(d->t, f, fd);
	w->pos = (uint64_t)fd;
}

static bool is_open(int fd)
{
	return fcntl(fd, F_GETFD) >= 0;
}

static void test_inode_rollback__without_the_snapshot_nothing_has_happened(void **state)
{
	struct recovery *h = *state;
	struct inode *f;

	put_layers(h);
	recovery_die(h, "", live_going_back);
	assert_true(is_open((int)h->will->pos));
	recovery_inherit(h);
	assert_false(is_open((int)h->will->pos));
	assert_false(inode_rollback_is_unsaid(h->d->t));
	f = recovery_get(h, 1);
	tree_expect_inode(h->d, f, "text", 4);
	assert_ptr_equal(tree_get(h->d, "dir/f"), f);
	inode_unref(h->d->t, f);
}

static void count_name(void *arg, uint32_t parent, const char *name, size_t len)
{
	unsigned *n = arg;

	assert_true(parent != 0 && len > 0);
	*n += len == 1 && (*name == 'f' || *name == 'g');
}

static void test_inode_rollback__with_it_names_and_what_is_open_part(void **state)
{
	struct recovery *h = *state;
	struct inode *f, *named;
	unsigned n = 0;

	put_layers(h);
	recovery_die(h, "", live_going_back);
	put_chain(h);
	recovery_inherit(h);
	assert_true(inode_rollback_is_unsaid(h->d->t));
	/* The name that it lost, too. */
	inode_rollback_each_name(h->d->t, count_name, &n);
	assert_int_equal(n, 2);
	f = recovery_get(h, 1);
	tree_expect_inode(h->d, f, "copy", 4);
	assert_true(inode_is_orphan(f));
	named = tree_get(h->d, "dir/f");
	assert_ptr_not_equal(named, f);
	assert_int_equal(inode_ino(named), inode_ino(f));
	tree_expect_inode(h->d, named, "text", 4);
	inode_unref(h->d->t, named);
	/* What looks the same is the same. */
	named = tree_get(h->d, "dir/g");
	assert_ptr_equal(named, recovery_get(h, 2));
	inode_unref(h->d->t, named);
	inode_rollback_end(h->d->t);
	assert_false(inode_rollback_is_unsaid(h->d->t));
	n = 0;
	inode_rollback_each_name(h->d->t, count_name, &n);
	assert_int_equal(n, 1);
}

static void live_on(struct tree_dirs *d, struct will *w)
{
	struct inode *f = inode_get(d->t, w->id[1]);

	assert_int_equal(lookup_restore(d->t, f), 0);
	assert_int_equal(pwrite(upper_pin(d->t, f), "MORE", 4, 4), 4);
	upper_unpin(f);
}

static void test_inode_rollback__a_second_death_changes_nothing_of_it(void **state)
{
	struct recovery *h = *state;
	struct inode *f;

	put_layers(h);
	recovery_die(h, "", live_going_back);
	put_chain(h);
	recovery_die_again(h, live_on);
	recovery_inherit(h);
	assert_true(inode_rollback_is_unsaid(h->d->t));
	f = recovery_get(h, 1);
	tree_expect_inode(h->d, f, "copyMORE", 8);
	tree_expect_text(h->d, "dir/f", "text");
}

static void test_inode_rollback__what_is_given_up_leaves_nothing(void **state)
{
	struct recovery *h = *state;
	struct inode *f;
	int fd = -1;

	put_layers(h);
	tree_layers(h->d, "lower");
	tree_mount(h->d, "");
	f = tree_get(h->d, "dir/f");
	inode_rollback_begin(h->d->t, KEPT);
	assert_int_equal(copyup_nameless(h->d->t, f, &fd), 0);
	inode_rollback_keep(h->d->t, f, fd);
	inode_rollback_cancel(h->d->t);
	assert_false(is_open(fd));
	assert_int_equal(inode_slot(h->d->t, inode_id(f))->held_fd, 0);
	tree_expect_inode(h->d, f, "text", 4);
	inode_unref(h->d->t, f);
	tree_unmount(h->d);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		RECOVERY_TEST(test_inode_rollback__without_the_snapshot_nothing_has_happened),
		RECOVERY_TEST(test_inode_rollback__with_it_names_and_what_is_open_part),
		RECOVERY_TEST(test_inode_rollback__a_second_death_changes_nothing_of_it),
		RECOVERY_TEST(test_inode_rollback__what_is_given_up_leaves_nothing),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
