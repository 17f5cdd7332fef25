// SPDX-License-Identifier: Apache-2.0
#include "support/tree.h"

#include "fuse/op.h"
#include "veneer/data/copyup.h"
#include "veneer/layer/image.h"

#include <linux/fs.h>
#include <sys/ioctl.h>

/* Of the two flags these alone. False: this process or this file system cannot. */
static bool set_flags(struct tree_dirs *d, const char *rel, unsigned flags)
{
	int fd = openat(d->s.fd, rel, O_RDONLY | O_CLOEXEC);
	unsigned all = 0;
	int r = ioctl(fd, FS_IOC_GETFLAGS, &all);

	all = (all & ~(unsigned)(FS_IMMUTABLE_FL | FS_APPEND_FL)) | flags;
	if (r == 0)
		r = ioctl(fd, FS_IOC_SETFLAGS, &all);
	close(fd);
	return r == 0;
}

/* file and dir are immutable, log and logs append-only. */
static bool start(struct tree_dirs *d)
{
	tree_put_text(d, "lower/file", "text");
	tree_put_text(d, "lower/plain", "text");
	tree_put_text(d, "lower/log", "text");
	tree_put_text(d, "lower/dir/inside", "text");
	tree_put_text(d, "lower/logs/inside", "text");
	if (!set_flags(d, "lower/file", FS_IMMUTABLE_FL))
		return false;
	set_flags(d, "lower/log", FS_APPEND_FL);
	set_flags(d, "lower/logs", FS_APPEND_FL);
	set_flags(d, "lower/dir", FS_IMMUTABLE_FL);
	tree_mount(d, "volatile");
	return true;
}

static int teardown(void **state)
{
	static const char *const paths[] = { "lower/file", "lower/log", "lower/dir", "lower/logs" };
	struct tree_dirs *d = *state;

	for (size_t i = 0; i < 4; i++)
		if (tree_is_there(d, paths[i]))
			set_flags(d, paths[i], 0);
	return tree_teardown(state);
}

static int may(struct tree_dirs *d, int (*ask)(struct mount *m, struct inode *i), const char *path)
{
	struct inode *i = tree_get(d, path);
	int r = ask(&d->m, i);

	tree_forget(d, i);
	return r;
}

static int may_name(struct tree_dirs *d,
		    int (*ask)(struct mount *m, struct inode *dir, const char *name),
		    const char *path, const char *name)
{
	struct inode *i = tree_get(d, path);
	int r = ask(&d->m, i, name);

	tree_forget(d, i);
	return r;
}

static void test_protect__flags_of_lower_files_and_directories_refuse_changes(void **state)
{
	struct tree_dirs *d = *state;

	if (!start(d))
		skip();
	assert_int_equal(may(d, protect_may_change, "file"), -EPERM);
	assert_int_equal(may(d, protect_may_change, "log"), -EPERM);
	assert_int_equal(may(d, protect_may_change, "plain"), 0);
	assert_int_equal(may(d, protect_may_change, "dir"), -EPERM);
	assert_int_equal(may(d, protect_may_change, ""), 0);
	/* Names may be added to what is for appending, and not be removed. */
	assert_int_equal(may(d, protect_may_add, "dir"), -EPERM);
	assert_int_equal(may(d, protect_may_add, "logs"), 0);
	assert_int_equal(may_name(d, protect_may_remove, "logs", "inside"), -EPERM);
	assert_int_equal(may_name(d, protect_may_remove, "dir", "inside"), -EPERM);
}

static void test_protect__entry_that_goes_is_looked_at_as_well(void **state)
{
	struct tree_dirs *d = *state;

	if (!start(d))
		skip();
	assert_int_equal(may_name(d, protect_may_remove, "", "file"), -EPERM);
	assert_int_equal(may_name(d, protect_may_remove, "", "log"), -EPERM);
	assert_int_equal(may_name(d, protect_may_remove, "", "plain"), 0);
	assert_int_equal(may_name(d, protect_may_replace, "", "file"), -EPERM);
	assert_int_equal(may_name(d, protect_may_replace, "", "plain"), 0);
	/* The removal itself says that there is none. */
	assert_int_equal(may_name(d, protect_may_remove, "", "missing"), 0);
	assert_int_equal(may_name(d, protect_may_replace, "", "missing"), 0);
	assert_int_equal(may_name(d, protect_may_replace, "logs", "missing"), 0);
	assert_int_equal(may_name(d, protect_may_replace, "logs", "inside"), -EPERM);
}

static void test_protect__copy_of_a_file_has_no_flags(void **state)
{
	struct tree_dirs *d = *state;
	struct inode *i;

	if (!start(d))
		skip();
	i = tree_get(d, "file");
	assert_int_equal(copyup_inode(d->t, i, NULL), 0);
	assert_int_equal(protect_may_change(&d->m, i), 0);
	assert_int_equal(protect_may_passthrough(&d->m, i), 0);
	tree_forget(d, i);
	/* The copy of a directory is no reason to change the directory. */
	i = tree_get(d, "dir");
	assert_int_equal(copyup_inode(d->t, i, NULL), 0);
	assert_int_equal(protect_may_change(&d->m, i), -EPERM);
	tree_forget(d, i);
}

static void test_protect__flags_of_the_upper_bar_only_writes_past_its_file_system(void **state)
{
	struct tree_dirs *d = *state;
	struct inode *i;

	tree_put_text(d, "upper/file", "text");
	tree_put_dir(d, "upper/dir");
	if (!set_flags(d, "upper/file", FS_APPEND_FL))
		skip();
	tree_mount(d, "volatile");
	i = tree_get(d, "file");
	assert_int_equal(protect_may_change(&d->m, i), 0);
	assert_int_equal(protect_may_passthrough(&d->m, i), -EPERM);
	set_flags(d, "upper/file", 0);
	assert_int_equal(protect_may_passthrough(&d->m, i), 0);
	tree_forget(d, i);
	assert_int_equal(may(d, protect_may_passthrough, "dir"), 0);
}

#define row(test) cmocka_unit_test_setup_teardown(test, tree_setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		row(test_protect__flags_of_lower_files_and_directories_refuse_changes),
		row(test_protect__entry_that_goes_is_looked_at_as_well),
		row(test_protect__copy_of_a_file_has_no_flags),
		row(test_protect__flags_of_the_upper_bar_only_writes_past_its_file_system),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
