// SPDX-License-Identifier: Apache-2.0
#include "support/tree.h"

#include "veneer/layer/snapshot_links.h"

#include <fcntl.h>
#include <unistd.h>

static struct layer *open_layer(struct tree_dirs *d, const char *rel)
{
	struct layer *l;
	int fd = openat(d->s.fd, rel, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	assert_int_equal(layer_open_fd(fd, rel, &l), 0);
	return l;
}

static unsigned long links_of(struct layer *l, const char *name)
{
	struct stat st;

	assert_int_equal(snapshot_links_stat(l, l->rootfd, name, &st), 0);
	return (unsigned long)st.st_nlink;
}

static void make(struct snapshot_links *links, struct layer *from, const char *name, int to)
{
	int fd = openat(from->rootfd, name, O_PATH | O_NOFOLLOW | O_CLOEXEC);

	assert_int_equal(snapshot_links_make(links, fd, to, name), 0);
	close(fd);
}

static void test_snapshot_links__each_layer_shows_its_own_names(void **state)
{
	struct tree_dirs *d = *state;
	struct snapshot_links *links = NULL;
	struct layer *old, *new;
	int to;

	tree_put_text(d, "old/a", "a");
	tree_put_text(d, "old/b", "b");
	tree_put_dir(d, "new");
	old = open_layer(d, "old");
	assert_int_equal(linkat(old->rootfd, "b", old->rootfd, "c", 0), 0);
	to = openat(d->s.fd, "new", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	assert_int_equal(snapshot_links_begin(&old, 1, to, &links), 0);
	make(links, old, "a", to);
	make(links, old, "b", to);
	assert_int_equal(links_of(old, "a"), 1);
	assert_int_equal(links_of(old, "b"), 2);
	new = open_layer(d, "new");
	layer_note_snapshot(new);
	assert_int_equal(links_of(new, "a"), 1);
	assert_int_equal(links_of(new, "b"), 1);
	/* The old ones go one after the other. */
	assert_int_equal(unlinkat(old->rootfd, "b", 0), 0);
	assert_int_equal(links_of(new, "b"), 1);
	assert_int_equal(unlinkat(old->rootfd, "c", 0), 0);
	assert_int_equal(unlinkat(old->rootfd, "a", 0), 0);
	snapshot_links_end(links);
	assert_int_equal(links_of(new, "a"), 1);
	assert_int_equal(links_of(new, "b"), 1);
	layer_unref(old);
	layer_unref(new);
	close(to);
}

static void test_snapshot_links__layer_may_be_merged_again(void **state)
{
	struct tree_dirs *d = *state;
	struct snapshot_links *first = NULL, *second = NULL;
	struct layer *l;
	int to;

	tree_put_text(d, "old/a", "a");
	tree_put_dir(d, "new");
	l = open_layer(d, "old");
	to = openat(d->s.fd, "new", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	assert_int_equal(snapshot_links_begin(&l, 1, to, &first), 0);
	make(first, l, "a", to);
	assert_int_equal(links_of(l, "a"), 1);
	assert_int_equal(unlinkat(to, "a", 0), 0);
	snapshot_links_end(first);
	assert_int_equal(snapshot_links_begin(&l, 1, to, &second), 0);
	make(second, l, "a", to);
	assert_int_equal(links_of(l, "a"), 1);
	snapshot_links_end(second);
	assert_int_equal(links_of(l, "a"), 2);
	layer_unref(l);
	close(to);
}

static void test_snapshot_links__nobody_need_look(void **state)
{
	struct tree_dirs *d = *state;
	struct layer *l;

	tree_put_text(d, "old/a", "a");
	assert_int_equal(symlinkat("nowhere", d->s.fd, "old/link"), 0);
	tree_put_dir(d, "new");
	l = open_layer(d, "old");
	{
		int to = openat(d->s.fd, "new", O_RDONLY | O_DIRECTORY | O_CLOEXEC);

		make(NULL, l, "a", to);
		make(NULL, l, "link", to);
		close(to);
	}
	assert_int_equal(links_of(l, "a"), 2);
	assert_int_equal(links_of(l, "link"), 2);
	snapshot_links_end(NULL);
	layer_unref(l);
}

#define row(test) cmocka_unit_test_setup_teardown(test, tree_setup, tree_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		row(test_snapshot_links__each_layer_shows_its_own_names),
		row(test_snapshot_links__layer_may_be_merged_again),
		row(test_snapshot_links__nobody_need_look),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
