// SPDX-License-Identifier: Apache-2.0
#include "support/stack.h"

#include "veneer/data/cow.h"
#include "veneer/data/read.h"

#include <dirent.h>
#include <pthread.h>

#define LAYERS_MAX 8

static struct image *open_image(struct tree_dirs *d, const char *const *names, size_t n)
{
	struct layer *layers[LAYERS_MAX];
	struct image *img;

	tree_open_layers(d, names, n, layers);
	assert_int_equal(image_new(layers, n, &img), 0);
	tree_close_layers(layers, n);
	return img;
}

static struct image *open_two(struct tree_dirs *d)
{
	static const char *const names[] = { "top", "bottom" };

	tree_put_dir(d, "top");
	tree_put_dir(d, "bottom");
	return open_image(d, names, 2);
}

/* Compare what is seen at path: "-", "file", "dir 01" with the layers merged, or "other". */
static void expect(struct image *img, const char *path, const char *what)
{
	char got[32] = "-";
	struct image_entry *e;
	int r = image_lookup_path(img, path, &e);

	if (r == 0 && e->type == DT_DIR) {
		int n = snprintf(got, sizeof(got), "dir ");

		for (unsigned k = 0; k < e->nlayers; k++)
			n += snprintf(got + n, sizeof(got) - (size_t)n, "%u", e->layers[k]);
	} else if (r == 0) {
		snprintf(got, sizeof(got), "%s %u", e->type == DT_REG ? "file" : "other", e->layer);
	} else {
		assert_true(r == -ENOENT || r == -ENOTDIR);
	}
	assert_string_equal(got, what);
}

static void test_image__upper_file_hides_lower_file(void **state)
{
	struct tree_dirs *d = *state;
	struct image *img;

	tree_put_text(d, "top/f", "new");
	tree_put_text(d, "bottom/f", "old");
	tree_put_text(d, "bottom/g", "old");
	img = open_two(d);
	expect(img, "f", "file 0");
	expect(img, "g", "file 1");
	image_unref(img);
}

static void test_image__directories_of_one_name_are_merged(void **state)
{
	struct tree_dirs *d = *state;
	struct image *img;

	tree_put_text(d, "top/d/x", "");
	tree_put_text(d, "bottom/d/y", "");
	img = open_two(d);
	expect(img, "d", "dir 01");
	expect(img, "d/x", "file 0");
	expect(img, "d/y", "file 1");
	image_unref(img);
}

static void test_image__device_whiteout_hides_file_and_directory(void **state)
{
	struct tree_dirs *d = *state;
	struct image *img;

	tree_put_whiteout(d, "top/f");
	tree_put_whiteout(d, "top/d");
	tree_put_text(d, "bottom/f", "");
	tree_put_text(d, "bottom/d/x", "");
	img = open_two(d);
	expect(img, "f", "-");
	expect(img, "d", "-");
	expect(img, "d/x", "-");
	assert_int_equal(image_count(img, image_root(img)), 0);
	image_unref(img);
}

static void test_image__named_whiteout_hides_and_is_not_shown(void **state)
{
	struct tree_dirs *d = *state;
	struct image *img;

	tree_put_text(d, "top/.wh.f", "");
	tree_put_text(d, "bottom/f", "");
	img = open_two(d);
	expect(img, "f", "-");
	expect(img, ".wh.f", "-");
	assert_int_equal(image_count(img, image_root(img)), 0);
	image_unref(img);
}

static void test_image__named_whiteout_hides_the_entry_beside_it(void **state)
{
	struct tree_dirs *d = *state;
	struct image *img;

	tree_put_text(d, "top/.wh.f", "");
	tree_put_text(d, "top/f", "");
	tree_put_text(d, "bottom/f", "");
	img = open_two(d);
	expect(img, "f", "-");
	image_unref(img);
}

static void test_image__opaque_attribute_cuts_off_what_is_below(void **state)
{
	struct tree_dirs *d = *state;
	struct image *img;

	tree_put_opaque(d, "top/d");
	tree_put_text(d, "top/d/x", "");
	tree_put_text(d, "bottom/d/y", "");
	img = open_two(d);
	expect(img, "d/x", "file 0");
	expect(img, "d/y", "-");
	image_unref(img);
}

static void test_image__opaque_file_cuts_off_what_is_below(void **state)
{
	struct tree_dirs *d = *state;
	struct image *img;

	tree_put_text(d, "top/d/.wh..wh..opq", "");
	tree_put_text(d, "bottom/d/y", "");
	img = open_two(d);
	expect(img, "d/y", "-");
	expect(img, "d/.wh..wh..opq", "-");
	image_unref(img);
}

static void test_image__root_cannot_be_opaque(void **state)
{
	struct tree_dirs *d = *state;
	struct image *img;

	tree_put_opaque(d, "top");
	tree_put_text(d, "bottom/f", "");
	img = open_two(d);
	expect(img, "f", "file 1");
	image_unref(img);
}

static void test_image__type_that_changes_between_layers_ends_the_merge(void **state)
{
	struct tree_dirs *d = *state;
	static const char *const names[] = { "top", "middle", "bottom" };
	struct image *img;

	tree_put_text(d, "top/a", "file over directory");
	tree_put_text(d, "bottom/a/x", "");
	tree_put_dir(d, "top/b");
	tree_put_text(d, "middle/b", "file between directories");
	tree_put_text(d, "bottom/b/x", "");
	tree_put_dir(d, "top/c");
	tree_put_whiteout(d, "middle/c");
	tree_put_text(d, "bottom/c/x", "");
	img = open_image(d, names, 3);
	expect(img, "a", "file 0");
	expect(img, "a/x", "-");
	expect(img, "b", "dir 0");
	expect(img, "b/x", "-");
	expect(img, "c", "dir 0");
	expect(img, "c/x", "-");
	image_unref(img);
}

/* A path of the merged tree, and where its entry really is. */
static void expect_at(struct image *img, const char *path, unsigned layer, const char *there)
{
	struct image_entry *e;
	char *got;

	assert_int_equal(image_lookup_path(img, path, &e), 0);
	assert_int_equal(e->layer, layer);
	got = image_path(e);
	assert_string_equal(got, path);
	free(got);
	got = image_layer_path(e);
	assert_string_equal(got, there);
	free(got);
}

static void expect_error(struct image *img, const char *path, int error)
{
	struct image_entry *e;

	assert_int_equal(image_lookup_path(img, path, &e), error);
}

static void test_image__redirected_directory_shows_the_place_it_came_from(void **state)
{
	struct tree_dirs *d = *state;
	struct image *img;
	struct source *src;
	struct image_entry *e;
	struct stat st;
	char text[4];

	tree_put_text(d, "bottom/old/x", "data");
	tree_put_text(d, "bottom/old/sub/y", "");
	tree_put_text(d, "bottom/old/gone", "");
	tree_put_text(d, "bottom/new/hidden", "");
	tree_put_whiteout(d, "top/old");
	tree_put_redirect(d, "top/new", "/old");
	tree_put_whiteout(d, "top/new/gone");
	tree_put_text(d, "top/new/sub/z", "");
	img = open_two(d);
	expect(img, "old", "-");
	expect_at(img, "new/x", 1, "old/x");
	expect_at(img, "new/sub", 0, "new/sub");
	expect_at(img, "new/sub/y", 1, "old/sub/y");
	expect_at(img, "new/sub/z", 0, "new/sub/z");
	expect(img, "new/gone", "-");
	expect(img, "new/hidden", "-");
	assert_int_equal(image_lookup_path(img, "new", &e), 0);
	assert_int_equal(image_count(img, e), 2);
	assert_int_equal(image_stat(img, e, &st), 0);
	assert_int_equal(st.st_nlink, 3);
	assert_int_equal(image_lookup_path(img, "new/x", &e), 0);
	assert_int_equal(image_stat(img, e, &st), 0);
	assert_int_equal(st.st_size, 4);
	assert_int_equal(image_source(img, e, &src), 0);
	assert_int_equal(read_source(src, text, 4, 0), 0);
	assert_memory_equal(text, "data", 4);
	image_unref(img);
}

static void test_image__redirect_by_sibling_name_stays_beside(void **state)
{
	static const char *const names[] = { "top", "middle", "bottom" };
	struct tree_dirs *d = *state;
	struct image *img;

	tree_put_text(d, "bottom/a/old/x", "");
	tree_put_redirect(d, "middle/b", "/a");
	tree_put_whiteout(d, "middle/a");
	tree_put_redirect(d, "top/b/new", "old");
	tree_put_whiteout(d, "top/b/old");
	img = open_image(d, names, 3);
	expect(img, "a", "-");
	expect(img, "b/old", "-");
	expect_at(img, "b/new/x", 2, "a/old/x");
	image_unref(img);
}

static void test_image__redirect_out_of_an_opaque_directory_is_followed(void **state)
{
	struct tree_dirs *d = *state;
	struct image *img;

	tree_put_text(d, "bottom/old/x", "");
	tree_put_text(d, "bottom/new/y", "");
	tree_put_opaque(d, "top/new");
	tree_put_redirect(d, "top/new/inside", "/old");
	tree_put_text(d, "top/new/inside/deep/z", "");
	img = open_two(d);
	expect_at(img, "new/inside/x", 1, "old/x");
	expect(img, "new/y", "-");
	expect_at(img, "new/inside/deep/z", 0, "new/inside/deep/z");
	image_unref(img);
}

/* Renamed in every layer, top down 7 to 0: each says what it was called in the one before. */
static void test_image__renames_of_many_layers_add_up(void **state)
{
	static const char *const names[] = { "l7", "l6", "l5", "l4", "l3", "l2", "l1", "l0" };
	struct tree_dirs *d = *state;
	struct image *img;

	tree_put_text(d, "l0/d0/e0/bottom", "");
	for (unsigned k = 1; k < 8; k++) {
		char rel[64], target[16];

		snprintf(rel, sizeof(rel), "l%u/d%u", k, k);
		snprintf(target, sizeof(target), k % 2 ? "d%u" : "/d%u", k - 1);
		tree_put_redirect(d, rel, target);
		snprintf(rel, sizeof(rel), "l%u/d%u/e%u", k, k, k);
		snprintf(target, sizeof(target), "e%u", k - 1);
		tree_put_redirect(d, rel, target);
		snprintf(rel, sizeof(rel), "l%u/d%u/e%u/f%u", k, k, k, k);
		tree_put_text(d, rel, "");
		snprintf(rel, sizeof(rel), "l%u/d%u", k, k - 1);
		tree_put_whiteout(d, rel);
	}
	img = open_image(d, names, 8);
	expect_at(img, "d7/e7/bottom", 7, "d0/e0/bottom");
	for (unsigned k = 1; k < 8; k++) {
		char path[32], there[32];

		snprintf(path, sizeof(path), "d7/e7/f%u", k);
		snprintf(there, sizeof(there), "d%u/e%u/f%u", k, k, k);
		expect_at(img, path, 7 - k, there);
		snprintf(path, sizeof(path), "d%u", k - 1);
		expect(img, path, "-");
	}
	image_unref(img);
}

static void test_image__redirect_that_leads_nowhere_is_damage_of_that_directory_alone(void **state)
{
	struct tree_dirs *d = *state;
	struct image *img;
	struct image_entry *e;
	struct stat st;

	tree_put_text(d, "bottom/file", "");
	assert_int_equal(symlinkat("real", d->s.fd, "bottom/link"), 0);
	tree_put_text(d, "bottom/real/x", "");
	tree_put_redirect(d, "top/missing", "/nothing");
	tree_put_redirect(d, "top/tofile", "/file");
	tree_put_redirect(d, "top/tolink", "/link");
	tree_put_redirect(d, "top/beside", "nothing");
	tree_put_redirect(d, "top/out", "/../real");
	tree_put_redirect(d, "top/empty", "");
	tree_put_redirect(d, "top/inself", "/inself/deeper");
	tree_put_text(d, "top/good/y", "");
	img = open_two(d);
	expect_error(img, "missing/x", -EUCLEAN);
	expect_error(img, "missing/x", -EUCLEAN);
	expect_error(img, "tofile/x", -EUCLEAN);
	expect_error(img, "tolink/x", -EUCLEAN);
	expect_error(img, "beside/x", -EUCLEAN);
	expect_error(img, "out/x", -EUCLEAN);
	expect_error(img, "empty/x", -EUCLEAN);
	expect_error(img, "inself/x", -EUCLEAN);
	expect(img, "good/y", "file 0");
	expect(img, "real/x", "file 1");
	assert_int_equal(image_lookup_path(img, "missing", &e), 0);
	assert_int_equal(image_stat(img, e, &st), 0);
	assert_int_equal(image_count(img, e), -EUCLEAN);
	image_unref(img);
}

static void test_image__redirect_in_the_last_layer_is_damage(void **state)
{
	struct tree_dirs *d = *state;
	struct image *img;

	tree_put_redirect(d, "bottom/d", "/e");
	tree_put_text(d, "bottom/e/x", "");
	tree_put_text(d, "top/d/y", "");
	img = open_two(d);
	expect_error(img, "d/y", -EUCLEAN);
	expect(img, "e/x", "file 1");
	image_unref(img);
}

/* Each layer makes the path longer, until it cannot be one. */
static void test_image__redirects_that_grow_end(void **state)
{
	static const char *const names[] = { "l0", "l1", "l2", "l3", "l4" };
	struct tree_dirs *d = *state;
	char target[2002] = "/a";
	struct image *img;

	for (size_t n = 2; n + 2 < sizeof(target); n += 2)
		memcpy(target + n, "/a", 3);
	for (unsigned k = 0; k < 5; k++)
		tree_put_redirect(d, names[k], "/ignored at the root");
	for (unsigned k = 0; k < 5; k++) {
		char rel[16];

		snprintf(rel, sizeof(rel), "l%u/a", k);
		tree_put_redirect(d, rel, target);
	}
	img = open_image(d, names, 5);
	expect_error(img, "a/a", -EUCLEAN);
	image_unref(img);
}

static void test_image__partial_file_below_a_redirect_is_read_where_it_is(void **state)
{
	struct tree_dirs *d = *state;
	struct stat st, bottom;
	char want[40960];
	struct inode *i;

	free(tree_put_pattern(d, "lower/old/f", sizeof(want), 1));
	tree_mount(d, "volatile");
	i = tree_get(d, "old/f");
	assert_int_equal(cow_write(d->t, i, "own", 3, 5000), 0);
	tree_forget(d, i);
	tree_unmount(d);
	tree_freeze(d);
	tree_put_redirect(d, "upper/new", "/old");
	tree_put_whiteout(d, "upper/old");
	tree_freeze(d);
	tree_mount(d, "volatile");
	tree_pattern(want, sizeof(want), 1);
	memcpy(want + 5000, "own", 3);
	tree_expect(d, "new/f", want, sizeof(want));
	/* The new file shows the number of the file at the bottom. */
	st = tree_stat(d, "new/f");
	assert_int_equal(fstatat(d->s.fd, "lower/old/f", &bottom, 0), 0);
	assert_int_equal(st.st_ino, bottom.st_ino);
	i = tree_get(d, "new/f");
	assert_int_equal(cow_write(d->t, i, "again", 5, 9000), 0);
	memcpy(want + 9000, "again", 5);
	tree_forget(d, i);
	tree_unmount(d);
	tree_mount(d, "volatile");
	tree_expect(d, "new/f", want, sizeof(want));
	tree_unmount(d);
	tree_freeze(d);
	tree_mount(d, "volatile");
	tree_expect(d, "new/f", want, sizeof(want));
	tree_expect_names(d, "", "new");
}

static void test_image__lookup_in_a_file_is_enotdir(void **state)
{
	struct tree_dirs *d = *state;
	struct image *img;
	struct image_entry *e;

	tree_put_text(d, "top/f", "");
	img = open_two(d);
	assert_int_equal(image_lookup_path(img, "f/x", &e), -ENOTDIR);
	image_unref(img);
}

static void test_image__path_that_is_not_plain_finds_nothing(void **state)
{
	static const char *const bad[] = { "", "/d", "d/", "d//x", ".", "..", "d/../d", "d/./x" };
	struct tree_dirs *d = *state;
	struct image *img;
	struct image_entry *e;

	tree_put_text(d, "top/d/x", "");
	img = open_two(d);
	for (size_t k = 0; k < sizeof(bad) / sizeof(*bad); k++)
		assert_int_equal(image_lookup_path(img, bad[k], &e), -ENOENT);
	image_unref(img);
}

static void test_image__large_directory_finds_every_name_once(void **state)
{
	struct tree_dirs *d = *state;
	struct image *img;
	struct image_entry *e;

	for (unsigned k = 0; k < 300; k++) {
		char rel[64];

		snprintf(rel, sizeof(rel), "%s/d/name%u", k % 3 ? "bottom" : "top", k);
		tree_put_text(d, rel, "");
		snprintf(rel, sizeof(rel), "bottom/d/name%u", k);
		tree_put_text(d, rel, "");
	}
	img = open_two(d);
	assert_int_equal(image_lookup_path(img, "d", &e), 0);
	assert_int_equal(image_count(img, e), 300);
	for (unsigned k = 0; k < 300; k++) {
		char name[32];
		struct image_entry *child;

		snprintf(name, sizeof(name), "name%u", k);
		assert_int_equal(image_lookup(img, e, name, &child), 0);
		assert_int_equal(child->layer, k % 3 ? 1 : 0);
		assert_string_equal(image_child(e, (size_t)(child - image_child(e, 0)))->name,
				    name);
	}
	assert_int_equal(image_lookup(img, e, "name300", &e), -ENOENT);
	image_unref(img);
}

static void test_image__link_count_of_a_merged_directory_counts_all_layers(void **state)
{
	struct tree_dirs *d = *state;
	struct image *img;
	struct image_entry *e;
	struct stat st;

	tree_put_dir(d, "top/d/a");
	tree_put_dir(d, "top/d/b");
	tree_put_dir(d, "bottom/d/b");
	tree_put_dir(d, "bottom/d/c");
	img = open_two(d);
	assert_int_equal(image_lookup_path(img, "d", &e), 0);
	assert_int_equal(image_stat(img, e, &st), 0);
	assert_int_equal(st.st_nlink, 5);
	image_unref(img);
}

static void test_image__path_of_an_entry_leads_back_to_it(void **state)
{
	struct tree_dirs *d = *state;
	struct image *img;
	struct image_entry *e;
	char *path;

	tree_put_text(d, "bottom/one/two/three", "");
	img = open_two(d);
	assert_int_equal(image_lookup_path(img, "one/two/three", &e), 0);
	path = image_path(e);
	assert_string_equal(path, "one/two/three");
	free(path);
	path = image_path(image_root(img));
	assert_string_equal(path, "");
	free(path);
	image_unref(img);
}

static void test_image__deep_tree_is_taken_down_without_recursion(void **state)
{
	struct tree_dirs *d = *state;
	struct image *img;
	struct image_entry *e;
	int fd, depth;

	tree_put_dir(d, "top");
	fd = openat(d->s.fd, "top", O_RDONLY | O_DIRECTORY);
	for (depth = 0; depth < 1500; depth++) {
		int next;

		assert_int_equal(mkdirat(fd, "d", 0755), 0);
		next = openat(fd, "d", O_RDONLY | O_DIRECTORY);
		close(fd);
		fd = next;
	}
	close(fd);
	img = open_two(d);
	e = image_root(img);
	for (depth = 0; depth < 1500; depth++)
		assert_int_equal(image_lookup(img, e, "d", &e), 0);
	image_unref(img);
}

static void check_node(struct image *img, const struct stack *s, unsigned node)
{
	const struct stack_view *v = &s->seen[node];
	struct image_entry *e = image_root(img);
	struct source *src;
	struct stat st;
	char want[64], got[64] = "";
	int r = node ? image_lookup_path(img, stack_path(node), &e) : 0;

	if (v->kind == STACK_ABSENT) {
		assert_true(r == -ENOENT || r == -ENOTDIR);
		return;
	}
	assert_int_equal(r, 0);
	assert_int_equal(e->layer, v->layers[0]);
	assert_int_equal(image_stat(img, e, &st), 0);
	if (v->kind == STACK_DIR) {
		unsigned children = 0;

		/* Layers below an opaque one are only found out when it is read. */
		assert_true(e->nlayers >= v->n);
		for (unsigned k = 0; k < v->n; k++)
			assert_int_equal(e->layers[k], v->layers[k]);
		for (unsigned k = node * 3 + 1; k <= node * 3 + 3 && k < STACK_NODES; k++)
			children += s->seen[k].kind != STACK_ABSENT;
		assert_int_equal(image_count(img, e), children);
		return;
	}
	stack_text(want, v->layers[0], node);
	assert_int_equal(st.st_size, strlen(want));
	assert_int_equal(image_source(img, e, &src), 0);
	assert_int_equal(read_source(src, got, strlen(want), 0), 0);
	assert_string_equal(got, want);
}

static void test_image__random_layers_show_what_the_rule_says(void **state)
{
	struct tree_dirs *d = *state;
	uint64_t seed = tree_seed("random layers");

	for (unsigned round = 0; round < 25; round++) {
		char buf[STACK_LAYERS][32];
		const char *names[STACK_LAYERS];
		struct stack s;
		struct image *img;

		for (unsigned k = 0; k < STACK_LAYERS; k++) {
			snprintf(buf[k], sizeof(buf[k]), "r%u-%u", round, k);
			names[k] = buf[k];
		}
		stack_make(&s, d, names, &seed);
		img = open_image(d, names, STACK_LAYERS);
		for (unsigned node = 0; node < STACK_NODES; node++)
			check_node(img, &s, node);
		image_unref(img);
	}
}

struct asker {
	struct image *img;
	int result;
};

static void *ask_everything(void *arg)
{
	struct asker *a = arg;

	for (unsigned node = 1; node < STACK_NODES && a->result == 0; node++) {
		struct image_entry *e;
		struct source *src;
		struct stat st;
		char text[64];
		int r = image_lookup_path(a->img, stack_path(node), &e);

		if (r == -ENOENT || r == -ENOTDIR)
			continue;
		if (r == 0)
			r = image_stat(a->img, e, &st);
		if (r == 0 && e->type == DT_REG)
			r = image_source(a->img, e, &src);
		if (r == 0 && e->type == DT_REG)
			r = read_source(src, text, 5, 0);
		if (r == 0 && image_ino(a->img, e) == 0)
			r = -EIO;
		a->result = r;
	}
	return NULL;
}

static void test_image__threads_that_ask_at_once_agree(void **state)
{
	static const char *const names[STACK_LAYERS] = { "p", "q", "r", "s" };
	struct tree_dirs *d = *state;
	uint64_t seed = tree_seed("threads at one image");
	struct asker askers[4];
	pthread_t threads[4];
	struct image *img;
	struct stack s;

	stack_make(&s, d, names, &seed);
	for (unsigned node = 0; node < STACK_NODES; node++)
		stack_path(node);
	for (unsigned round = 0; round < 10; round++) {
		img = open_image(d, names, STACK_LAYERS);
		for (unsigned k = 0; k < 4; k++) {
			askers[k] = (struct asker){ .img = img };
			assert_int_equal(
				pthread_create(&threads[k], NULL, ask_everything, &askers[k]), 0);
		}
		for (unsigned k = 0; k < 4; k++) {
			pthread_join(threads[k], NULL);
			assert_int_equal(askers[k].result, 0);
		}
		image_unref(img);
	}
}

static void test_image__links_and_plainness_are_remembered(void **state)
{
	struct tree_dirs *d = *state;
	struct image *img;
	struct image_entry *link, *dir, *file, *plain;
	char target[64], path[PATH_MAX + 32];

	tree_put_text(d, "top/dir/f", "x");
	tree_put_text(d, "top/plain", "x");
	tree_put_text(d, "top/marked", "x");
	assert_int_equal(symlinkat("some/where", d->s.fd, "top/link"), 0);
	snprintf(path, sizeof(path), "%s/top/marked", d->s.path);
	assert_int_equal(setxattr(path, "user.a", "b", 1, 0), 0);
	img = open_two(d);
	assert_int_equal(image_lookup_path(img, "link", &link), 0);
	assert_int_equal(image_lookup_path(img, "dir", &dir), 0);
	assert_int_equal(image_lookup_path(img, "marked", &file), 0);
	assert_true(image_is_plain(img, link));
	assert_true(image_is_plain(img, dir));
	assert_false(image_is_plain(img, file));
	assert_int_equal(image_lookup_path(img, "plain", &plain), 0);
	assert_true(image_is_plain(img, plain));
	assert_null(plain->src); /* that opens nothing */
	assert_int_equal(image_readlink(img, link, target, sizeof(target)), 10);
	assert_memory_equal(target, "some/where", 10);
	assert_int_equal(image_readlink(img, link, target, 4), 4);
	assert_int_equal(unlinkat(d->s.fd, "top/link", 0), 0);
	assert_int_equal(image_readlink(img, link, target, sizeof(target)), 10);
	assert_true(image_is_plain(img, link));
	assert_true(image_readlink(img, dir, target, sizeof(target)) < 0);
	image_unref(img);
}

#define row(test) cmocka_unit_test_setup_teardown(test, tree_setup, tree_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		row(test_image__upper_file_hides_lower_file),
		row(test_image__directories_of_one_name_are_merged),
		row(test_image__device_whiteout_hides_file_and_directory),
		row(test_image__named_whiteout_hides_and_is_not_shown),
		row(test_image__named_whiteout_hides_the_entry_beside_it),
		row(test_image__opaque_attribute_cuts_off_what_is_below),
		row(test_image__opaque_file_cuts_off_what_is_below),
		row(test_image__root_cannot_be_opaque),
		row(test_image__type_that_changes_between_layers_ends_the_merge),
		row(test_image__redirected_directory_shows_the_place_it_came_from),
		row(test_image__redirect_by_sibling_name_stays_beside),
		row(test_image__redirect_out_of_an_opaque_directory_is_followed),
		row(test_image__renames_of_many_layers_add_up),
		row(test_image__redirect_that_leads_nowhere_is_damage_of_that_directory_alone),
		row(test_image__redirect_in_the_last_layer_is_damage),
		row(test_image__redirects_that_grow_end),
		row(test_image__partial_file_below_a_redirect_is_read_where_it_is),
		row(test_image__lookup_in_a_file_is_enotdir),
		row(test_image__path_that_is_not_plain_finds_nothing),
		row(test_image__large_directory_finds_every_name_once),
		row(test_image__link_count_of_a_merged_directory_counts_all_layers),
		row(test_image__path_of_an_entry_leads_back_to_it),
		row(test_image__deep_tree_is_taken_down_without_recursion),
		row(test_image__random_layers_show_what_the_rule_says),
		row(test_image__threads_that_ask_at_once_agree),
		row(test_image__links_and_plainness_are_remembered),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
