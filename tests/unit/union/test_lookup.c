// SPDX-License-Identifier: Apache-2.0
#include "support/stack.h"

#include "veneer/data/copyup.h"
#include "veneer/data/cow.h"
#include "veneer/data/remove.h"
#include "veneer/union/lookup.h"

#include <dirent.h>

static void test_lookup__random_upper_over_random_layers_shows_what_the_rule_says(void **state)
{
	static const char *const names[STACK_LAYERS] = { "upper", "l1", "l2", "l3" };
	uint64_t seed = tree_seed("random upper");

	for (unsigned round = 0; round < 15; round++) {
		struct tree_dirs *d;
		struct stack s;

		assert_int_equal(tree_setup((void **)&d), 0);
		stack_make(&s, d, names, &seed);
		tree_layers(d, "l1:l2:l3");
		tree_mount(d, "volatile");
		for (unsigned node = 0; node < STACK_NODES; node++) {
			const struct stack_view *v = &s.seen[node];
			char text[64], list[32] = "";

			stack_text(text, v->layers[0], node);
			if (v->kind == STACK_FILE)
				tree_expect_text(d, stack_path(node), text);
			if (v->kind == STACK_ABSENT && s.seen[stack_parent(node)].kind == STACK_DIR)
				assert_null(tree_look(d, stack_path(node)));
			for (unsigned k = node * 3 + 1; k <= node * 3 + 3 && k < STACK_NODES; k++)
				if (s.seen[k].kind != STACK_ABSENT)
					snprintf(list + strlen(list), sizeof(list) - strlen(list),
						 "%s%c", *list ? " " : "", 'a' + (int)(k - 1) % 3);
			if (v->kind == STACK_DIR)
				tree_expect_names(d, stack_path(node), list);
		}
		tree_teardown((void **)&d);
	}
	(void)state;
}

static void test_lookup__listing_and_stat_name_one_number(void **state)
{
	struct tree_dirs *d = *state;
	struct lookup_entry e;
	uint64_t pos;

	free(tree_put_pattern(d, "lower/big", 30000, 1));
	tree_put_text(d, "lower/small", "x");
	tree_put_text(d, "lower/linked", "x");
	assert_int_equal(linkat(d->s.fd, "lower/linked", d->s.fd, "lower/linked2", 0), 0);
	tree_put_text(d, "lower/dir/x", "");
	tree_put_text(d, "lower/plain", "");
	tree_put_text(d, "upper/up", "");
	tree_mount(d, "volatile");
	assert_int_equal(cow_write(d->t, tree_get(d, "big"), "x", 1, 5), 0);
	assert_int_equal(cow_write(d->t, tree_get(d, "small"), "x", 1, 5), 0);
	assert_int_equal(cow_write(d->t, tree_get(d, "linked"), "x", 1, 5), 0);
	assert_int_equal(copyup_inode(d->t, tree_get(d, "dir"), NULL), 0);
	for (unsigned round = 0; round < 2; round++) {
		for (pos = 0; lookup_next(d->t, d->t->root, &pos, &e) == 1;)
			if (tree_stat(d, e.name).st_ino != e.ino)
				fail_msg("round %u: %s is listed as %ju and is %ju", round, e.name,
					 (uintmax_t)e.ino, (uintmax_t)tree_stat(d, e.name).st_ino);
		tree_unmount(d);
		tree_mount(d, "volatile");
	}
}

static void test_lookup__listing_shows_each_name_once_while_names_change(void **state)
{
	struct tree_dirs *d = *state;
	unsigned seen[60] = { 0 };
	struct lookup_entry e;
	uint64_t pos = 0;

	for (unsigned k = 0; k < 60; k++) {
		char rel[32];

		snprintf(rel, sizeof(rel), "%s/%02u", k % 2 ? "lower" : "upper", k);
		tree_put_text(d, rel, "x");
	}
	tree_mount(d, "volatile");
	for (unsigned step = 0; lookup_next(d->t, d->t->root, &pos, &e) == 1; step++) {
		char name[16];

		seen[atoi(e.name)]++;
		snprintf(name, sizeof(name), "%02u", step % 60);
		if (step % 3 == 0 && tree_look(d, name))
			assert_int_equal(cow_write(d->t, tree_get(d, name), "y", 1, 0), 0);
		else if (step % 3 == 1 && tree_look(d, name))
			assert_int_equal(remove_file(d->t, d->t->root, name), 0);
	}
	for (unsigned k = 0; k < 60; k++)
		assert_true(seen[k] <= 1 && (k % 3 == 1 || seen[k] == 1));
}

static void test_lookup__link_count_follows_subdirectories(void **state)
{
	struct tree_dirs *d = *state;

	tree_put_dir(d, "lower/dir/a");
	tree_put_dir(d, "lower/dir/b");
	tree_mount(d, "volatile");
	assert_int_equal(tree_stat(d, "dir").st_nlink, 4);
	tree_make(d, "dir", "c", S_IFDIR | 0755);
	assert_int_equal(tree_stat(d, "dir").st_nlink, 5);
	tree_get(d, "dir/a");
	assert_int_equal(remove_dir(d->t, tree_get(d, "dir"), "a"), 0);
	assert_int_equal(tree_stat(d, "dir").st_nlink, 4);
}

static void test_lookup__static_link_count_is_one(void **state)
{
	struct tree_dirs *d = *state;

	tree_put_dir(d, "lower/dir/a");
	tree_mount(d, "volatile,static_nlink");
	assert_int_equal(tree_stat(d, "dir").st_nlink, 1);
}

static void test_lookup__empty_means_nothing_is_seen(void **state)
{
	struct tree_dirs *d = *state;

	tree_put_text(d, "lower/d/x", "");
	tree_put_whiteout(d, "upper/d/x");
	tree_put_text(d, "lower/e/x", "");
	tree_mount(d, "volatile");
	assert_int_equal(lookup_dir_is_empty(d->t, tree_get(d, "d")), 1);
	assert_int_equal(lookup_dir_is_empty(d->t, tree_get(d, "e")), 0);
}

#define row(test) cmocka_unit_test_setup_teardown(test, tree_setup, tree_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		row(test_lookup__listing_and_stat_name_one_number),
		row(test_lookup__listing_shows_each_name_once_while_names_change),
		row(test_lookup__link_count_follows_subdirectories),
		row(test_lookup__static_link_count_is_one),
		row(test_lookup__empty_means_nothing_is_seen),
		cmocka_unit_test(
			test_lookup__random_upper_over_random_layers_shows_what_the_rule_says),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
