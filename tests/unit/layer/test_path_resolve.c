// SPDX-License-Identifier: Apache-2.0
#include "support/stack.h"

#include "veneer/layer/image.h"
#include "veneer/layer/path_resolve.h"

#include <dirent.h>

#define LAYERS_MAX 300

/* layer: that has the file, at `there`; negative: an error. */
static void expect_file(struct layer **layers, size_t n, size_t from, const char *path,
			ssize_t layer, const char *there)
{
	char *got = NULL;

	assert_int_equal(path_resolve_file(layers, n, from, path, &got), layer);
	if (there)
		assert_string_equal(got, there);
	free(got);
}

/* As "0:d 2:e/f". */
static void expect_directories(struct layer **layers, size_t n, const char *path, const char *want)
{
	struct path_resolve_list l;
	char got[1024] = "";

	assert_int_equal(path_resolve_directories(layers, n, 0, path, &l), 0);
	for (size_t k = 0; k < l.n; k++)
		snprintf(got + strlen(got), sizeof(got) - strlen(got), "%s%u:%s", k ? " " : "",
			 l.layers[k], l.paths[k]);
	assert_string_equal(got, want);
	path_resolve_list_release(&l);
}

static void test_path_resolve__file_is_found_in_the_layer_that_the_rule_says(void **state)
{
	struct tree_dirs *d = *state;
	uint64_t seed = tree_seed("walk_file");

	for (unsigned round = 0; round < 25; round++) {
		char buf[STACK_LAYERS][32];
		const char *names[STACK_LAYERS];
		struct layer *layers[STACK_LAYERS];
		struct stack s;

		for (unsigned k = 0; k < STACK_LAYERS; k++) {
			snprintf(buf[k], sizeof(buf[k]), "r%u-%u", round, k);
			names[k] = buf[k];
		}
		stack_make(&s, d, names, &seed);
		tree_open_layers(d, names, STACK_LAYERS, layers);
		for (unsigned node = 1; node < STACK_NODES; node++) {
			const struct stack_view *v = &s.seen[node];
			struct path_resolve_list l;
			char *path = NULL;
			ssize_t found =
				path_resolve_file(layers, STACK_LAYERS, 0, stack_path(node), &path);

			free(path);
			if (found != (v->kind == STACK_FILE ? (ssize_t)v->layers[0] : -ENOENT))
				fail_msg("round %u: %s found in %zd", round, stack_path(node),
					 found);
			assert_int_equal(path_resolve_directories(layers, STACK_LAYERS, 0,
								  stack_path(node), &l),
					 0);
			assert_int_equal(l.n, v->kind == STACK_DIR ? v->n : 0);
			for (unsigned k = 0; k < l.n; k++)
				assert_int_equal(l.layers[k], v->layers[k]);
			path_resolve_list_release(&l);
		}
		tree_close_layers(layers, STACK_LAYERS);
	}
}

static void test_path_resolve__starts_below_the_layer_given(void **state)
{
	static const char *const names[] = { "a", "b", "c" };
	struct tree_dirs *d = *state;
	struct layer *layers[3];

	tree_put_text(d, "a/d/f", "");
	tree_put_dir(d, "b/d");
	tree_put_text(d, "c/d/f", "");
	tree_open_layers(d, names, 3, layers);
	expect_file(layers, 3, 0, "d/f", 0, "d/f");
	expect_file(layers, 3, 1, "d/f", 2, "d/f");
	expect_file(layers, 3, 3, "d/f", -ENOENT, NULL);
	expect_file(layers, 3, 0, "../d/f", -ENOENT, NULL);
	expect_file(layers, 3, 0, "", -ENOENT, NULL);
	expect_directories(layers, 3, "d", "0:d 1:d 2:d");
	expect_directories(layers, 3, "..", "");
	tree_close_layers(layers, 3);
}

static void test_path_resolve__opaque_root_ends_it(void **state)
{
	static const char *const names[] = { "a", "b", "c", "e" };
	struct tree_dirs *d = *state;
	struct layer *layers[4];

	tree_put_dir(d, "a/d");
	tree_put_text(d, "b/.wh..wh..opq", "");
	tree_put_dir(d, "b/d");
	tree_put_text(d, "b/own", "");
	tree_put_text(d, "c/d/f", "");
	tree_put_text(d, "c/own", "");
	tree_put_opaque(d, "c");
	tree_put_text(d, "e/d/g", "");
	tree_open_layers(d, names, 4, layers);
	expect_file(layers, 4, 0, "d/f", -ENOENT, NULL);
	expect_file(layers, 4, 0, "own", 1, "own");
	expect_directories(layers, 4, "d", "0:d 1:d");
	expect_file(layers, 4, 2, "d/g", 3, "d/g"); /* by an attribute a root cannot be opaque */
	tree_close_layers(layers, 4);
}

/* a and b are one layer. */
static void test_path_resolve__rest_of_a_layer_is_part_of_it(void **state)
{
	static const char *const names[] = { "a", "b", "c" };
	struct tree_dirs *d = *state;
	struct layer *layers[3];

	tree_put_redirect(d, "a/new", "old");
	tree_put_text(d, "b/.wh.old", "");
	tree_put_text(d, "a/.wh.was", "");
	tree_put_redirect(d, "b/is", "was");
	tree_put_text(d, "b/file", "");
	/* One that came after the redirect was made. */
	tree_put_redirect(d, "a/moved", "d");
	tree_put_text(d, "b/d/other", "");
	tree_put_text(d, "c/old/f", "");
	tree_put_text(d, "c/was/f", "");
	tree_put_text(d, "c/d/f", "");
	tree_open_layers(d, names, 3, layers);
	layer_note_rest(layers[1]);
	assert_int_equal(layer_below(layers, 3, 0), 2);
	assert_int_equal(layer_below(layers, 3, 1), 2);
	assert_int_equal(layer_below(layers, 3, 2), 3);
	expect_directories(layers, 3, "new", "0:new 2:old");
	expect_directories(layers, 3, "is", "1:is 2:was");
	expect_directories(layers, 3, "moved", "0:moved 2:d");
	expect_directories(layers, 3, "d", "1:d 2:d");
	expect_directories(layers, 3, "old", "");
	expect_file(layers, 3, 0, "file", 1, "file");
	expect_file(layers, 3, 0, "new/f", 2, "old/f");
	expect_file(layers, 3, 0, "was/f", -ENOENT, NULL);
	/* It is opaque as a whole. */
	tree_put_text(d, "a/.wh..wh..opq", "");
	expect_file(layers, 3, 0, "d/other", 1, "d/other");
	expect_directories(layers, 3, "d", "1:d");
	tree_close_layers(layers, 3);
}

static void test_path_resolve__follows_no_symbolic_link(void **state)
{
	static const char *const names[] = { "a", "b" };
	struct tree_dirs *d = *state;
	struct layer *layers[2];

	tree_put_dir(d, "a");
	tree_put_text(d, "b/real/f", "");
	assert_int_equal(symlinkat("real", d->s.fd, "b/link"), 0);
	assert_int_equal(symlinkat("../b/real", d->s.fd, "a/real"), 0);
	tree_open_layers(d, names, 2, layers);
	expect_file(layers, 2, 0, "link/f", -ENOENT, NULL);
	expect_file(layers, 2, 0, "real/f", -ENOENT, NULL);
	expect_directories(layers, 2, "link", "");
	tree_close_layers(layers, 2);
}

static void test_path_resolve__redirects_on_the_way_are_followed(void **state)
{
	static const char *const names[] = { "a", "b", "c" };
	struct tree_dirs *d = *state;
	struct path_resolve_step s;
	struct layer *layers[3];

	tree_put_redirect(d, "a/new", "/mid/dle");
	tree_put_redirect(d, "a/new/sub", "bus");
	tree_put_redirect(d, "b/mid", "old");
	tree_put_redirect(d, "b/mid/dle/bus", "/far");
	tree_put_text(d, "c/old/dle/f", "");
	tree_put_text(d, "c/far/g", "");
	tree_put_text(d, "c/mid/dle/not", "");
	tree_open_layers(d, names, 3, layers);
	expect_file(layers, 3, 0, "new/f", 2, "old/dle/f");
	expect_file(layers, 3, 0, "new/sub/g", 2, "far/g");
	expect_file(layers, 3, 0, "new/not", -ENOENT, NULL);
	expect_directories(layers, 3, "new", "0:new 1:mid/dle 2:old/dle");
	expect_directories(layers, 3, "new/sub", "0:new/sub 1:mid/dle/bus 2:far");
	assert_int_equal(path_resolve_visit(layers[0], "new/sub/x/y", &s), 0);
	assert_int_equal(s.kind, PATH_RESOLVE_ABSENT);
	assert_string_equal(s.path, "mid/dle/bus/x/y");
	tree_close_layers(layers, 3);
}

static void test_path_resolve__redirect_to_no_directory_is_damage(void **state)
{
	static const char *const names[] = { "a", "b", "c" };
	struct tree_dirs *d = *state;
	struct layer *layers[3];
	struct path_resolve_list l;

	tree_put_redirect(d, "a/d", "/e");
	tree_put_redirect(d, "b/e", "/f");
	tree_put_redirect(d, "b/g", "../f");
	tree_put_text(d, "c/f", "");
	tree_put_text(d, "b/e/x", "");
	tree_open_layers(d, names, 3, layers);
	assert_int_equal(path_resolve_directories(layers, 3, 0, "d", &l), -EUCLEAN);
	assert_int_equal(path_resolve_directories(layers, 3, 0, "e", &l), -EUCLEAN);
	assert_int_equal(path_resolve_directories(layers, 3, 0, "g", &l), -EUCLEAN);
	expect_file(layers, 3, 0, "d/x", 1, "e/x");
	expect_directories(layers, 3, "none", "");
	tree_close_layers(layers, 3);
}

static void test_path_resolve__path_that_grows_too_long_ends_it(void **state)
{
	static const char *const names[] = { "a", "b", "c" };
	char long_path[3001], target[3003] = "/";
	struct tree_dirs *d = *state;
	struct layer *layers[3];
	struct path_resolve_list l;

	for (size_t n = 0; n < 3000; n++)
		long_path[n] = n % 100 == 99 ? '/' : 'x';
	long_path[2999] = '\0';
	strcat(target, long_path);
	tree_put_redirect(d, "a/d", target);
	tree_put_redirect(d, "b/d", "/e");
	tree_put_text(d, "c/d/f", "");
	tree_open_layers(d, names, 3, layers);
	snprintf(target, sizeof(target), "d/%.1990s", long_path);
	assert_int_equal(path_resolve_directories(layers, 3, 0, target, &l), -ENAMETOOLONG);
	tree_close_layers(layers, 3);
}

/* A chain for which an image would need 300 levels of renames costs one visit a layer. */
static void test_path_resolve__chain_through_many_layers_takes_one_step_each(void **state)
{
	static char buf[LAYERS_MAX][16];
	static const char *names[LAYERS_MAX];
	static struct layer *layers[LAYERS_MAX];
	struct tree_dirs *d = *state;
	struct path_resolve_list l;

	for (unsigned k = 0; k < LAYERS_MAX; k++) {
		char rel[64];

		snprintf(buf[k], sizeof(buf[k]), "l%u", k);
		names[k] = buf[k];
		/* Two below one another, renamed crosswise in every layer. */
		snprintf(rel, sizeof(rel), "l%u/a", k);
		tree_put_redirect(d, rel, k % 2 ? "/b" : "/b/a");
		snprintf(rel, sizeof(rel), "l%u/b/a", k);
		tree_put_redirect(d, rel, "/a");
		snprintf(rel, sizeof(rel), "l%u/b", k);
		tree_put_redirect(d, rel, "/a");
	}
	tree_put_text(d, "last/b/a/f", "");
	tree_put_text(d, "last/a/f", "");
	names[LAYERS_MAX - 1] = "last";
	tree_open_layers(d, names, LAYERS_MAX, layers);
	assert_int_equal(path_resolve_directories(layers, LAYERS_MAX, 0, "b/a", &l), 0);
	assert_int_equal(l.n, LAYERS_MAX);
	for (unsigned k = 0; k < LAYERS_MAX; k++)
		assert_int_equal(l.layers[k], k);
	path_resolve_list_release(&l);
	tree_close_layers(layers, LAYERS_MAX);
}

/* Redirects at random among random layers: the image, which goes by listings, and the walk, which
 * goes by paths, find the same. */
static void scatter_redirects(struct tree_dirs *d, const struct stack *s, const char *const names[],
			      uint64_t *seed)
{
	for (unsigned layer = 0; layer < STACK_LAYERS; layer++)
		for (unsigned node = 1; node < STACK_NODES; node++) {
			unsigned to = 1 + (unsigned)(tree_random(seed) % (STACK_NODES - 1));
			char rel[64], target[32];

			if (s->at[layer][node].kind != STACK_DIR || tree_random(seed) % 4)
				continue;
			snprintf(rel, sizeof(rel), "%s/%s", names[layer], stack_path(node));
			snprintf(target, sizeof(target), "/%s", stack_path(to));
			tree_put_redirect(d, rel,
					  tree_random(seed) % 3 ? target : &"a\0b\0c"[to % 3 * 2]);
		}
}

/* Everything in the image below dir is found by the walk too, in the same place. */
static void compare(struct image *img, struct layer **layers, struct image_entry *dir,
		    unsigned *nfiles, unsigned *nbad)
{
	ssize_t n = image_count(img, dir);
	char *path = image_path(dir);
	struct path_resolve_list l;

	if (dir->parent) {
		int r = path_resolve_directories(layers, STACK_LAYERS, 0, path, &l);

		assert_int_equal(r, n < 0 ? n : 0);
		if (r == 0)
			assert_int_equal(l.layers[0], dir->layer);
		path_resolve_list_release(&l);
	}
	free(path);
	*nbad += n < 0;
	for (ssize_t k = 0; k < n; k++) {
		struct image_entry *e = image_child(dir, (size_t)k);
		char *there = NULL, *want = image_layer_path(e);

		path = image_path(e);
		if (e->type == DT_DIR) {
			compare(img, layers, e, nfiles, nbad);
		} else {
			assert_int_equal(path_resolve_file(layers, STACK_LAYERS, 0, path, &there),
					 e->layer);
			assert_string_equal(there, want);
			++*nfiles;
		}
		free(path);
		free(want);
		free(there);
	}
}

static void test_path_resolve__random_redirects_are_what_the_image_shows(void **state)
{
	struct tree_dirs *d = *state;
	uint64_t seed = tree_seed("random redirects");
	unsigned nfiles = 0, nbad = 0;

	for (unsigned round = 0; round < 60; round++) {
		char buf[STACK_LAYERS][32];
		const char *names[STACK_LAYERS];
		struct layer *layers[STACK_LAYERS];
		struct image *img;
		struct stack s;

		for (unsigned k = 0; k < STACK_LAYERS; k++) {
			snprintf(buf[k], sizeof(buf[k]), "r%u-%u", round, k);
			names[k] = buf[k];
		}
		stack_make(&s, d, names, &seed);
		scatter_redirects(d, &s, names, &seed);
		tree_open_layers(d, names, STACK_LAYERS, layers);
		assert_int_equal(image_new(layers, STACK_LAYERS, &img), 0);
		compare(img, layers, image_root(img), &nfiles, &nbad);
		image_unref(img);
		tree_close_layers(layers, STACK_LAYERS);
	}
	print_message("# %u files, %u broken directories\n", nfiles, nbad);
	assert_true(nfiles > 50 && nbad > 10);
}

#define row(test) cmocka_unit_test_setup_teardown(test, tree_setup, tree_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		row(test_path_resolve__file_is_found_in_the_layer_that_the_rule_says),
		row(test_path_resolve__starts_below_the_layer_given),
		row(test_path_resolve__opaque_root_ends_it),
		row(test_path_resolve__rest_of_a_layer_is_part_of_it),
		row(test_path_resolve__follows_no_symbolic_link),
		row(test_path_resolve__redirects_on_the_way_are_followed),
		row(test_path_resolve__redirect_to_no_directory_is_damage),
		row(test_path_resolve__path_that_grows_too_long_ends_it),
		row(test_path_resolve__chain_through_many_layers_takes_one_step_each),
		row(test_path_resolve__random_redirects_are_what_the_image_shows),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
