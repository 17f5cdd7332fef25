// SPDX-License-Identifier: Apache-2.0
#include "support/clock_ahead.h"
#include "support/tree.h"

#include "veneer/data/cow.h"
#include "veneer/layer/source_flat.h"

#include <fcntl.h>
#include <unistd.h>

#define BYTES ((size_t)10 * BLK_BYTES)

struct view {
	struct layer *layers[2];
	struct source *src;
};

/* A partial file "f" in a frozen upper over "lower", old enough for a copy. */
static void make_partial(struct tree_dirs *d)
{
	struct inode *i;

	free(tree_put_pattern(d, "lower/f", BYTES, 1));
	tree_mount(d, "volatile");
	i = tree_get(d, "f");
	assert_int_equal(cow_write(d->t, i, "own", 3, BLK_BYTES), 0);
	tree_unmount(d);
	tree_freeze(d);
	clock_ahead_s = 3;
}

/* As one more mount has it. */
static struct view view_of(struct tree_dirs *d, const char *top)
{
	const char *names[] = { top, "lower" };
	struct view v;

	for (size_t k = 0; k < 2; k++) {
		char path[PATH_MAX + 64];

		snprintf(path, sizeof(path), "%s/%s", d->s.path, names[k]);
		assert_int_equal(layer_open(path, &v.layers[k]), 0);
	}
	assert_int_equal(source_new(v.layers, 2, 0, "f", &v.src, NULL), 0);
	return v;
}

static void leave(struct view *v)
{
	source_free(v->src);
	layer_unref(v->layers[0]);
	layer_unref(v->layers[1]);
}

static void publish(struct source *s)
{
	struct source_flat *f;

	assert_int_equal(source_flat_new(s, &f), 0);
	source_flat_publish(s, f, open("/dev/null", O_RDONLY | O_CLOEXEC));
}

static void test_source_flat__mounts_of_the_same_layers_have_one(void **state)
{
	struct tree_dirs *d = *state;
	struct view a, b;
	int fd;

	make_partial(d);
	a = view_of(d, "frozen1");
	b = view_of(d, "frozen1");
	assert_int_equal(source_flat_fd(a.src), -ENOENT);
	publish(a.src);
	fd = source_flat_fd(a.src);
	assert_true(fd >= 0);
	assert_int_equal(source_flat_fd(b.src), fd);
	leave(&a);
	assert_int_equal(source_flat_fd(b.src), fd);
	leave(&b);
	/* It went with the last of them. */
	assert_int_equal(fcntl(fd, F_GETFD), -1);
	a = view_of(d, "frozen1");
	assert_int_equal(source_flat_fd(a.src), -ENOENT);
	leave(&a);
}

static void test_source_flat__what_was_changed_just_now_gets_none(void **state)
{
	struct tree_dirs *d = *state;
	struct source_flat *f;
	struct view v;

	make_partial(d);
	clock_ahead_s = 0;
	v = view_of(d, "frozen1");
	assert_int_equal(source_flat_new(v.src, &f), -EAGAIN);
	leave(&v);
}

static void test_source_flat__change_of_any_file_of_the_chain_ends_it(void **state)
{
	static const char *const files[] = { "frozen1/f", "lower/f" };
	struct tree_dirs *d = *state;

	make_partial(d);
	for (size_t k = 0; k < 2; k++) {
		struct view v = view_of(d, "frozen1");

		publish(v.src);
		assert_true(source_flat_fd(v.src) >= 0);
		assert_int_equal(fchmodat(d->s.fd, files[k], k ? 0600 : 0400, 0), 0);
		assert_int_equal(source_flat_fd(v.src), -ENOENT);
		leave(&v);
	}
}

/* The same file and the same bytes below; its map says otherwise. */
static void test_source_flat__same_file_in_another_layer_is_another(void **state)
{
	struct tree_dirs *d = *state;
	struct view a, b;

	make_partial(d);
	tree_put_dir(d, "forged");
	assert_int_equal(linkat(d->s.fd, "frozen1/f", d->s.fd, "forged/f", 0), 0);
	assert_int_equal(
		linkat(d->s.fd, "frozen1/" MAPFILE_NAME, d->s.fd, "forged/" MAPFILE_NAME, 0), 0);
	a = view_of(d, "frozen1");
	b = view_of(d, "forged");
	publish(b.src);
	assert_true(source_flat_fd(b.src) >= 0);
	assert_int_equal(source_flat_fd(a.src), -ENOENT);
	leave(&a);
	leave(&b);
}

static void test_source_flat__knows_its_size(void **state)
{
	struct tree_dirs *d = *state;
	struct source_flat *f;
	struct view v;

	make_partial(d);
	v = view_of(d, "frozen1");
	assert_int_equal(source_flat_new(v.src, &f), 0);
	assert_int_equal(source_flat_check(v.src, f), 0);
	assert_int_equal(source_flat_size(f), BYTES);
	assert_int_equal(source_flat_count(), 0);
	source_flat_free(f);
	source_flat_free(NULL);
	/* A layer that may be remote says nothing by change times. */
	v.layers[1]->is_mappable = false;
	assert_false(source_flat_is_possible(v.src));
	assert_int_equal(source_flat_new(v.src, &f), -EXDEV);
	leave(&v);
}

#define row(test) cmocka_unit_test_setup_teardown(test, tree_setup, tree_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		row(test_source_flat__mounts_of_the_same_layers_have_one),
		row(test_source_flat__what_was_changed_just_now_gets_none),
		row(test_source_flat__change_of_any_file_of_the_chain_ends_it),
		row(test_source_flat__same_file_in_another_layer_is_another),
		row(test_source_flat__knows_its_size),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
