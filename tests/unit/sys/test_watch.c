// SPDX-License-Identifier: Apache-2.0
#include "support/tree.h"

#include "veneer/sys/watch.h"

#include <linux/magic.h>
#include <sys/mman.h>
#include <sys/syscall.h>

struct place {
	struct scratch s;
	struct watch *w;
	int dir;
};

static int setup(void **state)
{
	struct place *p = calloc(1, sizeof(*p));

	if (!p || scratch_enter(&p->s) < 0 || watch_new(&p->w) < 0 ||
	    mkdirat(p->s.fd, "d", 0755) < 0)
		return -1;
	p->dir = openat(p->s.fd, "d", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	*state = p;
	return p->dir < 0 ? -1 : 0;
}

static int teardown(void **state)
{
	struct place *p = *state;

	watch_free(p->w);
	close(p->dir);
	scratch_leave(&p->s);
	free(p);
	return 0;
}

static void put(struct place *p, const char *name)
{
	int fd = openat(p->s.fd, name, O_CREAT | O_WRONLY | O_CLOEXEC, 0644);

	assert_true(fd >= 0);
	assert_int_equal(write(fd, "x", 1), 1);
	close(fd);
}

static bool is_current(struct place *p)
{
	watch_drain();
	return watch_is_current(p->w);
}

static void test_watch__set_of_nothing_is_current_until_spoiled(void **state)
{
	struct place *p = *state;

	assert_true(is_current(p));
	watch_spoil(p->w);
	assert_false(is_current(p));
	assert_false(watch_is_current(NULL));
	watch_dir(NULL, p->dir);
	watch_spoil(NULL);
	watch_free(NULL);
}

/* Each change is made to a set of its own. */
static void expect_change(struct place *p, void (*change)(struct place *p))
{
	struct watch *w;

	assert_int_equal(watch_new(&w), 0);
	watch_dir(w, p->dir);
	watch_drain();
	assert_true(watch_is_current(w));
	change(p);
	watch_drain();
	assert_false(watch_is_current(w));
	watch_free(w);
}

static void make_one(struct place *p)
{
	put(p, "d/f");
}
static void write_one(struct place *p)
{
	put(p, "d/f");
}
static void chmod_one(struct place *p)
{
	assert_int_equal(fchmodat(p->s.fd, "d/f", 0600, 0), 0);
}
static void rename_one(struct place *p)
{
	assert_int_equal(renameat(p->s.fd, "d/f", p->s.fd, "d/g"), 0);
}
static void link_one(struct place *p)
{
	assert_int_equal(linkat(p->s.fd, "d/g", p->s.fd, "d/h", 0), 0);
}
static void remove_one(struct place *p)
{
	assert_int_equal(unlinkat(p->s.fd, "d/g", 0), 0);
}
static void chmod_self(struct place *p)
{
	assert_int_equal(fchmodat(p->s.fd, "d", 0700, 0), 0);
}
static void move_self(struct place *p)
{
	assert_int_equal(renameat(p->s.fd, "d", p->s.fd, "e"), 0);
}
static void remove_self(struct place *p)
{
	assert_int_equal(unlinkat(p->s.fd, "e/h", 0), 0);
	assert_int_equal(unlinkat(p->s.fd, "e", AT_REMOVEDIR), 0);
}
static void map_one(struct place *p)
{
	int fd = openat(p->s.fd, "d/h", O_RDWR | O_CLOEXEC);
	char *at = mmap(NULL, 1, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

	assert_true(at != MAP_FAILED);
	close(fd);
	at[0] = 'y';
	munmap(at, 1);
}

static void test_watch__every_change_is_seen(void **state)
{
	struct place *p = *state;

	expect_change(p, make_one);
	expect_change(p, write_one);
	expect_change(p, chmod_one);
	expect_change(p, rename_one);
	expect_change(p, link_one);
	expect_change(p, remove_one);
	expect_change(p, map_one);
	expect_change(p, chmod_self);
	expect_change(p, move_self);
	expect_change(p, remove_self);
}

static void test_watch__reading_changes_nothing(void **state)
{
	struct place *p = *state;
	char c;
	int fd;

	put(p, "d/f");
	watch_dir(p->w, p->dir);
	fd = openat(p->s.fd, "d/f", O_RDONLY | O_CLOEXEC);
	assert_int_equal(read(fd, &c, 1), 1);
	close(fd);
	assert_true(is_current(p));
	assert_int_equal(watch_count(), 1);
}

static void test_watch__change_of_one_directory_leaves_other_sets(void **state)
{
	struct place *p = *state;
	struct watch *other;

	put(p, "f");
	assert_int_equal(watch_new(&other), 0);
	watch_dir(p->w, p->dir);
	watch_dir(other, p->s.fd);
	assert_int_equal(fchmodat(p->s.fd, "f", 0600, 0), 0);
	assert_true(is_current(p));
	assert_false(watch_is_current(other));
	watch_free(other);
}

static void test_watch__sets_share_a_watch_and_both_hear(void **state)
{
	struct place *p = *state;
	struct watch *other, *third;

	assert_int_equal(watch_new(&other), 0);
	assert_int_equal(watch_new(&third), 0);
	watch_dir(p->w, p->dir);
	watch_dir(p->w, p->dir);
	watch_subdir(other, p->s.fd, "d");
	watch_dir(third, p->dir);
	assert_int_equal(watch_count(), 1);
	/* A directory that one watch lets go of is watched for the others. */
	watch_free(third);
	assert_int_equal(watch_count(), 1);
	put(p, "d/f");
	assert_false(is_current(p));
	assert_false(watch_is_current(other));
	assert_int_equal(watch_count(), 0);
	watch_free(other);
}

static void test_watch__set_made_after_a_change_does_not_hear_of_it(void **state)
{
	struct place *p = *state;
	struct watch *later;

	watch_dir(p->w, p->dir);
	put(p, "d/f");
	assert_int_equal(watch_new(&later), 0);
	watch_dir(later, p->dir);
	watch_drain();
	assert_false(watch_is_current(p->w));
	assert_true(watch_is_current(later));
	put(p, "d/g");
	watch_drain();
	assert_false(watch_is_current(later));
	watch_free(later);
}

static void test_watch__file_is_heard_of_by_any_name(void **state)
{
	struct place *p = *state;

	put(p, "f");
	assert_int_equal(linkat(p->s.fd, "f", p->s.fd, "d/f", 0), 0);
	watch_file(p->w, p->s.fd, "f");
	assert_true(is_current(p));
	assert_int_equal(fchmodat(p->s.fd, "d/f", 0600, 0), 0);
	assert_false(is_current(p));
}

static void test_watch__symlink_is_not_followed(void **state)
{
	struct place *p = *state;

	assert_int_equal(symlinkat("d", p->s.fd, "l"), 0);
	/* The entry is no directory, so there is nothing to watch. */
	watch_subdir(p->w, p->s.fd, "l");
	assert_false(is_current(p));
}

static void test_watch__what_is_not_there_spoils(void **state)
{
	struct place *p = *state;

	watch_subdir(p->w, p->s.fd, "nothing");
	assert_false(is_current(p));
}

static void test_watch__freed_set_gives_its_watches_back(void **state)
{
	struct place *p = *state;
	struct watch *w;
	char name[16];

	assert_int_equal(watch_new(&w), 0);
	for (unsigned i = 0; i < 300; i++) {
		snprintf(name, sizeof(name), "d/%u", i);
		assert_int_equal(mkdirat(p->s.fd, name, 0755), 0);
		watch_subdir(w, p->s.fd, name);
	}
	assert_int_equal(watch_count(), 300);
	watch_free(w);
	assert_int_equal(watch_count(), 0);
}

static void test_watch__types_of_file_systems(void **state)
{
	(void)state;
	assert_true(watch_sees_type(EXT4_SUPER_MAGIC));
	assert_true(watch_sees_type(TMPFS_MAGIC));
	assert_false(watch_sees_type(NFS_SUPER_MAGIC));
	assert_false(watch_sees_type(FUSE_SUPER_MAGIC));
	assert_false(watch_sees_type(OVERLAYFS_SUPER_MAGIC));
}

/* ---- in a process of its own ---- */

static bool write_number(const char *path, unsigned n)
{
	int fd = open(path, O_WRONLY | O_CLOEXEC);
	bool is_done = fd >= 0 && dprintf(fd, "%u", n) > 0;

	if (fd >= 0)
		close(fd);
	return is_done;
}

/* The queue's length is that of when inotify was begun. */
static int overflow(void)
{
	static const char sysctl[] = "/proc/sys/fs/inotify/max_queued_events";
	struct place p = { 0 };
	struct watch *sets[2];
	unsigned before = 0;
	FILE *f = fopen(sysctl, "re");
	char name[16];

	if (!f || fscanf(f, "%u", &before) != 1 || !write_number(sysctl, 4))
		return 77;
	fclose(f);
	assert_int_equal(watch_new(&sets[0]), 0);
	assert_true(write_number(sysctl, before));
	assert_int_equal(watch_new(&sets[1]), 0);
	assert_int_equal(scratch_enter(&p.s), 0);
	for (unsigned i = 0; i < 12; i++) {
		snprintf(name, sizeof(name), "%u", i);
		assert_int_equal(mkdirat(p.s.fd, name, 0755), 0);
		watch_subdir(sets[i == 0], p.s.fd, name);
	}
	for (unsigned i = 1; i < 12; i++) {
		snprintf(name, sizeof(name), "%u/f", i);
		put(&p, name);
	}
	watch_drain();
	/* Also of that in which nothing changed nothing is known now. */
	assert_false(watch_is_current(sets[0]));
	assert_false(watch_is_current(sets[1]));
	assert_int_equal(watch_count(), 0);
	watch_free(sets[0]);
	watch_free(sets[1]);
	scratch_leave(&p.s);
	return 0;
}

static int no_space(void)
{
	struct watch *w;

	assert_int_equal(scratch_deny(SYS_inotify_add_watch, ENOSPC), 0);
	assert_int_equal(watch_new(&w), 0);
	watch_dir(w, AT_FDCWD);
	assert_false(watch_is_current(w));
	watch_drain();
	watch_free(w);
	return 0;
}

static int no_instance(void)
{
	struct watch *w;

	assert_int_equal(scratch_deny(SYS_inotify_init1, EMFILE), 0);
	assert_int_equal(watch_new(&w), -EMFILE);
	watch_drain();
	return 0;
}

static void test_watch__too_many_events_make_all_stale(void **state)
{
	int status = scratch_run_self("overflow");

	(void)state;
	if (WEXITSTATUS(status) == 77)
		skip();
	assert_int_equal(status, 0);
}

static void test_watch__what_the_kernel_refuses_makes_stale(void **state)
{
	(void)state;
	assert_int_equal(scratch_run_self("no-space"), 0);
	assert_int_equal(scratch_run_self("no-instance"), 0);
}

#define row(test) cmocka_unit_test_setup_teardown(test, setup, teardown)

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		row(test_watch__set_of_nothing_is_current_until_spoiled),
		row(test_watch__every_change_is_seen),
		row(test_watch__reading_changes_nothing),
		row(test_watch__change_of_one_directory_leaves_other_sets),
		row(test_watch__sets_share_a_watch_and_both_hear),
		row(test_watch__set_made_after_a_change_does_not_hear_of_it),
		row(test_watch__file_is_heard_of_by_any_name),
		row(test_watch__symlink_is_not_followed),
		row(test_watch__what_is_not_there_spoils),
		row(test_watch__freed_set_gives_its_watches_back),
		row(test_watch__types_of_file_systems),
		cmocka_unit_test(test_watch__too_many_events_make_all_stale),
		cmocka_unit_test(test_watch__what_the_kernel_refuses_makes_stale),
	};

	if (argc > 1)
		return !strcmp(argv[1], "overflow")   ? overflow()
		       : !strcmp(argv[1], "no-space") ? no_space()
						      : no_instance();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
