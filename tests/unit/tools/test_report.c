// SPDX-License-Identifier: Apache-2.0
#include "support/reports.h"
#include "support/tree.h"

#include "veneer/data/cow.h"
#include "veneer/data/cow_fallocate.h"

static void assert_same_op(const struct stats_op *a, const struct stats_op *b)
{
	assert_int_equal(a->requests, b->requests);
	assert_int_equal(a->errors, b->errors);
	assert_int_equal(a->sum_ns / 1000, b->sum_ns / 1000);
	assert_int_equal(a->max_ns / 1000, b->max_ns / 1000);
	assert_memory_equal(a->buckets, b->buckets, sizeof(a->buckets));
}

static void assert_same_values(const struct stats_values *a, const struct stats_values *b)
{
	assert_memory_equal(a->counters, b->counters, sizeof(a->counters));
	for (size_t i = 0; i < STATS_OPCODES; i++)
		assert_same_op(&a->ops[i], &b->ops[i]);
}

static void test_report__its_text_says_all_of_it(void **state)
{
	struct report r = reports_make("/c 2/\"merged\"\n"), back;
	char *json;

	(void)state;
	r.mounts[0].container = strdup("web");
	assert_int_equal(report_json(&r, &json), 0);
	assert_null(strchr(json, '\n'));
	assert_int_equal(report_parse(json, &back), 0);
	assert_string_equal(back.version, r.version);
	assert_int_equal(back.pid, r.pid);
	assert_int_equal(back.uptime_s, r.uptime_s);
	assert_int_equal(back.rss_bytes, r.rss_bytes);
	assert_int_equal(back.descriptors, r.descriptors);
	assert_int_equal(back.mounts_served, 2);
	assert_memory_equal(&back.windows, &r.windows, sizeof(r.windows));
	assert_memory_equal(&back.share, &r.share, sizeof(r.share));
	assert_int_equal(back.limiter.cpu_ns, 1250000);
	assert_int_equal(back.limiter.drop_ns, 750000);
	assert_int_equal(back.inodes_served, 1234);
	assert_memory_equal(back.memory, r.memory, sizeof(r.memory));
	assert_same_values(&back.totals, &r.totals);
	assert_int_equal(back.nmounts, 2);
	for (int i = 0; i < 2; i++) {
		assert_string_equal(back.mounts[i].mountpoint, r.mounts[i].mountpoint);
		assert_string_equal(back.mounts[i].mode, r.mounts[i].mode);
		assert_int_equal(back.mounts[i].nlower, 3);
		assert_int_equal(back.mounts[i].inodes, 617);
		assert_same_values(&back.mounts[i].values, &r.mounts[i].values);
	}
	assert_string_equal(back.mounts[0].upper, "/c1/upper");
	assert_string_equal(back.mounts[0].mode_reason, "the kernel reads");
	assert_string_equal(back.mounts[0].options, "cow=map,io=auto");
	assert_string_equal(back.mounts[0].container, "web");
	assert_string_equal(back.mounts[0].lowers[0], "/top");
	assert_string_equal(back.mounts[0].lowers[2], "/l");
	assert_null(back.mounts[1].upper);
	assert_string_equal(back.mounts[0].unknown, "sizze=5M, --foo");
	assert_null(back.mounts[1].unknown);
	assert_null(back.mounts[1].container);
	assert_null(back.mounts[1].lowers);
	assert_int_equal(back.mounts[0].map_files, 1);
	assert_int_equal(back.mounts[0].map_log_bytes, 4096);
	assert_int_equal(back.nimages, 1);
	assert_int_equal(back.images[0].nlayers, 3);
	assert_int_equal(back.images[0].nmounts, 2);
	assert_int_equal(back.images[0].bytes, 1 << 20);
	free(json);
	report_release(&back);
	report_release(&r);
}

static void test_report__bytes_that_are_no_characters_are_spelt(void **state)
{
	static const char *const paths[][2] = {
		{ "/plain", "/plain" },
		{ "/gr\xc3\xbc\xc3\x9f", "/gr\xc3\xbc\xc3\x9f" },
		{ "/\xe2\x82\xac\xf0\x9f\x90\xa7", "/\xe2\x82\xac\xf0\x9f\x90\xa7" },
		{ "/\xff\xc3", "/\\xff\\xc3" },
		{ "/\xc0\xaf", "/\\xc0\\xaf" },
		{ "/\xe0\x80\x80", "/\\xe0\\x80\\x80" },
		{ "/\xed\xa0\x80", "/\\xed\\xa0\\x80" },
		{ "/\xf4\x90\x80\x80", "/\\xf4\\x90\\x80\\x80" },
		{ "/\xf0\x9f\x90", "/\\xf0\\x9f\\x90" },
	};

	(void)state;
	for (size_t i = 0; i < sizeof(paths) / sizeof(*paths); i++) {
		char *text = report_path(paths[i][0]), *json;
		struct report r, back;

		assert_string_equal(text, paths[i][1]);
		free(text);
		r = reports_make(paths[i][0]);
		assert_int_equal(report_json(&r, &json), 0);
		assert_int_equal(report_parse(json, &back), 0);
		assert_string_equal(back.mounts[1].mountpoint, paths[i][1]);
		free(json);
		report_release(&back);
		report_release(&r);
	}
}

static void test_report__control_characters_are_spelt_in_a_line(void **state)
{
	static const char *const texts[][2] = {
		{ "/plain gr\xc3\xbc\xc3\x9f \xc2\xa0", "/plain gr\xc3\xbc\xc3\x9f \xc2\xa0" },
		{ "/a\nD /b\t\x1b[2J\x7f", "/a\\x0aD /b\\x09\\x1b[2J\\x7f" },
		{ "/\xc2\x80\xc2\x9f\xff", "/\\xc2\\x80\\xc2\\x9f\\xff" },
	};

	(void)state;
	for (size_t i = 0; i < sizeof(texts) / sizeof(*texts); i++) {
		char *text = report_line(texts[i][0]);

		assert_string_equal(text, texts[i][1]);
		free(text);
	}
}

static void test_report__other_versions_are_read_and_nonsense_is_not(void **state)
{
	static const char *const bad[] = { "",
					   "null",
					   "[]",
					   "{}",
					   "{\"version\":\"1\"}",
					   "{\"version\":1,\"server\":{}}",
					   "{\"version\":\"1\",\"server\":{}",
					   "{\"version\":\"1\",\"server\":{},\"mounts\":[{}]}",
					   "{\"version\":\"1\",\"server\":{},\"mounts\":[7]}" };
	struct report r;

	(void)state;
	for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++)
		assert_int_equal(report_parse(bad[i], &r), -EBADMSG);
	assert_int_equal(
		report_parse("{\"version\":\"9\",\"server\":{\"pid\":-1,\"new\":[]},\"mounts\":[{"
			     "\"mountpoint\":\"/m\",\"mode\":\"new\","
			     "\"requests\":{\"lookup\":\"x\",\"read\":3,\"new\":4},\"latency_us\":{"
			     "\"read\":{\"buckets\":[1,-2,\"\"]}}}],\"new\":1}",
			     &r),
		0);
	assert_int_equal(r.pid, 0);
	assert_int_equal(r.nmounts, 1);
	assert_int_equal(r.mounts[0].values.ops[1].requests, 0);
	assert_int_equal(r.mounts[0].values.ops[15].requests, 3);
	assert_int_equal(stats_answered(&r.mounts[0].values.ops[15]), 1);
	report_release(&r);
}

static bool is_second(void *arg, const char *mountpoint)
{
	return !strcmp(mountpoint, arg);
}

static void test_report__one_mount_can_be_picked_and_the_server_stays(void **state)
{
	struct report r = reports_make("/c2"), back;
	char *json, *picked, second[] = "/c2", none[] = "/c3";

	(void)state;
	assert_int_equal(report_json(&r, &json), 0);
	assert_int_equal(report_only(json, is_second, second, &picked), 0);
	assert_int_equal(report_parse(picked, &back), 0);
	assert_int_equal(back.nmounts, 1);
	assert_string_equal(back.mounts[0].mountpoint, "/c2");
	assert_int_equal(back.mounts_served, 2);
	free(picked);
	assert_int_equal(report_only(json, is_second, none, &picked), -ENOENT);
	assert_int_equal(report_only("{}", is_second, none, &picked), -EBADMSG);
	free(json);
	report_release(&back);
	report_release(&r);
}

static void test_report__what_was_gained_is_never_negative(void **state)
{
	struct stats_values a = { .counters = { 10, 5 } }, b = { .counters = { 4, 7 } };

	(void)state;
	a.ops[1] = (struct stats_op){
		.requests = 3, .errors = 1, .sum_ns = 9, .max_ns = 4, .buckets = { 2, 3 }
	};
	b.ops[1] = (struct stats_op){
		.requests = 1, .errors = 2, .sum_ns = 3, .max_ns = 8, .buckets = { 1, 4 }
	};
	report_subtract(&a, &b);
	assert_int_equal(a.counters[0], 6);
	assert_int_equal(a.counters[1], 0);
	assert_int_equal(a.ops[1].requests, 2);
	assert_int_equal(a.ops[1].errors, 0);
	assert_int_equal(a.ops[1].sum_ns, 6);
	assert_int_equal(a.ops[1].max_ns, 4);
	assert_int_equal(a.ops[1].buckets[0], 1);
	assert_int_equal(a.ops[1].buckets[1], 0);
}

#define BYTES (2 * CHUNK_BYTES + 3 * BLK_BYTES + 100)

/* The counts of the mount since the last time. */
static struct stats_values gained(struct union_fs *t)
{
	static struct stats_values before;
	struct stats_values v, now;

	stats_read(t->stats, &now);
	v = now;
	report_subtract(&v, &before);
	before = now;
	return v;
}

static void assert_cow(struct union_fs *t, uint64_t writes, uint64_t own, uint64_t filled)
{
	struct stats_values v = gained(t);

	assert_int_equal(v.counters[STATS_COW_WRITES], writes);
	assert_int_equal(v.counters[STATS_COW_BYTES], own);
	assert_int_equal(v.counters[STATS_FILL_BYTES], filled);
}

static void test_report__copy_on_write_is_counted_to_the_byte(void **state)
{
	struct tree_dirs *d = *state;
	static char data[CHUNK_BYTES];
	struct stats_values v;
	struct inode *i;

	free(tree_put_pattern(d, "lower/f", BYTES, 1));
	tree_mount(d, "volatile");
	stats_enter(d->t->stats);
	i = tree_get(d, "f");
	for (int k = 0; k < 10; k++)
		assert_int_equal(cow_write(d->t, i, data, BLK_BYTES, k * 7 * BLK_BYTES), 0);
	v = gained(d->t);
	assert_int_equal(v.counters[STATS_COW_WRITES], 10);
	assert_int_equal(v.counters[STATS_COW_BYTES], 10 * BLK_BYTES);
	assert_int_equal(v.counters[STATS_FILL_BYTES], 0);
	assert_int_equal(v.counters[STATS_COPYUPS], 1);
	assert_int_equal(v.counters[STATS_COPYUP_BYTES], 0);
	assert_int_equal(v.counters[STATS_WHOLE_BYTES], BYTES);
	assert_int_equal(stats_not_copied(&v), BYTES);
	/* again: they are own */
	assert_int_equal(cow_write(d->t, i, data, BLK_BYTES, 0), 0);
	assert_int_equal(cow_write(d->t, i, data, 100, 50), 0);
	assert_cow(d->t, 0, 0, 0);
	/* inside a block; over an edge, of which one side is own */
	assert_int_equal(cow_write(d->t, i, data, 100, 2 * BLK_BYTES + 10), 0);
	assert_cow(d->t, 1, BLK_BYTES, BLK_BYTES - 100);
	assert_int_equal(cow_write(d->t, i, data, 100, BLK_BYTES - 30), 0);
	assert_cow(d->t, 1, BLK_BYTES, BLK_BYTES - 70);
	/* half a chunk takes all of it */
	assert_int_equal(cow_write(d->t, i, data, CHUNK_BYTES / 2, CHUNK_BYTES), 0);
	assert_cow(d->t, 1, CHUNK_BYTES, CHUNK_BYTES / 2);
	/* behind the end: what is left of the last block comes from below, zeros come from
	 * nowhere */
	assert_int_equal(cow_write(d->t, i, data, 10, BYTES + 50), 0);
	assert_cow(d->t, 1, BLK_BYTES, 100);
	assert_int_equal(cow_write(d->t, i, data, BLK_BYTES, BYTES + 10 * BLK_BYTES), 0);
	assert_cow(d->t, 0, 0, 0);
	/* blocks that are made zero take nothing from below */
	assert_int_equal(cow_fallocate(d->t, i, 3 /* PUNCH_HOLE | KEEP_SIZE */, 2 * CHUNK_BYTES,
				       2 * BLK_BYTES),
			 0);
	assert_cow(d->t, 1, 2 * BLK_BYTES, 0);
	tree_forget(d, i);
	stats_enter(NULL);
}

static void test_report__small_files_and_whole_copies_save_nothing(void **state)
{
	struct tree_dirs *d = *state;
	struct stats_values v;
	struct inode *i;

	free(tree_put_pattern(d, "lower/small", 5000, 1));
	free(tree_put_pattern(d, "lower/large", BYTES, 2));
	tree_mount(d, "volatile");
	stats_enter(d->t->stats);
	i = tree_get(d, "small");
	assert_int_equal(cow_write(d->t, i, "x", 1, 10), 0);
	tree_forget(d, i);
	stats_read(d->t->stats, &v);
	assert_int_equal(v.counters[STATS_COPYUP_BYTES], 5000);
	assert_int_equal(v.counters[STATS_WHOLE_BYTES], 5000);
	assert_int_equal(v.counters[STATS_COW_WRITES], 0);
	stats_enter(NULL);
	tree_unmount(d);
	tree_mount(d, "volatile,cow=copy");
	stats_enter(d->t->stats);
	i = tree_get(d, "large");
	assert_int_equal(cow_write(d->t, i, "x", 1, 10), 0);
	tree_forget(d, i);
	stats_read(d->t->stats, &v);
	assert_int_equal(v.counters[STATS_COPYUP_BYTES], BYTES);
	assert_int_equal(stats_not_copied(&v), 0);
	stats_enter(NULL);
}

static int json_of(struct mount *m, char **ret_json)
{
	struct report r;
	int result = report_begin(&r);

	result = result ?: report_add(&r, m);
	result = result ?: report_json(&r, ret_json);
	report_release(&r);
	return result;
}

static void test_report__a_mount_is_shown_as_it_is(void **state)
{
	struct tree_dirs *d = *state;
	struct report r;
	char *json;

	tree_layers(d, "b:a");
	tree_put_text(d, "a/dir/f", "text");
	tree_mount(d, "volatile,sizze=5M");
	tree_forget(d, tree_get(d, "dir"));
	assert_int_equal(json_of(&d->m, &json), 0);
	assert_int_equal(report_parse(json, &r), 0);
	assert_int_equal(r.pid, getpid());
	assert_in_range(r.rss_bytes, 1 << 20, 1 << 30);
	assert_in_range(r.uptime_s, 0, 1000);
	assert_int_equal(r.nmounts, 1);
	assert_int_equal(r.share.images, 1);
	assert_int_equal(r.images[0].nlayers, 2);
	assert_string_equal(r.mounts[0].mountpoint, d->m.opts.mountpoint);
	assert_string_equal(r.mounts[0].upper, d->m.opts.upper);
	assert_string_equal(r.mounts[0].unknown, "sizze=5M");
	assert_int_equal(r.mounts[0].nlower, 2);
	assert_true(r.memory[STATS_MEM_INODES] > sizeof(struct inode));
	free(json);
	report_release(&r);
}

static void test_report__memory_of_a_mount_goes_with_it(void **state)
{
	struct tree_dirs *d = *state;
	uint64_t inodes = stats_memory(STATS_MEM_INODES), maps = stats_memory(STATS_MEM_MAPS),
		 before;
	struct inode *i;

	free(tree_put_pattern(d, "lower/dir/f", BYTES, 1));
	tree_put_text(d, "upper/a", "a");
	tree_mount(d, "volatile");
	before = stats_memory(STATS_MEM_INODES);
	assert_true(before > inodes);
	i = tree_get(d, "dir/f");
	assert_int_equal(cow_write(d->t, i, "x", 1, 10), 0);
	assert_true(stats_memory(STATS_MEM_INODES) > before);
	assert_true(stats_memory(STATS_MEM_MAPS) > maps);
	tree_forget(d, i);
	tree_unmount(d);
	assert_int_equal(stats_memory(STATS_MEM_INODES), inodes);
	assert_int_equal(stats_memory(STATS_MEM_MAPS), maps);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_report__its_text_says_all_of_it),
		cmocka_unit_test(test_report__bytes_that_are_no_characters_are_spelt),
		cmocka_unit_test(test_report__control_characters_are_spelt_in_a_line),
		cmocka_unit_test(test_report__other_versions_are_read_and_nonsense_is_not),
		cmocka_unit_test(test_report__one_mount_can_be_picked_and_the_server_stays),
		cmocka_unit_test(test_report__what_was_gained_is_never_negative),
		cmocka_unit_test_setup_teardown(test_report__copy_on_write_is_counted_to_the_byte,
						tree_setup, tree_teardown),
		cmocka_unit_test_setup_teardown(
			test_report__small_files_and_whole_copies_save_nothing, tree_setup,
			tree_teardown),
		cmocka_unit_test_setup_teardown(test_report__a_mount_is_shown_as_it_is, tree_setup,
						tree_teardown),
		cmocka_unit_test_setup_teardown(test_report__memory_of_a_mount_goes_with_it,
						tree_setup, tree_teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
