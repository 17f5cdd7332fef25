// SPDX-License-Identifier: Apache-2.0
#include "support/recovery.h"
#include "support/wait.h"

#include "veneer/data/cow.h"
#include "veneer/data/create.h"
#include "veneer/data/remove.h"
#include "veneer/data/rename.h"
#include "veneer/data/tmpfile.h"
#include "veneer/jobs/checkpoint.h"
#include "veneer/union/lookup.h"
#include "veneer/union/upper.h"

#include <dirent.h>
#include <fcntl.h>

#define BIG 40000

static void put_layers(struct recovery *h)
{
	tree_put_text(h->d, "lower/dir/f", "text");
	tree_put_text(h->d, "lower/dir/sub/g", "more");
	free(tree_put_pattern(h->d, "lower/dir/big", BIG, 1));
}

/* As the bytes of "big" after write_middle. */
static void expect_big(struct recovery *h, struct inode *i)
{
	char bytes[BIG];

	tree_pattern(bytes, BIG, 1);
	memcpy(bytes + 9000, "middle", 6);
	tree_expect_inode(h->d, i, bytes, BIG);
}

static void write_middle(struct tree_dirs *d, struct inode *i)
{
	assert_int_equal(cow_write(d->t, i, "middle", 6, 9000), 0);
}

static bool is_unresolved(struct recovery *h, unsigned n)
{
	return inode_get(h->d->t, h->will->id[n])->stage != INODE_RESOLVED;
}

static int is_stale(struct recovery *h, unsigned n)
{
	return lookup_restore(h->d->t, inode_get(h->d->t, h->will->id[n])) == -ESTALE;
}

static void live_with_files(struct tree_dirs *d, struct will *w)
{
	struct inode *big = tree_get(d, "dir/big"),
		     *made = tree_make(d, "dir/sub", "made", S_IFREG | 0640);

	write_middle(d, big);
	assert_int_equal(cow_write(d->t, made, "new", 3, 0), 0);
	recovery_grant(d, w, 0, tree_get(d, "dir/f"));
	recovery_grant(d, w, 1, big);
	recovery_grant(d, w, 2, made);
	recovery_grant(d, w, 3, tree_get(d, "dir"));
	recovery_grant(d, w, 4, tree_get(d, "dir/sub"));
}

static void test_restore__file_is_filled_when_it_is_asked_for_by_id(void **state)
{
	struct recovery *h = *state;

	put_layers(h);
	recovery_die(h, "volatile", live_with_files);
	recovery_inherit(h);
	for (unsigned n = 0; n < 5; n++)
		assert_true(is_unresolved(h, n));
	assert_int_equal(inode_count_unresolved(h->d->t), 5);
	assert_true(inode_is_listed_names_only(inode_get(h->d->t, h->will->id[3])));
	tree_expect_inode(h->d, recovery_get(h, 2), "new", 3);
	assert_int_equal(inode_count_unresolved(h->d->t), 2);
	assert_false(is_unresolved(h, 3)); /* those above */
	assert_false(is_unresolved(h, 4));
	tree_expect_inode(h->d, recovery_get(h, 0), "text", 4);
	expect_big(h, recovery_get(h, 1));
	assert_int_equal(inode_count_unresolved(h->d->t), 0);
	assert_int_equal(cow_write(h->d->t, recovery_get(h, 2), "N", 1, 0), 0);
	tree_expect_text(h->d, "dir/sub/made", "New");
}

static void test_restore__file_is_filled_when_its_name_is_looked_up(void **state)
{
	struct recovery *h = *state;
	struct inode *f;

	put_layers(h);
	recovery_die(h, "volatile", live_with_files);
	recovery_inherit(h);
	f = tree_get(h->d, "dir/big");
	assert_int_equal(f->id, h->will->id[1]);
	assert_ptr_equal(inode_get(h->d->t, h->will->id[1]), f);
	assert_false(is_unresolved(h, 1));
	expect_big(h, f);
	tree_forget(h->d, f);
	f = tree_get(h->d, "dir/sub/made");
	assert_int_equal(f->id, h->will->id[2]);
	tree_forget(h->d, f);
	tree_expect_names(h->d, "dir", "big f sub");
}

static void test_restore__nothing_is_left_when_all_is_forgotten(void **state)
{
	struct recovery *h = *state;

	put_layers(h);
	recovery_die(h, "volatile", live_with_files);
	recovery_inherit(h);
	recovery_get(h, 1);
	for (unsigned n = 0; n < 5; n++)
		inode_forget(h->d->t, h->will->id[n], 1);
	assert_int_equal(node_table_count(h->d->t->nodes), 1);
	assert_int_equal(inode_count_unresolved(h->d->t), 0);
	tree_expect_text(h->d, "dir/f", "text");
}

/* ---- hard links ---- */

static void live_with_links(struct tree_dirs *d, struct will *w)
{
	struct inode *dir = tree_get(d, "dir"), *made = tree_make(d, "dir", "one", S_IFREG | 0644);
	struct stat st;

	assert_int_equal(cow_write(d->t, made, "same", 4, 0), 0);
	assert_int_equal(create_link(d->t, made, dir, "two", &st), 0);
	recovery_grant(d, w, 0, made);
	recovery_grant(d, w, 1, tree_get(d, "pair/a"));
}

static void test_restore__other_name_of_a_file_leads_to_the_same_inode(void **state)
{
	struct recovery *h = *state;
	struct inode *i;

	put_layers(h);
	tree_put_text(h->d, "lower/pair/a", "pair");
	assert_int_equal(linkat(h->d->s.fd, "lower/pair/a", h->d->s.fd, "lower/pair/b", 0), 0);
	recovery_die(h, "volatile", live_with_links);
	recovery_inherit(h);
	/* The table may have any name. */
	for (unsigned k = 0; k < 2; k++) {
		i = tree_get(h->d, k ? "dir/one" : "dir/two");
		assert_int_equal(i->id, h->will->id[0]);
		assert_int_equal(cow_write(h->d->t, i, k ? "1" : "2", 1, k), 0);
		tree_forget(h->d, i);
		i = tree_get(h->d, k ? "pair/a" : "pair/b");
		assert_int_equal(i->id, h->will->id[1]);
		tree_forget(h->d, i);
	}
	tree_expect_text(h->d, "dir/one", "21me");
	i = recovery_get(h, 1);
	assert_int_equal(cow_write(h->d->t, i, "P", 1, 0), 0);
	tree_expect_text(h->d, "pair/b", "Pair");
	tree_expect_text(h->d, "pair/a", "Pair");
}

static void live_removing_a_link(struct tree_dirs *d, struct will *w)
{
	struct inode *dir = tree_get(d, "dir"), *made = tree_make(d, "dir", "one", S_IFREG | 0644);
	struct stat st;

	assert_int_equal(cow_write(d->t, made, "same", 4, 0), 0);
	assert_int_equal(create_link(d->t, made, dir, "two", &st), 0);
	recovery_grant(d, w, 0, made);
}

static void test_restore__file_is_known_before_one_of_its_names_is_removed(void **state)
{
	struct recovery *h = *state;
	struct inode *dir, *i;

	put_layers(h);
	recovery_die(h, "volatile", live_removing_a_link);
	recovery_inherit(h);
	dir = tree_get(h->d, "dir");
	assert_int_equal(remove_file(h->d->t, dir, "one"), 0);
	assert_int_equal(remove_file(h->d->t, dir, "two"), 0);
	i = recovery_get(h, 0);
	tree_expect_inode(h->d, i, "same", 4);
	assert_true(inode_is_orphan(i));
	tree_forget(h->d, dir);
}

/* ---- what has no name ---- */

enum { LOWER, PARTIAL, WHOLE, LOWER_DIR, UPPER_DIR, NAMELESS, COPIED, LINK, SOCKET, NORPHANS };

static void unlink_and_grant(struct tree_dirs *d, struct will *w, unsigned n, struct inode *i,
			     const char *name)
{
	struct inode *dir = tree_get(d, "dir");

	assert_int_equal(
		i->type == DT_DIR ? remove_dir(d->t, dir, name) : remove_file(d->t, dir, name), 0);
	recovery_grant(d, w, n, i);
	tree_forget(d, dir);
}

static void live_with_orphans(struct tree_dirs *d, struct will *w)
{
	const struct create_args args = { .mode = S_IFREG | 0600 };
	struct inode *i = tree_make(d, "dir", "whole", S_IFREG | 0644), *dir = tree_get(d, "dir");
	struct stat st;

	assert_int_equal(cow_write(d->t, i, "whole", 5, 0), 0);
	unlink_and_grant(d, w, WHOLE, i, "whole");
	unlink_and_grant(d, w, LOWER, tree_get(d, "dir/f"), "f");
	i = tree_get(d, "dir/big");
	write_middle(d, i);
	unlink_and_grant(d, w, PARTIAL, i, "big");
	unlink_and_grant(d, w, LOWER_DIR, tree_get(d, "dir/empty"), "empty");
	unlink_and_grant(d, w, UPPER_DIR, tree_make(d, "dir", "new", S_IFDIR | 0755), "new");
	assert_int_equal(tmpfile_create(d->t, dir, &args, &i, &st), 0);
	assert_int_equal(cow_write(d->t, i, "nameless", 8, 0), 0);
	recovery_grant(d, w, NAMELESS, i);
	i = tree_get(d, "dir/big2");
	unlink_and_grant(d, w, COPIED, i, "big2");
	write_middle(d, i);
	unlink_and_grant(d, w, LINK, tree_make(d, "dir", "link", S_IFLNK | 0777), "link");
	unlink_and_grant(d, w, SOCKET, tree_make(d, "dir", "socket", S_IFSOCK | 0777), "socket");
	tree_forget(d, dir);
}

static void put_orphan_layers(struct recovery *h)
{
	put_layers(h);
	free(tree_put_pattern(h->d, "lower/dir/big2", BIG, 1));
	tree_put_dir(h->d, "lower/dir/empty");
}

static void expect_orphans(struct recovery *h)
{
	struct inode *i[NORPHANS];
	char target[16] = "";
	struct stat st;
	int fd;

	for (unsigned n = 0; n < NORPHANS; n++) {
		i[n] = recovery_get(h, n);
		assert_true(inode_is_orphan(i[n]));
		assert_int_equal(lookup_stat(h->d->t, i[n], &st), 0);
		assert_int_equal(IFTODT(st.st_mode), i[n]->type);
		if (i[n]->type != DT_DIR)
			assert_int_equal(st.st_nlink, 0);
	}
	tree_expect_inode(h->d, i[LOWER], "text", 4);
	tree_expect_inode(h->d, i[WHOLE], "whole", 5);
	tree_expect_inode(h->d, i[NAMELESS], "nameless", 8);
	expect_big(h, i[PARTIAL]);
	expect_big(h, i[COPIED]);
	fd = upper_pin(h->d->t, i[LINK]);
	assert_true(fd >= 0 && readlinkat(fd, "", target, sizeof(target) - 1) > 0);
	assert_string_equal(target, "target");
	fd_cache_unpin(&i[LINK]->src.fd);
}

static void test_restore__what_was_unlinked_is_found_again(void **state)
{
	struct recovery *h = *state;
	struct inode *i, *dir;
	struct stat st;

	put_orphan_layers(h);
	recovery_die(h, "volatile", live_with_orphans);
	recovery_inherit(h);
	expect_orphans(h);
	/* And written. */
	i = recovery_get(h, LOWER);
	assert_int_equal(cow_write(h->d->t, i, "T", 1, 0), 0);
	tree_expect_inode(h->d, i, "Text", 4);
	i = recovery_get(h, PARTIAL);
	assert_int_equal(cow_write(h->d->t, i, "x", 1, 30000), 0);
	dir = tree_get(h->d, "dir");
	i = recovery_get(h, NAMELESS);
	assert_int_equal(create_link(h->d->t, i, dir, "named", &st), 0);
	tmpfile_named(h->d->t, i);
	assert_int_equal(inode_slot(h->d->t, i->id)->held_fd, 0);
	tree_expect_text(h->d, "dir/named", "nameless");
	tree_forget(h->d, dir);
	tree_expect_names(h->d, "dir", "named sub");
}

static void test_restore__unlinked_files_leave_nothing_when_they_are_forgotten_unseen(void **state)
{
	struct recovery *h = *state;

	put_orphan_layers(h);
	recovery_die(h, "volatile", live_with_orphans);
	recovery_inherit(h);
	assert_int_equal(mapfile_count(h->d->t->map), 2);
	for (unsigned n = 0; n < NORPHANS; n++)
		inode_forget(h->d->t, h->will->id[n], 1);
	assert_int_equal(node_table_count(h->d->t->nodes), 1);
	assert_int_equal(mapfile_count(h->d->t->map), 0);
}

static size_t n_held;

static void count_held(int fd, void *arg)
{
	struct stat st;

	(void)arg;
	assert_int_equal(fstat(fd, &st), 0);
	n_held++;
}

static void test_restore__held_descriptors_are_told_without_attaching(void **state)
{
	struct recovery *h = *state;

	put_orphan_layers(h);
	recovery_die(h, "volatile", live_with_orphans);
	n_held = 0;
	node_table_held_fds(h->slots_fd, count_held, NULL);
	assert_int_equal(n_held, NORPHANS - 2); /* all but the lower ones */
}

/* The second server leaves orphans as it got them, whether it was asked for them or not. */
static void live_on_with_orphans(struct tree_dirs *d, struct will *w)
{
	assert_int_equal(lookup_restore(d->t, inode_get(d->t, w->id[PARTIAL])), 0);
	assert_int_equal(lookup_restore(d->t, inode_get(d->t, w->id[LOWER])), 0);
}

static void test_restore__orphans_live_through_a_second_death(void **state)
{
	struct recovery *h = *state;

	put_orphan_layers(h);
	recovery_die(h, "volatile", live_with_orphans);
	recovery_die_again(h, live_on_with_orphans);
	recovery_inherit(h);
	expect_orphans(h);
}

/* ---- killed in between ---- */

static void live_half_removed(struct tree_dirs *d, struct will *w)
{
	struct inode *made = tree_make(d, "dir", "made", S_IFREG | 0644);
	struct inode *stays = tree_make(d, "dir", "stays", S_IFREG | 0644);
	struct inode *dir = tree_get(d, "dir"), *big = tree_get(d, "dir/big"),
		     *f = tree_get(d, "dir/f");
	struct removal removal;
	int dirfd = upper_pin(d->t, dir);

	assert_int_equal(cow_write(d->t, made, "made", 4, 0), 0);
	assert_int_equal(cow_write(d->t, stays, "stays", 5, 0), 0);
	write_middle(d, big);
	/* The entry is gone, and the table does not know it yet. */
	assert_int_equal(remove_prepare(d->t, made, &removal), 0);
	assert_int_equal(unlinkat(dirfd, "made", 0), 0);
	assert_int_equal(remove_prepare(d->t, big, &removal), 0);
	assert_int_equal(unlinkat(dirfd, "big", 0), 0);
	assert_int_equal(remove_make_whiteout(d->t, dirfd, "big"), 0);
	assert_int_equal(remove_make_whiteout(d->t, dirfd, "f"), 0);
	/* The directory is still there. */
	assert_int_equal(remove_prepare(d->t, stays, &removal), 0);
	recovery_grant(d, w, 0, made);
	recovery_grant(d, w, 1, big);
	recovery_grant(d, w, 2, f);
	recovery_grant(d, w, 3, stays);
}

static void test_restore__entry_removed_before_the_table_knew(void **state)
{
	struct recovery *h = *state;

	put_layers(h);
	recovery_die(h, "volatile", live_half_removed);
	recovery_inherit(h);
	tree_expect_inode(h->d, recovery_get(h, 0), "made", 4);
	expect_big(h, recovery_get(h, 1));
	tree_expect_inode(h->d, recovery_get(h, 2), "text", 4);
	for (unsigned n = 0; n < 3; n++)
		assert_true(inode_is_orphan(recovery_get(h, n)));
	assert_false(inode_is_orphan(recovery_get(h, 3)));
	tree_expect_text(h->d, "dir/stays", "stays");
	tree_expect_names(h->d, "dir", "stays sub");
}

/* The same, when whoever finds out what was under way drops the names first. */
static void test_restore__name_of_an_unresolved_inode_can_be_dropped(void **state)
{
	static const char *const names[] = { "made", "big", "f" };
	struct recovery *h = *state;
	struct inode *dir;

	put_layers(h);
	recovery_die(h, "volatile", live_half_removed);
	recovery_inherit(h);
	dir = tree_get(h->d, "dir");
	for (unsigned n = 0; n < 3; n++)
		inode_drop_name(h->d->t, dir, names[n]);
	tree_expect_inode(h->d, recovery_get(h, 0), "made", 4);
	expect_big(h, recovery_get(h, 1));
	tree_expect_inode(h->d, recovery_get(h, 2), "text", 4);
	tree_forget(h->d, dir);
}

static void live_half_renamed(struct tree_dirs *d, struct will *w)
{
	struct inode *made = tree_make(d, "dir", "made", S_IFREG | 0644), *dir = tree_get(d, "dir");
	int dirfd = upper_pin(d->t, dir);

	assert_int_equal(cow_write(d->t, made, "made", 4, 0), 0);
	assert_int_equal(renameat(dirfd, "made", dirfd, "moved"), 0);
	recovery_grant(d, w, 0, made);
}

static void test_restore__name_of_an_unresolved_inode_can_be_moved(void **state)
{
	struct recovery *h = *state;
	struct inode *dir;

	put_layers(h);
	recovery_die(h, "volatile", live_half_renamed);
	recovery_inherit(h);
	dir = tree_get(h->d, "dir");
	assert_int_equal(inode_move_name(h->d->t, dir, "made", dir, "moved"), 0);
	tree_expect_inode(h->d, recovery_get(h, 0), "made", 4);
	tree_expect_text(h->d, "dir/moved", "made");
	assert_null(tree_look(h->d, "dir/made"));
	tree_forget(h->d, dir);
}

static void live_replaced(struct tree_dirs *d, struct will *w)
{
	struct inode *made = tree_make(d, "dir", "made", S_IFREG | 0644), *dir = tree_get(d, "dir");
	int fd, dirfd = upper_pin(d->t, dir);

	recovery_grant(d, w, 0, made);
	/* The old file keeps its number, under another name that nobody knows. */
	assert_int_equal(renameat(dirfd, "made", dirfd, "elsewhere"), 0);
	fd = openat(dirfd, "made", O_CREAT | O_EXCL | O_WRONLY, 0644);
	assert_int_equal(write(fd, "other", 5), 5);
	close(fd);
	recovery_grant(d, w, 1, dir);
}

static void test_restore__name_that_leads_to_another_file_is_lost(void **state)
{
	struct recovery *h = *state;
	struct inode *other;

	put_layers(h);
	recovery_die(h, "volatile", live_replaced);
	recovery_inherit(h);
	other = tree_get(h->d, "dir/made");
	assert_int_not_equal(other->id, h->will->id[0]);
	tree_expect_inode(h->d, other, "other", 5);
	assert_true(is_stale(h, 0));
	assert_true(is_stale(h, 0));
	tree_forget(h->d, other);
	inode_forget(h->d->t, h->will->id[0], 1);
	assert_null(inode_get(h->d->t, h->will->id[0]));
}

static void live_replaced_and_make(struct tree_dirs *d, struct will *w)
{
	struct inode *made = tree_make(d, "dir", "made", S_IFREG | 0644), *dir = tree_get(d, "dir");
	int dirfd = upper_pin(d->t, dir);

	assert_int_equal(unlinkat(dirfd, "made", 0), 0);
	recovery_grant(d, w, 0, made);
}

static void test_restore__file_made_at_a_name_that_is_gone_is_a_new_one(void **state)
{
	struct recovery *h = *state;
	struct inode *new;

	put_layers(h);
	recovery_die(h, "volatile", live_replaced_and_make);
	recovery_inherit(h);
	new = tree_make(h->d, "dir", "made", S_IFREG | 0644);
	assert_int_not_equal(new->id, h->will->id[0]);
	assert_int_equal(cow_write(h->d->t, new, "n", 1, 0), 0);
	assert_true(is_stale(h, 0));
	tree_forget(h->d, new);
	tree_expect_text(h->d, "dir/made", "n");
}

/* ---- copied up, and not told ---- */

static void live_until_a_copy(struct tree_dirs *d, struct will *w)
{
	struct inode *link = tree_get(d, "dir/link"), *fifo = tree_get(d, "dir/fifo"),
		     *dir = tree_get(d, "dir");
	int dirfd;

	recovery_grant(d, w, 0, link);
	recovery_grant(d, w, 1, fifo);
	/* As without privileges: the copy does not say what it was copied from. */
	inode_forget(d->t, 0, 0);
	assert_int_equal(remove_file(d->t, dir, "f"), 0);
	dirfd = upper_pin(d->t, dir);
	assert_int_equal(symlinkat("there", dirfd, "link"), 0);
	assert_int_equal(mknodat(dirfd, "fifo", S_IFIFO | 0644, 0), 0);
}

static void test_restore__copy_that_nobody_lived_to_tell_of_is_the_same_file(void **state)
{
	struct recovery *h = *state;
	struct stat st;

	put_layers(h);
	assert_int_equal(symlinkat("there", h->d->s.fd, "lower/dir/link"), 0);
	assert_int_equal(mknodat(h->d->s.fd, "lower/dir/fifo", S_IFIFO | 0600, 0), 0);
	recovery_die(h, "volatile", live_until_a_copy);
	recovery_inherit(h);
	assert_true(recovery_get(h, 0)->has_upper);
	assert_int_equal(lookup_stat(h->d->t, recovery_get(h, 1), &st), 0);
	assert_int_equal(st.st_mode, S_IFIFO | 0644);
}

/* ---- directories and depth ---- */

#define DEPTH 3000

static void live_deep(struct tree_dirs *d, struct will *w)
{
	const struct create_args args = { .mode = S_IFDIR | 0755 };
	struct inode *dir = d->t->root, *i;
	struct stat st;

	for (unsigned k = 0; k < DEPTH; k++) {
		assert_int_equal(create_node(d->t, dir, "d", &args, &i, &st), 0);
		dir = i;
	}
	recovery_grant(d, w, 0, dir);
}

static void test_restore__depth_is_no_matter(void **state)
{
	struct recovery *h = *state;

	put_layers(h);
	recovery_die(h, "volatile", live_deep);
	recovery_inherit(h);
	assert_int_equal(inode_count_unresolved(h->d->t), DEPTH);
	recovery_get(h, 0);
	assert_int_equal(inode_count_unresolved(h->d->t), 0);
}

static void live_with_renamed_dir(struct tree_dirs *d, struct will *w)
{
	struct inode *dir = tree_get(d, "dir");

	recovery_grant(d, w, 0, tree_get(d, "dir/sub"));
	recovery_grant(d, w, 1, tree_get(d, "dir/sub/g"));
	assert_int_equal(rename_entry(d->t, dir, "sub", d->t->root, "away", 0), 0);
}

static void test_restore__renamed_directory_shows_what_it_did(void **state)
{
	struct recovery *h = *state;

	put_layers(h);
	recovery_die(h, "volatile", live_with_renamed_dir);
	recovery_inherit(h);
	tree_expect_inode(h->d, recovery_get(h, 1), "more", 4);
	assert_non_null(recovery_get(h, 0)->lower);
	tree_expect_text(h->d, "away/g", "more");
	tree_expect_names(h->d, "dir", "big f");
}

#define NLISTED 300

static void live_listing(struct tree_dirs *d, struct will *w)
{
	struct inode *dir = tree_get(d, "dir");
	struct lookup_entry e;
	char name[32];

	for (unsigned k = 0; k < NLISTED; k++) {
		snprintf(name, sizeof(name), "n%u", k);
		tree_make(d, "dir", name, S_IFREG | 0644);
	}
	for (unsigned n = 0; n < 100; n++) {
		assert_int_equal(lookup_next(d->t, dir, &w->pos, &e), 1);
		if (*e.name == 'n')
			w->seen[atoi(e.name + 1)]++;
	}
	recovery_grant(d, w, 0, dir);
}

static void test_restore__listing_goes_on_where_it_was(void **state)
{
	struct recovery *h = *state;
	struct lookup_entry e;
	struct inode *dir;
	uint64_t pos;

	put_layers(h);
	recovery_die(h, "volatile", live_listing);
	recovery_inherit(h);
	dir = recovery_get(h, 0);
	pos = h->will->pos;
	while (lookup_next(h->d->t, dir, &pos, &e) == 1)
		if (*e.name == 'n')
			h->will->seen[atoi(e.name + 1)]++;
	for (unsigned k = 0; k < NLISTED; k++)
		assert_int_equal(h->will->seen[k], 1);
}

/* ---- what nobody synced ---- */

static void live_dirty(struct tree_dirs *d, struct will *w)
{
	struct inode *big = tree_get(d, "dir/big");

	write_middle(d, big);
	w->file = big->src.id;
	assert_int_not_equal(mapfile_pending(d->t->map, w->file), MAPFILE_CLEAN);
	recovery_grant(d, w, 0, big);
}

static void test_restore__what_the_dead_server_did_not_commit_is_committed(void **state)
{
	struct recovery *h = *state;
	struct worker *c;

	put_layers(h);
	recovery_die(h, "", live_dirty);
	recovery_inherit(h);
	h->d->t->can.has_true_extents = false;
	assert_int_not_equal(mapfile_pending(h->d->t->map, h->will->file), MAPFILE_CLEAN);
	assert_int_equal(checkpoint_start(h->d->t, &c), 0);
	wait_until(mapfile_pending(h->d->t->map, h->will->file) == MAPFILE_CLEAN);
	worker_stop(c);
	assert_int_equal(mapfile_pending(h->d->t->map, h->will->file), MAPFILE_CLEAN);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		RECOVERY_TEST(test_restore__file_is_filled_when_it_is_asked_for_by_id),
		RECOVERY_TEST(test_restore__file_is_filled_when_its_name_is_looked_up),
		RECOVERY_TEST(test_restore__nothing_is_left_when_all_is_forgotten),
		RECOVERY_TEST(test_restore__other_name_of_a_file_leads_to_the_same_inode),
		RECOVERY_TEST(test_restore__file_is_known_before_one_of_its_names_is_removed),
		RECOVERY_TEST(test_restore__what_was_unlinked_is_found_again),
		RECOVERY_TEST(
			test_restore__unlinked_files_leave_nothing_when_they_are_forgotten_unseen),
		RECOVERY_TEST(test_restore__held_descriptors_are_told_without_attaching),
		RECOVERY_TEST(test_restore__orphans_live_through_a_second_death),
		RECOVERY_TEST(test_restore__entry_removed_before_the_table_knew),
		RECOVERY_TEST(test_restore__name_of_an_unresolved_inode_can_be_dropped),
		RECOVERY_TEST(test_restore__name_of_an_unresolved_inode_can_be_moved),
		RECOVERY_TEST(test_restore__name_that_leads_to_another_file_is_lost),
		RECOVERY_TEST(test_restore__file_made_at_a_name_that_is_gone_is_a_new_one),
		RECOVERY_TEST(test_restore__copy_that_nobody_lived_to_tell_of_is_the_same_file),
		RECOVERY_TEST(test_restore__depth_is_no_matter),
		RECOVERY_TEST(test_restore__renamed_directory_shows_what_it_did),
		RECOVERY_TEST(test_restore__listing_goes_on_where_it_was),
		RECOVERY_TEST(test_restore__what_the_dead_server_did_not_commit_is_committed),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
