// SPDX-License-Identifier: Apache-2.0
#include "support/tree.h"

#include "veneer/data/remove.h"
#include "veneer/jobs/upper_walk.h"

struct seen {
	char text[1024];
	int stop; /* what the entry "stop" is answered with */
};

static void say(struct seen *s, const char *what, const char *name)
{
	size_t len = strlen(s->text);

	snprintf(s->text + len, sizeof(s->text) - len, "%s%s ", what, name ? name : "");
}

static int enter(void *arg, struct inode *parent, const char *name, struct inode *dir)
{
	(void)dir;
	assert_true(!parent == !name);
	say(arg, ">", name);
	return !name || strcmp(name, "left-out") != 0;
}

static int leave(void *arg, struct inode *dir)
{
	(void)dir;
	say(arg, "<", NULL);
	return 0;
}

static int entry(void *arg, struct inode *parent, const char *name, struct inode *i)
{
	struct seen *s = arg;

	assert_non_null(parent);
	assert_true(i->has_upper);
	say(s, "", name);
	return strcmp(name, "stop") ? 0 : s->stop;
}

static int miss(void *arg, struct inode *parent, const char *name, int error)
{
	(void)parent;
	(void)error;
	say(arg, "!", name);
	return 0;
}

static const struct upper_walk_hooks hooks = {
	.enter = enter, .leave = leave, .entry = entry, .miss = miss
};

static void test_upper_walk__sees_the_upper_and_directories_last(void **state)
{
	struct tree_dirs *d = *state;
	struct seen s = { .text = "" };

	tree_put_text(d, "lower/below", "x");
	tree_put_text(d, "lower/a/below", "x");
	tree_put_text(d, "upper/a/b/deep", "x");
	tree_put_whiteout(d, "upper/gone");
	tree_mount(d, "volatile");
	assert_int_equal(upper_walk(d->t, &hooks, &s), 0);
	assert_string_equal(s.text, "> >a >b deep < < < ");
}

static void test_upper_walk__leaves_out_and_stops_where_it_is_told(void **state)
{
	struct tree_dirs *d = *state;
	struct seen s = { .stop = -ECANCELED };

	tree_put_text(d, "upper/left-out/f", "x");
	tree_put_text(d, "upper/a/stop", "x");
	tree_mount(d, "volatile");
	assert_int_equal(upper_walk(d->t, &hooks, &s), -ECANCELED);
	assert_non_null(strstr(s.text, ">a stop "));
	assert_null(strstr(s.text, "f "));
	assert_null(strstr(s.text, "<"));
}

static int entry_that_removes(void *arg, struct inode *parent, const char *name, struct inode *i)
{
	struct tree_dirs *d = arg;

	(void)i;
	(void)name;
	remove_file(d->t, parent, "a");
	remove_file(d->t, parent, "b");
	return 0;
}

static int miss_that_is_gone(void *arg, struct inode *parent, const char *name, int error)
{
	(void)arg;
	(void)parent;
	(void)name;
	assert_int_equal(error, -ENOENT);
	return 0;
}

static void test_upper_walk__names_may_go_meanwhile(void **state)
{
	static const struct upper_walk_hooks removing = { .entry = entry_that_removes,
							  .miss = miss_that_is_gone };
	struct tree_dirs *d = *state;

	tree_put_text(d, "upper/a", "x");
	tree_put_text(d, "upper/b", "x");
	tree_mount(d, "volatile");
	assert_int_equal(upper_walk(d->t, &removing, d), 0);
	tree_expect_names(d, "", "");
}

#define TREE_TEST(f) cmocka_unit_test_setup_teardown(f, tree_setup, tree_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TREE_TEST(test_upper_walk__sees_the_upper_and_directories_last),
		TREE_TEST(test_upper_walk__leaves_out_and_stops_where_it_is_told),
		TREE_TEST(test_upper_walk__names_may_go_meanwhile),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
