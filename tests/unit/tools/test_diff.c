// SPDX-License-Identifier: Apache-2.0
#include "support/tree.h"

#include "veneer/data/cow.h"
#include "veneer/data/remove.h"
#include "veneer/data/rename.h"
#include "veneer/layer/branch_dir.h"
#include "veneer/tools/diff.h"
#include "veneer/union/lookup.h"

#include <dirent.h>

#define BIG ((size_t)100 * BLK_BYTES)

static int read_diff(struct tree_dirs *d, bool knows_lower, bool lists_all, struct diff *ret)
{
	char upper[PATH_MAX + 16], lower[PATH_MAX + 16], *lowers[] = { lower };

	snprintf(upper, sizeof(upper), "%s/upper", d->s.path);
	snprintf(lower, sizeof(lower), "%s/lower", d->s.path);
	return diff_read(upper, lowers, knows_lower, lists_all, NULL, ret);
}

/* The list as "A a C b". */
static void expect(struct tree_dirs *d, bool knows_lower, bool lists_all, const char *list)
{
	char text[1024] = "";
	struct diff diff;

	assert_int_equal(read_diff(d, knows_lower, lists_all, &diff), 0);
	for (size_t i = 0; i < diff.n; i++)
		snprintf(text + strlen(text), sizeof(text) - strlen(text), "%s%c %s", i ? " " : "",
			 diff.entries[i].kind, diff.entries[i].path);
	assert_string_equal(text, list);
	diff_release(&diff);
}

static void remove_name(struct tree_dirs *d, const char *dir, const char *name)
{
	struct inode *parent = tree_get(d, dir);

	assert_int_equal(remove_file(d->t, parent, name), 0);
	tree_forget(d, parent);
}

static void put_lower(struct tree_dirs *d)
{
	tree_put_text(d, "lower/dir/a", "a");
	tree_put_text(d, "lower/dir/b", "b");
	tree_put_text(d, "lower/dir/deep/c", "c");
	tree_put_text(d, "lower/file", "text");
}

static void test_diff__layer_without_changes_has_none(void **state)
{
	struct tree_dirs *d = *state;

	put_lower(d);
	expect(d, true, false, "");
	tree_mount(d, "volatile");
	tree_expect_text(d, "dir/deep/c", "c");
	tree_unmount(d);
	expect(d, true, false, "");
}

static void test_diff__kinds_of_changes(void **state)
{
	struct tree_dirs *d = *state;
	struct inode *i;

	put_lower(d);
	tree_mount(d, "volatile");
	i = tree_get(d, "dir/a");
	assert_int_equal(cow_write(d->t, i, "A", 1, 0), 0);
	tree_forget(d, i);
	tree_forget(d, tree_make(d, "dir", "new", S_IFREG | 0644));
	remove_name(d, "dir", "b");
	remove_name(d, "", "file");
	tree_unmount(d);
	/* Something came and went in dir, and nothing in the directory below. */
	expect(d, true, false, "C dir C dir/a D dir/b A dir/new D file");
}

static void test_diff__deleted_directory_is_one_line_or_all_of_it(void **state)
{
	struct tree_dirs *d = *state;

	put_lower(d);
	tree_put_whiteout(d, "upper/dir");
	expect(d, true, false, "D dir");
	expect(d, true, true, "D dir D dir/a D dir/b D dir/deep D dir/deep/c");
	/* What is not there below was not deleted, unless nobody knows. */
	tree_put_whiteout(d, "upper/none");
	expect(d, true, false, "D dir");
	expect(d, false, false, "D dir D none");
}

static void test_diff__opaque_directory_covers_what_is_below(void **state)
{
	struct tree_dirs *d = *state;
	struct diff diff;

	put_lower(d);
	tree_put_opaque(d, "upper/dir");
	tree_put_text(d, "upper/dir/a", "another");
	assert_int_equal(read_diff(d, true, false, &diff), 0);
	assert_int_equal(diff.n, 4);
	assert_string_equal(diff.entries[0].path, "dir");
	assert_true(diff.entries[0].is_opaque);
	assert_int_equal(diff.entries[1].kind, 'C');
	for (size_t i = 2; i < 4; i++) {
		assert_int_equal(diff.entries[i].kind, 'D');
		assert_true(diff.entries[i].is_implied);
	}
	diff_release(&diff);
}

static void test_diff__renamed_directory_shows_its_entries_at_both_places(void **state)
{
	struct tree_dirs *d = *state;
	struct inode *root;

	put_lower(d);
	tree_mount(d, "volatile");
	root = d->t->root;
	tree_forget(d, tree_get(d, "dir"));
	if (rename_entry(d->t, root, "dir", root, "moved", 0) == -EXDEV)
		skip();
	tree_unmount(d);
	expect(d, true, false, "D dir A moved A moved/a A moved/b A moved/deep A moved/deep/c");
}

static void test_diff__partial_file_says_how_much_is_its_own(void **state)
{
	struct tree_dirs *d = *state;
	struct diff diff;
	struct inode *i;
	char *text = NULL;
	size_t len = 0;
	FILE *out;

	free(tree_put_pattern(d, "lower/big", BIG, 1));
	tree_mount(d, "volatile");
	i = tree_get(d, "big");
	assert_int_equal(cow_write(d->t, i, "x", 1, 5 * BLK_BYTES), 0);
	assert_int_equal(cow_write(d->t, i, "x", 1, 9 * BLK_BYTES), 0);
	tree_forget(d, i);
	tree_unmount(d);
	assert_int_equal(read_diff(d, true, false, &diff), 0);
	assert_int_equal(diff.n, 1);
	assert_true(diff.entries[0].is_partial);
	assert_false(diff.entries[0].is_copy);
	assert_int_equal(diff.entries[0].own_blks, 2);
	assert_int_equal(diff.entries[0].blks, 100);
	out = open_memstream(&text, &len);
	assert_int_equal(diff_print(&diff, false, out), 0);
	fclose(out);
	assert_string_equal(text, "C /big (2 of 100 blocks of 4 KiB, 8.0 KiB of 400 KiB)\n");
	free(text);
	out = open_memstream(&text, &len);
	assert_int_equal(diff_print_json(&diff, out), 0);
	fclose(out);
	assert_non_null(strstr(text, "\"own_blocks\": 2"));
	assert_non_null(strstr(text, "\"exact\": true"));
	free(text);
	diff_release(&diff);
}

/* A line stays a line, whatever a program in a container calls its files. */
static void test_diff__names_with_control_characters_do_not_leave_their_line(void **state)
{
	struct tree_dirs *d = *state;
	struct diff diff;
	char *text = NULL;
	size_t len = 0, n_lines = 0;
	FILE *out;

	tree_put_text(d, "upper/a\nD etc\033[2J", "x");
	assert_int_equal(read_diff(d, true, false, &diff), 0);
	out = open_memstream(&text, &len);
	assert_int_equal(diff_print(&diff, false, out), 0);
	fclose(out);
	for (size_t i = 0; i < len; i++) {
		n_lines += text[i] == '\n';
		assert_int_not_equal(text[i], '\033');
	}
	assert_int_equal(n_lines, 1);
	free(text);
	diff_release(&diff);
}

static void test_diff__place_that_is_no_layer_is_an_error(void **state)
{
	struct tree_dirs *d = *state;
	struct diff diff;
	char none[PATH_MAX + 16];

	snprintf(none, sizeof(none), "%s/none", d->s.path);
	assert_int_equal(diff_read(none, NULL, 0, false, NULL, &diff), -ENOENT);
	diff_release(&diff);
	diff_release(&diff);
}

static void test_diff__stack_of_an_upper_with_snapshots(void **state)
{
	struct branch_chain c = { 0 };
	struct tree_dirs *d = *state;
	char name[BRANCH_CHAIN_NAME_MAX + 1] = "one";
	uint64_t id;
	int fd;

	put_lower(d);
	tree_put_text(d, "upper/dir/new", "of the snapshot");
	tree_put_whiteout(d, "upper/file");
	fd = openat(d->s.fd, "upper", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	assert_int_equal(branch_dir_plan(&c, name, &id), 0);
	assert_int_equal(branch_dir_take(fd, id, &c, true), 0);
	branch_chain_release(&c);
	close(fd);
	tree_put_text(d, "upper/live", "x");
	tree_put_text(d, "upper/file", "again");
	expect(d, true, false, "C dir A dir/new C file A live");
	/* What the snapshots lie on must be known. */
	{
		struct diff diff;

		assert_int_equal(read_diff(d, false, false, &diff), -EINVAL);
		diff_release(&diff);
	}
}

#define row(test) cmocka_unit_test_setup_teardown(test, tree_setup, tree_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		row(test_diff__layer_without_changes_has_none),
		row(test_diff__kinds_of_changes),
		row(test_diff__deleted_directory_is_one_line_or_all_of_it),
		row(test_diff__opaque_directory_covers_what_is_below),
		row(test_diff__renamed_directory_shows_its_entries_at_both_places),
		row(test_diff__partial_file_says_how_much_is_its_own),
		row(test_diff__names_with_control_characters_do_not_leave_their_line),
		row(test_diff__place_that_is_no_layer_is_an_error),
		row(test_diff__stack_of_an_upper_with_snapshots),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
