// SPDX-License-Identifier: Apache-2.0
#include "support/tree.h"

#include "cli/output_file.h"

struct out {
	struct tree_dirs *d;
	char path[PATH_MAX + 16];
	struct output_file to;
};

static int setup(void **state)
{
	struct out *o = calloc(1, sizeof(*o));

	if (!o || tree_setup((void **)&o->d) < 0)
		return -1;
	snprintf(o->path, sizeof(o->path), "%s/upper/out", o->d->s.path);
	o->to = (struct output_file){ .path = o->path, .fd = -1 };
	*state = o;
	return 0;
}

static int teardown(void **state)
{
	struct out *o = *state;

	tree_teardown((void **)&o->d);
	free(o);
	return 0;
}

static void test_output_file__is_there_when_it_is_whole(void **state)
{
	struct out *o = *state;
	struct stat st;

	assert_int_equal(output_file_open(&o->to), 0);
	assert_int_equal(write(o->to.fd, "whole", 5), 5);
	/* A tool that is killed leaves nothing, where the file system can do that. */
	assert_int_equal(tree_is_there(o->d, "upper/out"), !o->to.is_nameless);
	assert_int_equal(output_file_close(&o->to, 0), 0);
	assert_int_equal(fstatat(o->d->s.fd, "upper/out", &st, 0), 0);
	assert_int_equal(st.st_size, 5);
	assert_int_equal(st.st_mode & 0111, 0);
}

static void test_output_file__what_is_not_whole_does_not_stay(void **state)
{
	struct out *o = *state;

	assert_int_equal(output_file_open(&o->to), 0);
	assert_int_equal(write(o->to.fd, "half", 4), 4);
	assert_int_equal(output_file_close(&o->to, -EIO), -EIO);
	assert_false(tree_is_there(o->d, "upper/out"));
	/* Also where it had its name from the beginning. */
	o->to.is_nameless = false;
	o->to.fd = open(o->path, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
	assert_int_equal(output_file_close(&o->to, -ENOSPC), -ENOSPC);
	assert_false(tree_is_there(o->d, "upper/out"));
}

static void test_output_file__file_that_is_there_is_not_replaced(void **state)
{
	struct out *o = *state;
	struct stat st;

	tree_put_text(o->d, "upper/out", "of before");
	assert_int_equal(output_file_open(&o->to), -EEXIST);
	/* A link that leads nowhere is there, too. */
	assert_int_equal(unlinkat(o->d->s.fd, "upper/out", 0), 0);
	assert_int_equal(symlinkat("nowhere", o->d->s.fd, "upper/out"), 0);
	assert_int_equal(output_file_open(&o->to), -EEXIST);
	assert_int_equal(unlinkat(o->d->s.fd, "upper/out", 0), 0);
	/* Somebody made one meanwhile. */
	assert_int_equal(output_file_open(&o->to), 0);
	if (o->to.is_nameless) {
		tree_put_text(o->d, "upper/out", "of another");
		assert_int_equal(output_file_close(&o->to, 0), -EEXIST);
		assert_int_equal(fstatat(o->d->s.fd, "upper/out", &st, 0), 0);
		assert_int_equal(st.st_size, 10);
	} else {
		assert_int_equal(output_file_close(&o->to, 0), 0);
	}
}

static void test_output_file__place_that_is_none(void **state)
{
	struct out *o = *state;
	const size_t len = strlen(o->path);

	strcpy(o->path + len, "/in/it");
	assert_int_equal(output_file_open(&o->to), -ENOENT);
	strcpy(o->path + len, "/");
	assert_true(output_file_open(&o->to) < 0);
	strcpy(o->path + len - 3, "");
	assert_true(output_file_open(&o->to) < 0);
	memset(o->path + len - 3, 'n', NAME_MAX + 1);
	o->path[len - 3 + NAME_MAX + 1] = '\0';
	assert_int_equal(output_file_open(&o->to), -ENAMETOOLONG);
}

static void test_output_file__standard_output_is_duplicated(void **state)
{
	struct output_file to = { .path = NULL, .fd = -1 };
	int ends[2], saved = dup(STDOUT_FILENO), r;
	char got[8] = "";

	(void)state;
	assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
	fflush(stdout);
	dup2(ends[1], STDOUT_FILENO);
	r = output_file_open(&to);
	dup2(saved, STDOUT_FILENO);
	close(saved);
	close(ends[1]);
	assert_int_equal(r, 0);
	assert_int_equal(write(to.fd, "out", 3), 3);
	assert_int_equal(output_file_close(&to, 0), 0);
	assert_int_equal(read(ends[0], got, sizeof(got)), 3);
	assert_string_equal(got, "out");
	close(ends[0]);
}

#define row(test) cmocka_unit_test_setup_teardown(test, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		row(test_output_file__is_there_when_it_is_whole),
		row(test_output_file__what_is_not_whole_does_not_stay),
		row(test_output_file__file_that_is_there_is_not_replaced),
		row(test_output_file__place_that_is_none),
		cmocka_unit_test(test_output_file__standard_output_is_duplicated),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
