// SPDX-License-Identifier: Apache-2.0
/* As an ordinary user, which root becomes for each test. */
#include "support/tree.h"

#include "veneer/sys/mode_relax.h"
#include "veneer/sys/xattr.h"

#include <pthread.h>

#define SOMEBODY 12345

static int setup(void **state)
{
	int r = tree_setup(state);
	struct tree_dirs *d = *state;

	if (r != 0 || geteuid() != 0)
		return r;
	if (fchown(d->s.fd, SOMEBODY, SOMEBODY) < 0 || setegid(SOMEBODY) < 0 ||
	    seteuid(SOMEBODY) < 0)
		return -1;
	return 0;
}

static int teardown(void **state)
{
	if (getuid() == 0 && (seteuid(0) < 0 || setegid(0) < 0))
		return -1;
	return tree_teardown(state);
}

static mode_t real_mode(struct tree_dirs *d, const char *name)
{
	struct stat st;

	assert_int_equal(fstatat(d->s.fd, name, &st, AT_SYMLINK_NOFOLLOW), 0);
	return st.st_mode & 07777;
}

static mode_t meant_mode(struct tree_dirs *d, const char *name)
{
	struct stat st;

	assert_int_equal(mode_relax_stat(d->s.fd, name, AT_SYMLINK_NOFOLLOW, &st), 0);
	return st.st_mode & 07777;
}

static void put(struct tree_dirs *d, const char *name, mode_t mode)
{
	int fd = openat(d->s.fd, name, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);

	assert_true(fd >= 0);
	assert_int_equal(fchmod(fd, mode), 0);
	close(fd);
}

static void test_mode_relax__owner_gets_his_bits_unseen_and_they_go(void **state)
{
	struct tree_dirs *d = *state;
	struct mode_relax *r;

	put(d, "f", 0444);
	r = mode_relax_begin(d->s.fd, "f");
	assert_non_null(r);
	assert_int_equal(real_mode(d, "f"), 0644);
	assert_int_equal(meant_mode(d, "f"), 0444);
	mode_relax_end(r);
	assert_int_equal(real_mode(d, "f"), 0444);
	assert_int_equal(meant_mode(d, "f"), 0444);
}

static void test_mode_relax__last_of_two_puts_the_mode_back(void **state)
{
	struct tree_dirs *d = *state;
	struct mode_relax *one, *two;

	put(d, "f", 0);
	one = mode_relax_begin(d->s.fd, "f");
	two = mode_relax_begin(d->s.fd, "f");
	assert_non_null(two);
	mode_relax_end(one);
	assert_int_equal(real_mode(d, "f"), 0600);
	assert_int_equal(meant_mode(d, "f"), 0);
	mode_relax_end(two);
	assert_int_equal(real_mode(d, "f"), 0);
}

static void test_mode_relax__mode_that_is_set_meanwhile_stays(void **state)
{
	struct tree_dirs *d = *state;
	struct mode_relax *r;
	int fd;

	put(d, "f", 0400);
	fd = openat(d->s.fd, "f", O_PATH | O_NOFOLLOW);
	r = mode_relax_begin(d->s.fd, "f");
	assert_int_equal(mode_relax_chmod(fd, 0111), 0);
	assert_int_equal(real_mode(d, "f"), 0711);
	assert_int_equal(meant_mode(d, "f"), 0111);
	mode_relax_end(r);
	assert_int_equal(real_mode(d, "f"), 0111);
	assert_int_equal(mode_relax_chmod(fd, 0640), 0);
	assert_int_equal(real_mode(d, "f"), 0640);
	close(fd);
}

static void test_mode_relax__what_lacks_nothing_or_is_a_link_is_left_alone(void **state)
{
	struct tree_dirs *d = *state;

	put(d, "f", 0600);
	assert_null(mode_relax_begin(d->s.fd, "f"));
	put(d, "ro", 0400);
	assert_int_equal(symlinkat("ro", d->s.fd, "link"), 0);
	assert_null(mode_relax_begin(d->s.fd, "link"));
	assert_null(mode_relax_begin(d->s.fd, "none"));
	mode_relax_end(NULL);
	assert_int_equal(real_mode(d, "ro"), 0400);
}

static void test_mode_relax__what_is_another_users_is_left_alone(void **state)
{
	struct tree_dirs *d = *state;

	if (getuid() != 0)
		skip();
	put(d, "f", 0400);
	assert_int_equal(seteuid(0), 0);
	assert_int_equal(fchownat(d->s.fd, "f", 1, 1, 0), 0);
	/* With privileges nothing refuses. */
	assert_null(mode_relax_begin(d->s.fd, "f"));
	assert_int_equal(seteuid(SOMEBODY), 0);
	assert_null(mode_relax_begin(d->s.fd, "f"));
	assert_int_equal(real_mode(d, "f"), 0400);
}

static void test_mode_relax__set_gid_of_a_group_that_is_not_ours_is_not_lost(void **state)
{
	struct tree_dirs *d = *state;
	gid_t group;

	if (getuid() != 0)
		skip();
	put(d, "f", 0400);
	assert_int_equal(seteuid(0), 0);
	for (group = 40000; group == getegid(); group++)
		;
	assert_int_equal(fchownat(d->s.fd, "f", SOMEBODY, group, 0), 0);
	assert_int_equal(fchmodat(d->s.fd, "f", 02410, 0), 0);
	assert_int_equal(seteuid(SOMEBODY), 0);
	assert_null(mode_relax_begin(d->s.fd, "f"));
	assert_int_equal(real_mode(d, "f"), 02410);
}

static void test_mode_relax__attribute_of_a_file_that_refuses_it(void **state)
{
	struct tree_dirs *d = *state;
	char value[4];
	int fd;

	put(d, "f", 0400);
	fd = openat(d->s.fd, "f", O_RDONLY);
	assert_int_equal(xattr_set(fd, "", "user.x", "y", 1, 0), -EACCES);
	assert_int_equal(mode_relax_set_xattr(fd, "user.x", "y", 1), 0);
	assert_int_equal(xattr_get(fd, "", "user.x", value, sizeof(value)), 1);
	assert_int_equal(mode_relax_remove_xattr(fd, "user.x"), 0);
	assert_int_equal(mode_relax_remove_xattr(fd, "user.x"), -ENODATA);
	assert_int_equal(real_mode(d, "f"), 0400);
	close(fd);
}

static void test_mode_relax__open_where_directory_and_file_refuse_it(void **state)
{
	struct tree_dirs *d = *state;
	int dir, fd;

	tree_put_dir(d, "d/e");
	put(d, "d/f", 0);
	dir = openat(d->s.fd, "d", O_RDONLY | O_DIRECTORY);
	assert_int_equal(fchmod(dir, 0), 0);
	fd = mode_relax_openat(dir, "f", O_RDWR | O_NOFOLLOW);
	assert_true(fd >= 0);
	close(fd);
	assert_int_equal(mode_relax_openat(dir, "none", O_RDWR), -ENOENT);
	assert_int_equal(fchmod(dir, 0700), 0);
	assert_int_equal(real_mode(d, "d/f"), 0);
	close(dir);
}

static void test_mode_relax__rename_of_a_directory_that_refuses_it(void **state)
{
	struct tree_dirs *d = *state;
	int from, to;

	tree_put_dir(d, "a/d");
	tree_put_dir(d, "b");
	from = openat(d->s.fd, "a", O_RDONLY | O_DIRECTORY);
	to = openat(d->s.fd, "b", O_RDONLY | O_DIRECTORY);
	assert_int_equal(fchmodat(from, "d", 0500, 0), 0);
	assert_int_equal(fchmod(from, 0555), 0);
	assert_int_equal(fchmod(to, 0), 0);
	assert_int_equal(mode_relax_rename(from, "d", to, "e", 0), 0);
	assert_int_equal(mode_relax_rename(from, "d", to, "e", 0), -ENOENT);
	assert_int_equal(real_mode(d, "a"), 0555);
	assert_int_equal(real_mode(d, "b"), 0);
	assert_int_equal(fchmod(to, 0755), 0);
	assert_int_equal(real_mode(d, "b/e"), 0500);
	assert_int_equal(fchmod(from, 0755), 0);
	close(from);
	close(to);
}

struct crowd {
	struct tree_dirs *d;
	_Atomic bool has_ended;
	unsigned n_wrong;
};

static void *look_again_and_again(void *arg)
{
	struct crowd *c = arg;

	while (!c->has_ended) {
		struct stat st;

		if (mode_relax_stat(c->d->s.fd, "f", AT_SYMLINK_NOFOLLOW, &st) != 0 ||
		    (st.st_mode & 07777) != 0440)
			c->n_wrong++;
	}
	return NULL;
}

static void *relax_again_and_again(void *arg)
{
	struct crowd *c = arg;

	for (unsigned k = 0; k < 2000; k++)
		mode_relax_end(mode_relax_begin(c->d->s.fd, "f"));
	return NULL;
}

static void test_mode_relax__nobody_sees_it_whoever_comes_and_goes(void **state)
{
	struct crowd c = { .d = *state };
	pthread_t looker, workers[3];

	put(c.d, "f", 0440);
	assert_int_equal(pthread_create(&looker, NULL, look_again_and_again, &c), 0);
	for (int k = 0; k < 3; k++)
		assert_int_equal(pthread_create(&workers[k], NULL, relax_again_and_again, &c), 0);
	for (int k = 0; k < 3; k++)
		pthread_join(workers[k], NULL);
	c.has_ended = true;
	pthread_join(looker, NULL);
	assert_int_equal(c.n_wrong, 0);
	assert_int_equal(real_mode(c.d, "f"), 0440);
}

#define row(test) cmocka_unit_test_setup_teardown(test, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		row(test_mode_relax__owner_gets_his_bits_unseen_and_they_go),
		row(test_mode_relax__last_of_two_puts_the_mode_back),
		row(test_mode_relax__mode_that_is_set_meanwhile_stays),
		row(test_mode_relax__what_lacks_nothing_or_is_a_link_is_left_alone),
		row(test_mode_relax__what_is_another_users_is_left_alone),
		row(test_mode_relax__set_gid_of_a_group_that_is_not_ours_is_not_lost),
		row(test_mode_relax__attribute_of_a_file_that_refuses_it),
		row(test_mode_relax__open_where_directory_and_file_refuse_it),
		row(test_mode_relax__rename_of_a_directory_that_refuses_it),
		row(test_mode_relax__nobody_sees_it_whoever_comes_and_goes),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
