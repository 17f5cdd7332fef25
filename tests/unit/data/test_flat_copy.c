// SPDX-License-Identifier: Apache-2.0
#include "support/clock_ahead.h"
#include "support/tree.h"

#include "veneer/data/cow.h"
#include "veneer/data/flat_copy.h"
#include "veneer/data/read.h"
#include "veneer/layer/source_flat.h"

#include <fcntl.h>
#include <unistd.h>

#define BLKS  300
#define BYTES ((size_t)BLKS * BLK_BYTES)

static int go_on(void *arg, uint64_t bytes)
{
	uint64_t *sum = arg;

	*sum += bytes;
	return 0;
}

static int give_up(void *arg, uint64_t bytes)
{
	(void)arg;
	(void)bytes;
	return -ECANCELED;
}

/* A file that each of three layers changed in part, with a hole and an odd end; old enough. */
static struct source *partial(struct tree_dirs *d, char **ret_data)
{
	struct source *top;
	char *data;

	data = tree_put_pattern(d, "lower/f", BYTES - 100, 1);
	for (unsigned k = 0; k < 3; k++) {
		struct inode *i;

		tree_mount(d, "volatile");
		i = tree_get(d, "f");
		assert_int_equal(cow_write(d->t, i, "x", 1, (10 + k) * BLK_BYTES), 0);
		data[(10 + k) * BLK_BYTES] = 'x';
		if (k == 1) {
			static const char zeros[BLK_BYTES * 2];

			assert_int_equal(cow_write(d->t, i, zeros, sizeof(zeros), 50 * BLK_BYTES),
					 0);
			memset(data + 50 * BLK_BYTES, 0, sizeof(zeros));
		}
		tree_forget(d, i);
		tree_unmount(d);
		tree_freeze(d);
	}
	clock_ahead_s = 3;
	tree_mount(d, "volatile");
	assert_int_equal(read_top(d->t, tree_get(d, "f"), &top), 0);
	assert_false(source_is_plain(top));
	*ret_data = data;
	return top;
}

static int make(struct tree_dirs *d, struct source *s, uint64_t *ret_bytes)
{
	const struct flat_copy_pace pace = { .go_on = go_on, .arg = ret_bytes };

	*ret_bytes = 0;
	return flat_copy_make(s, BYTES - 100, d->t->workfd, &pace);
}

static void test_flat_copy__has_what_the_chain_shows(void **state)
{
	struct tree_dirs *d = *state;
	char *data, *seen = malloc(BYTES);
	struct source *s = partial(d, &data);
	uint64_t bytes;
	int fd;

	assert_int_equal(source_flat_fd(s), -ENOENT);
	assert_int_equal(make(d, s, &bytes), 1);
	assert_int_equal(bytes, BYTES - 100);
	fd = source_flat_fd(s);
	assert_true(fd >= 0);
	assert_int_equal(pread(fd, seen, BYTES, 0), BYTES - 100);
	assert_memory_equal(seen, data, BYTES - 100);
	assert_int_equal(lseek(fd, 50 * BLK_BYTES, SEEK_DATA), 52 * BLK_BYTES);
	assert_int_equal(pwrite(fd, "x", 1, 0), -1);
	/* Once is enough. */
	assert_int_equal(make(d, s, &bytes), 0);
	assert_int_equal(source_flat_fd(s), fd);
	free(seen);
	free(data);
}

static void test_flat_copy__is_none_once_a_file_of_the_chain_was_changed(void **state)
{
	struct tree_dirs *d = *state;
	char *data;
	struct source *s = partial(d, &data), *bottom = s;
	char path[PATH_MAX + 16];
	uint64_t bytes;

	while (bottom->below)
		bottom = bottom->below;
	assert_int_equal(make(d, s, &bytes), 1);
	snprintf(path, sizeof(path), "%s/lower/f", d->s.path);
	assert_int_equal(chmod(path, 0600), 0);
	assert_ptr_not_equal(bottom, s);
	assert_int_equal(source_flat_fd(s), -ENOENT);
	assert_int_equal(make(d, s, &bytes), -ESTALE);
	/* That was just now. */
	clock_ahead_s = 0;
	source_close(s);
	assert_int_equal(make(d, s, &bytes), -EAGAIN);
	free(data);
}

static int change(void *arg, uint64_t bytes)
{
	(void)bytes;
	return chmod(arg, 0600);
}

static void test_flat_copy__change_while_it_is_made_is_noticed(void **state)
{
	struct tree_dirs *d = *state;
	char path[PATH_MAX + 16];
	const struct flat_copy_pace pace = { .go_on = change, .arg = path };
	char *data;
	struct source *s = partial(d, &data);

	snprintf(path, sizeof(path), "%s/lower/f", d->s.path);
	assert_int_equal(flat_copy_make(s, BYTES - 100, d->t->workfd, &pace), -EAGAIN);
	assert_int_equal(source_flat_fd(s), -ENOENT);
	free(data);
}

static void test_flat_copy__given_up_leaves_nothing(void **state)
{
	const struct flat_copy_pace pace = { .go_on = give_up };
	struct tree_dirs *d = *state;
	int other = open("/proc", O_PATH | O_CLOEXEC);
	char *data;
	struct source *s = partial(d, &data);

	assert_int_equal(flat_copy_make(s, BYTES - 100, d->t->workfd, &pace), -ECANCELED);
	assert_int_equal(flat_copy_make(s, BYTES - 100, other, &pace), -EXDEV);
	assert_int_equal(flat_copy_make(s, BYTES, d->t->workfd, &pace), -EAGAIN);
	assert_int_equal(source_flat_fd(s), -ENOENT);
	close(other);
	free(data);
}

static void test_flat_copy__pays_once_reads_have_cost_as_much(void **state)
{
	struct source s = { .flat_reads = 0 };
	unsigned n = 0, due = 0;

	(void)state;
	for (; n < 1000; n++)
		due += flat_copy_note_read(&s, BLK_BYTES, 1 << 20);
	assert_int_equal(due, 1);
	/* Small reads of as many as one in 33 KiB, or the whole of it some four times. */
	s.flat_reads = 0;
	for (n = 1; !flat_copy_note_read(&s, BLK_BYTES, 1 << 20); n++)
		;
	assert_in_range(n, 25, 40);
	s.flat_reads = 0;
	for (n = 1; !flat_copy_note_read(&s, 1 << 20, 1 << 20); n++)
		;
	assert_in_range(n, 3, 5);
}

#define row(test) cmocka_unit_test_setup_teardown(test, tree_setup, tree_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		row(test_flat_copy__has_what_the_chain_shows),
		row(test_flat_copy__is_none_once_a_file_of_the_chain_was_changed),
		row(test_flat_copy__change_while_it_is_made_is_noticed),
		row(test_flat_copy__given_up_leaves_nothing),
		cmocka_unit_test(test_flat_copy__pays_once_reads_have_cost_as_much),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
