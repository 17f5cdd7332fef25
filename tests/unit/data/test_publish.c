// SPDX-License-Identifier: Apache-2.0
#include "support/tree.h"

#include "veneer/data/copyup.h"
#include "veneer/data/publish.h"
#include "veneer/union/upper.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <unistd.h>

static int nameless(struct tree_dirs *d)
{
	int fd = openat(d->t->workfd, ".", O_TMPFILE | O_RDWR | O_CLOEXEC, 0644);

	assert_true(fd >= 0);
	assert_int_equal(write(fd, "copy", 4), 4);
	return fd;
}

static struct inode *get_copied_up(struct tree_dirs *d, const char *path)
{
	struct inode *i = tree_get(d, path);

	assert_int_equal(copyup_inode(d->t, i, NULL), 0);
	return i;
}

static void test_publish__one_name_leaves_the_directory_times(void **state)
{
	struct tree_dirs *d = *state;
	struct inode *i, *dir;
	char temp[32] = "";
	struct stat before;
	int fd;

	tree_put_text(d, "lower/dir/f", "text");
	tree_mount(d, "volatile");
	dir = get_copied_up(d, "dir");
	i = tree_get(d, "dir/f");
	before = tree_stat(d, "dir");
	fd = nameless(d);
	assert_int_equal(publish_one(d->t, i, fd, temp, dir, "f"), 0);
	assert_true(tree_is_there(d, "upper/dir/f"));
	assert_int_equal(tree_stat(d, "dir").st_mtim.tv_nsec, before.st_mtim.tv_nsec);
	/* The name is taken now. */
	assert_int_equal(publish_one(d->t, i, fd, temp, dir, "f"), -EEXIST);
	close(fd);
	tree_forget(d, i);
	tree_forget(d, dir);
}

static void test_publish__all_names_or_none(void **state)
{
	struct tree_dirs *d = *state;
	struct hardlink_set names;
	char temp[32] = "";
	struct inode *i;
	int fd;

	tree_put_text(d, "lower/a", "text");
	assert_int_equal(linkat(d->s.fd, "lower/a", d->s.fd, "lower/b", 0), 0);
	assert_int_equal(linkat(d->s.fd, "lower/a", d->s.fd, "lower/c", 0), 0);
	tree_mount(d, "volatile");
	i = tree_get(d, "a");
	assert_int_equal(hardlink_index_find(d->t, i->lower, &names), 0);
	assert_int_equal(names.n, 3);
	fd = nameless(d);
	/* Something that came behind our back is in the way of the third. */
	tree_put_text(d, "upper/c", "stranger");
	assert_int_equal(publish_all(d->t, i, fd, temp, &names), -EEXIST);
	assert_false(tree_is_there(d, "upper/a"));
	assert_false(tree_is_there(d, "upper/b"));
	tree_expect_text(d, "b", "text");
	assert_int_equal(unlinkat(d->s.fd, "upper/c", 0), 0);
	close(fd); /* it had names and has none: nobody can link it again */
	fd = nameless(d);
	assert_int_equal(publish_all(d->t, i, fd, temp, &names), 0);
	assert_true(tree_is_there(d, "upper/a") && tree_is_there(d, "upper/b") &&
		    tree_is_there(d, "upper/c"));
	assert_false(tree_is_there(d, "upper/" PUBLISH_PENDING_NAME));
	close(fd);
	hardlink_index_set_release(d->t, &names);
	tree_forget(d, i);
	tree_unmount(d);
	assert_false(tree_is_there(d, "upper/" PUBLISH_PENDING_NAME));
}

struct remover {
	struct tree_dirs *d;
	/* How often it may, for one file: publish_all gives up in the end. */
	atomic_int left;
	atomic_bool is_stopped;
};

/* As another file does that was placed meanwhile. */
static void *remove_pending(void *arg)
{
	struct remover *r = arg;

	while (!r->is_stopped)
		if (r->left > 0 &&
		    unlinkat(r->d->s.fd, "upper/" PUBLISH_PENDING_NAME, AT_REMOVEDIR) == 0)
			r->left--;
	return NULL;
}

static void place_pair(struct tree_dirs *d, const char *first)
{
	struct inode *i = tree_get(d, first);
	struct hardlink_set names;
	char temp[32] = "";
	int fd = nameless(d);

	assert_int_equal(hardlink_index_find(d->t, i->lower, &names), 0);
	assert_int_equal(names.n, 2);
	assert_int_equal(publish_all(d->t, i, fd, temp, &names), 0);
	hardlink_index_set_release(d->t, &names);
	close(fd);
	tree_forget(d, i);
}

static void test_publish__the_pending_directory_goes_meanwhile(void **state)
{
	enum { PAIRS = 300 };
	struct remover r = { .d = *state };
	struct tree_dirs *d = r.d;
	char first[32], second[32];
	pthread_t thread;

	for (int k = 0; k < PAIRS; k++) {
		snprintf(first, sizeof(first), "lower/%da", k);
		snprintf(second, sizeof(second), "lower/%db", k);
		tree_put_text(d, first, "text");
		assert_int_equal(linkat(d->s.fd, first, d->s.fd, second, 0), 0);
	}
	tree_mount(d, "volatile");
	assert_int_equal(pthread_create(&thread, NULL, remove_pending, &r), 0);
	for (int k = 0; k < PAIRS; k++) {
		snprintf(first, sizeof(first), "%da", k);
		r.left = 16;
		place_pair(d, first);
	}
	r.is_stopped = true;
	pthread_join(thread, NULL);
}

#define row(test) cmocka_unit_test_setup_teardown(test, tree_setup, tree_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		row(test_publish__one_name_leaves_the_directory_times),
		row(test_publish__all_names_or_none),
		row(test_publish__the_pending_directory_goes_meanwhile),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
