// SPDX-License-Identifier: Apache-2.0
#include "support/delta.h"

#include "veneer/base/log.h"
#include "veneer/data/cow.h"

#define BIG ((size_t)64 * BLK_BYTES + 100)

static const struct delta_head head = { .id = 7, .time_ns = 1234, .name = "name" };

/* The bytes of the partial file in the end; to be freed. */
static char *put_changes(struct tree_dirs *d)
{
	char *big = tree_put_pattern(d, "lower/dir/big", BIG, 1);
	struct inode *i;

	tree_put_text(d, "lower/gone", "x");
	tree_put_text(d, "lower/dir/stays", "stays");
	tree_put_text(d, "lower/over/below", "x");
	tree_mount(d, "volatile");
	i = tree_get(d, "dir/big");
	assert_int_equal(cow_write(d->t, i, "changed", 7, 5 * BLK_BYTES + 3), 0);
	tree_forget(d, i);
	tree_unmount(d);
	memcpy(big + 5 * BLK_BYTES + 3, "changed", 7);
	tree_put_text(d, "upper/dir/new", "new");
	tree_put_whiteout(d, "upper/gone");
	tree_put_opaque(d, "upper/over");
	assert_int_equal(symlinkat("target", d->s.fd, "upper/link"), 0);
	assert_int_equal(linkat(d->s.fd, "upper/dir/new", d->s.fd, "upper/twin", 0), 0);
	return big;
}

static void expect_changes(struct tree_dirs *d, const char *big)
{
	tree_expect_names(d, "", "dir link over twin");
	tree_expect_names(d, "dir", "big new stays");
	tree_expect_names(d, "over", "");
	tree_expect(d, "dir/big", big, BIG);
	tree_expect_text(d, "dir/new", "new");
	tree_expect_text(d, "twin", "new");
	tree_expect_text(d, "dir/stays", "stays");
}

static void test_delta_receive__layer_shows_what_was_sent(void **state)
{
	struct tree_dirs *d = *state;
	struct delta_received got;
	struct delta_text t;
	char *big = put_changes(d);

	delta_make(d, &head, &t);
	/* The file of which eight bytes have changed goes by its blocks. */
	assert_true(t.len < BIG / 2 + 20000);
	assert_int_equal(delta_take(d, t.bytes, t.len, false, &got), 0);
	assert_int_equal(got.head.id, 7);
	assert_string_equal(got.head.name, "name");
	assert_true(got.entries > 0);
	assert_true(tree_is_partial(d, "made/dir/big"));
	delta_mount(d);
	expect_changes(d, big);
	delta_release(&t);
	free(big);
}

static void test_delta_receive__stream_that_is_cut_anywhere_is_not_whole(void **state)
{
	struct tree_dirs *d = *state;
	struct delta_received got;
	struct delta_text t;
	char *big = put_changes(d);
	size_t whole;

	delta_make(d, &head, &t);
	/* The archive ends with zeros, of which nobody reads more than it must. */
	for (whole = t.len; !t.bytes[whole - 1];)
		whole--;
	for (size_t len = 0; len < whole; len += 512 - len % 3) {
		int r = delta_take(d, t.bytes, len, false, &got);

		assert_true(r < 0);
		if (r != -EPIPE && r != -EUCLEAN)
			fail_msg("%zu of %zu bytes: %d", len, t.len, r);
	}
	delta_release(&t);
	free(big);
}

/* Either it is refused, or the byte says nothing. */
static void test_delta_receive__byte_that_is_changed_is_found(void **state)
{
	struct tree_dirs *d = *state;
	struct delta_received got;
	struct delta_text t;
	char *big = put_changes(d);
	unsigned n_refused = 0, n = 0;

	delta_make(d, &head, &t);
	log_set_level(LOG_LVL_ERROR);
	for (size_t at = 0; at < t.len; at += 211, n++) {
		t.bytes[at] ^= 0x15;
		n_refused += delta_take(d, t.bytes, t.len, false, &got) < 0;
		t.bytes[at] ^= 0x15;
	}
	/* Padding and the fields of a header that nobody reads are no more than a part of it. */
	assert_true(n_refused > n / 4);
	assert_int_equal(delta_take(d, t.bytes, t.len, false, &got), 0);
	delta_mount(d);
	expect_changes(d, big);
	delta_release(&t);
	free(big);
}

static void test_delta_receive__data_is_covered_by_its_sum(void **state)
{
	struct tree_dirs *d = *state;
	struct delta_received got;
	struct delta_text t;
	char *at;

	tree_put_text(d, "upper/file", "some bytes that are easily found");
	delta_make(d, &head, &t);
	at = memmem(t.bytes, t.len, "easily", 6);
	assert_non_null(at);
	memcpy(at, "hardly", 6);
	assert_int_equal(delta_take(d, t.bytes, t.len, false, &got), -EUCLEAN);
	delta_release(&t);
}

static void test_delta_receive__other_layers_below_are_told_apart(void **state)
{
	struct tree_dirs *d = *state;
	struct delta_received got;
	struct delta_text t;
	char *big = put_changes(d), *other;

	delta_make(d, &head, &t);
	/* Of the same size. */
	other = tree_put_pattern(d, "lower/dir/big", BIG, 2);
	assert_int_equal(delta_take(d, t.bytes, t.len, false, &got), -ESTALE);
	assert_int_equal(unlinkat(d->s.fd, "lower/dir/big", 0), 0);
	assert_int_equal(delta_take(d, t.bytes, t.len, false, &got), -ESTALE);
	free(other);
	free(big);
	delta_release(&t);
}

static void test_delta_receive__stream_that_ended_early_goes_on(void **state)
{
	struct tree_dirs *d = *state;
	struct delta_head rest = head;
	struct delta_text t, second;
	struct delta_received got;
	char *big = put_changes(d);
	size_t len;
	int r = 0;

	delta_make(d, &head, &t);
	for (len = t.len * 2 / 3; len > 0; len -= 512) {
		r = delta_take(d, t.bytes, len, false, &got);
		if (r == -EPIPE && got.entries)
			break;
	}
	assert_int_equal(r, -EPIPE);
	rest.first = got.entries;
	rest.sum = got.sum;
	rest.names = got.names;
	delta_make(d, &rest, &second);
	assert_true(second.len < t.len);
	assert_int_equal(delta_take(d, second.bytes, second.len, true, &got), 0);
	delta_mount(d);
	expect_changes(d, big);
	delta_release(&t);
	delta_release(&second);
	free(big);
}

/* A file that a program made much longer, and wrote at its end. */
static void test_delta_receive__hole_of_a_file_that_grew_is_not_sent(void **state)
{
	const size_t size = (size_t)64 << 20;
	struct tree_dirs *d = *state;
	struct delta_received got;
	struct delta_text t;
	struct inode *i;
	char *want = realloc(tree_put_pattern(d, "lower/big", BIG, 1), size);

	assert_non_null(want);
	memset(want + BIG, 0, size - BIG);
	memcpy(want + size - 3, "end", 3);
	memcpy(want + BIG - 5, "tail", 4);
	tree_mount(d, "volatile");
	i = tree_get(d, "big");
	assert_int_equal(cow_write(d->t, i, "end", 3, (off_t)size - 3), 0);
	assert_int_equal(cow_write(d->t, i, "tail", 4, BIG - 5), 0);
	tree_forget(d, i);
	tree_unmount(d);
	delta_make(d, &head, &t);
	assert_true(t.len < 1 << 20);
	assert_int_equal(delta_take(d, t.bytes, t.len, false, &got), 0);
	delta_mount(d);
	tree_expect(d, "big", want, size);
	delta_release(&t);
	free(want);
}

static void test_delta_receive__what_is_no_delta_is_refused(void **state)
{
	static char zeros[4096];
	struct tree_dirs *d = *state;
	struct delta_received got;

	assert_true(delta_take(d, "", 0, false, &got) < 0);
	assert_true(delta_take(d, "text", 4, false, &got) < 0);
	assert_true(delta_take(d, zeros, sizeof(zeros), false, &got) < 0);
}

#define row(test) cmocka_unit_test_setup_teardown(test, tree_setup, tree_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		row(test_delta_receive__layer_shows_what_was_sent),
		row(test_delta_receive__stream_that_is_cut_anywhere_is_not_whole),
		row(test_delta_receive__byte_that_is_changed_is_found),
		row(test_delta_receive__data_is_covered_by_its_sum),
		row(test_delta_receive__other_layers_below_are_told_apart),
		row(test_delta_receive__stream_that_ended_early_goes_on),
		row(test_delta_receive__hole_of_a_file_that_grew_is_not_sent),
		row(test_delta_receive__what_is_no_delta_is_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
