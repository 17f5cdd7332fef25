// SPDX-License-Identifier: Apache-2.0
#include "support/tree.h"

#include "veneer/layer/layer_registry.h"
#include "veneer/sys/watch.h"
#include "veneer/union/lookup.h"

#include <dirent.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/syscall.h>

#define LAYERS_MAX 4
#define KEEP_BYTES (64u << 20)

static int setup(void **state)
{
	if (tree_setup(state) < 0)
		return -1;
	layer_registry_keep(0, 0);
	return 0;
}

static int teardown(void **state)
{
	struct layer_registry_stats s;

	layer_registry_stop();
	layer_registry_stats(&s);
	/* Nothing stays behind, whatever the test did. */
	if (s.images || s.kept || s.watches)
		return -1;
	return tree_teardown(state);
}

/* The image of the layers "a:b", as a mount gets it; "*a" is a snapshot that is held. */
static struct image *open_stack(struct tree_dirs *d, const char *names)
{
	struct layer *layers[LAYERS_MAX];
	char *copy = strdup(names), *rest = copy, *name;
	struct image *img;
	size_t n = 0;

	while ((name = strsep(&rest, ":"))) {
		const bool is_frozen = *name == '*';
		char path[PATH_MAX + 64];

		snprintf(path, sizeof(path), "%s/%s", d->s.path, name + is_frozen);
		assert_int_equal(layer_open(path, &layers[n]), 0);
		layers[n++]->is_frozen = is_frozen;
	}
	assert_int_equal(layer_registry_image(layers, n, 0, &img), 0);
	for (size_t i = 0; i < n; i++)
		layer_unref(layers[i]);
	free(copy);
	return img;
}

/* Everything that find and ls -l would ask. */
static void walk(struct image *img, struct image_entry *dir)
{
	ssize_t n = image_count(img, dir);

	assert_true(n >= 0);
	for (ssize_t i = 0; i < n; i++) {
		struct image_entry *e = image_child(dir, (size_t)i);
		struct source *src;
		struct stat st;

		assert_int_equal(image_stat(img, e, &st), 0);
		if (e->type == DT_DIR)
			walk(img, e);
		else if (e->type == DT_REG)
			assert_int_equal(image_source(img, e, &src), 0);
	}
}

static struct image *open_walked(struct tree_dirs *d, const char *names)
{
	struct image *img = open_stack(d, names);

	walk(img, image_root(img));
	return img;
}

static struct layer_registry_stats stats(void)
{
	struct layer_registry_stats s;

	layer_registry_stats(&s);
	return s;
}

static void fill(struct tree_dirs *d)
{
	tree_put_text(d, "top/a/f", "top");
	tree_put_text(d, "top/a/x/g", "deep");
	tree_put_text(d, "base/a/h", "base");
	tree_put_text(d, "base/b/i", "base");
	tree_put_dir(d, "other");
}

static void test_layer_registry__one_stack_has_one_image(void **state)
{
	struct tree_dirs *d = *state;
	struct image *first, *second;

	fill(d);
	first = open_walked(d, "top:base");
	second = open_stack(d, "top:base");
	assert_ptr_equal(first, second);
	assert_int_equal(stats().images, 1);
	layer_registry_release(first);
	walk(second, image_root(second));
	layer_registry_release(second);
	assert_int_equal(stats().images, 0);
}

static void test_layer_registry__other_stacks_have_other_images_of_the_same_layers(void **state)
{
	struct tree_dirs *d = *state;
	struct layer *const *a, *const *b;
	struct image *first, *second, *third;

	fill(d);
	first = open_walked(d, "top:base");
	second = open_walked(d, "other:base");
	third = open_walked(d, "base:top");
	assert_ptr_not_equal(first, second);
	assert_ptr_not_equal(first, third);
	image_layers(first, &a);
	image_layers(second, &b);
	assert_ptr_equal(a[1], b[1]);
	image_layers(third, &b);
	assert_ptr_equal(a[0], b[1]);
	assert_int_equal(stats().layers, 3);
	/* The first mount of a layer may go first. */
	layer_registry_release(first);
	walk(second, image_root(second));
	walk(third, image_root(third));
	layer_registry_release(third);
	layer_registry_release(second);
}

static void test_layer_registry__nothing_is_shared_before_it_is_asked_for(void **state)
{
	struct tree_dirs *d = *state;
	struct image *first, *second;

	layer_registry_stop();
	fill(d);
	first = open_walked(d, "top:base");
	second = open_walked(d, "top:base");
	assert_ptr_not_equal(first, second);
	assert_int_equal(watch_count(), 0);
	layer_registry_release(first);
	layer_registry_release(second);
}

/* ---- what was changed is not given to a new mount ---- */

static void create(struct tree_dirs *d)
{
	tree_put_text(d, "top/a/x/new", "new");
}
static void append(struct tree_dirs *d)
{
	int fd = openat(d->s.fd, "base/a/h", O_WRONLY | O_APPEND | O_CLOEXEC);

	assert_int_equal(write(fd, "more", 4), 4);
	close(fd);
}
static void change_mode(struct tree_dirs *d)
{
	assert_int_equal(fchmodat(d->s.fd, "top/a/f", 0600, 0), 0);
}
static void change_times(struct tree_dirs *d)
{
	struct timespec t[2] = { { .tv_sec = 5 }, { .tv_sec = 5 } };

	assert_int_equal(utimensat(d->s.fd, "top/a/f", t, 0), 0);
}
static void shorten(struct tree_dirs *d)
{
	char *path = tree_path(d, "base/b/i");

	assert_int_equal(truncate(path, 1), 0);
	free(path);
}
static void mark(struct tree_dirs *d)
{
	char *path = tree_path(d, "base/b/i");

	assert_int_equal(setxattr(path, "user.new", "x", 1, 0), 0);
	free(path);
}
static void hide(struct tree_dirs *d)
{
	tree_put_text(d, "top/b/.wh.i", "");
}
static void make_opaque(struct tree_dirs *d)
{
	tree_put_opaque(d, "top/a");
}
static void move(struct tree_dirs *d)
{
	assert_int_equal(renameat(d->s.fd, "base/b", d->s.fd, "base/c"), 0);
}
static void take_away(struct tree_dirs *d)
{
	assert_int_equal(unlinkat(d->s.fd, "top/a/f", 0), 0);
}
static void change_root(struct tree_dirs *d)
{
	assert_int_equal(fchmodat(d->s.fd, "top", 0700, 0), 0);
}
static void store(struct tree_dirs *d)
{
	int fd = openat(d->s.fd, "base/b/i", O_RDWR | O_CLOEXEC);
	char *at = mmap(NULL, 4, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

	assert_true(at != MAP_FAILED);
	close(fd);
	at[0] = 'X';
	munmap(at, 4);
}

static void expect_outdated(struct tree_dirs *d, void (*change)(struct tree_dirs *d), bool is_kept)
{
	struct image *first = open_walked(d, "top:base"), *second;
	uint64_t made = stats().made;

	/* Nothing changed so far. */
	second = open_walked(d, "top:base");
	assert_ptr_equal(first, second);
	layer_registry_release(second);
	if (is_kept)
		layer_registry_release(first);
	assert_int_equal(stats().kept, is_kept);
	change(d);
	second = open_walked(d, "top:base");
	assert_int_equal(stats().made, made + 1);
	assert_int_equal(stats().kept, 0);
	if (!is_kept)
		layer_registry_release(first);
	layer_registry_release(second);
}

static void change_all(struct tree_dirs *d, bool is_kept)
{
	static void (*const changes[])(struct tree_dirs *d) = {
		create, append, change_mode, change_times, shorten,	mark,
		store,	hide,	make_opaque, take_away,	   change_root, move,
	};

	for (size_t i = 0; i < sizeof(changes) / sizeof(*changes); i++)
		expect_outdated(d, changes[i], is_kept);
}

static void test_layer_registry__changed_layer_is_read_again(void **state)
{
	struct tree_dirs *d = *state;

	fill(d);
	change_all(d, false);
}

static void test_layer_registry__changed_layer_of_a_kept_image_is_read_again(void **state)
{
	struct tree_dirs *d = *state;

	fill(d);
	layer_registry_keep(60, KEEP_BYTES);
	change_all(d, true);
}

static void test_layer_registry__change_before_it_was_read_does_no_harm(void **state)
{
	struct tree_dirs *d = *state;
	struct image *first, *second;
	struct image_entry *e;

	fill(d);
	first = open_stack(d, "top:base");
	tree_put_text(d, "base/b/new", "new");
	second = open_stack(d, "top:base");
	assert_ptr_equal(first, second);
	assert_int_equal(image_lookup_path(second, "b/new", &e), 0);
	layer_registry_release(first);
	layer_registry_release(second);
}

static void test_layer_registry__time_of_a_directory_seen_from_above_is_current(void **state)
{
	struct tree_dirs *d = *state;
	struct image *first, *second;
	struct stat before, after, now;
	struct image_entry *e;

	fill(d);
	first = open_stack(d, "top:base");
	assert_int_equal(image_lookup_path(first, "b", &e), 0);
	assert_int_equal(image_stat(first, e, &before), 0);
	/* The directory was never listed. */
	assert_null(atomic_load(&e->dir));
	tree_put_dir(d, "base/b/sub");
	second = open_stack(d, "top:base");
	assert_int_equal(image_lookup_path(second, "b", &e), 0);
	assert_int_equal(image_stat(second, e, &after), 0);
	assert_int_equal(fstatat(d->s.fd, "base/b", &now, 0), 0);
	assert_int_equal(after.st_nlink, now.st_nlink);
	assert_int_equal(after.st_mtim.tv_nsec, now.st_mtim.tv_nsec);
	layer_registry_release(first);
	layer_registry_release(second);
}

static void test_layer_registry__file_changed_through_another_name_is_read_again(void **state)
{
	struct tree_dirs *d = *state;
	struct image *first, *second;
	struct image_entry *e;
	struct stat st;

	fill(d);
	assert_int_equal(linkat(d->s.fd, "base/b/i", d->s.fd, "other/elsewhere", 0), 0);
	first = open_walked(d, "top:base");
	tree_put_text(d, "other/elsewhere", "longer than before");
	second = open_stack(d, "top:base");
	assert_ptr_not_equal(first, second);
	assert_int_equal(image_lookup_path(second, "b/i", &e), 0);
	assert_int_equal(image_stat(second, e, &st), 0);
	assert_int_equal(st.st_size, 18);
	layer_registry_release(first);
	layer_registry_release(second);
}

static void test_layer_registry__layer_with_a_map_is_its_mounts_own(void **state)
{
	struct tree_dirs *d = *state;
	struct image *first, *second;

	fill(d);
	tree_put_text(d, "top/" MAPFILE_NAME, "whatever");
	first = open_stack(d, "top:base");
	second = open_stack(d, "top:base");
	assert_ptr_not_equal(first, second);
	layer_registry_release(first);
	layer_registry_release(second);
}

static void test_layer_registry__snapshot_with_a_map_is_shared_while_it_is_held(void **state)
{
	struct tree_dirs *d = *state;
	struct image *first, *second;

	layer_registry_keep(60, KEEP_BYTES);
	fill(d);
	tree_put_text(d, "top/" MAPFILE_NAME, "whatever");
	first = open_walked(d, "*top:base");
	second = open_stack(d, "*top:base");
	assert_ptr_equal(first, second);
	layer_registry_release(second);
	/* One that could not be held is another layer. */
	second = open_stack(d, "top:base");
	assert_ptr_not_equal(first, second);
	layer_registry_release(second);
	layer_registry_release(first);
	assert_int_equal(stats().kept, 0);
}

static void test_layer_registry__changed_layer_below_a_snapshot_is_read_again(void **state)
{
	struct tree_dirs *d = *state;
	struct image *first, *second;

	fill(d);
	tree_put_text(d, "top/" MAPFILE_NAME, "whatever");
	first = open_walked(d, "*top:base");
	tree_put_text(d, "base/b/new", "new");
	second = open_stack(d, "*top:base");
	assert_ptr_not_equal(first, second);
	layer_registry_release(second);
	layer_registry_release(first);
}

static void test_layer_registry__map_that_appears_ends_the_sharing(void **state)
{
	struct tree_dirs *d = *state;
	struct image *first, *second;

	fill(d);
	first = open_stack(d, "top:base");
	tree_put_text(d, "top/" MAPFILE_NAME, "whatever");
	second = open_stack(d, "top:base");
	assert_ptr_not_equal(first, second);
	layer_registry_release(first);
	layer_registry_release(second);
}

static void test_layer_registry__upper_that_is_written_is_shared_with_nobody(void **state)
{
	struct tree_dirs *d = *state;
	struct image *before, *during, *again, *after, *last;

	fill(d);
	tree_put_text(d, "upper/u", "upper");
	before = open_walked(d, "upper:base");
	tree_mount(d, "volatile");
	during = open_walked(d, "upper:base");
	again = open_walked(d, "upper:base");
	assert_ptr_not_equal(during, before);
	assert_ptr_not_equal(during, again);
	layer_registry_release(before);
	tree_unmount(d);
	after = open_walked(d, "upper:base");
	last = open_walked(d, "upper:base");
	assert_ptr_not_equal(after, during);
	assert_ptr_not_equal(after, again);
	assert_ptr_equal(after, last);
	layer_registry_release(during);
	layer_registry_release(again);
	layer_registry_release(after);
	layer_registry_release(last);
}

/* ---- kept images ---- */

/* The descriptors of this process that lead into the layers. */
static unsigned ndescriptors(struct tree_dirs *d)
{
	DIR *dir = opendir("/proc/self/fd");
	struct dirent *de;
	unsigned n = 0;

	assert_non_null(dir);
	while ((de = readdir(dir))) {
		char link[PATH_MAX + 1];
		ssize_t len = readlinkat(dirfd(dir), de->d_name, link, sizeof(link) - 1);

		link[len < 0 ? 0 : len] = '\0';
		n += !strncmp(link, d->s.path, strlen(d->s.path)) && link[strlen(d->s.path)] == '/';
	}
	closedir(dir);
	return n;
}

static void
test_layer_registry__kept_image_has_no_descriptors_and_goes_on_with_new_ones(void **state)
{
	struct tree_dirs *d = *state;
	struct image *img;
	uint64_t resumed = stats().resumed;
	struct source *src;
	struct image_entry *e;
	char text[8];
	int fd;

	layer_registry_keep(60, KEEP_BYTES);
	fill(d);
	img = open_walked(d, "top:base");
	assert_true(ndescriptors(d) > 2);
	layer_registry_release(img);
	assert_int_equal(ndescriptors(d), 0);
	assert_int_equal(stats().kept, 1);
	assert_ptr_equal(open_stack(d, "top:base"), img);
	assert_int_equal(stats().resumed, resumed + 1);
	assert_int_equal(ndescriptors(d), 2);
	assert_int_equal(image_lookup_path(img, "a/x/g", &e), 0);
	assert_int_equal(image_source(img, e, &src), 0);
	fd = source_pin(src);
	assert_int_equal(pread(fd, text, sizeof(text), 0), 4);
	fd_cache_unpin(&src->fd);
	layer_registry_release(img);
}

static void test_layer_registry__layer_of_two_images_stays_open_for_the_one_in_use(void **state)
{
	struct tree_dirs *d = *state;
	struct image *a, *b;

	layer_registry_keep(60, KEEP_BYTES);
	fill(d);
	a = open_stack(d, "top:base");
	b = open_stack(d, "other:base");
	layer_registry_release(a);
	assert_int_equal(ndescriptors(d), 2);
	walk(b, image_root(b));
	layer_registry_release(b);
	assert_int_equal(ndescriptors(d), 0);
	/* Each comes back with its own. */
	b = open_walked(d, "other:base");
	a = open_walked(d, "top:base");
	assert_int_equal(stats().kept, 0);
	assert_int_equal(stats().images, 2);
	layer_registry_release(a);
	walk(b, image_root(b));
	layer_registry_release(b);
}

static void test_layer_registry__another_directory_of_that_name_is_another_image(void **state)
{
	struct tree_dirs *d = *state;
	struct image *img;
	struct image_entry *e;

	layer_registry_keep(60, KEEP_BYTES);
	fill(d);
	img = open_walked(d, "top:base");
	layer_registry_release(img);
	assert_int_equal(renameat(d->s.fd, "base", d->s.fd, "old"), 0);
	tree_put_text(d, "base/other", "x");
	img = open_stack(d, "top:base");
	assert_int_equal(image_lookup_path(img, "other", &e), 0);
	assert_int_equal(image_lookup_path(img, "b", &e), -ENOENT);
	layer_registry_release(img);
}

static void test_layer_registry__too_much_is_not_kept_and_the_oldest_goes_first(void **state)
{
	struct tree_dirs *d = *state;
	struct image *a, *b;
	size_t bytes;

	fill(d);
	layer_registry_keep(60, 1);
	layer_registry_release(open_walked(d, "top:base"));
	assert_int_equal(stats().kept, 0);
	layer_registry_keep(60, KEEP_BYTES);
	a = open_walked(d, "top:base");
	b = open_walked(d, "base:top");
	bytes = image_bytes(a) > image_bytes(b) ? image_bytes(a) : image_bytes(b);
	assert_int_equal(stats().bytes, image_bytes(a) + image_bytes(b));
	layer_registry_keep(60, bytes);
	layer_registry_release(a);
	assert_int_equal(stats().kept, 1);
	layer_registry_release(b);
	assert_int_equal(stats().kept, 1);
	layer_registry_release(open_stack(d, "base:top"));
	assert_int_equal(stats().kept, 1);
	layer_registry_release(open_stack(d, "top:base"));
}

static void test_layer_registry__time_is_over(void **state)
{
	struct tree_dirs *d = *state;
	int left;

	fill(d);
	layer_registry_keep(60, KEEP_BYTES);
	assert_int_equal(layer_registry_trim(), -1);
	layer_registry_release(open_walked(d, "top:base"));
	left = layer_registry_trim();
	assert_in_range(left, 1, 60);
	layer_registry_keep(0, KEEP_BYTES);
	assert_int_equal(layer_registry_trim(), -1);
	assert_int_equal(stats().kept, 0);
	assert_int_equal(watch_count(), 0);
}

/* ---- numbers ---- */

static void test_layer_registry__uppers_do_not_shift_each_others_numbers(void **state)
{
	struct tree_dirs *d = *state;
	struct union_fs a = { 0 }, b = { 0 };
	struct layer upper[2] = { { .dev = 4001 }, { .dev = 4002 } };
	struct layer *const *layers;
	uint64_t first;

	fill(d);
	a.image = open_stack(d, "top:base");
	a.upper = &upper[0];
	b.image = open_stack(d, "top:base");
	b.upper = &upper[1];
	assert_ptr_equal(a.image, b.image);
	assert_int_equal(inode_table_init(&a), 0);
	assert_int_equal(inode_table_init(&b), 0);
	first = inode_fold_ino(&a, 4001, 77);
	assert_true(first != 77);
	assert_int_equal(inode_fold_ino(&b, 4002, 77), first);
	assert_true(inode_fold_ino(&b, 4001, 77) != first);
	/* A mount inside a layer, found in between. */
	image_layers(a.image, &layers);
	assert_true(image_fold_ino(a.image, layers[0], 4003, 77) != first);
	assert_int_equal(inode_fold_ino(&b, 4002, 77), first);
	inode_table_release(&a);
	inode_table_release(&b);
	layer_registry_release(a.image);
	layer_registry_release(b.image);
}

/* ---- many at once ---- */

struct mounter {
	struct tree_dirs *d;
	unsigned n;
};

static void *mount_again(void *arg)
{
	struct mounter *m = arg;
	static const char *const stacks[] = { "top:base", "base:top", "other:base" };

	for (unsigned i = 0; i < 60; i++) {
		struct image *img = open_stack(m->d, stacks[(m->n + i) % 3]);

		walk(img, image_root(img));
		layer_registry_release(img);
	}
	return NULL;
}

static void *edit(void *arg)
{
	struct mounter *m = arg;

	for (unsigned i = 0; i < 60; i++) {
		assert_int_equal(fchmodat(m->d->s.fd, "base/b", i % 2 ? 0755 : 0711, 0), 0);
		usleep(500);
	}
	return NULL;
}

static void test_layer_registry__many_mounts_come_and_go_at_once(void **state)
{
	struct mounter m[5];
	pthread_t threads[5];

	fill(*state);
	layer_registry_keep(60, KEEP_BYTES);
	for (unsigned i = 0; i < 5; i++) {
		m[i] = (struct mounter){ .d = *state, .n = i };
		assert_int_equal(
			pthread_create(&threads[i], NULL, i == 4 ? edit : mount_again, &m[i]), 0);
	}
	for (unsigned i = 0; i < 5; i++)
		pthread_join(threads[i], NULL);
	assert_int_equal(stats().images, 0);
	assert_true(stats().kept <= 3);
	assert_int_equal(ndescriptors(*state), 0);
}

/* ---- what it is for: system calls ---- */

/* As find and ls -lR do. */
static int walk_mount(struct union_fs *t, struct inode *dir)
{
	struct lookup_entry e;
	uint64_t pos = 0;
	int r;

	while ((r = lookup_next(t, dir, &pos, &e)) == 1) {
		struct inode *i;
		struct stat st;
		int known = lookup_name(t, dir, e.name, &i, &st);

		if (known == 0 && e.type == DT_DIR)
			known = walk_mount(t, i);
		if (known < 0)
			return known;
		inode_forget(t, i->id, 1);
	}
	return r;
}

/* In a process of its own: one mount walks, then another, to which every look into a layer is
 * denied. */
static int walk_denied(bool is_shared)
{
	static const int calls[] = {
		SYS_openat,	SYS_openat2,	SYS_getdents64,	      SYS_newfstatat,
		SYS_statx,	SYS_fstat,	SYS_lgetxattr,	      SYS_fgetxattr,
		SYS_flistxattr, SYS_llistxattr, SYS_inotify_add_watch
	};
	struct tree_dirs *d, *other;
	int r;

	assert_int_equal(tree_setup((void **)&d), 0);
	assert_int_equal(tree_setup((void **)&other), 0);
	fill(d);
	tree_layers(d, "top:base");
	if (is_shared)
		layer_registry_keep(60, KEEP_BYTES);
	tree_mount(d, "ro");
	assert_int_equal(walk_mount(d->t, d->t->root), 0);
	scratch_leave(&other->s);
	other->s = d->s;
	tree_layers(other, "top:base");
	tree_mount(other, "ro");
	r = fork();
	if (r == 0) {
		for (size_t i = 0; i < sizeof(calls) / sizeof(*calls); i++)
			assert_int_equal(scratch_deny(calls[i], EBADMSG), 0);
		_exit(walk_mount(other->t, other->t->root) ? 3 : 0);
	}
	waitpid(r, &r, 0);
	tree_unmount(other);
	tree_teardown((void **)&d);
	free(other);
	return WEXITSTATUS(r);
}

static void
test_layer_registry__second_mount_walks_without_a_system_call_on_the_layers(void **state)
{
	(void)state;
	assert_int_equal(WEXITSTATUS(scratch_run_self("shared")), 0);
	/* So the filter does see them. */
	assert_int_equal(WEXITSTATUS(scratch_run_self("alone")), 3);
}

static int mount_unwatched(void)
{
	struct image *first, *second;
	struct tree_dirs *d;

	assert_int_equal(tree_setup((void **)&d), 0);
	assert_int_equal(scratch_deny(SYS_inotify_init1, EMFILE), 0);
	fill(d);
	layer_registry_keep(60, KEEP_BYTES);
	first = open_walked(d, "top:base");
	second = open_walked(d, "top:base");
	assert_ptr_not_equal(first, second);
	layer_registry_release(first);
	layer_registry_release(second);
	assert_int_equal(stats().kept, 0);
	return tree_teardown((void **)&d);
}

static void test_layer_registry__mounts_without_inotify_have_each_its_own(void **state)
{
	(void)state;
	assert_int_equal(scratch_run_self("unwatched"), 0);
}

#define row(test) cmocka_unit_test_setup_teardown(test, setup, teardown)

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		row(test_layer_registry__one_stack_has_one_image),
		row(test_layer_registry__other_stacks_have_other_images_of_the_same_layers),
		row(test_layer_registry__nothing_is_shared_before_it_is_asked_for),
		row(test_layer_registry__changed_layer_is_read_again),
		row(test_layer_registry__changed_layer_of_a_kept_image_is_read_again),
		row(test_layer_registry__change_before_it_was_read_does_no_harm),
		row(test_layer_registry__time_of_a_directory_seen_from_above_is_current),
		row(test_layer_registry__file_changed_through_another_name_is_read_again),
		row(test_layer_registry__layer_with_a_map_is_its_mounts_own),
		row(test_layer_registry__snapshot_with_a_map_is_shared_while_it_is_held),
		row(test_layer_registry__changed_layer_below_a_snapshot_is_read_again),
		row(test_layer_registry__map_that_appears_ends_the_sharing),
		row(test_layer_registry__upper_that_is_written_is_shared_with_nobody),
		row(test_layer_registry__kept_image_has_no_descriptors_and_goes_on_with_new_ones),
		row(test_layer_registry__layer_of_two_images_stays_open_for_the_one_in_use),
		row(test_layer_registry__another_directory_of_that_name_is_another_image),
		row(test_layer_registry__too_much_is_not_kept_and_the_oldest_goes_first),
		row(test_layer_registry__time_is_over),
		row(test_layer_registry__uppers_do_not_shift_each_others_numbers),
		row(test_layer_registry__many_mounts_come_and_go_at_once),
		row(test_layer_registry__mounts_without_inotify_have_each_its_own),
		row(test_layer_registry__second_mount_walks_without_a_system_call_on_the_layers),
	};

	if (argc > 1 && !strcmp(argv[1], "unwatched"))
		return mount_unwatched();
	if (argc > 1)
		return walk_denied(!strcmp(argv[1], "shared"));
	return cmocka_run_group_tests(tests, NULL, NULL);
}
