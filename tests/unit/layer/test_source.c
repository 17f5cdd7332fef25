// SPDX-License-Identifier: Apache-2.0
#include "support/tree.h"
#include "support/wait.h"

#include "veneer/base/cleanup.h"
#include "veneer/data/cow.h"
#include "veneer/data/read.h"
#include "veneer/layer/partial_xattr.h"
#include "veneer/layer/source.h"
#include "veneer/map/format.h"

#define BIG (10 * BLK_BYTES)

/* A partial file "f" in a frozen upper over "lower", of which block 1 is own. Layers as
 * source_new wants them. */
static void make_partial(struct tree_dirs *d, struct layer *layers[2])
{
	static const char *const names[] = { "frozen1", "lower" };
	struct inode *i;

	free(tree_put_pattern(d, "lower/f", BIG, 1));
	tree_mount(d, "volatile");
	i = tree_get(d, "f");
	assert_int_equal(cow_write(d->t, i, "own", 3, BLK_BYTES), 0);
	tree_unmount(d);
	tree_freeze(d);
	tree_open_layers(d, names, 2, layers);
}

static void test_source__plain_file_has_nothing_below(void **state)
{
	static const char *const names[] = { "lower" };
	struct tree_dirs *d = *state;
	struct layer *layers[1];
	struct source *src;
	struct stat st;

	tree_put_text(d, "lower/f", "text");
	tree_open_layers(d, names, 1, layers);
	assert_int_equal(source_new(layers, 1, 0, "f", &src, &st), 0);
	assert_int_equal(src->id, 0);
	assert_null(src->below);
	assert_int_equal(st.st_size, 4);
	assert_true(src->is_unresolved);
	source_free(src);
	tree_close_layers(layers, 1);
}

static void test_source__what_is_no_regular_file_is_refused(void **state)
{
	static const char *const names[] = { "lower" };
	struct tree_dirs *d = *state;
	struct layer *layers[1];
	struct source *src;

	tree_put_dir(d, "lower/d");
	assert_int_equal(symlinkat("d", d->s.fd, "lower/l"), 0);
	tree_open_layers(d, names, 1, layers);
	assert_true(source_new(layers, 1, 0, "d", &src, NULL) < 0);
	assert_true(source_new(layers, 1, 0, "l", &src, NULL) < 0);
	assert_int_equal(source_new(layers, 1, 0, "none", &src, NULL), -ENOENT);
	tree_close_layers(layers, 1);
}

static void test_source__partial_file_shows_own_and_lower_blocks(void **state)
{
	struct tree_dirs *d = *state;
	struct layer *layers[2];
	char want[BIG], got[BIG + 100];
	struct source *src;
	struct stat st;

	make_partial(d, layers);
	tree_pattern(want, BIG, 1);
	memcpy(want + BLK_BYTES, "own", 3);
	assert_int_equal(source_new(layers, 2, 0, "f", &src, &st), 0);
	assert_int_not_equal(src->id, 0);
	assert_int_equal(st.st_size, BIG);
	assert_ptr_equal(src->below->layer, layers[1]);
	assert_int_equal(read_source(src, got, BIG, 0), 0);
	assert_memory_equal(got, want, BIG);
	/* Past the end there is nothing, and zeros would be an invention. */
	assert_int_equal(read_source(src, got, sizeof(got), 0), -EIO);
	source_free(src);
	tree_close_layers(layers, 2);
}

static void test_source__layers_that_are_known_to_have_the_file_are_not_looked_for(void **state)
{
	static const char *const names[] = { "frozen1", "other", "lower" };
	struct tree_dirs *d = *state;
	struct layer *layers[3], *unused[2];
	char want[BIG], got[BIG];
	struct source *src;

	make_partial(d, unused);
	tree_close_layers(unused, 2);
	tree_put_whiteout(d, "other/f");
	tree_open_layers(d, names, 3, layers);
	tree_pattern(want, BIG, 1);
	memcpy(want + BLK_BYTES, "own", 3);
	/* The walk would end at the whiteout, as it does when nothing further down is known. */
	assert_int_equal(source_new_at(layers, 3, (uint16_t[]){ 0, 2 }, 2, "f", &src), 0);
	assert_ptr_equal(src->below->layer, layers[2]);
	assert_int_equal(read_source(src, got, BIG, 0), 0);
	assert_memory_equal(got, want, BIG);
	source_free(src);
	assert_int_equal(source_new_at(layers, 3, (uint16_t[]){ 0 }, 1, "f", &src), -EUCLEAN);
	assert_int_equal(unlinkat(d->s.fd, "other/f", 0), 0);
	assert_int_equal(source_new_at(layers, 3, (uint16_t[]){ 0 }, 1, "f", &src), 0);
	assert_ptr_equal(src->below->layer, layers[2]);
	source_free(src);
	tree_close_layers(layers, 3);
}

static void expect_damage(struct tree_dirs *d, struct layer *layers[2])
{
	struct source *src;

	(void)d;
	assert_int_equal(source_new(layers, 2, 0, "f", &src, NULL), -EUCLEAN);
	tree_close_layers(layers, 2);
}

static void test_source__lower_file_that_changed_is_damage(void **state)
{
	struct tree_dirs *d = *state;
	struct layer *layers[2];

	make_partial(d, layers);
	assert_int_equal(utimensat(d->s.fd, "lower/f", NULL, 0), 0);
	expect_damage(d, layers);
}

static void test_source__lower_file_that_is_gone_is_damage(void **state)
{
	struct tree_dirs *d = *state;
	struct layer *layers[2];

	make_partial(d, layers);
	assert_int_equal(unlinkat(d->s.fd, "lower/f", 0), 0);
	expect_damage(d, layers);
}

static void test_source__layer_without_its_map_is_damage(void **state)
{
	struct tree_dirs *d = *state;
	struct layer *layers[2];

	make_partial(d, layers);
	assert_int_equal(unlinkat(d->s.fd, "frozen1/" MAPFILE_NAME, 0), 0);
	expect_damage(d, layers);
}

static void test_source__mark_of_another_layer_is_damage(void **state)
{
	struct tree_dirs *d = *state;
	struct layer *layers[2];
	_cleanup_(buf_release) struct buf value = { 0 };
	char path[PATH_MAX + 64];
	struct partial_xattr m;

	make_partial(d, layers);
	snprintf(path, sizeof(path), "%s/frozen1/f", d->s.path);
	assert_int_equal(source_read_mark(AT_FDCWD, path, &m, NULL), 1);
	m.uuid_low++;
	assert_int_equal(partial_xattr_encode(&m, &value), 0);
	assert_int_equal(setxattr(path, FORMAT_PARTIAL_ATTR, value.data, value.len, 0), 0);
	expect_damage(d, layers);
}

static void change_lower(struct tree_dirs *d)
{
	char more[BIG + 1] = { 0 };

	tree_put(d, "lower/f", more, sizeof(more));
}

static void test_source__a_file_that_shows_nothing_of_its_lower_needs_none(void **state)
{
	static const char *const names[] = { "frozen1", "lower" };
	struct tree_dirs *d = *state;
	char want[BIG + 5], got[BIG + 5];
	struct layer *layers[2];
	struct source *src;
	struct inode *i;

	free(tree_put_pattern(d, "lower/f", BIG, 1));
	tree_mount(d, "volatile");
	i = tree_get(d, "f");
	tree_pattern(want, sizeof(want), 2);
	assert_int_equal(cow_truncate(d->t, i, 0), 0);
	assert_int_equal(cow_write(d->t, i, want, sizeof(want), 0), 0);
	tree_unmount(d);
	tree_freeze(d);
	tree_open_layers(d, names, 2, layers);
	/* With its lower file as it was, that is followed: it gives the number. */
	assert_int_equal(source_new(layers, 2, 0, "f", &src, NULL), 0);
	assert_non_null(src->below);
	source_free(src);
	tree_close_layers(layers, 2);
	change_lower(d);
	tree_open_layers(d, names, 2, layers);
	assert_int_equal(source_new(layers, 2, 0, "f", &src, NULL), 0);
	assert_null(src->below);
	assert_true(source_is_plain(src));
	assert_int_equal(read_source(src, got, sizeof(got), 0), 0);
	assert_memory_equal(got, want, sizeof(want));
	source_free(src);
	tree_close_layers(layers, 2);
}

static void test_source__one_block_of_the_lower_that_is_seen_needs_it(void **state)
{
	struct tree_dirs *d = *state;
	struct layer *layers[2];
	struct source *src;
	struct partial_xattr mark;
	struct mapfile *map;
	int fd;

	make_partial(d, layers);
	fd = openat(d->s.fd, "frozen1/f", O_RDONLY | O_CLOEXEC);
	assert_true(fd >= 0);
	assert_int_equal(source_read_mark(fd, "", &mark, NULL), 1);
	close(fd);
	assert_int_equal(layer_map(layers[0], &map), 0);
	assert_int_equal(source_needs_lower(map, &mark, BIG), 1);
	assert_int_equal(source_needs_lower(map, &mark, 1), 1);
	/* Cut, and the server killed before the map heard of it. */
	assert_int_equal(source_needs_lower(map, &mark, 0), 0);
	mark.uuid_low++;
	assert_int_equal(source_needs_lower(map, &mark, 0), -ENOENT);
	mark.uuid_low--;
	mark.file_id += 7;
	assert_int_equal(source_needs_lower(map, &mark, 0), -ENOENT);
	tree_close_layers(layers, 2);
	change_lower(d);
	tree_open_layers(d, (const char *const[]){ "frozen1", "lower" }, 2, layers);
	assert_int_equal(source_new(layers, 2, 0, "f", &src, NULL), -EUCLEAN);
	tree_close_layers(layers, 2);
}

static void test_source__damaged_mark_is_damage(void **state)
{
	struct tree_dirs *d = *state;
	struct layer *layers[2];
	char path[PATH_MAX + 64];

	make_partial(d, layers);
	snprintf(path, sizeof(path), "%s/frozen1/f", d->s.path);
	assert_int_equal(setxattr(path, FORMAT_PARTIAL_ATTR, "nonsense", 8, 0), 0);
	expect_damage(d, layers);
}

static void put_attr(struct tree_dirs *d, const char *rel, const char *attr, const void *value,
		     size_t len)
{
	char path[PATH_MAX + 64];

	snprintf(path, sizeof(path), "%s/%s", d->s.path, rel);
	if (setxattr(path, attr, value, len, 0) == 0)
		return;
	if (strncmp(attr, "trusted.", 8) == 0 && errno == EPERM)
		skip();
	fail_msg("%s: %s", path, strerror(errno));
}

static void put_redirect(struct tree_dirs *d, const char *rel, const char *target)
{
	put_attr(d, rel, "user.overlay.redirect", target, strlen(target));
}

/* A file of that size without a byte, whose bytes are said to be elsewhere; NULL: at its own
 * path. */
static void put_metacopy(struct tree_dirs *d, const char *rel, size_t size, const char *redirect)
{
	char path[PATH_MAX + 64];

	tree_put_text(d, rel, "");
	put_attr(d, rel, "trusted.overlay.metacopy", "", 0);
	if (redirect)
		put_attr(d, rel, "trusted.overlay.redirect", redirect, strlen(redirect));
	snprintf(path, sizeof(path), "%s/%s", d->s.path, rel);
	assert_int_equal(truncate(path, (off_t)size), 0);
}

static void test_source__user_attribute_cannot_make_a_metacopy(void **state)
{
	struct tree_dirs *d = *state;
	struct layer *layers[2];
	char path[PATH_MAX + 64];

	make_partial(d, layers);
	snprintf(path, sizeof(path), "%s/frozen1/f", d->s.path);
	assert_int_equal(removexattr(path, FORMAT_PARTIAL_ATTR), 0);
	put_attr(d, "frozen1/f", "user.overlay.metacopy", "", 0);
	expect_damage(d, layers);
}

/* Of its guard, and of what a taken over metacopy has for a moment, nothing follows. */
static void test_source__mark_overrules_a_metacopy(void **state)
{
	struct tree_dirs *d = *state;
	struct layer *layers[2];
	char path[PATH_MAX + 64];
	struct partial_xattr m;

	make_partial(d, layers);
	tree_close_layers(layers, 2);
	snprintf(path, sizeof(path), "%s/frozen1/f", d->s.path);
	put_attr(d, "frozen1/f", "user.overlay.metacopy", "x", 1);
	assert_int_equal(source_read_mark(AT_FDCWD, path, &m, NULL), 1);
	put_attr(d, "frozen1/f", "trusted.overlay.metacopy", "", 0);
	put_attr(d, "frozen1/f", "trusted.overlay.redirect", "/elsewhere", 10);
	assert_int_equal(source_read_mark(AT_FDCWD, path, &m, NULL), 1);
}

static const char *const two[] = { "top", "bottom" };

/* The bytes of top/path are those of seed. */
static void expect_bytes(struct tree_dirs *d, const char *path, uint64_t seed)
{
	char want[BIG], got[BIG];
	struct layer *layers[2];
	struct source *src;

	tree_pattern(want, BIG, seed);
	tree_open_layers(d, two, 2, layers);
	assert_int_equal(source_new(layers, 2, 0, path, &src, NULL), 0);
	assert_true(src->is_hollow);
	assert_int_equal(read_source(src, got, BIG, 0), 0);
	assert_memory_equal(got, want, BIG);
	assert_int_equal(read_source_seek(src, 0, BIG, SEEK_DATA), 0);
	assert_int_equal(read_source_seek(src, 0, BIG, SEEK_HOLE), BIG);
	source_free(src);
	tree_close_layers(layers, 2);
}

static void expect_refused(struct tree_dirs *d, const char *path)
{
	struct layer *layers[2];
	struct source *src;

	tree_open_layers(d, two, 2, layers);
	assert_int_equal(source_new(layers, 2, 0, path, &src, NULL), -EUCLEAN);
	tree_close_layers(layers, 2);
}

static void test_source__metacopy_shows_the_bytes_below(void **state)
{
	struct tree_dirs *d = *state;

	free(tree_put_pattern(d, "bottom/d/f", BIG, 1));
	free(tree_put_pattern(d, "bottom/d/g", BIG, 2));
	free(tree_put_pattern(d, "bottom/h", BIG, 3));
	put_metacopy(d, "top/d/f", BIG, NULL);
	put_metacopy(d, "top/d/sibling", BIG, "g");
	put_metacopy(d, "top/d/far", BIG, "/h");
	put_metacopy(d, "top/moved/f", BIG, NULL);
	put_redirect(d, "top/moved", "/d");
	expect_bytes(d, "d/f", 1);
	expect_bytes(d, "d/sibling", 2);
	expect_bytes(d, "d/far", 3);
	expect_bytes(d, "moved/f", 1);
}

static void test_source__metacopy_without_its_data_is_damage(void **state)
{
	static const uint8_t head[] = { 0, 4, 0, 0 }, digest[8] = { 0, 8, 0, 1 },
			     later[] = { 1, 4, 0, 0 };
	struct tree_dirs *d = *state;

	free(tree_put_pattern(d, "bottom/f", BIG, 1));
	tree_put_dir(d, "bottom/dir");
	put_metacopy(d, "top/f", BIG + 1, NULL);
	expect_refused(d, "f");
	put_metacopy(d, "top/none", BIG, NULL);
	expect_refused(d, "none");
	put_metacopy(d, "top/dir", 4096, NULL);
	expect_refused(d, "dir");
	put_metacopy(d, "top/out", BIG, "/../bottom/f");
	expect_refused(d, "out");
	put_metacopy(d, "top/self", BIG, "/self");
	expect_refused(d, "self");
	put_metacopy(d, "top/opaque/g", BIG, "f");
	tree_put_opaque(d, "top/opaque");
	expect_refused(d, "opaque/g");
	put_metacopy(d, "top/verity", BIG, "f");
	put_attr(d, "top/verity", "trusted.overlay.metacopy", head, sizeof(head));
	expect_bytes(d, "verity", 1);
	put_attr(d, "top/verity", "trusted.overlay.metacopy", digest, sizeof(digest));
	expect_refused(d, "verity");
	put_attr(d, "top/verity", "trusted.overlay.metacopy", later, sizeof(later));
	expect_refused(d, "verity");
}

/* Nothing but privileges may say where a metacopy's bytes are. */
static void test_source__metacopy_ignores_the_users_redirect(void **state)
{
	struct tree_dirs *d = *state;

	free(tree_put_pattern(d, "bottom/f", BIG, 1));
	free(tree_put_pattern(d, "bottom/secret", BIG, 2));
	put_metacopy(d, "top/f", BIG, NULL);
	put_redirect(d, "top/f", "/secret");
	expect_bytes(d, "f", 1);
}

static void test_source__partial_file_follows_the_redirects_above_it(void **state)
{
	static const char *const names[] = { "frozen1", "lower" };
	struct tree_dirs *d = *state;
	char want[BIG], got[BIG];
	struct layer *layers[2];
	struct source *src;
	struct inode *i;

	free(tree_put_pattern(d, "lower/d/f", BIG, 1));
	tree_mount(d, "volatile");
	i = tree_get(d, "d/f");
	assert_int_equal(cow_write(d->t, i, "own", 3, BLK_BYTES), 0);
	tree_unmount(d);
	tree_freeze(d);
	assert_int_equal(renameat(d->s.fd, "frozen1/d", d->s.fd, "frozen1/e"), 0);
	tree_open_layers(d, names, 2, layers);
	assert_int_equal(source_new(layers, 2, 0, "e/f", &src, NULL), -EUCLEAN);
	put_redirect(d, "frozen1/e", "/d");
	assert_int_equal(source_new(layers, 2, 0, "e/f", &src, NULL), 0);
	tree_pattern(want, BIG, 1);
	memcpy(want + BLK_BYTES, "own", 3);
	assert_int_equal(read_source(src, got, BIG, 0), 0);
	assert_memory_equal(got, want, BIG);
	source_free(src);
	tree_close_layers(layers, 2);
}

static void test_source__mark_that_names_its_own_path_below_itself_ends(void **state)
{
	static const char *const names[] = { "frozen1" };
	struct tree_dirs *d = *state;
	struct layer *layers[2], *alone[1];
	struct source *src;

	make_partial(d, layers);
	tree_close_layers(layers, 2);
	tree_open_layers(d, names, 1, alone);
	assert_int_equal(source_new(alone, 1, 0, "f", &src, NULL), -EUCLEAN);
	tree_close_layers(alone, 1);
}

static void test_source__mark_that_names_a_directory_is_damage(void **state)
{
	struct tree_dirs *d = *state;
	struct layer *layers[2];

	make_partial(d, layers);
	assert_int_equal(unlinkat(d->s.fd, "lower/f", 0), 0);
	tree_put_dir(d, "lower/f");
	expect_damage(d, layers);
}

static void test_source__file_that_carries_attributes_is_not_plain(void **state)
{
	struct tree_dirs *d = *state;
	char path[PATH_MAX + 64];
	bool is_unresolved = true;
	struct partial_xattr m;

	tree_put_text(d, "lower/f", "");
	snprintf(path, sizeof(path), "%s/lower/f", d->s.path);
	assert_int_equal(source_read_mark(AT_FDCWD, path, &m, &is_unresolved), 0);
	assert_true(is_unresolved);
	assert_int_equal(setxattr(path, "user.other", "", 0, 0), 0);
	assert_int_equal(source_read_mark(AT_FDCWD, path, &m, &is_unresolved), 0);
	assert_false(is_unresolved);
}

static _Atomic pid_t pinning[2];
static _Atomic unsigned n_pinning, n_opened;
static int (*open_really)(struct source *s);

/* Takes until the other thread has come, and opens it too or waits. */
static int open_slowly(struct source *s)
{
	pid_t other;

	n_opened++;
	wait_until(pinning[0] && pinning[1]);
	other = pinning[pinning[0] == gettid()];
	wait_until(n_opened == 2 || wait_is_at_rest(other));
	return open_really(s);
}

static void *pin(void *arg)
{
	struct source *s = arg;
	int fd;

	pinning[n_pinning++] = gettid();
	fd = source_pin(s);
	if (fd >= 0)
		fd_cache_unpin(&s->fd);
	return (void *)(intptr_t)fd;
}

static void test_source__file_that_may_be_remote_is_opened_by_one_of_two_threads(void **state)
{
	static const char *const names[] = { "lower" };
	struct tree_dirs *d = *state;
	struct layer *layers[1];
	struct source *src;
	pthread_t threads[2];
	void *fds[2];

	tree_put_text(d, "lower/f", "text");
	tree_open_layers(d, names, 1, layers);
	layers[0]->is_mappable = false;
	assert_int_equal(source_new(layers, 1, 0, "f", &src, NULL), 0);
	fd_cache_drop(&src->fd);
	open_really = src->open;
	src->open = open_slowly;
	n_pinning = 0;
	pinning[0] = pinning[1] = 0;
	n_opened = 0;
	for (unsigned k = 0; k < 2; k++)
		assert_int_equal(pthread_create(&threads[k], NULL, pin, src), 0);
	for (unsigned k = 0; k < 2; k++)
		pthread_join(threads[k], &fds[k]);
	assert_int_equal(n_opened, 1);
	assert_true((intptr_t)fds[0] >= 0);
	assert_ptr_equal(fds[0], fds[1]);
	source_free(src);
	tree_close_layers(layers, 1);
}

#define row(test) cmocka_unit_test_setup_teardown(test, tree_setup, tree_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		row(test_source__plain_file_has_nothing_below),
		row(test_source__what_is_no_regular_file_is_refused),
		row(test_source__partial_file_shows_own_and_lower_blocks),
		row(test_source__layers_that_are_known_to_have_the_file_are_not_looked_for),
		row(test_source__lower_file_that_changed_is_damage),
		row(test_source__lower_file_that_is_gone_is_damage),
		row(test_source__layer_without_its_map_is_damage),
		row(test_source__mark_of_another_layer_is_damage),
		row(test_source__a_file_that_shows_nothing_of_its_lower_needs_none),
		row(test_source__one_block_of_the_lower_that_is_seen_needs_it),
		row(test_source__damaged_mark_is_damage),
		row(test_source__user_attribute_cannot_make_a_metacopy),
		row(test_source__mark_overrules_a_metacopy),
		row(test_source__metacopy_shows_the_bytes_below),
		row(test_source__metacopy_without_its_data_is_damage),
		row(test_source__metacopy_ignores_the_users_redirect),
		row(test_source__partial_file_follows_the_redirects_above_it),
		row(test_source__mark_that_names_its_own_path_below_itself_ends),
		row(test_source__mark_that_names_a_directory_is_damage),
		row(test_source__file_that_carries_attributes_is_not_plain),
		row(test_source__file_that_may_be_remote_is_opened_by_one_of_two_threads),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
