// SPDX-License-Identifier: Apache-2.0
#include "support/tree.h"

#include "mount/dir_overlap.h"

#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define ERR_SIZE 8192

/* Paths of a mount, relative to the scratch directory; NULL: none. */
struct stacking {
	const char *lower[3], *upper, *work;
	bool is_readonly;
};

static char *absolute(struct tree_dirs *d, const char *name)
{
	char *path = NULL;

	if (name)
		assert_true(asprintf(&path, "%s/%s", d->s.path, name) > 0);
	return path;
}

static int check(struct tree_dirs *d, const struct stacking *s, char err[ERR_SIZE])
{
	struct mount_opts o = { .is_readonly = s->is_readonly };
	struct mount_dirs dirs;
	char *lower[3];
	int r;

	o.lower = lower;
	while (o.n_lower < 3 && s->lower[o.n_lower]) {
		lower[o.n_lower] = absolute(d, s->lower[o.n_lower]);
		o.n_lower++;
	}
	o.upper = absolute(d, s->upper);
	o.work = absolute(d, s->work);
	*err = '\0';
	r = mount_dirs_open(&o, &dirs, err, ERR_SIZE);
	mount_dirs_release(&dirs);
	for (size_t i = 0; i < o.n_lower; i++)
		free(lower[i]);
	free(o.upper);
	free(o.work);
	return r;
}

static void put_dirs(struct tree_dirs *d)
{
	static const char *const names[] = { "low",	"low/in",    "low/in/deep", "low/side",
					     "low2",	"up",	     "up/in",	    "wk",
					     "wk/work", "wk/work/in" };

	for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++)
		tree_put_dir(d, names[i]);
	assert_int_equal(symlinkat("low", d->s.fd, "link"), 0);
}

static void test_dir_overlap__what_would_write_a_lower_is_refused(void **state)
{
	static const struct stacking all[] = {
		{ { "low" }, "low", "wk", false },
		{ { "low2", "low" }, "link", "wk", false },
		{ { "up/in" }, "up", "wk", false },
		{ { "low" }, "up", "low", false },
		{ { "low" }, "up", "link", false },
		{ { "low" }, "up", "low/in/deep", false },
		{ { "low2", "low" }, "up", "low/in", false },
		{ { "wk/work/in" }, "up", "wk", false },
		{ { "low" }, "wk/work", "wk", false },
		{ { "low" }, "wk/work/in", "wk", false },
		{ { "low", "low2", "link" }, "up", "wk", false },
		{ { "low", "low" }, NULL, NULL, false },
	};
	struct tree_dirs *d = *state;
	char err[ERR_SIZE];

	put_dirs(d);
	for (size_t i = 0; i < sizeof(all) / sizeof(*all); i++) {
		assert_int_equal(check(d, &all[i], err), -EINVAL);
		assert_non_null(strstr(err, d->s.path));
		assert_null(strchr(err, '\n'));
	}
}

static void test_dir_overlap__what_stands_apart_or_is_relied_on_is_not(void **state)
{
	static const struct stacking all[] = {
		{ { "low" }, "up", "wk", false },
		{ { "low", "low2" }, "up", "wk", false },
		{ { "low" }, "low", "low", true },
		{ { "low", "low/in" }, NULL, NULL, false },
		{ { "low" }, "low/in", "low/side", false },
		{ { "low/in", "low/side" }, "up", "wk", false },
	};
	struct tree_dirs *d = *state;
	char err[ERR_SIZE];

	put_dirs(d);
	for (size_t i = 0; i < sizeof(all) / sizeof(*all); i++)
		assert_int_equal(check(d, &all[i], err), 0);
}

#define row(f) cmocka_unit_test_setup_teardown(f, tree_setup, tree_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		row(test_dir_overlap__what_would_write_a_lower_is_refused),
		row(test_dir_overlap__what_stands_apart_or_is_relied_on_is_not),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
