// SPDX-License-Identifier: Apache-2.0
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "veneer/layer/partial_xattr.h"
#include "veneer/map/format.h"
#include "veneer/map/mapfile.h"
#include "veneer/sys/xattr.h"
#include "veneer/tools/inspect.h"

#define MIB (1u << 20)

static int inspect_root(int fd, const char *name, const struct inspect_out *to)
{
	char path[32];
	struct layer *l;
	int r;

	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	assert_int_equal(layer_open(path, &l), 0);
	free(l->path);
	l->path = strdup(name);
	r = inspect_layer(l, to);
	layer_unref(l);
	return r;
}

static int inspect_one_map(int fd, const char *name, const struct inspect_out *to)
{
	return inspect_map(fd, NULL, name, to);
}

static void count_line(void *arg, const char *code, const char *layer, const char *path)
{
	assert_true(*code && path && (!layer || *layer));
	++*(size_t *)arg;
}

/* The output of inspect_root or inspect_one_map, in a string of the caller's. */
static char *print(int (*fn)(int fd, const char *name, const struct inspect_out *to), int fd,
		   int want)
{
	char *text = NULL;
	size_t len, said = 0, lines = 0;
	FILE *out = open_memstream(&text, &len);
	int r = fn(fd, "layer",
		   &(struct inspect_out){ .out = out, .line = count_line, .arg = &said });

	fclose(out);
	for (const char *c = text; *c; c++)
		lines += *c == '\n';
	assert_int_equal(said, lines);
	if (r != want)
		print_message("%s", text);
	assert_int_equal(r, want);
	return text;
}

static void check_has(const char *text, const char *part)
{
	if (!strstr(text, part))
		print_message("%s", text);
	assert_non_null(strstr(text, part));
}

static int set_mark(int root, const char *path, const struct partial_xattr *m)
{
	struct buf b = { 0 };
	int fd = openat(root, path, O_CREAT | O_RDWR, 0644);

	assert_int_equal(partial_xattr_encode(m, &b), 0);

	int r = xattr_set(fd, "", FORMAT_PARTIAL_ATTR, b.data, b.len, 0);

	buf_release(&b);
	close(fd);
	return r;
}

static void test_inspect__tells_records_and_files_of_a_layer(void **state)
{
	(void)state;
	char dir[] = "/tmp/test-inspect-XXXXXX";
	struct mapfile *mf;
	struct partial_xattr m = { .lower_size = MIB };

	assert_non_null(mkdtemp(dir));

	int root = open(dir, O_RDONLY | O_DIRECTORY);
	char *text = print(inspect_root, root, 0);

	check_has(text, "no map");
	free(text);
	assert_int_equal(mapfile_open(root, root, 0, "layer", NULL, &mf), 0);
	assert_int_equal(mapfile_file_new(mf, MIB, &m.file_id), 0);
	assert_int_equal(mapfile_own(mf, m.file_id, 3, 2), 0);
	assert_int_equal(mapfile_commit(mf, m.file_id, false), 0);
	assert_int_equal(mapfile_checkpoint(mf, true), 0);
	assert_int_equal(mapfile_own(mf, m.file_id, 9, 1), 0);
	m.uuid_low = (uint32_t)mapfile_uuid(mf);
	mapfile_close(mf);
	mkdirat(root, "sub", 0755);
	if (set_mark(root, "sub/partial", &m) == -EOPNOTSUPP)
		skip();
	strcpy(m.path, "old/name");
	m.uuid_low++;
	assert_int_equal(set_mark(root, "moved", &m), 0);

	text = print(inspect_root, root, -EUCLEAN);
	check_has(text, "OWN_RUN  file 1 blocks 3-4");
	check_has(text, "OWN_RUN  file 1 blocks 9\n");
	check_has(text, "end of log: zeros");
	check_has(text, "layer/sub/partial: 0 bytes, file 1, lower at the same path (1048576 "
			"bytes, modified 0.000000000), "
			"own 0 of 0 blocks, clip 1048576 (behind its end)\n");
	check_has(text, "layer/moved: 0 bytes, file 1, lower old/name (1048576 bytes, modified "
			"0.000000000), "
			"DAMAGED: made in another");
	free(text);

	int fd = openat(root, MAPFILE_NAME, O_RDWR);
	struct stat st;

	assert_int_equal(fstat(fd, &st), 0);
	assert_int_equal(pwrite(fd, "x", 1, st.st_size - 1), 1);
	text = print(inspect_one_map, fd, -EUCLEAN);
	check_has(text, "DAMAGED: a bad record before good ones");
	free(text);
	assert_int_equal(pwrite(fd, "", 1, st.st_size - 1), 1);
	assert_int_equal(ftruncate(fd, 3 << 20), 0);
	text = print(inspect_one_map, fd, -EUCLEAN);
	check_has(text, "DAMAGED: longer than its records account for");
	free(text);
	assert_int_equal(pwrite(fd, "x", 1, 140), 1);
	text = print(inspect_one_map, fd, -EUCLEAN);
	check_has(text, "generation 2");
	check_has(text, "128  DAMAGED: checksum");
	free(text);
	close(fd);
	unlinkat(root, "moved", 0);
	unlinkat(root, "sub/partial", 0);
	unlinkat(root, "sub", AT_REMOVEDIR);
	unlinkat(root, MAPFILE_NAME, 0);
	close(root);
	assert_int_equal(rmdir(dir), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_inspect__tells_records_and_files_of_a_layer),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
