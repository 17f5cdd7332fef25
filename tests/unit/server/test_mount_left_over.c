// SPDX-License-Identifier: Apache-2.0
#include "support/tree.h"

#include "server/mount_left_over.h"

#include <sched.h>
#include <sys/syscall.h>

static bool is_open(int fd)
{
	return fcntl(fd, F_GETFD) >= 0;
}

/* The image of a mount that is closed; *ret_fd: open as long as the image is there. */
static struct image *left_image(struct tree_dirs *d, int *ret_fd)
{
	struct layer *const *layers;
	struct image *img;

	tree_put_text(d, "lower/file", "text");
	tree_mount(d, "volatile");
	assert_non_null(tree_get(d, "file"));
	img = image_ref(d->t->image);
	assert_true(image_layers(img, &layers) > 0);
	*ret_fd = layers[0]->rootfd;
	return img;
}

static void test_mount_left_over__is_freed_at_once_where_somebody_waits(void **state)
{
	struct tree_dirs *d = *state;
	struct inode_rebuild *rebuild;
	struct image *img;
	int fd;

	img = left_image(d, &fd);
	assert_int_equal(inode_rebuild_begin(d->t, &rebuild), 0);
	inode_rebuild_cancel(d->t);
	tree_unmount(d);
	assert_true(is_open(fd));
	mount_left_over_free(rebuild, img, false);
	assert_false(is_open(fd));
	/* Of a mount that has neither. */
	mount_left_over_free(NULL, NULL, false);
	mount_left_over_free(NULL, NULL, true);
}

static void test_mount_left_over__thread_frees_it_in_the_end(void **state)
{
	struct tree_dirs *d = *state;
	struct image *img;
	int fd;

	img = left_image(d, &fd);
	tree_unmount(d);
	mount_left_over_free(NULL, img, true);
	while (is_open(fd))
		sched_yield();
}

/* Where no thread is to be had it takes the caller's time. */
static void test_mount_left_over__is_freed_also_without_a_thread(void **state)
{
	struct tree_dirs *d = *state;
	struct image *img;
	int fd, status;
	pid_t pid;

	img = left_image(d, &fd);
	tree_unmount(d);
	pid = fork();
	if (pid == 0) {
		if (scratch_deny(SYS_clone3, EAGAIN) < 0 || scratch_deny(SYS_clone, EAGAIN) < 0)
			_exit(77);
		mount_left_over_free(NULL, img, true);
		_exit(is_open(fd));
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	mount_left_over_free(NULL, img, false);
	if (WIFEXITED(status) && WEXITSTATUS(status) == 77)
		skip();
	assert_int_equal(status, 0);
}

#define row(test) cmocka_unit_test_setup_teardown(test, tree_setup, tree_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		row(test_mount_left_over__is_freed_at_once_where_somebody_waits),
		row(test_mount_left_over__thread_frees_it_in_the_end),
		row(test_mount_left_over__is_freed_also_without_a_thread),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
