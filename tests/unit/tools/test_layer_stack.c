// SPDX-License-Identifier: Apache-2.0
#include "support/tree.h"

#include "veneer/layer/branch_dir.h"
#include "veneer/tools/layer_stack.h"

/* A snapshot of upper; its id. */
static uint64_t take(struct tree_dirs *d, const char *given)
{
	int fd = openat(d->s.fd, "upper", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	char name[BRANCH_CHAIN_NAME_MAX + 1];
	struct branch_chain c = { 0 };
	uint64_t id;
	int r = branch_dir_load(fd, &c);

	snprintf(name, sizeof(name), "%s", given);
	assert_true(r == 0 || r == -ENOENT);
	assert_int_equal(branch_dir_plan(&c, name, &id), 0);
	assert_int_equal(branch_dir_take(fd, id, &c, true), 0);
	branch_chain_release(&c);
	close(fd);
	return id;
}

struct place {
	char upper[PATH_MAX + 16], lower[PATH_MAX + 16];
};

static void set_place(struct place *p, struct tree_dirs *d)
{
	snprintf(p->upper, sizeof(p->upper), "%s/upper", d->s.path);
	snprintf(p->lower, sizeof(p->lower), "%s/lower", d->s.path);
}

/* What the text of a file says in that layer. */
static void expect_text(const struct layer *l, const char *text)
{
	char got[16] = "";
	int fd = openat(l->rootfd, "file", O_RDONLY | O_CLOEXEC);

	assert_true(fd >= 0);
	assert_true(read(fd, got, sizeof(got) - 1) >= 0);
	assert_string_equal(got, text);
	close(fd);
}

static void test_layer_stack__upper_stands_on_its_snapshots(void **state)
{
	struct layer_stack s = { 0 };
	struct place p;

	set_place(&p, *state);
	tree_put_text(*state, "upper/file", "first");
	take(*state, "one");
	tree_put_text(*state, "upper/file", "second");
	take(*state, "two");
	tree_put_text(*state, "upper/file", "live");
	tree_put_text(*state, "lower/file", "lower");
	assert_int_equal(layer_stack_put_upper(&s, p.upper), 0);
	assert_int_equal(s.n, 3);
	assert_int_equal(layer_stack_put_lower(&s, p.lower), 0);
	assert_int_equal(s.n, 4);
	expect_text(s.v[0], "live");
	expect_text(s.v[1], "second");
	expect_text(s.v[2], "first");
	expect_text(s.v[3], "lower");
	layer_stack_release(&s);
	assert_int_equal(s.n, 0);
	layer_stack_release(&s);
}

static void test_layer_stack__snapshots_down_to_one(void **state)
{
	struct layer_stack s = { 0 };
	uint64_t one, two, three;
	struct place p;
	int fd;

	set_place(&p, *state);
	tree_put_text(*state, "upper/file", "first");
	one = take(*state, "one");
	tree_put_text(*state, "upper/file", "second");
	two = take(*state, "two");
	tree_put_text(*state, "upper/file", "third");
	three = take(*state, "three");
	assert_int_equal(layer_stack_put_snapshots(&s, p.upper, two, 0), 0);
	assert_int_equal(s.n, 2);
	expect_text(s.v[0], "second");
	expect_text(s.v[1], "first");
	/* Held: nobody removes them. */
	fd = openat(((struct tree_dirs *)*state)->s.fd, "upper", O_RDONLY | O_CLOEXEC);
	assert_int_equal(branch_dir_is_held(fd), 1);
	layer_stack_release(&s);
	assert_int_equal(branch_dir_is_held(fd), 0);
	close(fd);
	assert_int_equal(layer_stack_put_snapshots(&s, p.upper, three, one), 0);
	assert_int_equal(s.n, 2);
	expect_text(s.v[0], "third");
	expect_text(s.v[1], "second");
	layer_stack_release(&s);
}

static void test_layer_stack__nothing_and_what_is_none(void **state)
{
	struct layer_stack s = { 0 };
	struct place p;

	set_place(&p, *state);
	/* No snapshots, and none is asked for. */
	assert_int_equal(layer_stack_put_snapshots(&s, p.upper, 0, 0), 0);
	assert_int_equal(s.n, 0);
	assert_int_equal(layer_stack_put_snapshots(&s, p.upper, 5, 0), -ENOENT);
	assert_int_equal(layer_stack_put_upper(&s, "/nowhere/at/all"), -ENOENT);
	assert_int_equal(s.n, 0);
	tree_put_text(*state, "upper/file", "x");
	strcat(p.upper, "/file");
	assert_int_equal(layer_stack_put_lower(&s, p.upper), -ENOTDIR);
	layer_stack_release(&s);
}

static void test_layer_stack__chain_that_is_damaged_is_refused(void **state)
{
	struct layer_stack s = { 0 };
	struct place p;

	set_place(&p, *state);
	take(*state, "one");
	tree_put_text(*state,
		      "upper/" BRANCH_DIR_NAME "/"
		      "chain",
		      "no chain");
	assert_int_equal(layer_stack_put_upper(&s, p.upper), -EUCLEAN);
	layer_stack_release(&s);
}

#define row(test) cmocka_unit_test_setup_teardown(test, tree_setup, tree_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		row(test_layer_stack__upper_stands_on_its_snapshots),
		row(test_layer_stack__snapshots_down_to_one),
		row(test_layer_stack__nothing_and_what_is_none),
		row(test_layer_stack__chain_that_is_damaged_is_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
