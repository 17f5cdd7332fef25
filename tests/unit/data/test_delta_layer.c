// SPDX-License-Identifier: Apache-2.0
#include "support/tree.h"

#include "veneer/data/delta_layer.h"
#include "veneer/sys/probe.h"

#define BIG ((size_t)8 * BLK_BYTES + 100)

struct making {
	struct tree_dirs *d;
	struct delta_layer l;
	struct layer *lower;
	char *bytes; /* of lower/big */
};

static int setup(void **state)
{
	struct making *m = calloc(1, sizeof(*m));
	char path[PATH_MAX + 16];
	struct probe_dir can;

	if (!m || tree_setup((void **)&m->d) < 0)
		return -1;
	m->bytes = tree_put_pattern(m->d, "lower/big", BIG, 1);
	tree_put_text(m->d, "lower/dir/inside", "x");
	tree_put_text(m->d, "lower/file", "x");
	tree_put_text(m->d, "secret/outside", "x");
	m->l.rootfd = openat(m->d->s.fd, "upper", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	m->l.work_fd = openat(m->d->s.fd, "work", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	snprintf(path, sizeof(path), "%s/lower", m->d->s.path);
	if (layer_open(path, &m->lower) < 0 || image_new(&m->lower, 1, &m->l.below) < 0 ||
	    probe_work_dir(m->l.work_fd, &can) < 0)
		return -1;
	m->l.style = (struct whiteout_style){ .has_device = can.has_whiteout,
					      .has_rename = can.has_rename_whiteout,
					      .has_trusted = can.has_trusted_xattr,
					      .has_user_attr = can.has_user_xattr };
	*state = m;
	return delta_layer_open(&m->l);
}

static int teardown(void **state)
{
	struct making *m = *state;

	delta_layer_close(&m->l);
	close(m->l.rootfd);
	close(m->l.work_fd);
	image_unref(m->l.below);
	layer_unref(m->lower);
	tree_teardown((void **)&m->d);
	free(m->bytes);
	free(m);
	return 0;
}

static struct delta_object object(const char *path, mode_t mode, uint64_t size)
{
	return (struct delta_object){ .path = path,
				      .st = { .st_mode = mode,
					      .st_uid = geteuid(),
					      .st_gid = getegid(),
					      .st_size = (off_t)size,
					      .st_mtim = { .tv_sec = 1000 } },
				      .target = S_ISLNK(mode) ? "target" : NULL };
}

static int put_file(struct making *m, const char *path, const char *text)
{
	const struct delta_object o = object(path, S_IFREG | 0640, strlen(text));
	const struct delta_base none = { .path = NULL };
	struct delta_file f;
	int r = delta_layer_file_new(&m->l, &o, &none, &f);

	if (r < 0)
		return r;
	assert_int_equal(delta_layer_file_write(&f, text, strlen(text), 0), 0);
	delta_layer_file_close(&f);
	assert_int_equal(delta_layer_file_settle(&m->l), 0);
	return delta_layer_file_place(&m->l, &o);
}

static void test_delta_layer__objects_get_their_attributes_and_missing_parents(void **state)
{
	struct making *m = *state;
	const struct delta_object dir = object("made/in", S_IFDIR | 0750, 0),
				  link = object("made/link", S_IFLNK | 0777, 0);
	struct stat st;

	assert_int_equal(put_file(m, "made/in/file", "text"), 0);
	assert_int_equal(delta_layer_directory(&m->l, &dir, false), 0);
	assert_int_equal(delta_layer_special(&m->l, &link), 0);
	assert_int_equal(fstatat(m->d->s.fd, "upper/made/in/file", &st, 0), 0);
	assert_int_equal(st.st_mode, S_IFREG | 0640);
	assert_int_equal(st.st_size, 4);
	assert_int_equal(st.st_mtim.tv_sec, 1000);
	assert_int_equal(fstatat(m->d->s.fd, "upper/made/in", &st, 0), 0);
	assert_int_equal(st.st_mode & 07777, 0750);
	assert_int_equal(fstatat(m->d->s.fd, "upper/made/link", &st, AT_SYMLINK_NOFOLLOW), 0);
	assert_true(S_ISLNK(st.st_mode));
}

static void test_delta_layer__name_that_is_there_is_not_made_again(void **state)
{
	struct making *m = *state;
	const struct delta_object fifo = object("file", S_IFIFO | 0600, 0);

	assert_int_equal(put_file(m, "file", "text"), 0);
	assert_int_equal(put_file(m, "file", "text"), -EEXIST);
	assert_int_equal(delta_layer_special(&m->l, &fifo), -EEXIST);
	assert_int_equal(delta_layer_whiteout(&m->l, "file"), -EEXIST);
	assert_int_equal(delta_layer_link(&m->l, "file", "file"), -EEXIST);
	assert_int_equal(delta_layer_whiteout(&m->l, "dir"), 0);
	assert_int_equal(delta_layer_whiteout(&m->l, "dir"), -EEXIST);
}

/* A stream may make a link, and name what is behind it. */
static void test_delta_layer__no_link_leads_out_of_the_layer(void **state)
{
	struct making *m = *state;
	struct delta_object link = object("out", S_IFLNK | 0777, 0),
			    dir = object("out/made", S_IFDIR | 0755, 0);
	char target[PATH_MAX + 16];

	snprintf(target, sizeof(target), "%s/secret", m->d->s.path);
	link.target = target;
	assert_int_equal(delta_layer_special(&m->l, &link), 0);
	assert_true(put_file(m, "out/file", "text") < 0);
	assert_true(delta_layer_directory(&m->l, &dir, false) < 0);
	assert_true(delta_layer_whiteout(&m->l, "out/outside") < 0);
	assert_true(delta_layer_link(&m->l, "stolen", "out/outside") < 0);
	assert_true(delta_layer_same_directory(&m->l, "out") < 0);
	assert_false(tree_is_there(m->d, "secret/file"));
	assert_false(tree_is_there(m->d, "secret/made"));
	assert_false(tree_is_there(m->d, "upper/stolen"));
}

static void test_delta_layer__links_are_of_files_that_were_made(void **state)
{
	struct making *m = *state;
	const struct delta_object dir = object("d", S_IFDIR | 0755, 0);
	struct stat st;

	assert_int_equal(put_file(m, "first", "text"), 0);
	assert_int_equal(delta_layer_link(&m->l, "second", "first"), 0);
	assert_int_equal(fstatat(m->d->s.fd, "upper/second", &st, 0), 0);
	assert_int_equal(st.st_nlink, 2);
	assert_true(delta_layer_link(&m->l, "third", "none") < 0);
	assert_int_equal(delta_layer_directory(&m->l, &dir, false), 0);
	assert_int_equal(delta_layer_link(&m->l, "third", "d"), -EUCLEAN);
	/* A file of the layers below has not come. */
	assert_true(delta_layer_link(&m->l, "third", "file") < 0);
}

static void test_delta_layer__directory_as_below_needs_one_there(void **state)
{
	struct making *m = *state;

	assert_int_equal(delta_layer_same_directory(&m->l, "dir"), 0);
	assert_true(tree_is_there(m->d, "upper/dir"));
	assert_int_equal(delta_layer_same_directory(&m->l, "file"), -ESTALE);
	assert_int_equal(delta_layer_same_directory(&m->l, "none"), -ESTALE);
}

static void test_delta_layer__directory_as_below_has_its_attributes_but_no_marks(void **state)
{
	struct making *m = *state;
	char *below = tree_path(m->d, "lower/dir"), *above = tree_path(m->d, "upper/dir"),
	     value[16];
	struct stat st;

	assert_int_equal(chmod(below, 01750), 0);
	assert_int_equal(setxattr(below, "user.kept", "value", 5, 0), 0);
	assert_int_equal(setxattr(below, "user.overlay.origin", "mark", 4, 0), 0);
	assert_int_equal(delta_layer_same_directory(&m->l, "dir"), 0);
	assert_int_equal(getxattr(above, "user.kept", value, sizeof(value)), 5);
	assert_memory_equal(value, "value", 5);
	assert_true(getxattr(above, "user.overlay.origin", value, sizeof(value)) < 0);
	assert_int_equal(errno, ENODATA);
	assert_int_equal(stat(above, &st), 0);
	assert_int_equal(st.st_mode, S_IFDIR | 01750);
	free(above);
	free(below);
}

static void test_delta_layer__base_must_be_there_as_it_is_said(void **state)
{
	struct making *m = *state;
	const struct delta_object o = object("big", S_IFREG | 0644, BIG);
	struct delta_base base = { .path = "big", .size = BIG + 1, .is_own_place = true };
	struct delta_file f;

	assert_int_equal(delta_layer_file_new(&m->l, &o, &base, &f), -ESTALE);
	base.size = BIG;
	base.path = "none";
	assert_int_equal(delta_layer_file_new(&m->l, &o, &base, &f), -ESTALE);
	base.path = "dir";
	assert_int_equal(delta_layer_file_new(&m->l, &o, &base, &f), -ESTALE);
	base.path = "dir/inside/below";
	assert_int_equal(delta_layer_file_new(&m->l, &o, &base, &f), -ESTALE);
	/* After all of that one that is right. */
	base.path = "big";
	assert_int_equal(delta_layer_file_new(&m->l, &o, &base, &f), 0);
	delta_layer_file_close(&f);
	assert_int_equal(delta_layer_file_settle(&m->l), 0);
	assert_int_equal(delta_layer_file_place(&m->l, &o), 0);
}

static void test_delta_layer__file_over_a_base_has_whole_blocks_of_its_own(void **state)
{
	struct making *m = *state;
	const struct delta_object o = object("big", S_IFREG | 0644, BIG);
	const struct delta_base base = { .path = "big", .size = BIG, .is_own_place = true };
	char block[2 * BLK_BYTES];
	struct delta_file f;

	memset(block, 'x', sizeof(block));
	assert_int_equal(delta_layer_file_new(&m->l, &o, &base, &f), 0);
	assert_int_equal(delta_layer_file_write(&f, block, 10, 0), -EUCLEAN);
	assert_int_equal(delta_layer_file_write(&f, block, BLK_BYTES, 10), -EUCLEAN);
	assert_int_equal(delta_layer_file_write(&f, block, BLK_BYTES, BIG), -EUCLEAN);
	assert_int_equal(delta_layer_file_write(&f, block, BLK_BYTES, UINT64_MAX - 10), -EUCLEAN);
	assert_int_equal(delta_layer_file_zeros(&f, 5, BLK_BYTES), -EUCLEAN);
	assert_int_equal(delta_layer_file_write(&f, block, BLK_BYTES, 2 * BLK_BYTES), 0);
	assert_int_equal(delta_layer_file_zeros(&f, 4 * BLK_BYTES, BLK_BYTES), 0);
	/* The end of the file may be within a block. */
	assert_int_equal(delta_layer_file_write(&f, block, 100, 8 * BLK_BYTES), 0);
	delta_layer_file_close(&f);
	assert_int_equal(delta_layer_file_settle(&m->l), 0);
	assert_int_equal(delta_layer_file_place(&m->l, &o), 0);
	assert_int_equal(delta_layer_sync(&m->l), 0);
	delta_layer_close(&m->l);
	memset(m->bytes + 2 * BLK_BYTES, 'x', BLK_BYTES);
	memset(m->bytes + 4 * BLK_BYTES, 0, BLK_BYTES);
	memset(m->bytes + 8 * BLK_BYTES, 'x', 100);
	tree_mount(m->d, "volatile");
	tree_expect(m->d, "big", m->bytes, BIG);
	tree_unmount(m->d);
}

static void test_delta_layer__file_that_was_not_placed_goes_on_or_goes(void **state)
{
	struct making *m = *state;
	const struct delta_object o = object("new", S_IFREG | 0644, 10);
	const struct delta_base none = { .path = NULL };
	struct delta_file f;

	assert_int_equal(delta_layer_file_new(&m->l, &o, &none, &f), 0);
	assert_int_equal(delta_layer_file_write(&f, "01234", 5, 0), 0);
	delta_layer_file_close(&f);
	assert_int_equal(delta_layer_file_settle(&m->l), 0);
	assert_false(tree_is_there(m->d, "upper/new"));
	assert_int_equal(delta_layer_file_again(&m->l, &o, &none, 5, &f), 0);
	assert_int_equal(delta_layer_file_write(&f, "56789", 5, 5), 0);
	delta_layer_file_close(&f);
	assert_int_equal(delta_layer_file_settle(&m->l), 0);
	assert_int_equal(delta_layer_file_place(&m->l, &o), 0);
	assert_true(tree_is_there(m->d, "upper/new"));
	/* There is none any more. */
	assert_true(delta_layer_file_again(&m->l, &o, &none, 5, &f) < 0);
}

#define row(test) cmocka_unit_test_setup_teardown(test, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		row(test_delta_layer__objects_get_their_attributes_and_missing_parents),
		row(test_delta_layer__name_that_is_there_is_not_made_again),
		row(test_delta_layer__no_link_leads_out_of_the_layer),
		row(test_delta_layer__links_are_of_files_that_were_made),
		row(test_delta_layer__directory_as_below_needs_one_there),
		row(test_delta_layer__directory_as_below_has_its_attributes_but_no_marks),
		row(test_delta_layer__base_must_be_there_as_it_is_said),
		row(test_delta_layer__file_over_a_base_has_whole_blocks_of_its_own),
		row(test_delta_layer__file_that_was_not_placed_goes_on_or_goes),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
