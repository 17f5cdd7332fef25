// SPDX-License-Identifier: Apache-2.0
#include "support/tree.h"

#include "server/wire.h"
#include "veneer/base/cleanup.h"
#include "veneer/server/mount_record.h"

#include <sys/mman.h>

static int null_fd(void)
{
	int fd = open("/dev/null", O_RDWR | O_CLOEXEC);

	assert_true(fd >= 0);
	return fd;
}

static bool is_open(int fd)
{
	return fcntl(fd, F_GETFD) >= 0;
}

static void make(struct mount_record *d, const char *const *argv, uint32_t argc)
{
	mount_record_init(d);
	assert_int_equal(wire_put_arg(&d->args, "/somewhere"), 0);
	for (uint32_t i = 0; i < argc; i++)
		assert_int_equal(wire_put_arg(&d->args, argv[i]), 0);
	d->argc = argc;
}

static void fill(struct mount_record *d)
{
	struct mount_dirs dirs;

	mount_dirs_init(&dirs);
	dirs.upper = null_fd();
	dirs.work = null_fd();
	dirs.lock = null_fd();
	for (int i = 0; i < 3; i++) {
		assert_int_equal(mount_dirs_add_lower(&dirs, null_fd()), 0);
		assert_int_equal(mount_dirs_add_clone(&dirs, null_fd()), 0);
	}
	assert_int_equal(mount_record_keep_dirs(d, &dirs), 0);
	mount_dirs_release(&dirs);
	d->key = 0x123456789abcdef0;
	d->dev_minor = 99;
	d->mount_ns = 1ull << 40;
	d->dirs.opener = -1;
	d->io = 3;
	d->fuse_fd = null_fd();
	d->slots_fd = null_fd();
	d->names_fd = null_fd();
	d->locks_fd = null_fd();
	d->estale_table_fd = null_fd();
	d->group = 1ull << 33;
	d->secret = 0xfedcba98;
	assert_int_equal(buf_put(&d->init, "initial", 7), 0);
}

static void count(int fd, void *arg)
{
	assert_true(is_open(fd));
	++*(int *)arg;
}

static void test_mount_record__is_read_as_it_was_written(void **state)
{
	const char *const argv[] = { "veneer", "-o", "lowerdir=a:b:c,upperdir=u,workdir=w",
				     "/mnt" };
	struct mount_record d, e;
	int n = 0;

	(void)state;
	make(&d, argv, 4);
	fill(&d);
	assert_int_equal(mount_record_write(&d), 0);
	assert_int_equal(mount_record_read(d.fd, &e), 0);
	assert_int_equal(e.key, d.key);
	assert_int_equal(e.argc, 4);
	assert_int_equal(e.dev_minor, 99);
	assert_int_equal(e.mount_ns, 1ull << 40);
	assert_int_equal(e.dirs.opener, -1);
	assert_int_equal(e.io, 3);
	assert_int_equal(e.group, 1ull << 33);
	assert_int_equal(e.secret, 0xfedcba98);
	assert_int_equal(e.estale_table_fd, d.estale_table_fd);
	assert_int_equal(e.dirs.n_lower, 3);
	assert_int_equal(e.dirs.n_clones, 3);
	assert_memory_equal(e.dirs.lower, d.dirs.lower, 3 * sizeof(int));
	assert_int_equal(e.init.len, 7);
	assert_memory_equal(e.init.data, "initial", 7);
	assert_int_equal(e.args.len, d.args.len);
	assert_memory_equal(e.args.data, d.args.data, d.args.len);
	mount_record_each_fd(&e, count, &n);
	assert_int_equal(e.locks_fd, d.locks_fd);
	assert_int_equal(e.dirs.lock, d.dirs.lock);
	assert_int_equal(n, 9 + 6);
	mount_record_release(&e);
	assert_false(is_open(d.fuse_fd) || is_open(d.dirs.upper) || is_open(d.dirs.lower[0]) ||
		     is_open(d.fd));
	/* The descriptors were e's, too. */
	mount_record_forget(&d);
}

/* Of a mount that is not opened again. */
static void test_mount_record__what_nobody_took_is_closed_with_it(void **state)
{
	struct mount_record d, e;
	int taken;

	(void)state;
	make(&d, NULL, 0);
	fill(&d);
	assert_int_equal(mount_record_write(&d), 0);
	assert_int_equal(mount_record_read(d.fd, &e), 0);
	taken = steal_fd(&e.names_fd);
	mount_record_release(&e);
	assert_false(is_open(d.slots_fd) || is_open(d.locks_fd) || is_open(d.estale_table_fd));
	assert_true(is_open(taken));
	close(taken);
	mount_record_forget(&d);
}

static void test_mount_record__duplicates_are_its_own(void **state)
{
	const char *const argv[] = { "veneer", "/mnt" };
	struct mount_dirs dirs;
	struct mount_record d;

	(void)state;
	make(&d, argv, 2);
	fill(&d);
	assert_int_equal(mount_record_copy_dirs(&d, &dirs), 0);
	assert_int_equal(dirs.n_lower, 3);
	assert_int_not_equal(dirs.upper, d.dirs.upper);
	assert_int_equal(dirs.opener, -1);
	mount_dirs_release(&dirs);
	assert_true(is_open(d.dirs.upper));
	assert_true(is_open(d.dirs.lower[2]));
	mount_record_release(&d);
}

static void test_mount_record__damage_is_told_and_nothing_is_closed(void **state)
{
	struct mount_record d, e;
	int fd = memfd_create("damaged", MFD_CLOEXEC);

	(void)state;
	make(&d, NULL, 0);
	fill(&d);
	assert_int_equal(mount_record_read(fd, &e), -EPROTO);
	assert_int_equal(mount_record_write(&d), 0);

	char bytes[512];
	ssize_t n = pread(d.fd, bytes, sizeof(bytes), 0);

	for (ssize_t len = 4; len < n; len++) {
		assert_int_equal(ftruncate(fd, 0), 0);
		assert_int_equal(pwrite(fd, bytes, (size_t)len, 0), len);
		assert_int_equal(mount_record_read(fd, &e), -EBADMSG);
	}
	assert_true(is_open(d.fuse_fd));
	assert_true(is_open(d.dirs.lower[0]));
	assert_true(is_open(d.dirs.upper));
	assert_true(is_open(d.slots_fd) && is_open(d.names_fd) && is_open(d.locks_fd) &&
		    is_open(d.estale_table_fd));
	close(fd);
	mount_record_release(&d);
}

static void test_mount_record__options_are_those_that_were_asked_for(void **state)
{
	const char *const argv[] = { "veneer", "-o", "lowerdir=a:b:c,upperdir=u,workdir=w,volatile",
				     "/mnt" };
	struct mount_opts opts;
	char err[512];
	struct mount_record d;

	(void)state;
	make(&d, argv, 4);
	fill(&d);
	for (int i = 0; i < 2; i++) {
		assert_int_equal(mount_record_options(&d, &d.dirs, &opts, err, sizeof(err)), 0);
		assert_true(opts.is_volatile);
		assert_int_equal(opts.n_lower, 3);
		options_release(&opts);
	}
	closep(&d.dirs.upper);
	assert_true(mount_record_options(&d, &d.dirs, &opts, err, sizeof(err)) < 0);
	mount_record_release(&d);
}

/* An earlier build may have made the record. A new mount with the option goes on as with any other
 * unknown one. */
static void test_mount_record__removed_options_are_accepted_from_a_record(void **state)
{
	const char *const argv[] = {
		"veneer", "-o",
		"lowerdir=a:b:c,upperdir=u,workdir=w,strict,predictor=latest,volatile", "/mnt"
	};
	struct mount_opts opts;
	char err[512];
	struct mount_record d, e;

	(void)state;
	make(&d, argv, 4);
	fill(&d);
	assert_int_equal(mount_record_options(&d, &d.dirs, &opts, err, sizeof(err)), -EINVAL);
	assert_string_equal(err, "unknown option: predictor=latest; with strict that is an error");
	assert_int_equal(mount_record_write(&d), 0);
	assert_int_equal(mount_record_read(d.fd, &e), 0);
	assert_int_equal(mount_record_options(&e, &e.dirs, &opts, err, sizeof(err)), 0);
	assert_int_equal(opts.n_unknown, 0);
	assert_true(opts.is_volatile);
	options_release(&opts);
	mount_record_release(&e);
	/* The descriptors were e's, too. */
	mount_record_forget(&d);
}

/* One of several mounts was asked for with them: what they have in common has no upper. */
static void test_mount_record__what_is_common_is_asked_for_without_an_upper(void **state)
{
	const char *const argv[] = { "veneer", "-o",
				     "lowerdir=a:b:c,upperdir=u,workdir=w,share=pages", "/mnt" };
	struct mount_opts opts;
	char err[512];
	struct mount_record d;

	(void)state;
	make(&d, argv, 4);
	fill(&d);
	assert_false(mount_record_is_common(&d));
	d.group = d.key;
	assert_true(mount_record_is_common(&d));
	assert_true(mount_record_options(&d, &d.dirs, &opts, err, sizeof(err)) < 0);
	closep(&d.dirs.upper);
	closep(&d.dirs.work);
	assert_int_equal(mount_record_options(&d, &d.dirs, &opts, err, sizeof(err)), 0);
	assert_int_equal(opts.n_lower, 3);
	assert_null(opts.upper);
	assert_null(opts.work);
	options_release(&opts);
	mount_record_release(&d);
}

static void test_mount_record__one_that_is_forgotten_closes_nothing(void **state)
{
	struct mount_record d, e;

	(void)state;
	make(&d, NULL, 0);
	fill(&d);
	assert_int_equal(mount_record_write(&d), 0);
	assert_int_equal(mount_record_read(d.fd, &e), 0);
	mount_record_forget(&e);
	assert_true(is_open(d.fd) && is_open(d.fuse_fd) && is_open(d.dirs.upper) &&
		    is_open(d.dirs.lower[0]));
	assert_true(is_open(d.slots_fd) && is_open(d.names_fd) && is_open(d.locks_fd) &&
		    is_open(d.estale_table_fd));
	mount_record_release(&d);
}

/* Else it would fuzz the version alone. */
static void test_mount_record__the_fuzzers_inputs_are_of_this_version(void **state)
{
	static const char *const names[] = { "real", "no-arguments", "common", "member" };
	char path[64];

	(void)state;
	for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++) {
		struct mount_record d;
		int fd;

		snprintf(path, sizeof(path), "tests/fuzz/corpus/mount_record/%s", names[i]);
		fd = open(path, O_RDONLY | O_CLOEXEC);
		assert_true(fd >= 0);
		assert_int_equal(mount_record_read(fd, &d), 0);
		assert_int_equal(mount_record_is_common(&d), i == 2);
		mount_record_forget(&d);
		close(fd);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_mount_record__is_read_as_it_was_written),
		cmocka_unit_test(test_mount_record__what_nobody_took_is_closed_with_it),
		cmocka_unit_test(test_mount_record__duplicates_are_its_own),
		cmocka_unit_test(test_mount_record__damage_is_told_and_nothing_is_closed),
		cmocka_unit_test(test_mount_record__options_are_those_that_were_asked_for),
		cmocka_unit_test(test_mount_record__removed_options_are_accepted_from_a_record),
		cmocka_unit_test(test_mount_record__what_is_common_is_asked_for_without_an_upper),
		cmocka_unit_test(test_mount_record__one_that_is_forgotten_closes_nothing),
		cmocka_unit_test(test_mount_record__the_fuzzers_inputs_are_of_this_version),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
