// SPDX-License-Identifier: Apache-2.0
/* The worked examples of doc/SPEC.md, byte for byte. A change here is a change of the format. */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "map/mapfile-internal.h"
#include "veneer/base/log.h"
#include "veneer/layer/partial_xattr.h"
#include "veneer/map/session_epoch.h"
#include "veneer/sys/file.h"

#define EPOCH 0xb007u
#define NONCE 0x5e55u

static const char golden_map[] = "\x89\x56\x4e\x52\x4d\x41\x50\x0a\x01\x00\x00\x00\x80\x00\x00\x00"
				 "\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00"
				 "\x88\x77\x66\x55\x44\x33\x22\x11\x02\x00\x00\x00\x00\x00\x00\x00"
				 "\x02\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00"
				 "\x00\x00\x00\x00\x00\x00\x00\x00\x0c\x00\x00\x00\x00\x00\x00\x00"
				 "\x00\x00\x2a\x36\xfe\x9c\x97\x17\x48\x00\x00\x00\x00\x00\x00\x00"
				 "\x01\x00\x00\x00\x00\x00\x00\x00\x61\xdc\x6c\xab\x84\xaf\xd9\x0d"
				 "\x00\x00\x00\x00\x00\x00\x00\x00\x48\x2b\x64\x2f\xee\x2c\xc9\xa0"
				 "\x02\x04\x00\x00\x00\x00\x00\x00\x01\x00\x00\x00\x00\x00\x00\x00"
				 "\x10\x27\x00\x00\x00\x00\x00\x00\x5b\xd3\xf8\x0d\xe1\xb3\xd8\xcf"
				 "\x03\x05\x00\x00\x00\x00\x00\x00\x01\x00\x00\x00\x00\x00\x00\x00"
				 "\x01\x00\x00\x00\x00\x00\x00\x00\x01\x00\x00\x00\x00\x00\x00\x00"
				 "\x61\xdc\x6c\xab\x84\xaf\xd9\x0d\x01\x04\x00\x00\x00\x00\x00\x00"
				 "\x07\xb0\x00\x00\x00\x00\x00\x00\x55\x5e\x00\x00\x00\x00\x00\x00"
				 "\xae\x7f\x8a\xe1\x24\xd9\xbe\x9e\x03\x05\x00\x00\x00\x00\x00\x00"
				 "\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00"
				 "\x01\x00\x00\x00\x00\x00\x00\x00\xf9\xa4\xbb\x51\xe4\x5e\xd9\xf9"
				 "\x07\x03\x00\x00\x00\x00\x00\x00\x01\x00\x00\x00\x00\x00\x00\x00"
				 "\xb6\xbd\x13\x3a\x35\xe2\x12\xcd";
#define GOLDEN_LEN (sizeof(golden_map) - 1)

static const char golden_mark[] =
	"\x01\x00\x00\x00\x88\x77\x66\x55\x01\x00\x00\x00\x00\x00\x00\x00"
	"\x10\x27\x00\x00\x00\x00\x00\x00\x00\xf1\x53\x65\x00\x00\x00\x00"
	"\x05\x00\x00\x00\x00\x00\x00\x00\x14\xc3\x86\x2f\x02\x0c\xd1\x83";

static const char golden_mark_with_path[] =
	"\x01\x01\x05\x00\x88\x77\x66\x55\x01\x00\x00\x00\x00\x00\x00\x00"
	"\x10\x27\x00\x00\x00\x00\x00\x00\x00\xf1\x53\x65\x00\x00\x00\x00"
	"\x05\x00\x00\x00\x00\x00\x00\x00\x51\xc8\x7b\xa8\x44\x12\x8a\xc9"
	"\x65\x74\x63\x2f\x61";

static const char golden_mark_of_a_copy[] =
	"\x01\x03\x05\x00\x88\x77\x66\x55\x01\x00\x00\x00\x00\x00\x00\x00"
	"\x10\x27\x00\x00\x00\x00\x00\x00\x00\xf1\x53\x65\x00\x00\x00\x00"
	"\x05\x00\x00\x00\x00\x00\x00\x00\xaf\x9b\x1c\x9e\x76\xb5\x21\x02"
	"\x65\x74\x63\x2f\x61";

static void apply(struct table *t, struct record rec)
{
	const char *why = NULL;

	assert_int_equal(table_apply(t, &rec, &why), 0);
}

static void put(struct buf *b, uint64_t *sum, struct record rec)
{
	uint8_t bytes[FORMAT_REC_BYTES_MAX];
	size_t len = record_encode(&rec, *sum, bytes, sum);

	assert_int_equal(buf_put(b, bytes, len), 0);
}

static void test_format__writer_gives_the_worked_example(void **state)
{
	(void)state;
	struct format_map_header h = {
		.uuid = 0x1122334455667788,
		.generation = 2,
		.self_ino = 12,
		.self_btime_ns = 1700000000000000000,
	};
	struct table t;
	struct buf b = { 0 };
	uint64_t sum;

	table_init(&t);
	apply(&t, (struct record){ .type = FORMAT_REC_NEW, .id = 1, .fresh = { 10000 } });
	t.is_loading = true;
	apply(&t, (struct record){ .type = FORMAT_REC_OWN_RUN, .id = 1, .run = { 1, 1 } });
	t.is_loading = false;
	apply(&t, (struct record){ .type = FORMAT_REC_OPEN, .open = { EPOCH, NONCE } });
	assert_int_equal(snapshot_build(&t, &h, NONCE, &b, &sum), 0);
	put(&b, &sum, (struct record){ .type = FORMAT_REC_OWN_RUN, .id = 1, .run = { 0, 1 } });
	put(&b, &sum, (struct record){ .type = FORMAT_REC_COMMIT, .id = 1 });
	assert_int_equal(b.len, GOLDEN_LEN);
	assert_memory_equal(b.data, golden_map, GOLDEN_LEN);
	buf_release(&b);
	table_release(&t);
}

/* A layer whose map holds these bytes, opened for reading. */
static int open_bytes(const void *p, size_t len, struct mapfile **ret)
{
	char dir[] = "/tmp/test-format-XXXXXX";

	assert_non_null(mkdtemp(dir));

	int root = open(dir, O_RDONLY | O_DIRECTORY);
	int fd = openat(root, MAPFILE_NAME, O_RDWR | O_CREAT, 0644);

	assert_int_equal(file_pwrite(fd, p, len, 0), 0);
	close(fd);

	int r = mapfile_open(root, -1, MAPFILE_READONLY, "test", NULL, ret);

	unlinkat(root, MAPFILE_NAME, 0);
	close(root);
	rmdir(dir);
	return r;
}

static void test_format__reader_understands_the_worked_example(void **state)
{
	(void)state;
	struct mapfile *mf;
	bool is_own;
	blk_t n;
	uint64_t clip;

	session_epoch_for_tests = EPOCH + 1;
	assert_int_equal(open_bytes(golden_map, GOLDEN_LEN, &mf), 0);
	assert_int_equal(mapfile_uuid(mf), 0x1122334455667788);
	assert_int_equal(mapfile_clip(mf, 1, &clip), 0);
	assert_int_equal(clip, 10000);
	assert_int_equal(mapfile_run(mf, 1, 0, 9, &is_own, &n), 0);
	assert_true(is_own);
	assert_int_equal(n, 2);
	mapfile_close(mf);
}

static size_t load_asset(const char *name, char *p, size_t size)
{
	char path[128];

	snprintf(path, sizeof(path), "tests/assets/%s.map", name);

	int fd = open(path, O_RDONLY);

	assert_true(fd >= 0);

	ssize_t n = file_pread(fd, p, size, 0);

	assert_true(n > 0);
	close(fd);
	return (size_t)n;
}

static void test_format__map_of_version_1_is_still_read(void **state)
{
	(void)state;
	char bytes[4096];

	assert_int_equal(load_asset("map-v1", bytes, sizeof(bytes)), GOLDEN_LEN);
	assert_memory_equal(bytes, golden_map, GOLDEN_LEN);
}

static void test_format__damaged_maps_are_refused(void **state)
{
	(void)state;
	static const char *const names[] = {
		"should-fail-incompatible-feature",
		"should-fail-unknown-file",
		"should-fail-entered-twice",
		"should-fail-outside-session",
		"should-fail-block-above-largest-file",
	};

	log_set_level(-1);
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		char bytes[4096];
		struct mapfile *mf;
		size_t len = load_asset(names[i], bytes, sizeof(bytes));

		assert_int_equal(open_bytes(bytes, len, &mf), -EUCLEAN);
	}
}

/* One byte of a record: its checksum says which, and what it was. */
static void test_format__one_damaged_byte_is_put_right(void **state)
{
	(void)state;
	char bytes[4096];
	struct mapfile *mf;
	size_t len = load_asset("one-damaged-byte", bytes, sizeof(bytes));

	log_set_level(-1);
	assert_int_equal(open_bytes(bytes, len, &mf), 0);
	assert_int_equal(mapfile_count(mf), 1);
	mapfile_close(mf);
}

static void test_format__mark_is_the_worked_example(void **state)
{
	(void)state;
	struct partial_xattr m = {
		.file_id = 1,
		.uuid_low = 0x55667788,
		.lower_size = 10000,
		.lower_mtime_s = 1700000000,
		.lower_mtime_ns = 5,
	};
	struct partial_xattr got;
	struct buf b = { 0 };

	assert_int_equal(partial_xattr_encode(&m, &b), 0);
	assert_int_equal(b.len, sizeof(golden_mark) - 1);
	assert_memory_equal(b.data, golden_mark, b.len);
	b.len = 0;
	strcpy(m.path, "etc/a");
	assert_int_equal(partial_xattr_encode(&m, &b), 0);
	assert_int_equal(b.len, sizeof(golden_mark_with_path) - 1);
	assert_memory_equal(b.data, golden_mark_with_path, b.len);
	assert_int_equal(partial_xattr_decode(golden_mark_with_path, b.len, &got), 0);
	assert_string_equal(got.path, "etc/a");
	assert_false(got.is_copy);
	b.len = 0;
	m.is_copy = true;
	assert_int_equal(partial_xattr_encode(&m, &b), 0);
	assert_int_equal(b.len, sizeof(golden_mark_of_a_copy) - 1);
	assert_memory_equal(b.data, golden_mark_of_a_copy, b.len);
	assert_int_equal(partial_xattr_decode(golden_mark_of_a_copy, b.len, &got), 0);
	assert_true(got.is_copy);
	buf_release(&b);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_format__writer_gives_the_worked_example),
		cmocka_unit_test(test_format__reader_understands_the_worked_example),
		cmocka_unit_test(test_format__map_of_version_1_is_still_read),
		cmocka_unit_test(test_format__damaged_maps_are_refused),
		cmocka_unit_test(test_format__one_damaged_byte_is_put_right),
		cmocka_unit_test(test_format__mark_is_the_worked_example),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
