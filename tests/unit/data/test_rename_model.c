// SPDX-License-Identifier: Apache-2.0
/* Names that come, go and move, against a plain table: over lower layers, remounts and frozen
 * uppers. */
#include "support/stack.h"

#include "veneer/data/cow.h"
#include "veneer/data/create.h"
#include "veneer/data/remove.h"
#include "veneer/data/rename.h"
#include "veneer/union/lookup.h"

/* Large enough for a partial file, and not a whole number of blocks. */
#define FILE_BYTES (17u * 1024 + 5)

struct node {
	enum stack_kind kind;
	char *data;
};

struct table {
	struct tree_dirs *d;
	struct node at[STACK_NODES];
	uint64_t seed;
};

static const char *name_of(unsigned node)
{
	const char *path = stack_path(node), *slash = strrchr(path, '/');

	return slash ? slash + 1 : path;
}

/* First node of each level, so that a subtree fits wherever a node of its level stands. */
static unsigned level_start(unsigned node)
{
	return node < 4 ? 1 : node < 13 ? 4 : 13;
}

static void drop(struct node *n)
{
	free(n->data);
	*n = (struct node){ 0 };
}

static void swap_nodes(struct table *t, unsigned a, unsigned b)
{
	struct node tmp = t->at[a];

	t->at[a] = t->at[b];
	t->at[b] = tmp;
	for (unsigned k = 1; k <= 3 && a * 3 + k < STACK_NODES; k++)
		swap_nodes(t, a * 3 + k, b * 3 + k);
}

static bool is_empty_dir(const struct table *t, unsigned node)
{
	for (unsigned k = node * 3 + 1; k <= node * 3 + 3 && k < STACK_NODES; k++)
		if (t->at[k].kind != STACK_ABSENT)
			return false;
	return true;
}

static void do_make(struct table *t, unsigned node, bool is_dir)
{
	const struct create_args args = { .mode = is_dir ? S_IFDIR | 0755 : S_IFREG | 0644 };
	struct inode *parent = tree_get(t->d, stack_path(stack_parent(node))), *i;
	struct stat st;
	int r = create_node(t->d->t, parent, name_of(node), &args, &i, &st);

	tree_forget(t->d, parent);
	if (t->at[node].kind != STACK_ABSENT) {
		assert_int_equal(r, -EEXIST);
		return;
	}
	assert_int_equal(r, 0);
	t->at[node].kind = is_dir ? STACK_DIR : STACK_FILE;
	if (!is_dir) {
		t->at[node].data = calloc(1, FILE_BYTES);
		tree_pattern(t->at[node].data, FILE_BYTES, tree_random(&t->seed));
		assert_int_equal(cow_write(t->d->t, i, t->at[node].data, FILE_BYTES, 0), 0);
	}
	tree_forget(t->d, i);
}

static void do_write(struct table *t, unsigned node)
{
	struct inode *i = tree_get(t->d, stack_path(node));
	size_t off = tree_random(&t->seed) % (FILE_BYTES - 100);

	tree_pattern(t->at[node].data + off, 100, tree_random(&t->seed));
	assert_int_equal(cow_write(t->d->t, i, t->at[node].data + off, 100, (off_t)off), 0);
	tree_forget(t->d, i);
}

static void do_remove(struct table *t, unsigned node)
{
	struct inode *i = tree_get(t->d, stack_path(node)),
		     *parent = tree_get(t->d, stack_path(stack_parent(node)));
	bool is_dir = t->at[node].kind == STACK_DIR;
	int r = (is_dir ? remove_dir : remove_file)(t->d->t, parent, name_of(node));

	if (is_dir && !is_empty_dir(t, node)) {
		assert_int_equal(r, -ENOTEMPTY);
	} else {
		assert_int_equal(r, 0);
		drop(&t->at[node]);
	}
	tree_forget(t->d, i);
	tree_forget(t->d, parent);
}

static int expected(const struct table *t, unsigned to, unsigned flags)
{
	if (flags == RENAME_NOREPLACE && t->at[to].kind != STACK_ABSENT)
		return -EEXIST;
	if (flags == RENAME_EXCHANGE)
		return t->at[to].kind == STACK_ABSENT ? -ENOENT : 0;
	if (t->at[to].kind == STACK_DIR && !is_empty_dir(t, to))
		return -ENOTEMPTY;
	return 0;
}

static void do_rename(struct table *t, unsigned from, unsigned to, unsigned flags)
{
	struct inode *fp = tree_get(t->d, stack_path(stack_parent(from)));
	struct inode *tp = tree_get(t->d, stack_path(stack_parent(to)));
	struct inode *fi = tree_get(t->d, stack_path(from)), *ti = tree_look(t->d, stack_path(to));
	int want = expected(t, to, flags);
	int r = rename_entry(t->d->t, fp, name_of(from), tp, name_of(to), flags);

	assert_int_equal(r, want);
	tree_forget(t->d, fi);
	if (ti)
		tree_forget(t->d, ti);
	tree_forget(t->d, fp);
	tree_forget(t->d, tp);
	if (r < 0)
		return;
	if (flags != RENAME_EXCHANGE)
		drop(&t->at[to]);
	swap_nodes(t, from, to);
}

static void try_rename(struct table *t, unsigned from)
{
	static const unsigned all_flags[] = { 0, 0, 0, RENAME_NOREPLACE, RENAME_EXCHANGE };
	unsigned flags = all_flags[tree_random(&t->seed) % 5], start = level_start(from);
	unsigned n = start == 1 ? 3 : start == 4 ? 9 : 27, to = start + tree_random(&t->seed) % n;

	if (to == from || t->at[stack_parent(to)].kind != STACK_DIR)
		return;
	/* The kernel looks at types itself. */
	if (flags == 0 && t->at[to].kind != STACK_ABSENT && t->at[to].kind != t->at[from].kind)
		return;
	do_rename(t, from, to, flags);
}

static void change_something(struct table *t)
{
	unsigned node = 1 + tree_random(&t->seed) % (STACK_NODES - 1),
		 what = tree_random(&t->seed) % 10;

	if (t->at[stack_parent(node)].kind != STACK_DIR)
		return;
	if (t->at[node].kind == STACK_ABSENT || what == 0)
		do_make(t, node, tree_random(&t->seed) % 2);
	else if (what < 4)
		do_remove(t, node);
	else if (what < 6 && t->at[node].kind == STACK_FILE)
		do_write(t, node);
	else
		try_rename(t, node);
}

static void expect_all(struct table *t)
{
	for (unsigned node = 0; node < STACK_NODES; node++) {
		char names[32] = "";

		if (t->at[node].kind == STACK_FILE)
			tree_expect(t->d, stack_path(node), t->at[node].data, FILE_BYTES);
		if (t->at[node].kind == STACK_ABSENT && t->at[stack_parent(node)].kind == STACK_DIR)
			assert_null(tree_look(t->d, stack_path(node)));
		if (t->at[node].kind != STACK_DIR)
			continue;
		for (unsigned k = node * 3 + 1; k <= node * 3 + 3 && k < STACK_NODES; k++)
			if (t->at[k].kind != STACK_ABSENT) {
				strcat(names, *names ? " " : "");
				strcat(names, name_of(k));
			}
		tree_expect_names(t->d, stack_path(node), names);
	}
}

static void put_lower(struct table *t)
{
	t->at[0].kind = STACK_DIR;
	for (unsigned node = 1; node < STACK_NODES; node++) {
		char rel[32];

		if (t->at[stack_parent(node)].kind != STACK_DIR || tree_random(&t->seed) % 3 == 0)
			continue;
		snprintf(rel, sizeof(rel), "lower/%s", stack_path(node));
		t->at[node].kind = tree_random(&t->seed) % 2 ? STACK_DIR : STACK_FILE;
		if (t->at[node].kind == STACK_DIR)
			tree_put_dir(t->d, rel);
		else
			t->at[node].data =
				tree_put_pattern(t->d, rel, FILE_BYTES, tree_random(&t->seed));
	}
}

static void run(struct tree_dirs *d, const char *options, bool freezes)
{
	struct table t = { .d = d, .seed = tree_seed("names") };

	put_lower(&t);
	for (unsigned round = 0; round < 12; round++) {
		tree_mount(d, options);
		expect_all(&t);
		for (unsigned k = 0; k < 60; k++)
			change_something(&t);
		expect_all(&t);
		tree_unmount(d);
		if (freezes && tree_random(&t.seed) % 2)
			tree_freeze(d);
	}
	for (unsigned node = 0; node < STACK_NODES; node++)
		drop(&t.at[node]);
}

static void test_rename__random_names_match_a_table(void **state)
{
	run(*state, "volatile", false);
}

static void test_rename__random_names_through_frozen_layers_match_a_table(void **state)
{
	run(*state, "volatile", true);
}

static void test_rename__random_names_with_named_whiteouts_match_a_table(void **state)
{
	setenv("FUSE_OVERLAYFS_DISABLE_OVL_WHITEOUT", "1", 1);
	run(*state, "volatile", true);
	unsetenv("FUSE_OVERLAYFS_DISABLE_OVL_WHITEOUT");
}

#define row(test) cmocka_unit_test_setup_teardown(test, tree_setup, tree_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		row(test_rename__random_names_match_a_table),
		row(test_rename__random_names_through_frozen_layers_match_a_table),
		row(test_rename__random_names_with_named_whiteouts_match_a_table),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
