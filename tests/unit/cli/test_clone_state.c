// SPDX-License-Identifier: Apache-2.0
#include "support/tree.h"

#include "cli/clone_state.h"

#define DEST "/nowhere/at/all"

struct keeping {
	struct tree_dirs *d;
	char dir[PATH_MAX + 16]; /* what is cloned */
	struct clone_state c;
};

static int setup(void **state)
{
	struct keeping *k = calloc(1, sizeof(*k));
	char home[PATH_MAX + 16];

	if (!k || tree_setup((void **)&k->d) < 0)
		return -1;
	snprintf(k->dir, sizeof(k->dir), "%s/lower", k->d->s.path);
	snprintf(home, sizeof(home), "%s/state", k->d->s.path);
	setenv("VENEER_STATE_DIR", home, 1);
	k->c = (struct clone_state){ .lock_fd = -1 };
	*state = k;
	return 0;
}

static int teardown(void **state)
{
	struct keeping *k = *state;

	clone_state_release(&k->c);
	tree_teardown((void **)&k->d);
	free(k);
	return 0;
}

static void make(struct keeping *k, const char *dest)
{
	clone_state_release(&k->c);
	assert_int_equal(clone_state_make(k->dir, dest, "noatime", &k->c), 0);
}

static void test_clone_state__comes_back_as_it_was_made(void **state)
{
	struct keeping *k = *state;
	struct clone_state found;
	struct stat st;

	assert_int_equal(clone_state_find(DEST, &found), 0);
	make(k, DEST);
	assert_int_equal(stat(k->dir, &st), 0);
	assert_true(k->c.lock_fd >= 0);
	assert_int_equal(clone_state_find(DEST, &found), 1);
	assert_string_equal(found.dir, k->dir);
	assert_string_equal(found.dest, DEST);
	assert_string_equal(found.options, "noatime");
	assert_int_equal(found.dir_ino, st.st_ino);
	assert_int_equal(found.since.tv_sec, k->c.since.tv_sec);
	assert_int_equal(found.since.tv_nsec, k->c.since.tv_nsec);
	assert_string_equal(found.path, k->c.path);
	assert_false(clone_state_is_applying(&found));
	clone_state_release(&found);
	assert_int_equal(clone_state_find("/elsewhere", &found), 0);
	clone_state_release(&found);
}

static void test_clone_state__change_until_now_is_before_it_and_a_later_one_is_not(void **state)
{
	struct keeping *k = *state;
	struct stat before, after;

	tree_put_text(k->d, "lower/before", "x");
	make(k, DEST);
	tree_put_text(k->d, "lower/after", "x");
	assert_int_equal(fstatat(k->d->s.fd, "lower/before", &before, 0), 0);
	assert_int_equal(fstatat(k->d->s.fd, "lower/after", &after, 0), 0);
	assert_true(before.st_ctim.tv_sec < k->c.since.tv_sec ||
		    (before.st_ctim.tv_sec == k->c.since.tv_sec &&
		     before.st_ctim.tv_nsec < k->c.since.tv_nsec));
	assert_true(after.st_ctim.tv_sec > k->c.since.tv_sec ||
		    (after.st_ctim.tv_sec == k->c.since.tv_sec &&
		     after.st_ctim.tv_nsec >= k->c.since.tv_nsec));
}

static void test_clone_state__clones_of_one_name_are_kept_apart(void **state)
{
	struct keeping *k = *state;
	char *first;

	make(k, "/one/same");
	first = strdup(k->c.path);
	make(k, "/two/same");
	assert_string_not_equal(first, k->c.path);
	free(first);
	assert_int_equal(clone_state_remove(&k->c), 0);
	clone_state_release(&k->c);
	assert_int_equal(clone_state_find("/two/same", &k->c), 0);
	assert_int_equal(clone_state_find("/one/same", &k->c), 1);
}

static void test_clone_state__one_command_works_on_it_at_a_time(void **state)
{
	struct keeping *k = *state;
	struct clone_state other;

	make(k, DEST);
	assert_int_equal(clone_state_find(DEST, &other), 1);
	assert_int_equal(clone_state_lock(&other), -EBUSY);
	clone_state_release(&k->c);
	assert_int_equal(clone_state_lock(&other), 0);
	clone_state_release(&other);
}

static void test_clone_state__another_directory_at_its_path_is_not_taken_for_it(void **state)
{
	struct keeping *k = *state;
	int fd;

	make(k, DEST);
	fd = clone_state_open_dir(&k->c);
	assert_true(fd >= 0);
	close(fd);
	assert_int_equal(renameat(k->d->s.fd, "lower", k->d->s.fd, "moved"), 0);
	assert_int_equal(clone_state_open_dir(&k->c), -ENOENT);
	tree_put_dir(k->d, "lower");
	assert_int_equal(clone_state_open_dir(&k->c), -ESTALE);
}

static void test_clone_state__renewal_empties_it(void **state)
{
	struct keeping *k = *state;
	char *upper, *in;
	int fd;

	make(k, DEST);
	upper = clone_state_file(&k->c, "upper");
	assert_true(asprintf(&in, "%s/file", upper) > 0);
	fd = open(in, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
	assert_true(fd >= 0);
	close(fd);
	assert_int_equal(clone_state_renew(&k->c), 0);
	assert_int_equal(access(upper, F_OK), 0);
	assert_int_equal(access(in, F_OK), -1);
	free(upper);
	free(in);
}

static int count(void *arg, struct clone_state *c)
{
	(void)c;
	++*(unsigned *)arg;
	return 0;
}

/* A description may be damaged, or put there by another user of the host. */
static void test_clone_state__what_is_no_clone_is_passed_over(void **state)
{
	static const char *const texts[] = {
		"",
		"[]",
		"{\"version\": 2}",
		"{\"version\": 1, \"dir\": \"relative\", \"dir_ino\": 1, \"dest\": \"/d\", "
		"\"options\": \"\", \"since_s\": 1, \"since_ns\": 1, \"has_made_dest\": true}",
		"{\"version\": 1, \"dir\": \"/d\", \"dir_ino\": \"x\", \"dest\": \"/d\", "
		"\"options\": \"\", \"since_s\": 1, \"since_ns\": 1, \"has_made_dest\": true}",
		"{\"version\": 1, \"version\": 1, \"dir\": \"/d\", \"dir_ino\": 1, \"dest\": "
		"\"/d\", \"options\": \"\", \"since_s\": 1, \"since_ns\": 1, \"has_made_dest\": "
		"true}",
	};
	struct keeping *k = *state;
	unsigned n = 0;

	make(k, DEST);
	for (size_t i = 0; i < sizeof(texts) / sizeof(*texts); i++) {
		tree_put_text(k->d, "state/clones/bad/clone.json", texts[i]);
		n = 0;
		assert_int_equal(clone_state_each(count, &n), 0);
		assert_int_equal(n, 1);
	}
	/* A good description where others may write. */
	assert_int_equal(unlinkat(k->d->s.fd, "state/clones/bad/clone.json", 0), 0);
	assert_int_equal(chmod(k->c.path, 0722), 0);
	n = 0;
	assert_int_equal(clone_state_each(count, &n), 0);
	assert_int_equal(n, 0);
}

static void test_clone_state__interrupted_apply_is_seen(void **state)
{
	struct keeping *k = *state;
	char *tar;
	int fd;

	make(k, DEST);
	tar = clone_state_file(&k->c, CLONE_STATE_TAR);
	fd = open(tar, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
	assert_true(fd >= 0);
	close(fd);
	free(tar);
	assert_true(clone_state_is_applying(&k->c));
}

static void test_clone_state__layers_as_an_option_takes_them(void **state)
{
	struct keeping *k = *state;
	char *with, *without;

	make(k, DEST);
	with = clone_state_layers(&k->c, true);
	without = clone_state_layers(&k->c, false);
	assert_int_equal(strncmp(without, "lowerdir=/", 10), 0);
	assert_null(strstr(without, "upperdir"));
	assert_non_null(strstr(with, ",upperdir=/"));
	free(with);
	free(without);
	assert_int_equal(clone_state_check_branches(&k->c), 0);
}

static void test_clone_state__directory_that_is_not_there_leaves_nothing(void **state)
{
	struct keeping *k = *state;

	strcat(k->dir, "/none");
	assert_int_equal(clone_state_make(k->dir, DEST, "", &k->c), -ENOENT);
	clone_state_release(&k->c);
	assert_int_equal(clone_state_find(DEST, &k->c), 0);
}

#define row(test) cmocka_unit_test_setup_teardown(test, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		row(test_clone_state__comes_back_as_it_was_made),
		row(test_clone_state__change_until_now_is_before_it_and_a_later_one_is_not),
		row(test_clone_state__clones_of_one_name_are_kept_apart),
		row(test_clone_state__one_command_works_on_it_at_a_time),
		row(test_clone_state__another_directory_at_its_path_is_not_taken_for_it),
		row(test_clone_state__renewal_empties_it),
		row(test_clone_state__what_is_no_clone_is_passed_over),
		row(test_clone_state__interrupted_apply_is_seen),
		row(test_clone_state__layers_as_an_option_takes_them),
		row(test_clone_state__directory_that_is_not_there_leaves_nothing),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
