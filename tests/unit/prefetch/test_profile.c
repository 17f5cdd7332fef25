// SPDX-License-Identifier: Apache-2.0
#include "veneer/prefetch/profile.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#define STARTERS    4
#define STARTS_EACH 10

static char dir[] = "/tmp/veneer-profile-XXXXXX";
static int dirfd_ = -1;
static _Thread_local char err[256];
static const uint64_t layers[] = { 11, 22, 33 };

static void clear(void)
{
	DIR *d = opendir(dir);

	assert_non_null(d);
	for (const struct dirent *e; (e = readdir(d));)
		unlinkat(dirfd_, e->d_name, 0);
	closedir(d);
}

static int setup(void **state)
{
	(void)state;
	if (dirfd_ < 0) {
		assert_non_null(mkdtemp(dir));
		dirfd_ = open(dir, O_RDONLY | O_DIRECTORY);
	}
	clear();
	return dirfd_ < 0 ? -1 : 0;
}

static int finish(void **state)
{
	(void)state;
	clear();
	return rmdir(dir);
}

static struct profile_stack stack_of(size_t first, size_t n)
{
	return (struct profile_stack){ .layers = layers + first, .n = n, .label = "/a/layer" };
}

static int see(const struct profile_stack *s, const char *path, uint64_t layer, uint32_t extent)
{
	const struct profile_file file = { (char *)path, layer };
	const struct profile_item item = { .extent = extent,
					   .history = { .first_ms = 7, .order = 3 } };
	const struct profile_start start = {
		.files = &file, .nfiles = 1, .items = &item, .nitems = 1, .at = 1000
	};

	return profile_store(dirfd_, s, &start, err, sizeof(err));
}

static int load(const struct profile_stack *s, struct profile_image *ret)
{
	return profile_load(dirfd_, s, ret, err, sizeof(err));
}

static void test_profile__is_empty_at_first(void **state)
{
	const struct profile_stack s = stack_of(0, 3);
	struct profile_image img;

	(void)state;
	assert_int_equal(load(&s, &img), 0);
	assert_int_equal(img.starts, 0);
	assert_int_equal(img.nitems, 0);
}

static void test_profile__knows_in_which_starts_something_was_seen(void **state)
{
	const struct profile_stack s = stack_of(0, 3);
	struct profile_image img;

	(void)state;
	assert_int_equal(see(&s, "a/b", 22, 5), 0);
	assert_int_equal(see(&s, "c", 11, 0), 0);
	assert_int_equal(see(&s, "a/b", 22, 5), 0);
	assert_int_equal(see(&s, "c", 11, 0), 0);
	assert_int_equal(load(&s, &img), 0);
	assert_int_equal(img.starts, 4);
	assert_int_equal(img.nitems, 2);
	assert_false(img.is_borrowed);
	for (size_t i = 0; i < 2; i++) {
		const struct profile_item *item = &img.items[i];
		const bool is_c = !strcmp(img.files[item->file].path, "c");

		assert_int_equal(item->history.seen, is_c ? 0x5 : 0xa);
		assert_int_equal(item->history.count, 2);
		assert_int_equal(item->history.first_ms, 7);
		assert_int_equal(item->history.order, 3);
		assert_int_equal(item->extent, is_c ? 0 : 5);
		assert_int_equal(item->last_seen, 1000);
	}
	profile_image_release(&img);
}

static void test_profile__lends_what_shared_layers_hold(void **state)
{
	const struct profile_stack known = stack_of(1, 2), fresh = stack_of(0, 2);
	struct profile_image img;

	(void)state;
	assert_int_equal(see(&known, "shared", 22, 0), 0);
	assert_int_equal(see(&known, "other", 33, 0), 0);
	assert_int_equal(load(&fresh, &img), 0);
	assert_true(img.is_borrowed);
	assert_int_equal(img.nitems, 1);
	assert_string_equal(img.files[0].path, "shared");
	profile_image_release(&img);
}

static void test_profile__paths_that_lead_elsewhere_are_not_given(void **state)
{
	const struct profile_stack s = stack_of(0, 1);
	struct profile_image img;

	(void)state;
	assert_int_equal(see(&s, "../outside", 11, 0), 0);
	assert_int_equal(see(&s, "/etc/passwd", 11, 0), 0);
	assert_int_equal(see(&s, "a/../b", 11, 0), 0);
	assert_int_equal(load(&s, &img), 0);
	assert_int_equal(img.nitems, 0);
	profile_image_release(&img);
}

static void test_profile__what_was_seen_once_is_forgotten(void **state)
{
	const struct profile_stack s = stack_of(0, 1);
	struct profile_image img;

	(void)state;
	assert_int_equal(see(&s, "once", 11, 0), 0);
	for (int i = 0; i < 20; i++)
		assert_int_equal(see(&s, "often", 11, 0), 0);
	assert_int_equal(load(&s, &img), 0);
	assert_int_equal(img.nfiles, 1);
	assert_int_equal(img.starts, 21);
	profile_image_release(&img);
}

static void *start_often(void *arg)
{
	const struct profile_stack s = stack_of(0, 3);
	size_t *stored = arg;

	for (int i = 0; i < STARTS_EACH; i++)
		*stored += see(&s, "a", 11, 0) == 0;
	return NULL;
}

static void test_profile__is_used_by_several_at_once(void **state)
{
	const struct profile_stack s = stack_of(0, 3);
	pthread_t threads[STARTERS];
	size_t stored[STARTERS] = { 0 }, sum = 0;
	struct profile_image img;

	(void)state;
	for (int i = 0; i < STARTERS; i++)
		assert_int_equal(pthread_create(&threads[i], NULL, start_often, &stored[i]), 0);
	for (int i = 0; i < STARTERS; i++) {
		pthread_join(threads[i], NULL);
		sum += stored[i];
	}
	/* A process that had to wait for too long went without; none is counted that was not
	 * stored. */
	assert_true(sum > 0);
	assert_int_equal(load(&s, &img), 0);
	assert_int_equal(img.starts, sum);
	profile_image_release(&img);
}

static void test_profile__is_used_by_several_processes_at_once(void **state)
{
	const struct profile_stack s = stack_of(0, 3);
	size_t sum = 0, stored;
	struct profile_image img;
	pid_t pids[STARTERS];
	int status;

	(void)state;
	for (int i = 0; i < STARTERS; i++) {
		pids[i] = fork();
		if (pids[i] == 0) {
			stored = 0;
			start_often(&stored);
			_exit((int)stored);
		}
		assert_true(pids[i] > 0);
	}
	for (int i = 0; i < STARTERS; i++) {
		assert_int_equal(waitpid(pids[i], &status, 0), pids[i]);
		assert_true(WIFEXITED(status));
		sum += (size_t)WEXITSTATUS(status);
	}
	assert_true(sum > 0);
	assert_int_equal(load(&s, &img), 0);
	assert_int_equal(img.starts, sum);
	profile_image_release(&img);
}

/* ---- bounds ---- */

static void see_extents(const struct profile_stack *s, uint32_t first, size_t n)
{
	char path[] = "large";
	const struct profile_file file = { path, 11 };
	struct profile_item *items = calloc(n, sizeof(*items));
	const struct profile_start start = {
		.files = &file, .nfiles = 1, .items = items, .nitems = n, .at = 1000
	};

	assert_non_null(items);
	for (size_t i = 0; i < n; i++)
		items[i].extent = first + (uint32_t)i;
	assert_int_equal(profile_store(dirfd_, s, &start, err, sizeof(err)), 0);
	free(items);
}

static void test_profile__of_an_image_the_latest_items_are_kept(void **state)
{
	const struct profile_stack s = stack_of(0, 1);
	struct profile_image img;
	size_t latest = 0;

	(void)state;
	see_extents(&s, 0, PROFILE_ITEMS_MAX);
	see_extents(&s, PROFILE_ITEMS_MAX, 100);
	assert_int_equal(load(&s, &img), 0);
	assert_int_equal(img.starts, 2);
	assert_int_equal(img.nitems, PROFILE_ITEMS_MAX);
	for (size_t i = 0; i < img.nitems; i++)
		latest += img.items[i].extent >= PROFILE_ITEMS_MAX;
	assert_int_equal(latest, 100);
	profile_image_release(&img);
}

/* An imported or damaged file may say that there were so many starts that counting begins anew. */
static void test_profile__what_is_of_starts_to_come_makes_room(void **state)
{
	const struct profile_stack s = stack_of(0, 1);
	char path[] = "stale", label[] = "/a/layer";
	uint64_t layer = layers[0];
	struct profile_file file = { path, layer };
	struct profile_item *items = calloc(PROFILE_ITEMS_MAX, sizeof(*items));
	const struct profile_image stale = {
		.files = &file,
		.nfiles = 1,
		.items = items,
		.nitems = PROFILE_ITEMS_MAX,
		.starts = INT_MAX,
		.label = label,
		.key = profile_image_key(&s),
		.layers = &layer,
		.nlayers = 1,
	};
	struct profile_image img;

	(void)state;
	assert_non_null(items);
	for (uint32_t i = 0; i < PROFILE_ITEMS_MAX; i++) {
		items[i].extent = i;
		items[i].history = (struct predictor_item){ .seen = 1, .count = 2 };
	}
	assert_int_equal(profile_put(dirfd_, &stale, err, sizeof(err)), 0);
	free(items);
	see_extents(&s, 0, 10);
	assert_int_equal(load(&s, &img), 0);
	assert_int_equal(img.starts, 1);
	assert_int_equal(img.nitems, 10);
	assert_string_equal(img.files[0].path, "large");
	profile_image_release(&img);
}

static int count_image(const struct profile_image *img, void *arg)
{
	size_t *n = arg;

	(void)img;
	++*n;
	return 0;
}

static void test_profile__the_latest_images_are_kept(void **state)
{
	uint64_t key = 1000;
	const struct profile_stack s = { .layers = &key, .n = 1, .label = "/a/layer" };
	struct profile_image img;
	size_t n = 0;

	(void)state;
	for (size_t i = 0; i < PROFILE_IMAGES_MAX + 3; i++, key++)
		assert_int_equal(see(&s, "a", key, 0), 0);
	assert_int_equal(profile_each(dirfd_, false, count_image, &n, err, sizeof(err)), 0);
	assert_int_equal(n, PROFILE_IMAGES_MAX);
	/* The first three are gone, and nothing of theirs is left. */
	key = 1002;
	assert_int_equal(load(&s, &img), 0);
	assert_int_equal(img.starts, 0);
	profile_image_release(&img);
	key = 1003;
	assert_int_equal(load(&s, &img), 0);
	assert_int_equal(img.starts, 1);
	assert_int_equal(img.nitems, 1);
	profile_image_release(&img);
}

static off_t bytes_of_all(void)
{
	DIR *d = opendir(dir);
	struct stat st;
	off_t sum = 0;

	assert_non_null(d);
	for (const struct dirent *e; (e = readdir(d));)
		if (fstatat(dirfd_, e->d_name, &st, 0) == 0 && S_ISREG(st.st_mode))
			sum += st.st_size;
	closedir(d);
	return sum;
}

static void test_profile__long_paths_do_not_make_the_file_larger_than_its_bound(void **state)
{
	enum { PATHS = 1500, PATH_BYTES = 4000, IMAGES = 12 };
	char *paths = calloc(PATHS, PATH_BYTES + 1);
	struct profile_file *files = calloc(PATHS, sizeof(*files));
	struct profile_item *items = calloc(PATHS, sizeof(*items));
	uint64_t key = 1;
	const struct profile_stack s = { .layers = &key, .n = 1, .label = "/a/layer" };
	const struct profile_start start = {
		.files = files, .nfiles = PATHS, .items = items, .nitems = PATHS, .at = 1000
	};
	struct profile_image img;

	(void)state;
	assert_true(paths && files && items);
	for (size_t i = 0; i < PATHS; i++) {
		char *path = paths + i * (PATH_BYTES + 1), number[32];

		for (size_t k = 0; k < PATH_BYTES; k++)
			path[k] = k % 100 == 99 ? '/' : 'n';
		path[PATH_BYTES - 1] = 'n';
		snprintf(number, sizeof(number), "%07zu", i);
		memcpy(path, number, 7);
		files[i] = (struct profile_file){ path, 1 };
		items[i].file = (uint32_t)i;
	}
	for (; key <= IMAGES; key++) {
		assert_int_equal(profile_store(dirfd_, &s, &start, err, sizeof(err)), 0);
		assert_true(bytes_of_all() <= (off_t)PROFILE_BYTES_MAX);
	}
	key = IMAGES;
	assert_int_equal(load(&s, &img), 0);
	assert_int_equal(img.nitems, PATHS);
	profile_image_release(&img);
	free(paths);
	free(files);
	free(items);
}

/* The name of the file of an image. */
static const char *name_of(const struct profile_stack *s)
{
	static char name[64];

	snprintf(name, sizeof(name), "profile-%016llx", (unsigned long long)profile_image_key(s));
	return name;
}

static void spoil(const struct profile_stack *s, size_t at, const void *p, size_t len)
{
	int fd = openat(dirfd_, name_of(s), O_RDWR | O_CREAT, 0600);

	assert_int_equal(pwrite(fd, p, len, (off_t)at), len);
	close(fd);
}

static int truncate_it(const struct profile_stack *s, off_t len)
{
	int fd = openat(dirfd_, name_of(s), O_RDWR), r = ftruncate(fd, len);

	close(fd);
	return r;
}

static void test_profile__damage_anywhere_is_an_error(void **state)
{
	const struct profile_stack s = stack_of(0, 1);
	struct profile_image img = { 0 };
	struct stat st;

	(void)state;
	assert_int_equal(see(&s, "some/file", 11, 1), 0);
	assert_int_equal(fstatat(dirfd_, name_of(&s), &st, 0), 0);
	for (off_t i = 0; i < st.st_size; i++) {
		int fd = openat(dirfd_, name_of(&s), O_RDWR);
		uint8_t was, is;

		assert_int_equal(pread(fd, &was, 1, i), 1);
		is = was ^ 0x40;
		spoil(&s, (size_t)i, &is, 1);
		*err = '\0';
		assert_true(load(&s, &img) < 0);
		assert_true(strlen(err) > 0);
		assert_int_equal(img.nitems, 0);
		assert_true(see(&s, "some/file", 11, 0) < 0);
		spoil(&s, (size_t)i, &was, 1);
		close(fd);
	}
	for (off_t len = 0; len < st.st_size; len++) {
		assert_int_equal(see(&s, "some/file", 11, 1), 0);
		assert_int_equal(truncate_it(&s, len), 0);
		assert_int_equal(load(&s, &img), -EUCLEAN);
		clear();
	}
}

/* The other profiles are of use still. */
static void test_profile__damage_stays_with_its_image(void **state)
{
	const struct profile_stack bad = stack_of(0, 2), good = stack_of(1, 2),
				   fresh = stack_of(0, 1);
	struct profile_image img;
	size_t n = 0;

	(void)state;
	assert_int_equal(see(&bad, "a", 11, 0), 0);
	assert_int_equal(see(&good, "b", 22, 0), 0);
	assert_int_equal(truncate_it(&bad, 90), 0);
	assert_int_equal(see(&good, "b", 22, 0), 0);
	assert_int_equal(load(&good, &img), 0);
	assert_int_equal(img.starts, 2);
	profile_image_release(&img);
	assert_int_equal(load(&fresh, &img), 0);
	assert_int_equal(img.starts, 0);
	profile_image_release(&img);
	assert_int_equal(profile_each(dirfd_, true, count_image, &n, err, sizeof(err)), -EUCLEAN);
	assert_int_equal(n, 1);
	assert_non_null(strstr(err, name_of(&bad)));
	assert_int_equal(profile_forget(dirfd_, profile_image_key(&bad), err, sizeof(err)), 0);
	assert_int_equal(profile_each(dirfd_, true, count_image, &n, err, sizeof(err)), 0);
}

static void test_profile__says_what_is_wrong(void **state)
{
	const uint32_t newer = 99;
	const struct profile_stack s = stack_of(0, 1);
	int fd;

	(void)state;
	assert_int_equal(profile_forget(dirfd_, 1, err, sizeof(err)), -ENOENT);
	assert_int_equal(see(&s, "a", 11, 0), 0);
	spoil(&s, 4, &newer, sizeof(newer));
	assert_int_equal(see(&s, "a", 11, 0), -EPROTO);
	assert_non_null(strstr(err, "newer"));
	clear();
	spoil(&s, 0, "this is no profile at all, whatever it may be called", 50);
	assert_int_equal(see(&s, "a", 11, 0), -EUCLEAN);
	clear();
	assert_int_equal(see(&s, "a", 11, 0), 0);
	assert_int_equal(truncate_it(&s, (off_t)PROFILE_BYTES_OF_FILE + 1), 0);
	assert_int_equal(see(&s, "a", 11, 0), -EFBIG);
	clear();
	assert_int_equal(mkfifoat(dirfd_, name_of(&s), 0600), 0);
	assert_int_equal(see(&s, "a", 11, 0), -EUCLEAN);
	clear();
	assert_int_equal(symlinkat("/etc/passwd", dirfd_, name_of(&s)), 0);
	assert_int_equal(see(&s, "a", 11, 0), -ELOOP);
	clear();
	fd = openat(dirfd_, PROFILE_LOCK, O_RDWR | O_CREAT, 0600);
	assert_int_equal(flock(fd, LOCK_EX), 0);
	assert_int_equal(see(&s, "a", 11, 0), -EBUSY);
	assert_non_null(strstr(err, PROFILE_LOCK ": somebody"));
	close(fd);
	assert_int_equal(see(&s, "a", 11, 0), 0);
}

static int copy_one(const struct profile_image *img, void *arg)
{
	assert_int_equal(img->nlayers, 3);
	assert_int_equal(profile_forget(*(int *)arg, img->key, err, sizeof(err)), 0);
	assert_int_equal(profile_forget(*(int *)arg, img->key, err, sizeof(err)), -ENOENT);
	assert_int_equal(profile_put(*(int *)arg, img, err, sizeof(err)), 0);
	return 5;
}

static void test_profile__gives_and_takes_whole_images(void **state)
{
	const struct profile_stack s = stack_of(0, 3);
	struct profile_image img;

	(void)state;
	assert_int_equal(see(&s, "a", 11, 1), 0);
	assert_int_equal(see(&s, "b", 11, 1), 0);
	assert_int_equal(profile_each(dirfd_, true, copy_one, &dirfd_, err, sizeof(err)), 5);
	assert_int_equal(load(&s, &img), 0);
	assert_int_equal(img.starts, 2);
	assert_int_equal(img.nitems, 2);
	assert_int_equal(img.items[0].history.seen | img.items[1].history.seen, 3);
	profile_image_release(&img);
}

#define TEST(name) cmocka_unit_test_setup(test_profile__##name, setup)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(is_empty_at_first),
		TEST(knows_in_which_starts_something_was_seen),
		TEST(lends_what_shared_layers_hold),
		TEST(paths_that_lead_elsewhere_are_not_given),
		TEST(what_was_seen_once_is_forgotten),
		TEST(is_used_by_several_at_once),
		TEST(is_used_by_several_processes_at_once),
		TEST(of_an_image_the_latest_items_are_kept),
		TEST(what_is_of_starts_to_come_makes_room),
		TEST(the_latest_images_are_kept),
		TEST(long_paths_do_not_make_the_file_larger_than_its_bound),
		TEST(damage_anywhere_is_an_error),
		TEST(damage_stays_with_its_image),
		TEST(says_what_is_wrong),
		TEST(gives_and_takes_whole_images),
	};

	return cmocka_run_group_tests(tests, NULL, finish);
}
