// SPDX-License-Identifier: Apache-2.0
#include "support/tree.h"

#include "veneer/data/cow.h"
#include "veneer/tools/diff.h"

#include <sys/mman.h>
#include <sys/socket.h>

#define BIG ((size_t)300 * BLK_BYTES + 7)

static int write_tar(struct tree_dirs *d, int fd, struct diff_progress *ret)
{
	char upper[PATH_MAX + 16], lower[PATH_MAX + 16], *lowers[] = { lower };
	struct diff diff;
	int r;

	snprintf(upper, sizeof(upper), "%s/upper", d->s.path);
	snprintf(lower, sizeof(lower), "%s/lower", d->s.path);
	assert_int_equal(diff_read(upper, lowers, 1, false, NULL, &diff), 0);
	r = diff_tar_write(&diff, fd, NULL, NULL, ret);
	diff_release(&diff);
	return r;
}

/* One header of the archive, in blocks of 512. */
struct header {
	char name[100], mode[8], uid[8], gid[8], size[12], mtime[12], sum[8], type, target[100];
	char rest[255];
};

struct tar {
	char *bytes;
	size_t len, at;
};

static struct tar make(struct tree_dirs *d)
{
	int fd = memfd_create("tar", MFD_CLOEXEC);
	struct diff_progress p;
	struct stat st;
	struct tar t = { 0 };

	assert_int_equal(write_tar(d, fd, &p), 0);
	assert_int_equal(p.entries, p.nentries);
	assert_int_equal(p.bytes, p.nbytes);
	assert_int_equal(fstat(fd, &st), 0);
	t.len = (size_t)st.st_size;
	t.bytes = malloc(t.len);
	assert_int_equal(pread(fd, t.bytes, t.len, 0), t.len);
	close(fd);
	return t;
}

/* The next object, past headers of PAX; NULL: the end. */
static const struct header *next(struct tar *t, const char **ret_data)
{
	for (;;) {
		const struct header *h = (const void *)(t->bytes + t->at);
		size_t size;

		assert_int_equal(sizeof(*h), 512);
		assert_true(t->at + 512 <= t->len);
		if (!h->name[0])
			return NULL;
		size = strtoull(h->size, NULL, 8);
		*ret_data = t->bytes + t->at + 512;
		t->at += 512 + (size + 511) / 512 * 512;
		assert_true(t->at <= t->len);
		if (h->type != 'x' && h->type != 'g')
			return h;
	}
}

static const struct header *find(struct tar *t, const char *name, const char **ret_data)
{
	const struct header *h;

	t->at = 0;
	while ((h = next(t, ret_data)))
		if (!strncmp(h->name, name, sizeof(h->name)))
			return h;
	return NULL;
}

static void test_diff_tar__objects_and_whiteouts_are_in_it(void **state)
{
	struct tree_dirs *d = *state;
	const struct header *h;
	const char *data;
	struct tar t;

	tree_put_text(d, "lower/dir/gone", "x");
	tree_put_text(d, "lower/gone", "x");
	tree_put_text(d, "lower/over/a", "x");
	tree_put_text(d, "upper/dir/new", "of the upper");
	tree_put_whiteout(d, "upper/dir/gone");
	tree_put_whiteout(d, "upper/gone");
	tree_put_opaque(d, "upper/over");
	assert_int_equal(symlinkat("target", d->s.fd, "upper/link"), 0);
	assert_int_equal(linkat(d->s.fd, "upper/dir/new", d->s.fd, "upper/twin", 0), 0);
	t = make(d);
	h = find(&t, "dir/new", &data);
	assert_non_null(h);
	assert_int_equal(h->type, '0');
	assert_memory_equal(data, "of the upper", 12);
	assert_non_null(find(&t, ".wh.gone", &data));
	assert_non_null(find(&t, "dir/.wh.gone", &data));
	assert_non_null(find(&t, "over/.wh..wh..opq", &data));
	assert_null(find(&t, "over/.wh.a", &data));
	h = find(&t, "link", &data);
	assert_int_equal(h->type, '2');
	assert_string_equal(h->target, "target");
	h = find(&t, "twin", &data);
	assert_int_equal(h->type, '1');
	assert_string_equal(h->target, "dir/new");
	free(t.bytes);
}

static void test_diff_tar__partial_file_is_whole(void **state)
{
	struct tree_dirs *d = *state;
	char *bytes = tree_put_pattern(d, "lower/big", BIG, 1);
	const char *data;
	struct inode *i;
	struct tar t;

	tree_mount(d, "volatile");
	i = tree_get(d, "big");
	assert_int_equal(cow_write(d->t, i, "changed", 7, 70000), 0);
	tree_forget(d, i);
	tree_unmount(d);
	memcpy(bytes + 70000, "changed", 7);
	assert_true(tree_is_partial(d, "upper/big"));
	t = make(d);
	assert_int_equal(strtoull(find(&t, "big", &data)->size, NULL, 8), BIG);
	assert_memory_equal(data, bytes, BIG);
	free(t.bytes);
	free(bytes);
}

static void test_diff_tar__reader_that_is_gone_is_an_error_and_no_end(void **state)
{
	struct tree_dirs *d = *state;
	struct diff_progress p;
	int full = open("/dev/full", O_WRONLY | O_CLOEXEC);

	free(tree_put_pattern(d, "upper/big", BIG, 1));
	/* Once: an archive that failed is kept as long as the process, and only the last one. */
	assert_int_equal(write_tar(d, full, &p), -ENOSPC);
	close(full);
}

static void test_diff_tar__socket_is_left_out(void **state)
{
	struct tree_dirs *d = *state;
	const char *data;
	struct tar t;

	assert_int_equal(mknodat(d->s.fd, "upper/socket", S_IFSOCK | 0600, 0), 0);
	tree_put_text(d, "upper/z", "last");
	t = make(d);
	assert_null(find(&t, "socket", &data));
	assert_non_null(find(&t, "z", &data));
	free(t.bytes);
}

#define row(test) cmocka_unit_test_setup_teardown(test, tree_setup, tree_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		row(test_diff_tar__objects_and_whiteouts_are_in_it),
		row(test_diff_tar__partial_file_is_whole),
		row(test_diff_tar__reader_that_is_gone_is_an_error_and_no_end),
		row(test_diff_tar__socket_is_left_out),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
