// SPDX-License-Identifier: Apache-2.0
#include <dirent.h>
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "map/snapshot-internal.h"
#include "support/scratch.h"
#include "veneer/map/journal_end.h"
#include "veneer/sys/file.h"

#define EPOCH  5u
#define NFILES 6u
#define NBLKS  900u

static void apply(struct table *t, struct record rec)
{
	const char *why = NULL;

	assert_int_equal(table_apply(t, &rec, &why), 0);
}

static int file_with(const struct buf *b)
{
	char name[] = "/tmp/test-snapshot-XXXXXX";
	int fd = mkstemp(name);

	assert_true(fd >= 0);
	unlink(name);
	assert_int_equal(file_pwrite(fd, b->data, b->len, 0), 0);
	return fd;
}

/* Load all of a map file into t, its log too. */
static int load(const struct buf *b, struct table *t)
{
	int fd = file_with(b);
	struct format_map_header h;
	struct snapshot_damage bad;
	struct journal_reader rd;
	struct record rec;
	int r = snapshot_load(fd, t, &h, &bad);

	if (r == 0) {
		uint64_t off = sizeof(h) + h.snapshot_len;

		assert_int_equal(journal_reader_init(&rd, fd, off, UINT64_MAX, h.checksum), 0);
		while (journal_reader_next(&rd, &rec) == 1)
			apply(t, rec);
		assert_int_equal(rd.off, b->len);
		journal_reader_release(&rd);
	}
	close(fd);
	return r;
}

static void check_same(const struct blkmap *a, const struct blkmap *b)
{
	assert_int_equal(blkmap_clip(a), blkmap_clip(b));
	assert_int_equal(blkmap_count(a), blkmap_count(b));
	for (blk_t i = 0; i < NBLKS; i++)
		assert_int_equal(blkmap_is_own(a, i), blkmap_is_own(b, i));
}

static void random_change(struct table *t)
{
	file_id_t id = 1 + (file_id_t)rand() % NFILES;
	blk_t blk = (blk_t)rand() % NBLKS, n = 1 + (blk_t)rand() % (rand() % 4 ? 5 : 400);

	switch (rand() % 12) {
	case 0:
		apply(t, (struct record){ .type = FORMAT_REC_COMMIT, .id = id });
		break;
	case 1:
		apply(t, (struct record){ .type = FORMAT_REC_TRUNCATE,
					  .id = id,
					  .truncate = { blk * 4000 } });
		break;
	case 2:
		apply(t, (struct record){ .type = FORMAT_REC_OWN_BITS,
					  .id = id,
					  .bits = { blk / 128, { (uint64_t)rand() | 1, 9 } } });
		break;
	default:
		apply(t,
		      (struct record){ .type = FORMAT_REC_OWN_RUN, .id = id, .run = { blk, n } });
	}
}

static void test_snapshot__keeps_present_and_committed_state_apart(void **state)
{
	(void)state;
	unsigned seed = (unsigned)time(NULL);

	print_message("seed %u\n", seed);
	srand(seed);
	for (int round = 0; round < 200; round++) {
		struct table a, b;
		struct buf out = { 0 };
		struct format_map_header h = { .uuid = 1, .generation = 1 };
		uint64_t sum;

		table_init(&a);
		table_init(&b);
		apply(&a, (struct record){ .type = FORMAT_REC_OPEN, .open = { EPOCH, 1 } });
		for (file_id_t id = 1; id <= NFILES; id++)
			apply(&a, (struct record){ .type = FORMAT_REC_NEW,
						   .id = id,
						   .fresh = { NBLKS * 4096 - 9 } });
		for (int i = rand() % 200; i > 0; i--)
			random_change(&a);
		assert_int_equal(snapshot_build(&a, &h, 1, &out, &sum), 0);
		assert_int_equal(load(&out, &b), 0);
		for (int reverted = 0; reverted < 2; reverted++) {
			for (file_id_t id = 1; id <= NFILES; id++)
				check_same(table_find(&a, id)->map, table_find(&b, id)->map);
			assert_int_equal(table_revert(&a, true), 0);
			assert_int_equal(table_revert(&b, true), 0);
		}
		buf_release(&out);
		table_release(&a);
		table_release(&b);
	}
}

static void test_snapshot__whole_file_is_one_record_however_large(void **state)
{
	(void)state;
	struct table a, b;
	struct buf out = { 0 };
	struct format_map_header h = { .uuid = 1, .generation = 1 };
	uint64_t sum;

	table_init(&a);
	table_init(&b);
	apply(&a, (struct record){ .type = FORMAT_REC_NEW, .id = 1, .fresh = { FORMAT_SIZE_MAX } });
	apply(&a, (struct record){
			  .type = FORMAT_REC_OWN_RUN, .id = 1, .run = { 5, FORMAT_BLK_END - 5 } });
	apply(&a, (struct record){ .type = FORMAT_REC_COMMIT, .id = 1 });
	assert_int_equal(snapshot_build(&a, &h, 1, &out, &sum), 0);
	assert_int_equal(out.len, sizeof(h) + 32 + 40);
	assert_int_equal(load(&out, &b), 0);
	assert_int_equal(blkmap_count(table_find(&b, 1)->map), FORMAT_BLK_END - 5);
	buf_release(&out);
	table_release(&a);
	table_release(&b);
}

/* Change one field of the header, mend its checksum, and load. */
static int load_with(size_t off, uint64_t value)
{
	struct table a, b;
	struct buf out = { 0 };
	struct format_map_header h = { .uuid = 1, .generation = 1 }, got;
	struct snapshot_damage bad;
	uint64_t sum;

	table_init(&a);
	table_init(&b);
	apply(&a, (struct record){ .type = FORMAT_REC_NEW, .id = 1, .fresh = { 9 } });
	assert_int_equal(snapshot_build(&a, &h, 1, &out, &sum), 0);
	memcpy((uint8_t *)&h + off, &value, 8);

	uint8_t bytes[sizeof(h)];

	snapshot_header_encode(&h, bytes);
	memcpy(out.data, bytes, sizeof(bytes));

	int fd = file_with(&out);
	int r = snapshot_load(fd, &b, &got, &bad);

	if (r == -EUCLEAN)
		assert_non_null(bad.rule);
	close(fd);
	buf_release(&out);
	table_release(&a);
	table_release(&b);
	return r;
}

static void test_snapshot__hostile_headers_are_refused_cheaply(void **state)
{
	(void)state;
#define FIELD(name) offsetof(struct format_map_header, name)
	assert_int_equal(load_with(FIELD(self_ino), 99), 0);
	assert_int_equal(load_with(FIELD(incompat), 1), -EUCLEAN);
	assert_int_equal(load_with(FIELD(uuid), 0), -EUCLEAN);
	assert_int_equal(load_with(FIELD(generation), 0), -EUCLEAN);
	assert_int_equal(load_with(FIELD(next_id), 0), -EUCLEAN);
	assert_int_equal(load_with(FIELD(next_id), 1), -EUCLEAN);
	assert_int_equal(load_with(FIELD(next_id), UINT64_MAX), -EUCLEAN);
	assert_int_equal(load_with(FIELD(lost_end), 1000), -EUCLEAN);
	assert_int_equal(load_with(FIELD(lost_first), 1), -EUCLEAN);
	assert_int_equal(load_with(FIELD(snapshot_len), 1ull << 60), -EUCLEAN);
	assert_int_equal(load_with(FIELD(snapshot_len), UINT64_MAX - 7), -EUCLEAN);
	assert_int_equal(load_with(FIELD(snapshot_len), 33), -EUCLEAN);
	assert_int_equal(load_with(FIELD(snapshot_files), UINT64_MAX), -EUCLEAN);
	assert_int_equal(load_with(FIELD(snapshot_sum), 0), -EUCLEAN);
}

/* Before anything else of the file is read. */
static void test_snapshot__header_says_which_rule_it_breaks(void **state)
{
	static const char ids[] = "file ids out of range";
	static const struct {
		size_t off;
		uint64_t value;
		const char *why;
	} rows[] = {
		{ FIELD(uuid), 0, "uuid or generation is 0" },
		{ FIELD(generation), 0, "uuid or generation is 0" },
		{ FIELD(next_id), 0, ids },
		{ FIELD(next_id), FORMAT_ID_END + 1, ids },
		{ FIELD(next_id), 19, ids },
		{ FIELD(lost_first), 21, ids },
		{ FIELD(lost_end), 9, ids },
		{ FIELD(snapshot_len), 33, "snapshot length" },
		{ FIELD(snapshot_len), FORMAT_SIZE_MAX, "snapshot length" },
	};
	const struct format_map_header whole = { .version = FORMAT_MAP_VERSION,
						 .header_len = sizeof(whole),
						 .uuid = 1,
						 .generation = 1,
						 .next_id = 20,
						 .lost_first = 10,
						 .lost_end = 20 };

	(void)state;
	for (size_t k = 0; k < sizeof(rows) / sizeof(*rows); k++) {
		struct format_map_header h = whole, got;
		uint8_t bytes[sizeof(h)];
		const char *why = NULL;

		snapshot_header_encode(&h, bytes);
		assert_int_equal(snapshot_header_decode(bytes, sizeof(bytes), &got, &why), 0);
		memcpy((uint8_t *)&h + rows[k].off, &rows[k].value, sizeof(rows[k].value));
		snapshot_header_encode(&h, bytes);
		assert_int_equal(snapshot_header_decode(bytes, sizeof(bytes), &got, &why),
				 -EUCLEAN);
		assert_string_equal(why, rows[k].why);
	}
}

static void test_snapshot__file_is_a_copy_unless_number_and_birth_time_are_its_own(void **state)
{
	const struct buf nothing = { 0 };
	const int fd = file_with(&nothing);
	struct format_map_header own, other;

	(void)state;
	assert_int_equal(snapshot_identify(fd, &own), 0);
	assert_int_equal(snapshot_is_copy(fd, &own), 0);
	other = own;
	other.self_ino++;
	assert_int_equal(snapshot_is_copy(fd, &other), 1);
	other = own;
	other.self_btime_ns++;
	assert_int_equal(snapshot_is_copy(fd, &other), 1);
	assert_int_equal(snapshot_is_copy(-1, &own), -EBADF);
	close(fd);
}

static int open_temp(void *arg)
{
	char name[SNAPSHOT_TEMP_BYTES];
	const int fd = snapshot_temp_open(*(const int *)arg, name);

	if (fd >= 0)
		close(fd);
	return fd < 0 ? fd : 0;
}

static unsigned count_entries(const struct scratch *s)
{
	struct dirent **v;
	int n = scandir(s->path, &v, NULL, NULL);

	assert_true(n >= 2);
	for (int k = 0; k < n; k++)
		free(v[k]);
	free(v);
	return (unsigned)n - 2;
}

static void test_snapshot__without_a_random_name_there_is_no_file(void **state)
{
	struct scratch s;

	(void)state;
	assert_int_equal(scratch_enter(&s), 0);
	assert_int_equal(scratch_run_denied(SYS_getrandom, ENOSYS, open_temp, &s.fd), -ENOSYS);
	assert_int_equal(count_entries(&s), 0);
	assert_int_equal(open_temp(&s.fd), 0);
	assert_int_equal(open_temp(&s.fd), 0);
	assert_int_equal(count_entries(&s), 2);
	assert_int_equal(open_temp(&(int){ -1 }), -EBADF);
	scratch_leave(&s);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(
			test_snapshot__file_is_a_copy_unless_number_and_birth_time_are_its_own),
		cmocka_unit_test(test_snapshot__without_a_random_name_there_is_no_file),
		cmocka_unit_test(test_snapshot__keeps_present_and_committed_state_apart),
		cmocka_unit_test(test_snapshot__whole_file_is_one_record_however_large),
		cmocka_unit_test(test_snapshot__hostile_headers_are_refused_cheaply),
		cmocka_unit_test(test_snapshot__header_says_which_rule_it_breaks),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
