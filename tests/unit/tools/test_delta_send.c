// SPDX-License-Identifier: Apache-2.0
#include "support/delta.h"

#include "veneer/data/cow.h"

#include <sys/mman.h>
#include <sys/socket.h>

#define BIG ((size_t)64 * BLK_BYTES)

static const struct delta_head head = { .id = 7, .name = "name" };

static void read_changes(struct tree_dirs *d, struct diff *ret)
{
	char upper[PATH_MAX + 16], lower[PATH_MAX + 16], *lowers[] = { lower };

	snprintf(upper, sizeof(upper), "%s/upper", d->s.path);
	snprintf(lower, sizeof(lower), "%s/lower", d->s.path);
	assert_int_equal(diff_read(upper, lowers, 1, false, NULL, ret), 0);
}

static void change_big(struct tree_dirs *d)
{
	struct inode *i;

	free(tree_put_pattern(d, "lower/big", BIG, 1));
	tree_mount(d, "volatile");
	i = tree_get(d, "big");
	assert_int_equal(cow_write(d->t, i, "x", 1, 0), 0);
	tree_forget(d, i);
	tree_unmount(d);
}

static void note_step(void *arg, const struct delta_progress *p)
{
	struct delta_progress *last = arg;

	assert_true(p->entries >= last->entries && p->bytes >= last->bytes);
	*last = *p;
}

static void test_delta_send__measure_and_stream_agree(void **state)
{
	struct delta_progress last = { 0 }, measured, sent;
	const struct delta_hooks hooks = { note_step, &last }, none = { 0 };
	int fd = memfd_create("delta", MFD_CLOEXEC);
	struct stat st;
	struct diff diff;

	change_big(*state);
	tree_put_text(*state, "upper/new", "text");
	read_changes(*state, &diff);
	assert_int_equal(delta_send(&diff, &head, false, -1, &none, &measured), 0);
	assert_int_equal(delta_send(&diff, &head, false, fd, &hooks, &sent), 0);
	assert_int_equal(measured.entries, sent.entries);
	assert_int_equal(measured.bytes, sent.bytes);
	assert_int_equal(measured.whole, sent.whole);
	/* A block, and the new file: not all of what has changed. */
	assert_int_equal(sent.bytes, BLK_BYTES + 4);
	assert_int_equal(sent.whole, BIG + 4);
	assert_true(last.entries <= sent.entries);
	assert_int_equal(fstat(fd, &st), 0);
	assert_true((uint64_t)st.st_size > sent.bytes);
	close(fd);
	diff_release(&diff);
}

static void test_delta_send__same_changes_give_the_same_bytes(void **state)
{
	struct delta_text a, b;

	change_big(*state);
	tree_put_text(*state, "upper/new", "text");
	delta_make(*state, &head, &a);
	delta_make(*state, &head, &b);
	assert_int_equal(a.len, b.len);
	assert_memory_equal(a.bytes, b.bytes, a.len);
	delta_release(&a);
	delta_release(&b);
}

static void test_delta_send__compressed_stream_is_smaller_and_is_received(void **state)
{
	const struct delta_hooks none = { 0 };
	int fd = memfd_create("delta", MFD_CLOEXEC);
	struct tree_dirs *d = *state;
	struct delta_received got;
	struct delta_progress sent;
	struct delta_text plain;
	struct stat st;
	struct diff diff;
	char *bytes, *text = malloc(BIG + 1);

	memset(text, 'a', BIG);
	text[BIG] = '\0';
	tree_put_text(d, "upper/new", text);
	delta_make(d, &head, &plain);
	read_changes(d, &diff);
	assert_int_equal(delta_send(&diff, &head, true, fd, &none, &sent), 0);
	diff_release(&diff);
	assert_int_equal(fstat(fd, &st), 0);
	assert_true((size_t)st.st_size < plain.len / 4);
	bytes = malloc((size_t)st.st_size);
	assert_int_equal(pread(fd, bytes, (size_t)st.st_size, 0), st.st_size);
	assert_int_equal(delta_take(d, bytes, (size_t)st.st_size, false, &got), 0);
	delta_mount(d);
	tree_expect_text(d, "new", text);
	free(bytes);
	free(text);
	close(fd);
	delta_release(&plain);
}

static void test_delta_send__receiver_that_is_gone_is_an_error(void **state)
{
	const struct delta_hooks none = { 0 };
	struct delta_progress sent;
	struct diff diff;
	int fd = open("/dev/full", O_WRONLY | O_CLOEXEC);

	free(tree_put_pattern(*state, "upper/new", BIG, 3));
	read_changes(*state, &diff);
	/* Once, and last: an archive that failed is kept as long as the process, and only the last
	 * one. */
	assert_int_equal(delta_send(&diff, &head, false, fd, &none, &sent), -ENOSPC);
	close(fd);
	diff_release(&diff);
}

/* A token says how many entries came and what their names were. */
static void test_delta_send__stream_that_does_not_go_on_from_here_is_refused(void **state)
{
	const struct delta_hooks none = { 0 };
	struct delta_head wrong = head;
	struct delta_progress sent;
	struct diff diff;

	tree_put_text(*state, "upper/a", "a");
	tree_put_text(*state, "upper/b", "b");
	read_changes(*state, &diff);
	wrong.first = 1;
	wrong.names = 12345;
	assert_true(delta_send(&diff, &wrong, false, -1, &none, &sent) < 0);
	wrong.first = 1000;
	assert_true(delta_send(&diff, &wrong, false, -1, &none, &sent) < 0);
	diff_release(&diff);
}

#define row(test) cmocka_unit_test_setup_teardown(test, tree_setup, tree_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		row(test_delta_send__measure_and_stream_agree),
		row(test_delta_send__same_changes_give_the_same_bytes),
		row(test_delta_send__compressed_stream_is_smaller_and_is_received),
		row(test_delta_send__stream_that_does_not_go_on_from_here_is_refused),
		row(test_delta_send__receiver_that_is_gone_is_an_error), /* the last, as it says */
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
