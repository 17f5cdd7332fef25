// SPDX-License-Identifier: Apache-2.0
#include "support/tree.h"

#include "veneer/layer/saved_attrs.h"

#include <sys/stat.h>

struct rewriting {
	struct tree_dirs *d;
	int fd;
};

static int setup(void **state)
{
	struct rewriting *w = calloc(1, sizeof(*w));
	const struct timespec times[2] = { { 1000, 5 }, { 2000, 6 } };

	if (!w || tree_setup((void **)&w->d) < 0)
		return -1;
	tree_put_text(w->d, "upper/file", "text");
	w->fd = openat(w->d->s.fd, "upper/file", O_RDWR | O_CLOEXEC);
	*state = w;
	return fchmod(w->fd, 04755) < 0 || futimens(w->fd, times) < 0 ? -1 : 0;
}

static int teardown(void **state)
{
	struct rewriting *w = *state;

	close(w->fd);
	tree_teardown((void **)&w->d);
	free(w);
	return 0;
}

static void expect(struct rewriting *w, mode_t mode, time_t mtime)
{
	struct stat st;

	assert_int_equal(fstat(w->fd, &st), 0);
	assert_int_equal(st.st_mode & 07777, mode);
	assert_int_equal(st.st_mtim.tv_sec, mtime);
}

static void rewrite(struct rewriting *w)
{
	assert_int_equal(pwrite(w->fd, "new", 3, 0), 3);
	assert_int_equal(fchmod(w->fd, 0755), 0);
}

static bool has_record(struct rewriting *w)
{
	return saved_attrs_is_there(w->d->s.fd, "upper/file");
}

static void test_saved_attrs__state_of_before_comes_back_and_the_record_goes(void **state)
{
	struct rewriting *w = *state;
	struct saved_attrs s;

	assert_false(has_record(w));
	assert_int_equal(saved_attrs_recover(w->fd), 0);
	assert_int_equal(saved_attrs_take(w->fd, &s), 0);
	assert_true(has_record(w));
	rewrite(w);
	assert_int_equal(saved_attrs_put_back(w->fd, &s), 0);
	expect(w, 04755, 2000);
	assert_false(has_record(w));
}

/* Nothing tells whether another program wrote it since, which takes set-id bits away for good. */
static void test_saved_attrs__next_run_restores_the_times_alone(void **state)
{
	struct rewriting *w = *state;
	struct saved_attrs s;

	assert_int_equal(saved_attrs_take(w->fd, &s), 0);
	rewrite(w);
	assert_int_equal(saved_attrs_recover(w->fd), 1);
	expect(w, 0755, 2000);
	assert_false(has_record(w));
	assert_int_equal(saved_attrs_recover(w->fd), 0);
}

static void test_saved_attrs__times_that_an_earlier_run_saved_stand(void **state)
{
	struct rewriting *w = *state;
	struct saved_attrs s;

	assert_int_equal(saved_attrs_take(w->fd, &s), 0);
	rewrite(w);
	assert_int_equal(saved_attrs_take(w->fd, &s), 0);
	assert_int_equal(s.times[1].tv_sec, 2000);
	assert_int_equal(s.times[1].tv_nsec, 6);
	assert_int_equal(s.times[0].tv_sec, 1000);
	/* The mode is that of now. */
	assert_int_equal(s.mode, 0755);
	assert_int_equal(saved_attrs_put_back(w->fd, &s), 0);
	expect(w, 0755, 2000);
}

/* A user may write anything there. */
static void test_saved_attrs__record_that_is_none_is_left_alone(void **state)
{
	static const struct {
		uint32_t words[8];
		size_t len;
	} records[] = {
		{ { 0 }, 0 },
		{ { 1, 0755 }, 8 },
		{ { 2, 0755 }, 32 }, /* another version */
		{ { 1, 0170755 }, 32 }, /* a mode with a type */
		{ { 1, 0755, 0, 0, 0, 0, 1000000000, 0 }, 32 }, /* a second of too many parts */
		{ { 1, 0755, 0, 0, 0, 0, 0, 0xffffffff }, 32 },
	};
	struct rewriting *w = *state;

	for (size_t i = 0; i < sizeof(records) / sizeof(*records); i++) {
		assert_int_equal(fsetxattr(w->fd, SAVED_ATTRS_USER_ATTR, records[i].words,
					   records[i].len, 0),
				 0);
		assert_int_equal(saved_attrs_recover(w->fd), 0);
		expect(w, 04755, 2000);
	}
	assert_true(has_record(w));
}

#define row(test) cmocka_unit_test_setup_teardown(test, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		row(test_saved_attrs__state_of_before_comes_back_and_the_record_goes),
		row(test_saved_attrs__next_run_restores_the_times_alone),
		row(test_saved_attrs__times_that_an_earlier_run_saved_stand),
		row(test_saved_attrs__record_that_is_none_is_left_alone),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
