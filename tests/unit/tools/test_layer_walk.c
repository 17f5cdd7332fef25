// SPDX-License-Identifier: Apache-2.0
#include "support/tree.h"

#include "tools/layer_walk.h"

struct walking {
	char seen[4096];
	const char *skip, *remove, *fail; /* names */
	int missed;
	int miss_result;
	unsigned n_steps;
	char *dirs[64]; /* owned; what entries are told */
	unsigned n_dirs;
};

static int note(void *arg, const struct layer_walk_entry *e, void **ret_dir)
{
	struct walking *w = arg;

	snprintf(w->seen + strlen(w->seen), sizeof(w->seen) - strlen(w->seen), "%s%s%s",
		 *w->seen ? " " : "", e->path, S_ISDIR(e->st.st_mode) ? "/" : "");
	if (w->fail && !strcmp(e->name, w->fail))
		return -EDOM;
	if (w->remove && !strcmp(e->name, w->remove))
		assert_int_equal(
			unlinkat(e->dirfd, e->name, S_ISDIR(e->st.st_mode) ? AT_REMOVEDIR : 0), 0);
	if (S_ISDIR(e->st.st_mode)) {
		/* What a directory's call leaves is what its entries are told. */
		assert_true(!e->dir || !strncmp(e->path, e->dir, strlen(e->dir)));
		*ret_dir = w->dirs[w->n_dirs++] = strdup(e->path);
	}
	return w->skip && !strcmp(e->name, w->skip);
}

static int miss(void *arg, const char *path, int error)
{
	struct walking *w = arg;

	(void)path;
	w->missed = error;
	return w->miss_result;
}

static void count(void *arg, size_t entries, size_t dirs)
{
	struct walking *w = arg;

	(void)dirs;
	assert_int_equal(entries, ++w->n_steps);
}

static int walk(struct tree_dirs *d, struct walking *w, bool has_miss)
{
	const struct step step = { count, w };
	const struct layer_walk_hooks hooks = {
		.fn = note, .miss = has_miss ? miss : NULL, .arg = w, .step = &step
	};
	int fd = openat(d->s.fd, "upper", O_RDONLY | O_DIRECTORY | O_CLOEXEC), r;

	r = layer_walk(fd, NULL, &hooks);
	while (w->n_dirs)
		free(w->dirs[--w->n_dirs]);
	close(fd);
	return r;
}

static bool has(const struct walking *w, const char *word)
{
	const char *at = strstr(w->seen, word);

	return at && (at == w->seen || at[-1] == ' ') &&
	       (!at[strlen(word)] || at[strlen(word)] == ' ');
}

static void test_layer_walk__each_entry_once_and_behind_its_directory(void **state)
{
	struct walking w = { .skip = NULL };
	struct tree_dirs *d = *state;

	assert_int_equal(walk(d, &w, false), 0);
	assert_string_equal(w.seen, "");
	tree_put_text(d, "upper/a/b/c", "x");
	tree_put_text(d, "upper/a/.wh.gone", "");
	tree_put_text(d, "upper/file", "x");
	assert_int_equal(symlinkat("/", d->s.fd, "upper/link"), 0);
	assert_int_equal(walk(d, &w, false), 0);
	assert_int_equal(w.n_steps, 6);
	assert_true(has(&w, "a/") && has(&w, "a/b/") && has(&w, "a/b/c") && has(&w, "file"));
	/* A link is an entry, and not a way. */
	assert_true(has(&w, "link") && has(&w, "a/.wh.gone"));
	assert_true(strstr(w.seen, "a/") < strstr(w.seen, "a/b/c"));
}

static void test_layer_walk__directory_may_be_left_out_removed_or_fail(void **state)
{
	struct walking skip = { .skip = "a" }, gone = { .remove = "empty" }, bad = { .fail = "b" };
	struct tree_dirs *d = *state;

	tree_put_text(d, "upper/a/b/c", "x");
	tree_put_dir(d, "upper/empty");
	assert_int_equal(walk(d, &skip, false), 0);
	assert_false(has(&skip, "a/b/"));
	assert_int_equal(walk(d, &gone, false), 0);
	assert_false(tree_is_there(d, "upper/empty"));
	assert_int_equal(walk(d, &bad, false), -EDOM);
	assert_false(has(&bad, "a/b/c"));
}

static void test_layer_walk__path_that_is_too_long_is_missed(void **state)
{
	struct walking stop = { .miss_result = -EDOM }, go = { .miss_result = 0 },
		       none = { .skip = NULL };
	struct tree_dirs *d = *state;
	char name[NAME_MAX + 1];
	int fd = openat(d->s.fd, "upper", O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	memset(name, 'n', NAME_MAX);
	name[NAME_MAX] = '\0';
	for (int i = 0; i < 17; i++) {
		int next;

		assert_int_equal(mkdirat(fd, name, 0755), 0);
		next = openat(fd, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
		close(fd);
		fd = next;
	}
	close(fd);
	assert_int_equal(walk(d, &go, true), 0);
	assert_int_equal(go.missed, -ENAMETOOLONG);
	assert_int_equal(walk(d, &stop, true), -EDOM);
	assert_int_equal(walk(d, &none, false), -ENAMETOOLONG);
}

#define row(test) cmocka_unit_test_setup_teardown(test, tree_setup, tree_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		row(test_layer_walk__each_entry_once_and_behind_its_directory),
		row(test_layer_walk__directory_may_be_left_out_removed_or_fail),
		row(test_layer_walk__path_that_is_too_long_is_missed),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
