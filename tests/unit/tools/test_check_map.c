// SPDX-License-Identifier: Apache-2.0
#include "support/maps.h"

#include "tools/check_map.h"

#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static struct check_map check(const struct maps_layer *l, bool repairs)
{
	struct check_map c;

	assert_int_equal(check_map_read(l->root, repairs, &c), 0);
	return c;
}

static void make(struct maps_layer *l)
{
	struct mapfile *mf = maps_open_rw(l);

	for (int i = 0; i < 5; i++)
		maps_new_file(mf, 1 << 20);
	mapfile_close(mf);
}

static void put(struct maps_layer *l, off_t off, const void *bytes, size_t len)
{
	int fd = openat(l->root, MAPFILE_NAME, O_RDWR | O_CLOEXEC);

	assert_true(fd >= 0);
	assert_int_equal(pwrite(fd, bytes, len, off), len);
	close(fd);
}

static void test_check_map__layer_without_a_map_and_a_good_one(void **state)
{
	struct maps_layer *l = *state;

	assert_null(check(l, false).rule);
	make(l);
	assert_null(check(l, false).rule);
	assert_null(check(l, true).rule);
}

static void test_check_map__head_that_is_damaged(void **state)
{
	struct maps_layer *l = *state;
	struct check_map c;

	make(l);
	put(l, 3, "\xff\xff", 2);
	c = check(l, true);
	assert_non_null(c.rule);
	assert_true(c.is_damaged);
	assert_false(c.is_repaired);
}

static void test_check_map__what_is_no_file_is_damage(void **state)
{
	struct maps_layer *l = *state;
	struct check_map c;

	assert_int_equal(mkfifoat(l->root, MAPFILE_NAME, 0600), 0);
	c = check(l, true);
	assert_true(c.is_damaged);
	assert_int_equal(unlinkat(l->root, MAPFILE_NAME, 0), 0);
	assert_int_equal(symlinkat("/etc/passwd", l->root, MAPFILE_NAME), 0);
	c = check(l, true);
	assert_true(c.is_damaged);
	assert_int_equal(unlinkat(l->root, MAPFILE_NAME, 0), 0);
	assert_int_equal(mkdirat(l->root, MAPFILE_NAME, 0700), 0);
	assert_true(check(l, false).is_damaged);
	unlinkat(l->root, MAPFILE_NAME, AT_REMOVEDIR);
}

static void test_check_map__byte_of_the_log_that_changed_is_found(void **state)
{
	struct maps_layer *l = *state;
	struct check_map c;
	off_t size;

	make(l);
	size = maps_size(l);
	for (off_t off = 0; off < size && off < 4096; off += 7) {
		uint8_t byte, bad;
		int fd = openat(l->root, MAPFILE_NAME, O_RDONLY | O_CLOEXEC);

		assert_int_equal(pread(fd, &byte, 1, off), 1);
		close(fd);
		bad = byte ^ 0x41;
		put(l, off, &bad, 1);
		/* It never believes what it reads, and never fails. */
		c = check(l, false);
		assert_false(c.is_repaired);
		put(l, off, &byte, 1);
	}
	assert_null(check(l, false).rule);
}

static void test_check_map__place_that_cannot_be_looked_at(void **state)
{
	struct check_map c;

	(void)state;
	assert_true(check_map_read(-1, false, &c) < 0);
	assert_null(c.rule);
}

#define row(test) cmocka_unit_test_setup_teardown(test, maps_setup, maps_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		row(test_check_map__layer_without_a_map_and_a_good_one),
		row(test_check_map__head_that_is_damaged),
		row(test_check_map__what_is_no_file_is_damage),
		row(test_check_map__byte_of_the_log_that_changed_is_found),
		row(test_check_map__place_that_cannot_be_looked_at),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
