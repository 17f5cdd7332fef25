// SPDX-License-Identifier: Apache-2.0
#include "support/tree.h"

#include "veneer/data/attr.h"
#include "veneer/data/cow.h"
#include "veneer/passthrough/passthrough_select.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>

#define BIG 100000

static void start(struct tree_dirs *d)
{
	free(tree_put_pattern(d, "lower/big", BIG, 1));
	tree_put_text(d, "lower/small", "text");
	tree_mount(d, "volatile");
}

static struct passthrough_select look(struct tree_dirs *d, const char *path, bool writes)
{
	struct inode *i = tree_get(d, path);
	struct passthrough_select o;

	assert_int_equal(passthrough_select_look(d->t, i, writes, &o), 0);
	tree_forget(d, i);
	return o;
}

static void write_at(struct tree_dirs *d, const char *path, size_t len, off_t off)
{
	struct inode *i = tree_get(d, path);
	char *data = malloc(len);

	tree_pattern(data, len, 9);
	assert_int_equal(cow_write(d->t, i, data, len, off), 0);
	tree_forget(d, i);
	free(data);
}

static void test_passthrough_select__lower_file_is_for_readers_alone(void **state)
{
	struct tree_dirs *d = *state;

	start(d);
	assert_int_equal(look(d, "big", false).kind, PASSTHROUGH_TABLE_LOWER);
	assert_int_equal(look(d, "big", false).size, BIG);
	assert_int_equal(look(d, "big", true).kind, PASSTHROUGH_TABLE_NONE);
	assert_false(look(d, "big", true).is_partial);
}

static void commit(struct tree_dirs *d, const char *name)
{
	assert_int_equal(mapfile_commit(d->t->map, tree_get(d, name)->src.id, false), 0);
}

static void test_passthrough_select__changed_file_is_nobodys_until_it_is_complete(void **state)
{
	struct tree_dirs *d = *state;

	start(d);
	write_at(d, "big", 10, 50000);
	for (int writes = 0; writes < 2; writes++) {
		assert_int_equal(look(d, "big", writes).kind, PASSTHROUGH_TABLE_NONE);
		assert_true(look(d, "big", writes).is_partial);
	}
	write_at(d, "big", BIG - 1, 0);
	/* The map has to hear of zeros as long as their block may not be on the disk. */
	for (int writes = 0; writes < 2; writes++)
		assert_int_equal(look(d, "big", writes).kind, PASSTHROUGH_TABLE_NONE);
	commit(d, "big");
	assert_int_equal(look(d, "big", false).kind, PASSTHROUGH_TABLE_UPPER);
	assert_int_equal(look(d, "big", true).kind, PASSTHROUGH_TABLE_UPPER);
}

static void test_passthrough_select__changed_attributes_leave_the_bytes_below(void **state)
{
	struct tree_dirs *d = *state;
	struct inode *i;

	start(d);
	i = tree_get(d, "big");
	assert_int_equal(attr_chmod(d->t, i, 0755), 0);
	assert_int_equal(look(d, "big", false).kind, PASSTHROUGH_TABLE_LOWER);
	assert_true(look(d, "big", false).is_program);
	assert_int_equal(look(d, "big", true).kind, PASSTHROUGH_TABLE_NONE);
	/* To the old length again, but with a hole in between. */
	assert_int_equal(cow_truncate(d->t, i, 500), 0);
	assert_int_equal(look(d, "big", false).kind, PASSTHROUGH_TABLE_NONE);
	assert_int_equal(cow_truncate(d->t, i, BIG), 0);
	assert_int_equal(look(d, "big", false).kind, PASSTHROUGH_TABLE_NONE);
}

static void test_passthrough_select__lengthened_file_is_not_the_lower_one(void **state)
{
	struct tree_dirs *d = *state;
	struct inode *i;

	start(d);
	i = tree_get(d, "big");
	assert_int_equal(cow_truncate(d->t, i, BIG + 1), 0);
	assert_int_equal(look(d, "big", false).kind, PASSTHROUGH_TABLE_NONE);
}

static void test_passthrough_select__emptied_small_and_new_files_are_complete(void **state)
{
	struct tree_dirs *d = *state;

	start(d);
	assert_int_equal(cow_truncate(d->t, tree_get(d, "big"), 0), 0);
	/* The kernel would let it grow before the cut is on the disk. */
	assert_int_equal(look(d, "big", true).kind, PASSTHROUGH_TABLE_NONE);
	commit(d, "big");
	assert_int_equal(look(d, "big", true).kind, PASSTHROUGH_TABLE_UPPER);
	write_at(d, "small", 1, 0);
	assert_int_equal(look(d, "small", true).kind, PASSTHROUGH_TABLE_NONE);
	commit(d, "small");
	assert_int_equal(look(d, "small", true).kind, PASSTHROUGH_TABLE_UPPER);
	tree_forget(d, tree_make(d, "", "new", S_IFREG | 0644));
	assert_int_equal(look(d, "new", true).kind, PASSTHROUGH_TABLE_UPPER);
}

static void test_passthrough_select__partial_file_of_a_lower_layer_is_partial(void **state)
{
	struct tree_dirs *d = *state;

	start(d);
	write_at(d, "big", 10, 50000);
	tree_unmount(d);
	tree_freeze(d);
	tree_mount(d, "volatile");
	assert_int_equal(look(d, "big", false).kind, PASSTHROUGH_TABLE_NONE);
	assert_true(look(d, "big", false).is_partial);
}

static void test_passthrough_select__libraries_are_known_by_name(void **state)
{
	static const struct {
		const char *name;
		bool is_library;
	} rows[] = {
		{ "liba.so", true }, { "liba.so.1.2", true }, { "a.sorry", false },
		{ "so", false },     { "a.txt", false },
	};
	struct tree_dirs *d = *state;

	for (size_t k = 0; k < sizeof(rows) / sizeof(rows[0]); k++) {
		char rel[64];

		snprintf(rel, sizeof(rel), "lower/%s", rows[k].name);
		tree_put_text(d, rel, "x");
	}
	tree_mount(d, "volatile");
	for (size_t k = 0; k < sizeof(rows) / sizeof(rows[0]); k++)
		assert_int_equal(look(d, rows[k].name, false).is_program, rows[k].is_library);
}

static void test_passthrough_select__logs_and_databases_are_followed(void **state)
{
	static const struct {
		const char *name, *bytes;
		size_t len;
		bool is_followed;
	} rows[] = {
		{ "db", "SQLite format 3\0.............", 30, true },
		{ "header", "SQLite format 3", 16, true },
		{ "short", "SQLite format 3", 15, false },
		{ "text", "SQLite format 3 is described", 28, false },
		{ "wal", "\x37\x7f\x06\x82............", 16, true },
		{ "wal-be", "\x37\x7f\x06\x83............", 16, true },
		{ "other", "\x37\x7f\x06\x84............", 16, false },
		{ "journal", "LPKSHHRH........", 16, true },
		{ "lmdb", "................\xde\xc0\xef\xbe", 20, true },
		{ "rpmdb", "............\x62\x31\x05\0", 16, true },
		{ "none", "", 0, false },
		{ "a.log", "", 0, true },
		{ "a.log.1", "", 0, true },
		{ "a.log-2", "", 0, true },
		{ "a.logic", "", 0, false },
		{ "nohup.out", "", 0, true },
	};
	struct tree_dirs *d = *state;

	for (size_t k = 0; k < sizeof(rows) / sizeof(rows[0]); k++) {
		char rel[64];

		snprintf(rel, sizeof(rel), "lower/%s", rows[k].name);
		tree_put(d, rel, rows[k].bytes, rows[k].len);
	}
	tree_mount(d, "volatile");
	for (size_t k = 0; k < sizeof(rows) / sizeof(rows[0]); k++) {
		struct inode *i = tree_get(d, rows[k].name);
		struct passthrough_select o;

		assert_int_equal(passthrough_select_look(d->t, i, false, &o), 0);
		assert_int_equal(passthrough_select_is_followed(&o), rows[k].is_followed);
		assert_int_equal(passthrough_select_look(d->t, i, true, &o), 0);
		assert_false(passthrough_select_is_followed(&o));
		tree_forget(d, i);
	}
}

static void put_large(struct tree_dirs *d, const char *rel, const char *text, mode_t mode)
{
	char *data = malloc(BIG);

	for (size_t k = 0; k < BIG; k++)
		data[k] = text[k % strlen(text)];
	tree_put(d, rel, data, BIG);
	free(data);
	assert_int_equal(fchmodat(d->s.fd, rel, mode, 0), 0);
}

static void test_passthrough_select__large_text_is_followed_where_it_can_be_written(void **state)
{
	static const struct {
		const char *path, *text;
		mode_t mode;
		bool is_followed;
	} rows[] = {
		{ "ascii", "one line\tof a log\r\n", 0644, true },
		{ "utf-8", "Zeile f\xc3\xbcr Zeile\n", 0600, true },
		{ "colours", "\033[31mred\033[0m\n", 0644, true },
		{ "binary", "line\n\001", 0644, false },
		{ "closed", "one line of a log\n", 0444, false },
		{ "script", "#!/bin/sh\n", 0755, false },
		{ "usr/share/words", "word\n", 0644, false },
		{ "usr/share/logs/words", "\001word\n", 0644, true },
		{ "var/log/messages", "\001word\n", 0444, true },
	};
	struct tree_dirs *d = *state;

	for (size_t k = 0; k < sizeof(rows) / sizeof(rows[0]); k++) {
		char rel[64];

		snprintf(rel, sizeof(rel), "lower/%s", rows[k].path);
		put_large(d, rel, rows[k].text, rows[k].mode);
	}
	tree_mount(d, "volatile");
	for (size_t k = 0; k < sizeof(rows) / sizeof(rows[0]); k++) {
		const struct passthrough_select o = look(d, rows[k].path, false);

		if (passthrough_select_is_followed(&o) != rows[k].is_followed)
			fail_msg("%s: %d", rows[k].path, !rows[k].is_followed);
	}
}

static void
test_passthrough_select__what_is_registered_of_a_lower_file_cannot_be_written(void **state)
{
	struct tree_dirs *d = *state;
	struct inode *i;
	struct passthrough_select_file f;
	struct passthrough_select o;
	char path[64];
	struct stat st;
	int r;

	start(d);
	i = tree_get(d, "big");
	o = look(d, "big", false);
	r = passthrough_select_open(d->t, i, &o, &f);
	if (r == -EOPNOTSUPP) {
		print_message("no mount can be cloned here\n");
		skip();
	}
	assert_int_equal(r, 0);
	snprintf(path, sizeof(path), "/proc/self/fd/%d", f.fd);
	assert_int_equal(open(path, O_RDWR | O_CLOEXEC), -1);
	assert_int_equal(errno, EROFS);
	assert_int_equal(fstat(f.fd, &st), 0);
	assert_int_equal(st.st_size, BIG);
	passthrough_select_close(&f);
	passthrough_select_close(&f);
}

#define row(test) cmocka_unit_test_setup_teardown(test, tree_setup, tree_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		row(test_passthrough_select__lower_file_is_for_readers_alone),
		row(test_passthrough_select__changed_file_is_nobodys_until_it_is_complete),
		row(test_passthrough_select__changed_attributes_leave_the_bytes_below),
		row(test_passthrough_select__lengthened_file_is_not_the_lower_one),
		row(test_passthrough_select__emptied_small_and_new_files_are_complete),
		row(test_passthrough_select__partial_file_of_a_lower_layer_is_partial),
		row(test_passthrough_select__libraries_are_known_by_name),
		row(test_passthrough_select__logs_and_databases_are_followed),
		row(test_passthrough_select__large_text_is_followed_where_it_can_be_written),
		row(test_passthrough_select__what_is_registered_of_a_lower_file_cannot_be_written),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
