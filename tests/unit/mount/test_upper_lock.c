// SPDX-License-Identifier: Apache-2.0
#include "support/tree.h"

#include "veneer/base/cleanup.h"
#include "veneer/mount/upper_lock.h"
#include "veneer/sys/xattr.h"

#include <fcntl.h>
#include <string.h>
#include <sys/file.h>

/* A wait here is in vain. */
int __wrap_usleep(useconds_t us);
int __wrap_usleep(useconds_t us)
{
	(void)us;
	return 0;
}

/* Runs right before an attribute is set, once. */
static void (*meanwhile)(struct tree_dirs *d);
static struct tree_dirs *meanwhile_dirs;
int __real_mode_relax_set_xattr(int fd, const char *attr, const void *value, size_t size);
int __wrap_mode_relax_set_xattr(int fd, const char *attr, const void *value, size_t size);
int __wrap_mode_relax_set_xattr(int fd, const char *attr, const void *value, size_t size)
{
	void (*run)(struct tree_dirs *d) = meanwhile;

	meanwhile = NULL;
	if (run)
		run(meanwhile_dirs);
	return __real_mode_relax_set_xattr(fd, attr, value, size);
}

struct writer {
	struct mount_dirs dirs;
	struct upper_lock l;
	int r;
	char err[512];
};

static int open_dir(struct tree_dirs *d, const char *name)
{
	char path[PATH_MAX + 64];
	int fd;

	snprintf(path, sizeof(path), "%s/%s", d->s.path, name);
	fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	assert_true(fd >= 0);
	return fd;
}

static struct writer begin(struct tree_dirs *d, const char *work)
{
	struct writer w;

	mount_dirs_init(&w.dirs);
	w.dirs.upper = open_dir(d, "upper");
	w.dirs.work = open_dir(d, work);
	w.r = upper_lock_take(&w.l, "upper", w.dirs.upper, &w.dirs, w.err, sizeof(w.err));
	return w;
}

static void end(struct writer *w)
{
	upper_lock_release(&w->l, w->dirs.upper);
	mount_dirs_release(&w->dirs);
}

/* As a server that is killed, and leaves nothing to another. */
static void die(struct writer *w)
{
	closep(&w->l.fd);
	mount_dirs_release(&w->dirs);
}

static int seize(struct tree_dirs *d, int how)
{
	int fd = open_dir(d, "upper");

	assert_int_equal(flock(fd, how | LOCK_NB), 0);
	return fd;
}

static bool has_attr(struct tree_dirs *d, const char *attr)
{
	_cleanup_(closep) int fd = open_dir(d, "upper");

	return xattr_get(fd, "", attr, NULL, 0) >= 0;
}

static bool is_contested(struct tree_dirs *d)
{
	return has_attr(d, UPPER_LOCK_CONTESTED_ATTR);
}

static bool is_named(struct tree_dirs *d)
{
	return has_attr(d, UPPER_LOCK_WORK_ATTR);
}

static void once(struct tree_dirs *d, const char *work)
{
	struct writer w = begin(d, work);

	assert_int_equal(w.r, 0);
	end(&w);
}

static void refuse(struct tree_dirs *d, const char *work)
{
	struct writer w = begin(d, work);

	assert_int_equal(w.r, -EBUSY);
	assert_non_null(strstr(w.err, "in use"));
	end(&w);
}

static void test_upper_lock__a_reader_keeps_the_next_mount_not_out(void **state)
{
	struct tree_dirs *d = *state;

	for (int k = 0; k < 2; k++) {
		_cleanup_(closep) int seized = -1;
		struct writer w;

		once(d, "work");
		assert_true(is_named(d) && !is_contested(d));
		seized = seize(d, k ? LOCK_SH : LOCK_EX);
		w = begin(d, "work");
		assert_int_equal(w.r, 0);
		assert_true(w.l.is_contested && is_contested(d));
		/* No other mount gets in, also when the reader has gone. */
		refuse(d, "work");
		refuse(d, "work2");
		closep(&seized);
		refuse(d, "work");
		refuse(d, "work2");
		assert_int_equal(upper_lock_alone("upper", w.dirs.upper), -EBUSY);
		end(&w);
		assert_true(is_named(d) && !is_contested(d));
		once(d, "work2");
	}
}

static void test_upper_lock__without_the_mark_of_a_mount_a_reader_keeps_all_out(void **state)
{
	struct tree_dirs *d = *state;
	int seized = seize(d, LOCK_EX);

	refuse(d, "work");
	close(seized);
	once(d, "work");
	seized = seize(d, LOCK_EX);
	refuse(d, "work2");
	close(seized);
}

static void test_upper_lock__two_work_directories_are_one_upper(void **state)
{
	struct tree_dirs *d = *state;
	struct writer w;

	once(d, "work2");
	w = begin(d, "work");
	assert_int_equal(w.r, 0);
	refuse(d, "work2");
	refuse(d, "work");
	end(&w);
	once(d, "work2");
}

static void test_upper_lock__of_a_killed_contested_mount_its_work_directory_is_needed(void **state)
{
	struct tree_dirs *d = *state;
	struct writer w;
	int seized;

	once(d, "work");
	seized = seize(d, LOCK_EX);
	w = begin(d, "work");
	assert_true(w.l.is_contested);
	die(&w);
	close(seized);
	refuse(d, "work2");
	assert_true(is_contested(d));
	once(d, "work");
	assert_false(is_contested(d));
	once(d, "work2");
}

static void test_upper_lock__recovery_has_it_where_it_was(void **state)
{
	struct tree_dirs *d = *state;
	struct writer w, recovery;
	int seized;

	once(d, "work");
	seized = seize(d, LOCK_EX);
	w = begin(d, "work");
	mount_dirs_init(&recovery.dirs);
	recovery.dirs.upper = dup(w.dirs.upper);
	recovery.dirs.work = dup(w.dirs.work);
	recovery.dirs.lock = dup(w.l.fd);
	die(&w);
	refuse(d, "work");
	recovery.r = upper_lock_take(&recovery.l, "upper", recovery.dirs.upper, &recovery.dirs,
				     recovery.err, sizeof(recovery.err));
	assert_int_equal(recovery.r, 0);
	assert_true(recovery.l.is_contested && recovery.dirs.lock < 0);
	refuse(d, "work");
	close(seized);
	refuse(d, "work2");
	end(&recovery);
	assert_false(is_contested(d));
}

/* The lock went to another mount meanwhile. */
static void test_upper_lock__recovery_without_its_lock_is_refused(void **state)
{
	struct tree_dirs *d = *state;
	struct writer w, recovery;
	int seized;

	once(d, "work");
	seized = seize(d, LOCK_EX);
	mount_dirs_init(&recovery.dirs);
	recovery.dirs.upper = open_dir(d, "upper");
	recovery.dirs.work = open_dir(d, "work");
	recovery.dirs.lock = open_dir(d, "work/work");
	w = begin(d, "work");
	assert_true(w.l.is_contested);
	recovery.r = upper_lock_take(&recovery.l, "upper", recovery.dirs.upper, &recovery.dirs,
				     recovery.err, sizeof(recovery.err));
	assert_int_equal(recovery.r, -EBUSY);
	end(&recovery);
	end(&w);
	close(seized);
}

static void test_upper_lock__mount_of_an_older_version_is_no_reader(void **state)
{
	struct tree_dirs *d = *state;
	int seized, old;

	once(d, "work");
	tree_put_dir(d, "work/work/veneer-0123456789abcdef");
	seized = seize(d, LOCK_EX);
	old = open_dir(d, "work/work/veneer-0123456789abcdef");
	assert_int_equal(flock(old, LOCK_EX), 0);
	refuse(d, "work");
	close(old);
	once(d, "work");
	close(seized);
}

static void test_upper_lock__work_that_others_can_open_is_no_lock(void **state)
{
	struct tree_dirs *d = *state;
	struct writer w;
	char path[PATH_MAX + 64];
	int seized;

	once(d, "work");
	snprintf(path, sizeof(path), "%s/work/work", d->s.path);
	assert_int_equal(chmod(path, 0755), 0);
	w = begin(d, "work");
	assert_int_equal(w.r, 0);
	assert_true(w.l.fd < 0 && !is_named(d));
	refuse(d, "work");
	refuse(d, "work2");
	end(&w);
	seized = seize(d, LOCK_EX);
	refuse(d, "work");
	close(seized);
	assert_int_equal(chmod(path, 0700), 0);
}

/* One of them has the lock; the other takes back what an earlier mount has said, as it cannot keep
 * it. */
static void test_upper_lock__two_uppers_may_have_one_work_directory(void **state)
{
	struct tree_dirs *d = *state;
	struct mount_dirs dirs;
	struct upper_lock other;
	struct writer w;
	char err[512];

	once(d, "work");
	mount_dirs_init(&dirs);
	dirs.upper = open_dir(d, "upper2");
	dirs.work = open_dir(d, "work");
	assert_int_equal(upper_lock_take(&other, "upper2", dirs.upper, &dirs, err, sizeof(err)), 0);
	assert_true(other.fd >= 0);
	w = begin(d, "work");
	assert_int_equal(w.r, 0);
	assert_true(w.l.fd < 0 && !is_named(d));
	/* The other is gone: its lock can be had, and is not that of the mount that lives. */
	upper_lock_release(&other, dirs.upper);
	mount_dirs_release(&dirs);
	refuse(d, "work");
	end(&w);
	once(d, "work");
	assert_true(is_named(d));
}

static void test_upper_lock__tool_takes_the_mark_away(void **state)
{
	struct tree_dirs *d = *state;
	int fd;

	once(d, "work");
	fd = open_dir(d, "upper");
	assert_int_equal(upper_lock_alone("upper", fd), 0);
	assert_false(is_named(d));
	refuse(d, "work");
	close(fd);
	once(d, "work");
}

static void test_upper_lock__is_had_back_unless_there_was_another(void **state)
{
	struct tree_dirs *d = *state;
	struct writer w = begin(d, "work"), next;

	upper_lock_yield(&w.l, w.dirs.upper);
	assert_true(upper_lock_retake(&w.l, w.dirs.upper, ""));
	refuse(d, "work");
	upper_lock_yield(&w.l, w.dirs.upper);
	next = begin(d, "work");
	assert_int_equal(next.r, 0);
	assert_false(upper_lock_retake(&w.l, w.dirs.upper, ""));
	end(&next);
	assert_true(upper_lock_retake(&w.l, w.dirs.upper, ""));
	upper_lock_yield(&w.l, w.dirs.upper);
	once(d, "work2");
	assert_false(upper_lock_retake(&w.l, w.dirs.upper, ""));
	end(&w);
}

/* It locks the root as soon as it can be had. */
static void test_upper_lock__is_had_back_from_a_reader(void **state)
{
	struct tree_dirs *d = *state;
	struct writer w = begin(d, "work"), next;
	int seized;

	upper_lock_yield(&w.l, w.dirs.upper);
	seized = seize(d, LOCK_SH);
	assert_true(upper_lock_retake(&w.l, w.dirs.upper, ""));
	assert_true(w.l.is_contested);
	refuse(d, "work");
	close(seized);
	refuse(d, "work2");
	end(&w);
	once(d, "work2");
	w = begin(d, "work");
	upper_lock_yield(&w.l, w.dirs.upper);
	next = begin(d, "work2");
	assert_int_equal(next.r, 0);
	assert_false(upper_lock_retake(&w.l, w.dirs.upper, ""));
	end(&next);
	end(&w);
}

/* Before that, and while a reader has the root. */
static void test_upper_lock__contested_one_is_not_let_go(void **state)
{
	struct tree_dirs *d = *state;
	struct writer w;
	int seized;

	once(d, "work");
	seized = seize(d, LOCK_SH);
	w = begin(d, "work");
	upper_lock_yield(&w.l, w.dirs.upper);
	refuse(d, "work");
	assert_true(upper_lock_retake(&w.l, w.dirs.upper, ""));
	end(&w);
	close(seized);
}

/* A copy with all attributes, and a mark of another boot. */
static void test_upper_lock__mark_of_elsewhere_is_void(void **state)
{
	struct tree_dirs *d = *state;
	_cleanup_(closep) int fd = open_dir(d, "upper"), other = open_dir(d, "upper2");
	char mark[256];
	struct writer w;
	int seized;
	ssize_t n;

	once(d, "work");
	seized = seize(d, LOCK_SH);
	w = begin(d, "work");
	n = xattr_get(fd, "", UPPER_LOCK_CONTESTED_ATTR, mark, sizeof(mark));
	assert_true(n > 0);
	end(&w);
	close(seized);
	assert_int_equal(xattr_set(other, "", UPPER_LOCK_CONTESTED_ATTR, mark, (size_t)n, 0), 0);
	assert_int_equal(upper_lock_alone("upper2", other), 0);
	assert_int_equal(xattr_get(other, "", UPPER_LOCK_CONTESTED_ATTR, NULL, 0), -ENODATA);
	assert_int_equal(xattr_set(fd, "", UPPER_LOCK_CONTESTED_ATTR, mark, (size_t)n, 0), 0);
	refuse(d, "work2");
	*strchr(mark, '-') = '+';
	assert_int_equal(xattr_set(fd, "", UPPER_LOCK_CONTESTED_ATTR, mark, (size_t)n, 0), 0);
	once(d, "work2");
	assert_false(is_contested(d));
}

static struct writer other;
static int reader;

static void begin_against_the_lock(struct tree_dirs *d)
{
	other = begin(d, "work");
	assert_int_equal(other.r, 0);
	assert_true(other.l.is_contested);
}

/* Between the look at one attribute and the change of the other. */
static void test_upper_lock__mount_that_begins_sees_one_that_goes_on_against_it(void **state)
{
	struct tree_dirs *d = *state;
	_cleanup_(closep) int fd = open_dir(d, "upper");
	char before[256] = "", after[256] = "";
	struct writer w;

	once(d, "work");
	assert_true(xattr_get(fd, "", UPPER_LOCK_WORK_ATTR, before, sizeof(before) - 1) > 0);
	meanwhile_dirs = d;
	meanwhile = begin_against_the_lock;
	w = begin(d, "work2");
	assert_int_equal(w.r, -EBUSY);
	end(&w);
	assert_true(xattr_get(fd, "", UPPER_LOCK_WORK_ATTR, after, sizeof(after) - 1) > 0);
	assert_string_equal(before, after);
	refuse(d, "work2");
	end(&other);
	once(d, "work2");
}

static void begin_by_the_lock(struct tree_dirs *d)
{
	closep(&reader);
	other = begin(d, "work2");
	assert_int_equal(other.r, 0);
	assert_false(other.l.is_contested);
}

static void test_upper_lock__mount_against_the_lock_sees_one_that_begins(void **state)
{
	struct tree_dirs *d = *state;
	struct writer w;

	once(d, "work");
	reader = seize(d, LOCK_EX);
	meanwhile_dirs = d;
	meanwhile = begin_by_the_lock;
	w = begin(d, "work");
	assert_int_equal(w.r, -EBUSY);
	end(&w);
	assert_false(is_contested(d));
	end(&other);
	once(d, "work2");
}

static int setup(void **state)
{
	int r = tree_setup(state);

	if (r == 0) {
		tree_put_dir(*state, "work2");
		tree_put_dir(*state, "upper2");
	}
	return r;
}

#define test(f) cmocka_unit_test_setup_teardown(f, setup, tree_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		test(test_upper_lock__a_reader_keeps_the_next_mount_not_out),
		test(test_upper_lock__without_the_mark_of_a_mount_a_reader_keeps_all_out),
		test(test_upper_lock__two_work_directories_are_one_upper),
		test(test_upper_lock__of_a_killed_contested_mount_its_work_directory_is_needed),
		test(test_upper_lock__recovery_has_it_where_it_was),
		test(test_upper_lock__recovery_without_its_lock_is_refused),
		test(test_upper_lock__mount_of_an_older_version_is_no_reader),
		test(test_upper_lock__work_that_others_can_open_is_no_lock),
		test(test_upper_lock__two_uppers_may_have_one_work_directory),
		test(test_upper_lock__tool_takes_the_mark_away),
		test(test_upper_lock__is_had_back_unless_there_was_another),
		test(test_upper_lock__is_had_back_from_a_reader),
		test(test_upper_lock__contested_one_is_not_let_go),
		test(test_upper_lock__mark_of_elsewhere_is_void),
		test(test_upper_lock__mount_that_begins_sees_one_that_goes_on_against_it),
		test(test_upper_lock__mount_against_the_lock_sees_one_that_begins),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
