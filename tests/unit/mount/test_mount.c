// SPDX-License-Identifier: Apache-2.0
#include "support/tree.h"

#include "veneer/base/cleanup.h"
#include "veneer/data/cow.h"
#include "veneer/data/remove.h"
#include "veneer/layer/mode_xattr.h"
#include "veneer/sys/probe.h"
#include "veneer/tools/inspect.h"

#include <fcntl.h>
#include <sys/file.h>

static void test_mount__ids_go_to_disk_and_back(void **state)
{
	struct tree_dirs *d = *state;
	struct stat st = { .st_uid = 5000, .st_gid = 1 };

	tree_mount(d, "volatile,uidmapping=0:100000:1000:5000:7:1,gidmapping=1:2:1");
	assert_int_equal(mount_uid_to_disk(&d->m, 7), 5000);
	assert_int_equal(mount_uid_to_disk(&d->m, 100999), 999);
	assert_int_equal(mount_uid_to_disk(&d->m, 101000), 65534);
	assert_true(mount_has_uid(&d->m, 7));
	assert_false(mount_has_uid(&d->m, 8));
	assert_false(mount_has_uid(&d->m, 0));
	assert_true(mount_has_gid(&d->m, 2));
	assert_false(mount_has_gid(&d->m, 1));
	assert_false(mount_squashes(&d->m));
	mount_present_ids(&d->m, &st);
	assert_int_equal(st.st_uid, 7);
	assert_int_equal(st.st_gid, 2);
}

static void test_mount__without_a_map_every_id_is_itself(void **state)
{
	struct tree_dirs *d = *state;
	unsigned char acl[] = { 2, 0, 0, 0, 2, 0, 7, 0, 9, 0, 0, 0 };

	tree_mount(d, "volatile");
	assert_true(mount_has_uid(&d->m, 4000000000u));
	assert_int_equal(mount_acl_to_disk(&d->m, acl, sizeof(acl)), 0);
	assert_int_equal(acl[8], 9);
}

static void test_mount__writes_are_kept_where_nothing_is_against_it(void **state)
{
	static const struct {
		const char *options;
		bool keeps;
	} table[] = {
		{ "io=cached,writeback=on", true },
		{ "io=cached", false },
		{ "io=cached,writeback=off", false },
		{ "io=cached,writeback=on,timeout=0", false },
		{ "io=cached,writeback=on,locks=server", false },
		{ "io=cached,writeback=on,size=1G", false },
		{ "io=cached,writeback=on,share=pages", false },
		{ "io=direct,writeback=on", false },
		{ "io=passthrough,writeback=on", false },
	};
	struct tree_dirs *d = *state;

	for (size_t k = 0; k < sizeof(table) / sizeof(table[0]); k++) {
		tree_mount(d, table[k].options);
		assert_int_equal(mount_keeps_writes(&d->m), table[k].keeps);
		tree_unmount(d);
	}
}

static void test_mount__squashing_has_its_order(void **state)
{
	struct tree_dirs *d = *state;
	struct stat st = { .st_uid = 5, .st_gid = 6 };

	tree_mount(d, "volatile,squash_to_root,squash_to_gid=9");
	assert_true(mount_squashes(&d->m));
	mount_present_ids(&d->m, &st);
	assert_int_equal(st.st_uid, 0);
	assert_int_equal(st.st_gid, 9);
}

static void test_mount__ids_in_an_acl_are_translated_in_place(void **state)
{
	struct tree_dirs *d = *state;
	/* user::rwx user:9:rwx group::r-x group:8:r-x mask::rwx other::--- */
	unsigned char acl[] = { 2,   0,	  0,   0,   1,	 0,  7, 0, 255, 255, 255, 255, 2,
				0,   7,	  0,   9,   0,	 0,  0, 4, 0,	5,   0,	  255, 255,
				255, 255, 8,   0,   5,	 0,  8, 0, 0,	0,   16,  0,   7,
				0,   255, 255, 255, 255, 32, 0, 0, 0,	255, 255, 255, 255 };
	unsigned char was[sizeof(acl)];

	memcpy(was, acl, sizeof(acl));
	tree_mount(d, "volatile,uidmapping=1000:0:10,gidmapping=2000:0:10");
	assert_int_equal(mount_acl_to_disk(&d->m, acl, sizeof(acl)), 0);
	assert_int_equal(acl[16] | acl[17] << 8, 1009);
	assert_int_equal(acl[32] | acl[33] << 8, 2008);
	assert_int_equal(acl[8], 255);
	mount_present_acl(&d->m, acl, sizeof(acl));
	assert_memory_equal(acl, was, sizeof(acl));
	/* One byte short of an entry, another version, no entry: not ours to judge. */
	assert_int_equal(mount_acl_to_disk(&d->m, acl, sizeof(acl) - 1), 0);
	assert_memory_equal(acl, was, sizeof(acl));
	acl[0] = 3;
	assert_int_equal(mount_acl_to_disk(&d->m, acl, sizeof(acl)), 0);
	assert_int_equal(acl[16], 9);
	acl[0] = 2;
	assert_int_equal(mount_acl_to_disk(&d->m, acl, 4), 0);
	assert_int_equal(mount_acl_to_disk(&d->m, acl, 0), 0);
	acl[16] = 10;
	assert_int_equal(mount_acl_to_disk(&d->m, acl, sizeof(acl)), -EINVAL);
}

static void test_mount__second_writer_of_an_upper_is_refused_in_a_sentence(void **state)
{
	struct tree_dirs *d = *state;
	int fd = openat(d->s.fd, "upper", O_RDONLY | O_DIRECTORY);

	assert_int_equal(flock(fd, LOCK_EX), 0);
	assert_int_equal(tree_try_mount(d, "volatile"), -EBUSY);
	assert_non_null(strstr(d->err, "in use by another mount"));
	assert_int_equal(flock(fd, LOCK_UN), 0);
	tree_mount(d, "volatile");
	close(fd);
}

static void test_mount__work_directory_in_the_upper_is_refused(void **state)
{
	struct tree_dirs *d = *state;

	assert_int_equal(unlinkat(d->s.fd, "work", AT_REMOVEDIR), 0);
	tree_put_dir(d, "upper/inner/work");
	assert_int_equal(symlinkat("upper/inner/work", d->s.fd, "work"), 0);
	assert_int_equal(tree_try_mount(d, "volatile"), -EINVAL);
	assert_non_null(strstr(d->err, "inside upperdir"));
}

static void test_mount__owners_in_attributes_start_at_the_root(void **state)
{
	struct tree_dirs *d = *state;
	char value[64];
	ssize_t n;
	int fd = openat(d->s.fd, "lower", O_RDONLY | O_DIRECTORY);

	assert_int_equal(fsetxattr(fd, mode_xattr_for_option(2), "3:4:1711", 8, 0), 0);
	close(fd);
	tree_mount(d, "volatile,xattr_permissions=2");
	n = fgetxattr(d->t->upper->rootfd, mode_xattr_for_option(2), value, sizeof(value) - 1);
	assert_true(n > 0);
	value[n] = '\0';
	assert_string_equal(value, "3:4:1711:dir");
	tree_unmount(d);
	/* The upper has its say by now, but for who could be made to give privileges by it. */
	tree_mount(d, "volatile");
	if (probe_is_trusted())
		assert_null(d->t->upper->override);
	else
		assert_string_equal(d->t->upper->override, mode_xattr_for_option(2));
}

static void test_mount__read_only_one_touches_no_work_directory(void **state)
{
	struct tree_dirs *d = *state;

	assert_int_equal(unlinkat(d->s.fd, "work", AT_REMOVEDIR), 0);
	tree_put_text(d, "upper/f", "upper");
	tree_mount(d, "ro");
	assert_null(d->t->upper);
	tree_expect_text(d, "f", "upper");
	assert_false(tree_is_there(d, "work"));
}

/* A file that was unlinked and is still known leaves the map before it is closed. */
static void test_mount__map_is_closed_clean_also_with_an_unlinked_file_in_use(void **state)
{
	struct tree_dirs *d = *state;
	_cleanup_(freep) char *text = NULL;
	size_t size = 0;
	FILE *out = open_memstream(&text, &size);
	int fd;

	free(tree_put_pattern(d, "lower/a", 100000, 1));
	free(tree_put_pattern(d, "lower/b", 100000, 2));
	tree_mount(d, NULL);
	assert_int_equal(cow_write(d->t, tree_get(d, "a"), "x", 1, 0), 0);
	assert_int_equal(cow_write(d->t, tree_get(d, "b"), "x", 1, 0), 0);
	assert_int_equal(remove_file(d->t, d->t->root, "b"), 0);
	tree_unmount(d);
	fd = openat(d->s.fd, "upper/.wh..wh.veneer", O_RDONLY | O_CLOEXEC);
	assert_true(fd >= 0 && out);
	assert_int_equal(inspect_map(fd, NULL, "map", &(struct inspect_out){ .out = out }), 0);
	close(fd);
	assert_int_equal(fclose(out), 0);
	assert_non_null(strstr(text, "closed cleanly"));
}

#define row(test) cmocka_unit_test_setup_teardown(test, tree_setup, tree_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		row(test_mount__ids_go_to_disk_and_back),
		row(test_mount__without_a_map_every_id_is_itself),
		row(test_mount__writes_are_kept_where_nothing_is_against_it),
		row(test_mount__squashing_has_its_order),
		row(test_mount__ids_in_an_acl_are_translated_in_place),
		row(test_mount__second_writer_of_an_upper_is_refused_in_a_sentence),
		row(test_mount__work_directory_in_the_upper_is_refused),
		row(test_mount__owners_in_attributes_start_at_the_root),
		row(test_mount__read_only_one_touches_no_work_directory),
		row(test_mount__map_is_closed_clean_also_with_an_unlinked_file_in_use),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
