// SPDX-License-Identifier: Apache-2.0
#include "support/tree.h"

#include "veneer/data/attr.h"
#include "veneer/data/cow.h"
#include "veneer/data/create.h"
#include "veneer/data/remove.h"
#include "veneer/union/lookup.h"

#include <dirent.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>

static int make(struct tree_dirs *d, const char *name, const struct create_args *args)
{
	struct inode *i;
	struct stat st;

	return create_node(d->t, d->t->root, name, args, &i, &st);
}

static int make_mode(struct tree_dirs *d, const char *name, mode_t mode)
{
	return make(d, name, &(struct create_args){ .mode = mode, .target = "t" });
}

static void test_create__every_type_is_made_in_the_upper(void **state)
{
	static const mode_t types[] = { S_IFREG, S_IFDIR, S_IFLNK, S_IFIFO, S_IFSOCK };
	struct tree_dirs *d = *state;

	tree_mount(d, "volatile");
	for (size_t k = 0; k < sizeof(types) / sizeof(*types); k++) {
		char name[16], rel[32];
		struct stat st;

		snprintf(name, sizeof(name), "n%zu", k);
		snprintf(rel, sizeof(rel), "upper/%s", name);
		assert_int_equal(make_mode(d, name, types[k] | 0640), 0);
		assert_int_equal(fstatat(d->s.fd, rel, &st, AT_SYMLINK_NOFOLLOW), 0);
		assert_int_equal(st.st_mode & S_IFMT, types[k]);
		assert_int_equal(tree_stat(d, name).st_ino, st.st_ino);
		assert_int_equal(make_mode(d, name, types[k] | 0640), -EEXIST);
	}
}

static void test_create__device_is_made_but_no_whiteout(void **state)
{
	struct tree_dirs *d = *state;

	tree_mount(d, "volatile");
	assert_int_equal(
		make(d, "null",
		     &(struct create_args){ .mode = S_IFCHR | 0600, .rdev = makedev(1, 3) }),
		0);
	assert_int_equal(make(d, "white", &(struct create_args){ .mode = S_IFCHR | 0600 }), -EPERM);
	assert_false(tree_is_there(d, "upper/white"));
}

static void test_create__reserved_and_long_names_are_refused(void **state)
{
	struct tree_dirs *d = *state;
	char name[NAME_MAX + 2];

	tree_mount(d, "volatile");
	memset(name, 'n', NAME_MAX + 1);
	name[NAME_MAX + 1] = '\0';
	assert_int_equal(make_mode(d, name, S_IFREG | 0644), -ENAMETOOLONG);
	name[NAME_MAX] = '\0';
	assert_int_equal(make_mode(d, name, S_IFREG | 0644), 0);
	assert_int_equal(make_mode(d, ".wh.x", S_IFREG | 0644), -EINVAL);
	assert_int_equal(make_mode(d, ".wh..wh.veneer", S_IFREG | 0644), -EINVAL);
	assert_int_equal(make_mode(d, ".wh", S_IFREG | 0644), 0);
}

static void test_create__umask_owner_and_set_group_id_are_as_by_the_kernel(void **state)
{
	struct tree_dirs *d = *state;
	struct create_args args = { .mode = S_IFREG | 06777, .umask = 022, .uid = 12, .gid = 34 };
	struct inode *dir, *i;
	struct stat st;

	tree_mount(d, "volatile");
	assert_int_equal(make(d, "f", &args), 0);
	st = tree_stat(d, "f");
	assert_int_equal(st.st_mode & 07777, 06755);
	assert_int_equal(st.st_uid, 12);
	assert_int_equal(st.st_gid, 34);
	dir = tree_make(d, "", "dir", S_IFDIR | 0755);
	assert_int_equal(attr_chown(d->t, dir, 0, 56), 0);
	assert_int_equal(attr_chmod(d->t, dir, 02755), 0);
	args.mode = S_IFDIR | 0777;
	assert_int_equal(create_node(d->t, dir, "sub", &args, &i, &st), 0);
	assert_int_equal(st.st_gid, 56);
	assert_int_equal(st.st_mode & 07777, 02755);
}

static gid_t group_in(struct tree_dirs *d, struct inode *dir, const char *name)
{
	const struct create_args args = { .mode = S_IFREG | 0644, .uid = 12, .gid = 34 };
	struct inode *i;
	struct stat st;

	assert_int_equal(create_node(d->t, dir, name, &args, &i, &st), 0);
	return st.st_gid;
}

static void test_create__each_change_of_the_directory_counts_for_the_next_entry(void **state)
{
	struct tree_dirs *d = *state;
	struct inode *dir;

	tree_put_dir(d, "lower/dir");
	assert_int_equal(fchownat(d->s.fd, "lower/dir", 0, 56, 0), 0);
	assert_int_equal(fchmodat(d->s.fd, "lower/dir", 02755, 0), 0);
	tree_mount(d, "volatile");
	dir = tree_get(d, "dir");
	assert_int_equal(group_in(d, dir, "a"), 56);
	assert_int_equal(group_in(d, dir, "b"), 56);
	assert_int_equal(attr_chown(d->t, dir, (uid_t)-1, 57), 0);
	assert_int_equal(group_in(d, dir, "c"), 57);
	assert_int_equal(attr_chmod(d->t, dir, 0755), 0);
	assert_int_equal(group_in(d, dir, "d"), 34);
	assert_int_equal(attr_chmod(d->t, dir, 02755), 0);
	assert_int_equal(group_in(d, dir, "e"), 57);
}

static void test_create__over_a_whiteout_takes_its_place(void **state)
{
	struct tree_dirs *d = *state;

	tree_put_text(d, "lower/a", "old");
	tree_put_text(d, "lower/b", "old");
	tree_put_whiteout(d, "upper/a");
	tree_put_text(d, "upper/.wh.b", "");
	tree_mount(d, "volatile");
	assert_int_equal(make_mode(d, "a", S_IFREG | 0644), 0);
	assert_int_equal(make_mode(d, "b", S_IFREG | 0644), 0);
	assert_false(tree_is_there(d, "upper/.wh.b"));
	tree_unmount(d);
	tree_mount(d, "volatile");
	tree_expect_text(d, "a", "");
	tree_expect_text(d, "b", "");
	tree_expect_names(d, "", "a b");
}

/* The longest that a whiteout of this kind can hide. */
static void test_create__longest_hidden_name_is_seen_again(void **state)
{
	char name[NAME_MAX + 1], rel[NAME_MAX + 16];
	const size_t len = NAME_MAX - strlen(".wh.");
	struct tree_dirs *d = *state;

	memset(name, 'n', len);
	name[len] = '\0';
	snprintf(rel, sizeof(rel), "lower/%s", name);
	tree_put_text(d, rel, "old");
	snprintf(rel, sizeof(rel), "upper/.wh.%s", name);
	tree_put_text(d, rel, "");
	tree_mount(d, "volatile");
	assert_null(tree_look(d, name));
	assert_int_equal(make_mode(d, name, S_IFREG | 0644), 0);
	assert_false(tree_is_there(d, rel));
	tree_unmount(d);
	tree_mount(d, "volatile");
	tree_expect_text(d, name, "");
}

static void test_create__directory_over_a_removed_one_shows_nothing_of_it(void **state)
{
	struct tree_dirs *d = *state;

	tree_put_text(d, "lower/dir/x", "");
	tree_mount(d, "volatile");
	tree_get(d, "dir");
	tree_get(d, "dir/x");
	assert_int_equal(remove_file(d->t, tree_get(d, "dir"), "x"), 0);
	assert_int_equal(remove_dir(d->t, d->t->root, "dir"), 0);
	assert_null(tree_look(d, "dir"));
	assert_int_equal(make_mode(d, "dir", S_IFDIR | 0755), 0);
	tree_expect_names(d, "dir", "");
	tree_unmount(d);
	tree_mount(d, "volatile");
	tree_expect_names(d, "dir", "");
	tree_unmount(d);
	tree_freeze(d);
	tree_mount(d, "volatile");
	tree_expect_names(d, "dir", "");
}

static void test_create__read_only_mount_refuses(void **state)
{
	struct tree_dirs *d = *state;

	tree_mount(d, "ro");
	assert_int_equal(make_mode(d, "f", S_IFREG | 0644), -EROFS);
	assert_false(tree_is_there(d, "upper/f"));
}

static void test_create__link_to_a_partial_file_shows_the_same_bytes(void **state)
{
	struct tree_dirs *d = *state;
	char *data = tree_put_pattern(d, "lower/a/big", 50000, 1);
	struct inode *i, *root;
	struct stat st;

	tree_put_dir(d, "lower/b");
	tree_mount(d, "volatile");
	root = d->t->root;
	i = tree_get(d, "a/big");
	assert_int_equal(create_link(d->t, i, tree_get(d, "b"), "link", &st), 0);
	assert_int_equal(st.st_nlink, 2);
	assert_int_equal(cow_write(d->t, i, "new", 3, 10000), 0);
	memcpy(data + 10000, "new", 3);
	tree_expect(d, "b/link", data, 50000);
	assert_int_equal(create_link(d->t, i, root, "b", &st), -EEXIST);
	tree_unmount(d);
	tree_mount(d, "volatile");
	tree_expect(d, "b/link", data, 50000);
	tree_expect(d, "a/big", data, 50000);
	/* The name that tells where the lower file is goes away first. */
	assert_int_equal(remove_file(d->t, tree_get(d, "a"), "big"), 0);
	tree_unmount(d);
	tree_mount(d, "volatile");
	tree_expect(d, "b/link", data, 50000);
	free(data);
}

static void test_create__link_over_a_whiteout_takes_its_place(void **state)
{
	struct tree_dirs *d = *state;
	struct stat st;

	tree_put_text(d, "lower/a", "old");
	tree_put_whiteout(d, "upper/a");
	tree_mount(d, "volatile");
	assert_int_equal(
		create_link(d->t, tree_make(d, "", "f", S_IFREG | 0644), d->t->root, "a", &st), 0);
	tree_unmount(d);
	tree_mount(d, "volatile");
	tree_expect_text(d, "a", "");
}

static void test_create__link_to_a_lower_hard_link_is_listed_with_its_number(void **state)
{
	struct tree_dirs *d = *state;
	struct lookup_entry e;
	uint64_t pos = 0;
	struct stat st;

	tree_put_text(d, "lower/a", "x");
	assert_int_equal(linkat(d->s.fd, "lower/a", d->s.fd, "lower/b", 0), 0);
	tree_mount(d, "volatile");
	assert_int_equal(create_link(d->t, tree_get(d, "a"), d->t->root, "c", &st), 0);
	while (lookup_next(d->t, d->t->root, &pos, &e) == 1)
		if (tree_stat(d, e.name).st_ino != e.ino)
			fail_msg("%s is listed as %ju and is %ju", e.name, (uintmax_t)e.ino,
				 (uintmax_t)tree_stat(d, e.name).st_ino);
}

static void test_create__default_acl_is_inherited(void **state)
{
	/* Version 2: user::rwx, group::r-x, other::---. */
	static const uint8_t acl[] = {
		2, 0, 0,   0,	1,   0,	  7,  0, 255, 255, 255, 255, 4,	  0,
		5, 0, 255, 255, 255, 255, 32, 0, 0,   0,   255, 255, 255, 255
	};
	struct tree_dirs *d = *state;
	struct create_args args = { .mode = S_IFREG | 0666, .umask = 077 };
	struct inode *dir, *i;
	struct stat st;

	tree_put_text(d, "lower/dir/x", "");
	tree_mount(d, "volatile");
	if (!d->t->can.has_acl)
		skip();
	dir = tree_get(d, "dir");
	assert_int_equal(attr_setxattr(d->t, dir, "system.posix_acl_default", acl, sizeof(acl), 0),
			 0);
	assert_int_equal(create_node(d->t, dir, "f", &args, &i, &st), 0);
	assert_int_equal(st.st_mode & 0777, 0640);
	assert_int_equal(remove_file(d->t, dir, "x"), 0);
	assert_int_equal(create_node(d->t, dir, "x", &args, &i, &st), 0);
	assert_int_equal(st.st_mode & 0777, 0640);
	tree_expect_names(d, "dir", "f x");
}

static void test_create__link_goes_over_nothing_that_came_past_the_mount(void **state)
{
	struct tree_dirs *d = *state;
	struct inode *i;
	struct stat st;

	tree_mount(d, "volatile");
	i = tree_make(d, "", "f", S_IFREG | 0644);
	tree_expect_names(d, "", "f");
	tree_put_text(d, "upper/x", "theirs");
	assert_int_equal(create_link(d->t, i, d->t->root, "x", &st), -EEXIST);
	assert_int_equal(fstatat(d->s.fd, "upper/x", &st, 0), 0);
	assert_int_equal(st.st_size, strlen("theirs"));
	tree_forget(d, i);
}

/* For scratch_run_denied. */
struct one_name {
	struct tree_dirs *d;
	const char *name;
	struct create_args args;
};

static int make_one(void *arg)
{
	const struct one_name *o = arg;

	return make(o->d, o->name, &o->args);
}

static void test_create__what_cannot_have_its_owner_is_not_there(void **state)
{
	static const mode_t types[] = { S_IFREG, S_IFDIR, S_IFLNK, S_IFIFO };
	struct tree_dirs *d = *state;
	struct one_name o = { .d = d, .args = { .uid = 12, .gid = 34, .target = "t" } };

	tree_put_text(d, "lower/removed", "old");
	tree_put_whiteout(d, "upper/removed");
	tree_mount(d, "volatile");
	for (size_t k = 0; k < sizeof(types) / sizeof(*types); k++) {
		o.args.mode = types[k] | 0600;
		o.name = "new";
		assert_int_equal(scratch_run_denied(SYS_fchownat, EPERM, make_one, &o), -EPERM);
		assert_false(tree_is_there(d, "upper/new"));
		o.name = "removed";
		assert_int_equal(scratch_run_denied(SYS_fchownat, EPERM, make_one, &o), -EPERM);
		tree_expect_names(d, "", "");
	}
	tree_unmount(d);
	tree_mount(d, "volatile");
	tree_expect_names(d, "", "");
	assert_int_equal(make_one(&o), 0);
}

/* Of the longest names, so that few of them fill a piece of the table. */
struct full_table {
	struct tree_dirs *d;
	struct inode *i; /* of one name more */
	char removed[NAME_MAX + 1], name[NAME_MAX + 1];
	int made, over_whiteout, dir, link;
};

/* Until the table of names would have to grow, which is denied. */
static int fill_names(void *arg)
{
	struct full_table *f = arg;
	struct stat st;

	for (int k = 0; k < 10000 && f->made == 0; k++) {
		memset(f->name, 'n', NAME_MAX);
		f->name[snprintf(f->name, NAME_MAX, "%d", k)] = 'n';
		f->made = make_mode(f->d, f->name, S_IFIFO | 0600);
	}
	f->dir = make_mode(f->d, f->name, S_IFDIR | 0700);
	f->over_whiteout = make_mode(f->d, f->removed, S_IFIFO | 0600);
	f->link = create_link(f->d->t, f->i, f->d->t->root, f->name, &st);
	return 0;
}

static void test_create__what_the_table_of_names_has_no_room_for_is_not_there(void **state)
{
	struct tree_dirs *d = *state;
	struct full_table f = { .d = d };
	char below[NAME_MAX + sizeof("lower/")], above[NAME_MAX + sizeof("upper/")];

	memset(f.removed, 'r', NAME_MAX);
	snprintf(below, sizeof(below), "lower/%s", f.removed);
	tree_put_text(d, below, "old");
	snprintf(above, sizeof(above), "upper/%s", f.removed);
	tree_put_whiteout(d, above);
	tree_mount(d, "volatile");
	f.i = tree_make(d, "", "f", S_IFREG | 0644);
	assert_int_equal(scratch_run_denied(SYS_ftruncate, ENOSPC, fill_names, &f), 0);
	assert_int_equal(f.made, -ENOMEM);
	assert_int_equal(f.dir, -ENOMEM);
	assert_int_equal(f.over_whiteout, -ENOMEM);
	assert_int_equal(f.link, -ENOMEM);
	assert_null(tree_look(d, f.removed));
	assert_null(tree_look(d, f.name));
	snprintf(above, sizeof(above), "upper/%s", f.name);
	assert_false(tree_is_there(d, above));
	tree_unmount(d);
	tree_mount(d, "volatile");
	assert_null(tree_look(d, f.removed));
	assert_int_equal(make_mode(d, f.name, S_IFIFO | 0600), 0);
}

static void test_create__again_where_nothing_was_made_makes_it(void **state)
{
	const struct create_args args = { .mode = S_IFREG | 0640 };
	struct tree_dirs *d = *state;
	struct inode *dir, *i;
	struct stat st;

	tree_put_text(d, "lower/dir/x", "");
	tree_mount(d, "volatile");
	dir = tree_get(d, "dir");
	assert_int_equal(create_again(d->t, dir, ".wh.f", &args, &i, &st), -EINVAL);
	assert_false(tree_is_there(d, "upper/dir"));
	assert_int_equal(create_again(d->t, dir, "f", &args, &i, &st), 0);
	assert_int_equal(create_again(d->t, dir, "x", &args, &i, &st), -EEXIST);
	assert_int_equal(create_again(d->t, dir, ".wh.f", &args, &i, &st), -EINVAL);
	tree_expect_names(d, "dir", "f x");
}

/* As a server leaves it that dies after the first step. */
static void test_create__again_where_it_was_made_completes_it(void **state)
{
	const struct create_args args = { .mode = S_IFREG | 04750, .uid = 12, .gid = 34 };
	struct tree_dirs *d = *state;
	struct inode *i;
	struct stat st;

	tree_put_text(d, "upper/dir/f", "");
	assert_int_equal(fchmodat(d->s.fd, "upper/dir/f", 0750, 0), 0);
	tree_mount(d, "volatile");
	assert_int_equal(create_again(d->t, tree_get(d, "dir"), "f", &args, &i, &st), 0);
	assert_int_equal(st.st_mode & 07777, 04750);
	assert_int_equal(st.st_uid, 12);
	assert_int_equal(st.st_gid, 34);
	assert_ptr_equal(tree_get(d, "dir/f"), i);
	assert_int_equal(tree_stat(d, "dir/f").st_ino, st.st_ino);
	tree_expect_names(d, "dir", "f");
	assert_int_equal(fstatat(d->s.fd, "upper/dir/f", &st, 0), 0);
	assert_int_equal(st.st_mode & 07777, 04750);
	assert_int_equal(st.st_uid, 12);
}

#define row(test) cmocka_unit_test_setup_teardown(test, tree_setup, tree_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		row(test_create__every_type_is_made_in_the_upper),
		row(test_create__device_is_made_but_no_whiteout),
		row(test_create__reserved_and_long_names_are_refused),
		row(test_create__link_goes_over_nothing_that_came_past_the_mount),
		row(test_create__umask_owner_and_set_group_id_are_as_by_the_kernel),
		row(test_create__each_change_of_the_directory_counts_for_the_next_entry),
		row(test_create__over_a_whiteout_takes_its_place),
		row(test_create__longest_hidden_name_is_seen_again),
		row(test_create__directory_over_a_removed_one_shows_nothing_of_it),
		row(test_create__read_only_mount_refuses),
		row(test_create__link_to_a_partial_file_shows_the_same_bytes),
		row(test_create__link_over_a_whiteout_takes_its_place),
		row(test_create__link_to_a_lower_hard_link_is_listed_with_its_number),
		row(test_create__default_acl_is_inherited),
		row(test_create__what_cannot_have_its_owner_is_not_there),
		row(test_create__what_the_table_of_names_has_no_room_for_is_not_there),
		row(test_create__again_where_nothing_was_made_makes_it),
		row(test_create__again_where_it_was_made_completes_it),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
