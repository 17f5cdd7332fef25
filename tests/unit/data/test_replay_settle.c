// SPDX-License-Identifier: Apache-2.0
#include "support/tree.h"

#include "veneer/data/replay.h"
#include "veneer/recover/intent_log.h"
#include "veneer/union/lookup.h"

#include <sys/mman.h>
#include <sys/sysmacros.h>

/* Requests that were carried out on disk by a server that died before its table knew. */

#define KEY 7

static uint64_t next_unique;
static void *area;

static int setup(void **state)
{
	area = mmap(NULL, intent_log_area_bytes(), PROT_READ | PROT_WRITE,
		    MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (area == MAP_FAILED)
		return -1;
	intent_log_use_area(area);
	return tree_setup(state);
}

static int teardown(void **state)
{
	munmap(area, intent_log_area_bytes());
	area = mmap(NULL, intent_log_area_bytes(), PROT_READ | PROT_WRITE,
		    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	intent_log_use_area(area);
	return tree_teardown(state);
}

static void begun(enum intent_kind kind, struct inode *dir, const char *name, struct inode *to,
		  const char *to_name, struct inode *i, struct inode *other)
{
	assert_non_null(intent_log_begin(&(struct intent_request){ .key = KEY,
								   .unique = ++next_unique,
								   .kind = kind,
								   .from_parent = dir->id,
								   .from_name = name,
								   .to_parent = to ? to->id : 0,
								   .to_name = to_name }));
	intent_log_about(inode_for_intent(i), inode_for_intent(other));
}

static void on_disk(struct tree_dirs *d, const char *from, const char *to, unsigned flags)
{
	assert_int_equal(renameat2(d->s.fd, from, d->s.fd, to, flags), 0);
}

static void settle(struct tree_dirs *d)
{
	intent_log_use_area(area);
	replay_settle(d->t, KEY);
}

static bool is_known_as(struct tree_dirs *d, struct inode *i, struct inode *dir, const char *name)
{
	struct inode *known = NULL;
	bool is_it = inode_peek(d->t, dir, name, &known) && known == i;

	if (known)
		inode_unref(d->t, known);
	return is_it;
}

static void test_replay_settle__what_was_moved_is_known_by_its_new_name(void **state)
{
	struct tree_dirs *d = *state;
	struct inode *a, *root;

	tree_put_text(d, "upper/a", "a");
	tree_mount(d, "volatile");
	root = d->t->root;
	a = tree_get(d, "a");
	begun(INTENT_RENAME, root, "a", root, "b", a, NULL);
	settle(d);
	assert_true(is_known_as(d, a, root, "a"));
	on_disk(d, "upper/a", "upper/b", 0);
	settle(d);
	assert_false(is_known_as(d, a, root, "a"));
	assert_true(is_known_as(d, a, root, "b"));
	assert_false(inode_is_orphan(a));
	/* Once more, as a server that dies in it does. */
	settle(d);
	assert_true(is_known_as(d, a, root, "b"));
	tree_forget(d, a);
}

static void test_replay_settle__of_two_the_one_that_was_replaced_loses_its_name(void **state)
{
	struct tree_dirs *d = *state;
	struct inode *a, *b, *root;

	tree_put_text(d, "upper/a", "a");
	tree_put_text(d, "upper/b", "b");
	tree_mount(d, "volatile");
	root = d->t->root;
	a = tree_get(d, "a");
	b = tree_get(d, "b");
	begun(INTENT_RENAME, root, "a", root, "b", a, b);
	on_disk(d, "upper/a", "upper/b", 0);
	settle(d);
	assert_true(is_known_as(d, a, root, "b"));
	assert_true(inode_is_orphan(b));
	tree_forget(d, a);
	tree_forget(d, b);
}

static void test_replay_settle__exchange_is_followed_once(void **state)
{
	struct tree_dirs *d = *state;
	struct inode *a, *b, *root;

	tree_put_text(d, "upper/a", "a");
	tree_put_text(d, "upper/b", "b");
	tree_mount(d, "volatile");
	root = d->t->root;
	a = tree_get(d, "a");
	b = tree_get(d, "b");
	begun(INTENT_EXCHANGE, root, "a", root, "b", a, b);
	settle(d);
	assert_true(is_known_as(d, a, root, "a"));
	on_disk(d, "upper/a", "upper/b", RENAME_EXCHANGE);
	settle(d);
	settle(d);
	assert_true(is_known_as(d, a, root, "b"));
	assert_true(is_known_as(d, b, root, "a"));
	tree_forget(d, a);
	tree_forget(d, b);
}

static void test_replay_settle__what_was_removed_has_no_name(void **state)
{
	struct tree_dirs *d = *state;
	struct inode *u, *f, *stays, *dir;

	tree_put_text(d, "upper/d/u", "u");
	tree_put_text(d, "lower/d/f", "f");
	tree_put_text(d, "lower/d/stays", "s");
	tree_mount(d, "volatile");
	dir = tree_get(d, "d");
	u = tree_get(d, "d/u");
	f = tree_get(d, "d/f");
	stays = tree_get(d, "d/stays");
	begun(INTENT_REMOVE, dir, "u", NULL, NULL, u, NULL);
	begun(INTENT_REMOVE, dir, "f", NULL, NULL, f, NULL);
	begun(INTENT_REMOVE, dir, "stays", NULL, NULL, stays, NULL);
	assert_int_equal(unlinkat(d->s.fd, "upper/d/u", 0), 0);
	tree_put_whiteout(d, "upper/d/f");
	/* The next server has read no directory. */
	upper_dir_free(dir->dir);
	dir->dir = NULL;
	settle(d);
	assert_true(inode_is_orphan(u));
	assert_true(inode_is_orphan(f));
	assert_false(inode_is_orphan(stays));
	assert_null(tree_look(d, "d/u"));
	assert_null(tree_look(d, "d/f"));
	tree_expect_inode(d, f, "f", 1);
	tree_expect_text(d, "d/stays", "s");
	tree_forget(d, u);
	tree_forget(d, f);
	tree_forget(d, stays);
}

/* In whatever order their slots are. */
static void test_replay_settle__directory_is_followed_before_what_is_in_it(void **state)
{
	for (unsigned order = 0; order < 2; order++) {
		struct tree_dirs *d;
		struct inode *dir, *x, *root;
		void *s;

		(void)state;
		assert_int_equal(tree_setup(&s), 0);
		d = s;
		intent_log_drop(KEY);
		tree_put_text(d, "upper/dir/x", "x");
		tree_mount(d, "volatile");
		root = d->t->root;
		dir = tree_get(d, "dir");
		x = tree_get(d, "dir/x");
		/* Neither has a descriptor: they are found by their names. */
		fd_cache_shrink();
		for (unsigned k = 0; k < 2; k++)
			if (k == order)
				begun(INTENT_RENAME, root, "dir", root, "moved", dir, NULL);
			else
				begun(INTENT_RENAME, dir, "x", dir, "y", x, NULL);
		on_disk(d, "upper/dir/x", "upper/dir/y", 0);
		on_disk(d, "upper/dir", "upper/moved", 0);
		settle(d);
		assert_true(is_known_as(d, dir, root, "moved"));
		assert_true(is_known_as(d, x, dir, "y"));
		tree_forget(d, x);
		tree_forget(d, dir);
		tree_teardown(&s);
	}
}

/* Answered before the death, and its names are others' since. */
static void test_replay_settle__answered_request_takes_no_name_from_others(void **state)
{
	struct tree_dirs *d = *state;
	struct inode *a, *c, *root;

	tree_put_text(d, "upper/a", "a");
	tree_mount(d, "volatile");
	root = d->t->root;
	a = tree_get(d, "a");
	begun(INTENT_RENAME, root, "a", root, "b", a, NULL);
	begun(INTENT_REMOVE, root, "a", NULL, NULL, a, NULL);
	on_disk(d, "upper/a", "upper/b", 0);
	assert_int_equal(inode_move_name(d->t, root, "a", root, "b"), 0);
	tree_put_text(d, "upper/a", "new");
	c = tree_get(d, "a");
	settle(d);
	assert_true(is_known_as(d, a, root, "b"));
	assert_true(is_known_as(d, c, root, "a"));
	tree_forget(d, a);
	tree_forget(d, c);
}

static void test_replay_settle__intents_that_make_no_sense_do_nothing(void **state)
{
	struct tree_dirs *d = *state;
	struct inode *a, nobody = { .id = 4000000, .has_upper = true, .upper_ino = 5 };

	tree_put_text(d, "upper/a", "a");
	tree_mount(d, "volatile");
	a = tree_get(d, "a");
	begun(INTENT_RENAME, &nobody, "a", &nobody, "b", &nobody, &nobody);
	begun(INTENT_RENAME, a, "a", a, "b", &nobody, &nobody);
	begun(INTENT_EXCHANGE, d->t->root, "", d->t->root, "", a, a);
	begun(INTENT_REMOVE, d->t->root, "..", NULL, NULL, a, NULL);
	begun(INTENT_REMOVE, d->t->root, "x/y", NULL, NULL, a, NULL);
	settle(d);
	tree_expect_names(d, "", "a");
	assert_true(is_known_as(d, a, d->t->root, "a"));
	tree_forget(d, a);
}

#define row(test) cmocka_unit_test_setup_teardown(test, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		row(test_replay_settle__what_was_moved_is_known_by_its_new_name),
		row(test_replay_settle__of_two_the_one_that_was_replaced_loses_its_name),
		row(test_replay_settle__exchange_is_followed_once),
		row(test_replay_settle__what_was_removed_has_no_name),
		row(test_replay_settle__directory_is_followed_before_what_is_in_it),
		row(test_replay_settle__answered_request_takes_no_name_from_others),
		row(test_replay_settle__intents_that_make_no_sense_do_nothing),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
