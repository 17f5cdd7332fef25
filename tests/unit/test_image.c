// SPDX-License-Identifier: Apache-2.0
#include "support/stack.h"

#include "veneer/read.h"

#include <dirent.h>

#define LAYERS_MAX 8

static struct image *open_image(struct tree_dirs *d, const char *const *names, size_t n)
{
	struct layer *layers[LAYERS_MAX];
	struct image *img;

	for (size_t k = 0; k < n; k++) {
		char path[PATH_MAX + 64];

		snprintf(path, sizeof(path), "%s/%s", d->s.path, names[k]);
		assert_int_equal(layer_open(path, &layers[k]), 0);
	}
	assert_int_equal(image_new(layers, n, &img), 0);
	for (size_t k = 0; k < n; k++)
		layer_unref(layers[k]);
	return img;
}

static struct image *open_two(struct tree_dirs *d)
{
	static const char *const names[] = { "top", "bottom" };

	tree_put_dir(d, "top");
	tree_put_dir(d, "bottom");
	return open_image(d, names, 2);
}

/* What is seen at path: "-", "file", "dir 01" with the layers merged, or "other". */
static void expect(struct image *img, const char *path, const char *what)
{
	char got[32] = "-";
	struct ient *e;
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

static void test_image__redirect_of_another_union_is_refused(void **state)
{
	struct tree_dirs *d = *state;
	struct image *img;
	struct ient *e;
	char path[PATH_MAX + 64];

	tree_put_text(d, "bottom/d/x", "");
	tree_put_dir(d, "top/d");
	snprintf(path, sizeof(path), "%s/top/d", d->s.path);
	assert_int_equal(setxattr(path, "user.overlay.redirect", "/e", 2, 0), 0);
	img = open_two(d);
	assert_int_equal(image_lookup_path(img, "d/x", &e), -EUCLEAN);
	image_unref(img);
}

static void test_image__lookup_in_a_file_is_enotdir(void **state)
{
	struct tree_dirs *d = *state;
	struct image *img;
	struct ient *e;

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
	struct ient *e;

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
	struct ient *e;

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
		struct ient *child;

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
	struct ient *e;
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
	struct ient *e;
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
	struct ient *e;
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
	struct ient *e = image_root(img);
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

		/* Those below an opaque one are only found out when it is read. */
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
		struct ient *e;
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
		row(test_image__redirect_of_another_union_is_refused),
		row(test_image__lookup_in_a_file_is_enotdir),
		row(test_image__path_that_is_not_plain_finds_nothing),
		row(test_image__large_directory_finds_every_name_once),
		row(test_image__link_count_of_a_merged_directory_counts_all_layers),
		row(test_image__path_of_an_entry_leads_back_to_it),
		row(test_image__deep_tree_is_taken_down_without_recursion),
		row(test_image__random_layers_show_what_the_rule_says),
		row(test_image__threads_that_ask_at_once_agree),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
