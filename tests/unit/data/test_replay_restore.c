// SPDX-License-Identifier: Apache-2.0
/* A server dies between its change on disk and the table's: by the node ids that the kernel has,
 * the next one finds what they meant. */
#include "support/recovery.h"

#include "data/partial_mark.h"
#include "veneer/data/copyup.h"
#include "veneer/data/cow.h"
#include "veneer/data/remove.h"
#include "veneer/data/replay.h"
#include "veneer/union/lookup.h"
#include "veneer/union/upper.h"

#include <sys/mman.h>

#define KEY 7
#define BIG 40000

static void *area;

static void put_layers(struct recovery *h)
{
	area = mmap(NULL, intent_log_area_bytes(), PROT_READ | PROT_WRITE,
		    MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	assert_true(area != MAP_FAILED);
	intent_log_use_area(area);
	tree_put_text(h->d, "lower/dir/text", "text");
	tree_put_text(h->d, "upper/dir/plain", "plain");
	free(tree_put_pattern(h->d, "lower/dir/big", BIG, 1));
	free(tree_put_pattern(h->d, "lower/dir/big2", BIG, 2));
}

static void expect_changed(struct recovery *h, unsigned n, uint64_t seed)
{
	char bytes[BIG];

	tree_pattern(bytes, BIG, seed);
	memcpy(bytes + 9000, "middle", 6);
	tree_expect_inode(h->d, recovery_get(h, n), bytes, BIG);
}

static struct intent *begin(enum intent_kind kind, struct inode *dir, const char *name,
			    const char *to_name)
{
	static uint64_t unique;

	return intent_log_begin(&(struct intent_request){ .key = KEY,
							  .unique = ++unique,
							  .kind = kind,
							  .from_parent = dir->id,
							  .from_name = name,
							  .to_parent = dir->id,
							  .to_name = to_name });
}

static void hold(struct tree_dirs *d, struct inode *i)
{
	struct removal removal;

	if (i)
		assert_int_equal(remove_prepare(d->t, i, &removal), 0);
}

/* In "dir": on disk, and no further. */
static void half_rename(struct tree_dirs *d, struct will *w, const char *name, const char *to)
{
	struct inode *dir = tree_get(d, "dir"), *i, *victim = NULL;
	struct stat st;

	assert_int_equal(lookup_name(d->t, dir, name, &i, &st), 0);
	assert_true(lookup_name(d->t, dir, to, &victim, &st) <= 0);
	assert_int_equal(copyup_inode(d->t, i, NULL), 0);
	assert_int_equal(partial_mark_fix(d->t, i, NULL), 0);
	hold(d, victim);
	assert_non_null(begin(INTENT_RENAME, dir, name, to));
	intent_log_about(inode_for_intent(i), inode_for_intent(victim));
	assert_int_equal(
		renameat2(upper_pin(d->t, dir), name, upper_pin(d->t, dir), to, RENAME_WHITEOUT),
		0);
	recovery_grant(d, w, 0, i);
	if (victim)
		recovery_grant(d, w, 1, victim);
	recovery_grant(d, w, 2, dir);
}

static void inherit(struct recovery *h)
{
	recovery_inherit(h);
	intent_log_use_area(area);
	replay_settle(h->d->t, KEY);
}

static void change(struct tree_dirs *d, const char *path)
{
	struct inode *i = tree_get(d, path);

	assert_int_equal(cow_write(d->t, i, "middle", 6, 9000), 0);
	tree_forget(d, i);
}

static void live_to_move(struct tree_dirs *d, struct will *w)
{
	change(d, "dir/big");
	half_rename(d, w, "big", "new");
}

static void test_replay_restore__moved_file_is_found_by_its_id(void **state)
{
	struct recovery *h = *state;

	put_layers(h);
	recovery_die(h, "volatile", live_to_move);
	inherit(h);
	expect_changed(h, 0, 1);
	assert_int_equal(cow_write(h->d->t, recovery_get(h, 0), "more", 4, 0), 0);
	assert_ptr_equal(tree_get(h->d, "dir/new"), recovery_get(h, 0));
	assert_null(tree_look(h->d, "dir/big"));
}

static void live_to_move_over_lower(struct tree_dirs *d, struct will *w)
{
	half_rename(d, w, "plain", "text");
}

/* The mover covers the victim's lower entry, and is not its copy. */
static void test_replay_restore__lower_file_that_was_replaced_shows_its_own_bytes(void **state)
{
	struct recovery *h = *state;

	put_layers(h);
	recovery_die(h, "volatile", live_to_move_over_lower);
	inherit(h);
	tree_expect_inode(h->d, recovery_get(h, 1), "text", 4);
	tree_expect_inode(h->d, recovery_get(h, 0), "plain", 5);
	assert_ptr_equal(tree_get(h->d, "dir/text"), recovery_get(h, 0));
	assert_true(inode_is_orphan(recovery_get(h, 1)));
}

static void live_to_move_over_partial(struct tree_dirs *d, struct will *w)
{
	change(d, "dir/big");
	change(d, "dir/big2");
	half_rename(d, w, "big", "big2");
}

static void test_replay_restore__changed_file_that_was_replaced_shows_its_own_bytes(void **state)
{
	struct recovery *h = *state;

	put_layers(h);
	recovery_die(h, "volatile", live_to_move_over_partial);
	inherit(h);
	expect_changed(h, 1, 2);
	expect_changed(h, 0, 1);
	assert_ptr_equal(tree_get(h->d, "dir/big2"), recovery_get(h, 0));
}

static void half_remove(struct tree_dirs *d, struct will *w, const char *name, unsigned n)
{
	struct inode *dir = tree_get(d, "dir"), *i;
	struct stat st;
	int fd = upper_pin(d->t, dir);

	assert_int_equal(lookup_name(d->t, dir, name, &i, &st), 0);
	hold(d, i);
	assert_non_null(begin(INTENT_REMOVE, dir, name, NULL));
	intent_log_about(inode_for_intent(i), INTENT_NOTHING);
	if (i->has_upper)
		assert_int_equal(unlinkat(fd, name, 0), 0);
	assert_int_equal(whiteout_make(&d->t->style, fd, name), 0);
	recovery_grant(d, w, n, i);
}

static void live_to_remove(struct tree_dirs *d, struct will *w)
{
	change(d, "dir/big");
	half_remove(d, w, "text", 0);
	half_remove(d, w, "big", 1);
	half_remove(d, w, "plain", 2);
	recovery_grant(d, w, 3, tree_get(d, "dir"));
}

static void test_replay_restore__removed_files_are_what_they_were(void **state)
{
	struct recovery *h = *state;

	put_layers(h);
	recovery_die(h, "volatile", live_to_remove);
	inherit(h);
	tree_expect_names(h->d, "dir", "big2");
	tree_expect_inode(h->d, recovery_get(h, 0), "text", 4);
	expect_changed(h, 1, 1);
	tree_expect_inode(h->d, recovery_get(h, 2), "plain", 5);
	for (unsigned n = 0; n < 3; n++)
		assert_true(inode_is_orphan(recovery_get(h, n)));
}

/* The directory's new name before what was moved in it. */
static void live_to_move_directory(struct tree_dirs *d, struct will *w)
{
	struct inode *dir;

	live_to_move(d, w);
	dir = tree_get(d, "dir");
	assert_non_null(begin(INTENT_RENAME, d->t->root, "dir", "moved"));
	intent_log_about(inode_for_intent(dir), INTENT_NOTHING);
	assert_int_equal(whiteout_set_redirect(&d->t->style, upper_pin(d->t, dir), "dir"), 0);
	assert_int_equal(renameat2(d->s.fd, "upper/dir", d->s.fd, "upper/moved", RENAME_WHITEOUT),
			 0);
}

static void test_replay_restore__file_moved_in_a_moved_directory_is_found(void **state)
{
	struct recovery *h = *state;

	put_layers(h);
	recovery_die(h, "volatile", live_to_move_directory);
	inherit(h);
	expect_changed(h, 0, 1);
	assert_ptr_equal(tree_get(h->d, "moved/new"), recovery_get(h, 0));
	assert_ptr_equal(tree_get(h->d, "moved"), recovery_get(h, 2));
	tree_expect_names(h->d, "moved", "big2 new plain text");
}

#define row(test) cmocka_unit_test_setup_teardown(test, recovery_setup, recovery_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		row(test_replay_restore__moved_file_is_found_by_its_id),
		row(test_replay_restore__lower_file_that_was_replaced_shows_its_own_bytes),
		row(test_replay_restore__changed_file_that_was_replaced_shows_its_own_bytes),
		row(test_replay_restore__removed_files_are_what_they_were),
		row(test_replay_restore__file_moved_in_a_moved_directory_is_found),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
