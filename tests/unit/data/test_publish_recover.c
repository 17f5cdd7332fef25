// SPDX-License-Identifier: Apache-2.0
#include "support/tree.h"

#include "veneer/data/copyup.h"
#include "veneer/data/cow.h"
#include "veneer/data/publish.h"
#include "veneer/data/publish_recover.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/xattr.h>
#include <unistd.h>

#define BIG	50000
#define SMALL	16000 /* is copied whole */
#define PENDING "upper/" PUBLISH_PENDING_NAME

/* The upper as a server leaves it that dies when it has made the first `made` of three names. */
static char *leave_half_done(struct tree_dirs *d, size_t size, unsigned made)
{
	static const char *const names[] = { "a", "b", "dir/c" };
	char *data = tree_put_pattern(d, "lower/a", size, 1);
	struct inode *i;

	tree_put_text(d, "lower/dir/x", "");
	assert_int_equal(linkat(d->s.fd, "lower/a", d->s.fd, "lower/b", 0), 0);
	assert_int_equal(linkat(d->s.fd, "lower/a", d->s.fd, "lower/dir/c", 0), 0);
	tree_mount(d, "volatile");
	i = tree_get(d, "a");
	assert_int_equal(copyup_inode(d->t, i, NULL), 0);
	tree_forget(d, i);
	tree_unmount(d);
	assert_int_equal(mkdirat(d->s.fd, PENDING, 0700), 0);
	assert_int_equal(linkat(d->s.fd, "upper/a", d->s.fd, PENDING "/#0", 0), 0);
	for (unsigned k = made; k < 3; k++) {
		char path[64] = "upper/";

		assert_int_equal(unlinkat(d->s.fd, strcat(path, names[k]), 0), 0);
	}
	return data;
}

static void expect_one_file(struct tree_dirs *d, char *data, size_t size)
{
	struct inode *b = tree_get(d, "b");

	assert_int_equal(cow_write(d->t, b, "new", 3, 10000), 0);
	tree_forget(d, b);
	memcpy(data + 10000, "new", 3);
	tree_expect(d, "a", data, size);
	tree_expect(d, "b", data, size);
	tree_expect(d, "dir/c", data, size);
	assert_int_equal(tree_stat(d, "dir/c").st_nlink, 3);
}

static void finish_half_done(size_t size, unsigned made)
{
	struct tree_dirs *d;
	void *s = NULL;
	char *data;

	assert_int_equal(tree_setup(&s), 0);
	d = s;
	data = leave_half_done(d, size, made);
	tree_mount(d, "volatile");
	assert_false(tree_is_there(d, PENDING "/#0"));
	expect_one_file(d, data, size);
	tree_unmount(d);
	assert_false(tree_is_there(d, PENDING));
	tree_mount(d, "volatile");
	expect_one_file(d, data, size);
	free(data);
	assert_int_equal(tree_teardown(&s), 0);
}

static void test_publish_recover__half_made_links_are_finished(void **state)
{
	(void)state;
	for (unsigned made = 0; made <= 3; made++) {
		finish_half_done(BIG, made);
		finish_half_done(SMALL, made);
	}
}

static void test_publish_recover__strange_things_in_the_directory_are_taken_away(void **state)
{
	struct tree_dirs *d = *state;
	char path[PATH_MAX + 64];

	tree_put_text(d, "lower/a", "text");
	tree_put_dir(d, "lower/d");
	assert_int_equal(mkdirat(d->s.fd, PENDING, 0700), 0);
	/* A directory has several links without being a copy, even if it says that it is one. */
	tree_put_text(d, PENDING "/directory/sub/file", "x");
	snprintf(path, sizeof(path), "%s/" PENDING "/directory", d->s.path);
	assert_int_equal(setxattr(path, "user.veneer.origin", "d", 1, 0), 0);
	tree_put_text(d, PENDING "/plain", "x");
	assert_int_equal(linkat(d->s.fd, PENDING "/plain", d->s.fd, PENDING "/twin", 0), 0);
	assert_int_equal(symlinkat("/etc/passwd", d->s.fd, PENDING "/link"), 0);
	assert_int_equal(mkfifoat(d->s.fd, PENDING "/fifo", 0600), 0);
	tree_mount(d, "volatile");
	tree_expect_names(d, "", "a d");
	tree_unmount(d);
	assert_false(tree_is_there(d, PENDING));
}

#define row(test) cmocka_unit_test_setup_teardown(test, tree_setup, tree_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_publish_recover__half_made_links_are_finished),
		row(test_publish_recover__strange_things_in_the_directory_are_taken_away),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
