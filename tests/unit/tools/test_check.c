// SPDX-License-Identifier: Apache-2.0
#include "support/tree.h"

#include "veneer/base/log.h"
#include "veneer/data/cow.h"
#include "veneer/layer/metacopy_guard.h"
#include "veneer/layer/partial_xattr.h"
#include "veneer/map/format.h"
#include "veneer/sys/xattr.h"
#include "veneer/tools/check.h"

#include <sys/stat.h>

#define SIZE ((size_t)1 << 20)

/* Two partial files, f and g, in an upper that is not mounted. */
static void make_layer(struct tree_dirs *d)
{
	const char *const names[] = { "f", "g" };

	for (size_t k = 0; k < 2; k++) {
		char rel[16];

		snprintf(rel, sizeof(rel), "lower/%s", names[k]);
		free(tree_put_pattern(d, rel, SIZE, k + 1));
	}
	tree_mount(d, "volatile");
	for (size_t k = 0; k < 2; k++) {
		struct inode *i = tree_get(d, names[k]);

		assert_int_equal(cow_write(d->t, i, "new", 3, 500000), 0);
		tree_forget(d, i);
	}
	tree_unmount(d);
}

/* As `check` prints it, and the code in front. */
static void print(void *arg, const struct check_finding *f)
{
	assert_true(strlen(f->code) > 3 && !strpbrk(f->code, " \n"));
	assert_null(strchr(f->text, '\n'));
	fprintf(arg, "[%s] %s/%s: %s%s\n", f->code, f->layer, f->path,
		f->is_repair ? "repaired: " : "", f->text);
}

static void count_step(void *arg, size_t entries, size_t dirs)
{
	size_t *seen = arg;

	assert_int_equal(entries, *seen + 1);
	assert_true(dirs < 1000);
	*seen = entries;
}

/* Check the upper, against the lower or by itself; the lines are freed by the caller. */
static struct check_result check(struct tree_dirs *d, bool has_below, enum check_mode mode,
				 char **ret_text)
{
	char path[PATH_MAX + 16];
	struct layer *upper, *lower;
	struct image *below = NULL;
	struct check_result s;
	size_t len;
	FILE *out = open_memstream(ret_text, &len);
	size_t entries = 0;
	const struct step step = { count_step, &entries };
	const struct check_hooks hooks = { .found = print, .arg = out, .step = &step };

	log_set_level(LOG_LVL_ERROR);
	snprintf(path, sizeof(path), "%s/upper", d->s.path);
	assert_int_equal(layer_open(path, &upper), 0);
	snprintf(path, sizeof(path), "%s/lower", d->s.path);
	assert_int_equal(layer_open(path, &lower), 0);
	if (has_below)
		assert_int_equal(image_new(&lower, 1, &below), 0);
	assert_int_equal(check_layer(upper, below, mode, &hooks, &s), 0);
	assert_true(entries >= s.files);
	image_unref(below);
	layer_unref(lower);
	layer_unref(upper);
	fclose(out);
	return s;
}

static void expect(struct tree_dirs *d, const char *part, size_t found)
{
	char *text;
	struct check_result s = check(d, true, CHECK_LOOKS, &text);

	if (s.found != found || (part && !strstr(text, part)))
		print_message("%s", text);
	assert_int_equal(s.found, found);
	if (part)
		assert_non_null(strstr(text, part));
	free(text);
}

static void expect_repair(struct tree_dirs *d, const char *part)
{
	char *text;
	struct check_result s = check(d, false, CHECK_REPAIRS, &text);

	if (!strstr(text, part))
		print_message("%s", text);
	assert_non_null(strstr(text, part));
	assert_true(s.repaired > 0 && s.repaired == s.found);
	free(text);
	expect(d, NULL, 0);
}

/* The mark of a file with something in it changed. */
static void change_mark(struct tree_dirs *d, const char *rel,
			void (*change)(struct partial_xattr *m))
{
	struct buf b = { 0 };
	char *value;
	struct partial_xattr m;
	ssize_t len = xattr_get_alloc(d->s.fd, rel, FORMAT_PARTIAL_ATTR, &value);

	assert_true(len > 0);
	assert_int_equal(partial_xattr_decode(value, (size_t)len, &m), 0);
	change(&m);
	assert_int_equal(partial_xattr_encode(&m, &b), 0);
	assert_int_equal(xattr_set(d->s.fd, rel, FORMAT_PARTIAL_ATTR, b.data, b.len, 0), 0);
	buf_release(&b);
	free(value);
}

static int open_map(struct tree_dirs *d, struct stat *st)
{
	int fd = openat(d->s.fd, "upper/" MAPFILE_NAME, O_RDWR);

	assert_true(fd >= 0);
	assert_int_equal(fstat(fd, st), 0);
	return fd;
}

static void test_check__sound_layer_has_no_damage(void **state)
{
	struct tree_dirs *d = *state;
	struct check_result s;
	char *text;

	expect(d, NULL, 0);
	make_layer(d);
	s = check(d, true, CHECK_LOOKS, &text);
	assert_string_equal(text, "");
	assert_int_equal(s.files, 2);
	assert_int_equal(s.found, 0);
	free(text);
}

static void other_uuid(struct partial_xattr *m)
{
	m->uuid_low ^= 1;
}

static void other_id(struct partial_xattr *m)
{
	m->file_id = 77;
}

static void same_id(struct partial_xattr *m)
{
	m->file_id = 1;
}

static void absent_path(struct partial_xattr *m)
{
	strcpy(m->path, "not/there");
}

static void test_check__marks_must_fit_the_map(void **state)
{
	struct tree_dirs *d = *state;

	make_layer(d);
	change_mark(d, "upper/g", other_uuid);
	/* The entry has no file then. */
	expect(d, "upper/g: its mark was made in another layer", 2);
	change_mark(d, "upper/g", other_uuid);
	change_mark(d, "upper/g", other_id);
	expect(d, "upper/g: a partial file, but the map has no file 77", 2);
	change_mark(d, "upper/g", same_id);
	expect(d, "has the number 1 of another file", 2);
	assert_int_equal(xattr_set(d->s.fd, "upper/g", FORMAT_PARTIAL_ATTR, "nonsense", 8, 0), 0);
	expect(d, "upper/g: its mark is damaged", 2);
}

static void test_check__lower_files_must_be_what_they_were(void **state)
{
	struct tree_dirs *d = *state;
	const struct timespec times[2] = { { 5, 5 }, { 5, 5 } };
	struct stat st;

	make_layer(d);
	assert_int_equal(fstatat(d->s.fd, "lower/f", &st, 0), 0);
	assert_int_equal(utimensat(d->s.fd, "lower/f", times, 0), 0);
	expect(d, "upper/f: its lower file f was modified at 5.000000005", 1);
	assert_int_equal(
		utimensat(d->s.fd, "lower/f", (struct timespec[]){ st.st_atim, st.st_mtim }, 0), 0);
	expect(d, NULL, 0);
	assert_int_equal(unlinkat(d->s.fd, "lower/f", 0), 0);
	expect(d, "upper/f: no lower layer has f, which its blocks come from", 1);
	tree_put_text(d, "lower/f", "short");
	expect(d, "upper/f: its lower file f has 5 bytes and not 1048576", 1);
	change_mark(d, "upper/g", absent_path);
	expect(d, "upper/g: no lower layer has not/there", 2);
}

static void test_check__map_must_keep_the_rules(void **state)
{
	struct tree_dirs *d = *state;
	struct stat st;
	int fd;

	make_layer(d);
	fd = open_map(d, &st);
	assert_int_equal(pwrite(fd, "x", 1, 20), 1);
	expect(d, "offset 0: ", 1);
	expect_repair(d, "repaired: written anew");
	close(fd);
	/* Each file that needs it is told, too. */
	fd = open_map(d, &st);
	assert_int_equal(pwrite(fd, "nothing", 7, 20), 7);
	xattr_remove(fd, "", FORMAT_MAP_COPY_ATTR);
	expect(d, "offset 0: ", 3);
	expect(d, "upper/f: a partial file, and the map is damaged", 3);
	close(fd);
	assert_int_equal(unlinkat(d->s.fd, "upper/" MAPFILE_NAME, 0), 0);
	expect(d, "upper/f: a partial file, but the layer has no map", 2);
	tree_put_dir(d, "upper/" MAPFILE_NAME);
	expect(d, "not a regular file", 3);
}

static void test_check__end_of_the_log_is_repaired_where_nothing_is_lost(void **state)
{
	struct tree_dirs *d = *state;
	off_t end;
	struct stat st;
	char *text;
	int fd;

	make_layer(d);
	fd = open_map(d, &st);
	/* The tail is zeros: its first byte behind the last record. */
	for (end = st.st_size; end > 0; end--) {
		char c;

		assert_int_equal(pread(fd, &c, 1, end - 1), 1);
		if (c)
			break;
	}
	end = (end + 7) / 8 * 8;
	assert_int_equal(pwrite(fd, "\x03\x05torn", 6, end), 6);
	expect(d, "a torn record at the end of the log", 1);
	expect_repair(d, "repaired: cut to its");
	assert_int_equal(ftruncate(fd, 5 << 20), 0);
	expect(d, "longer than its records account for", 1);
	expect_repair(d, "repaired: cut to its");
	/* A single byte was no record. */
	assert_int_equal(pwrite(fd, "x", 1, end + 200), 1);
	expect(d, "a bad record before good ones", 1);
	expect_repair(d, "repaired: written anew");
	close(fd);
	/* Records behind a bad one may have been acknowledged. */
	fd = open_map(d, &st);
	assert_int_equal(pwrite(fd, "xyz", 3, 2048), 3);
	expect(d, "a bad record before good ones", 3);
	assert_int_equal(check(d, true, CHECK_REPAIRS, &text).repaired, 1);
	assert_non_null(strstr(text, "repaired: set aside as " MAPFILE_DAMAGED_NAME));
	free(text);
	expect(d, "upper/f: a partial file, but the layer has no map", 2);
	close(fd);
}

static void test_check__entries_without_a_file_are_dropped(void **state)
{
	struct tree_dirs *d = *state;

	make_layer(d);
	assert_int_equal(unlinkat(d->s.fd, "upper/g", 0), 0);
	expect(d, MAPFILE_NAME ": no file carries the number 2", 1);
	expect_repair(d, "repaired: the entry 2 was dropped");
	assert_false(tree_is_there(d, "upper/.wh..wh.check"));
}

/* As in a snapshot. */
static void test_check__guards_are_set_where_nothing_else_is_repaired(void **state)
{
	struct tree_dirs *d = *state;
	struct check_result s;
	char *text;

	make_layer(d);
	assert_int_equal(unlinkat(d->s.fd, "upper/g", 0), 0);
	for (int is_user = 0; is_user < 2; is_user++)
		xattr_remove(d->s.fd, "upper/f",
			     is_user ? "user.overlay.metacopy" : "trusted.overlay.metacopy");
	assert_false(metacopy_guard_is_set(d->s.fd, "upper/f"));
	s = check(d, false, CHECK_GUARDS, &text);
	assert_int_equal(s.found, 2);
	assert_int_equal(s.repaired, 1);
	assert_non_null(strstr(text, "upper/f: repaired: the attribute was set"));
	free(text);
	assert_true(metacopy_guard_is_set(d->s.fd, "upper/f"));
	expect(d, MAPFILE_NAME ": no file carries the number 2", 1);
}

static void test_check__own_blocks_behind_the_end_are_dropped(void **state)
{
	struct tree_dirs *d = *state;

	make_layer(d);
	int fd = openat(d->s.fd, "upper/f", O_RDWR);

	assert_int_equal(ftruncate(fd, 100000), 0);
	close(fd);
	expect(d, "upper/f: the map has block 122 as its own, behind its end (100000 bytes)", 1);
	expect_repair(d, "upper/f: repaired: the map goes to its end now");
}

static void test_check__redirects_must_lead_somewhere(void **state)
{
	struct tree_dirs *d = *state;

	tree_put_text(d, "lower/was/f", "text");
	tree_put_dir(d, "upper/is");
	assert_int_equal(xattr_set(d->s.fd, "upper/is", "user.overlay.redirect", "/was", 4, 0), 0);
	expect(d, NULL, 0);
	assert_int_equal(xattr_set(d->s.fd, "upper/is", "user.overlay.redirect", "/gone", 5, 0), 0);
	expect(d, "upper/is: no lower layer has the directory /gone", 1);
	assert_int_equal(xattr_set(d->s.fd, "upper/is", "user.overlay.redirect", "/../gone", 8, 0),
			 0);
	expect(d, "upper/is: its redirect is no path", 1);
}

static void test_check__reserved_names_must_be_known(void **state)
{
	struct tree_dirs *d = *state;

	tree_put_text(d, "upper/d/.wh..wh.strange", "");
	expect(d, "upper/d/.wh..wh.strange: unknown reserved name", 1);
	assert_int_equal(xattr_set(d->s.fd, "upper/d", "user.veneer.strange", "x", 1, 0), 0);
	expect(d, "upper/d: unknown reserved attribute user.veneer.strange", 2);
	assert_int_equal(unlinkat(d->s.fd, "upper/d/.wh..wh.strange", 0), 0);
	assert_int_equal(xattr_remove(d->s.fd, "upper/d", "user.veneer.strange"), 0);
	tree_put_whiteout(d, "upper/d/gone");
	tree_put_opaque(d, "upper/e");
	expect(d, NULL, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_check__sound_layer_has_no_damage, tree_setup,
						tree_teardown),
		cmocka_unit_test_setup_teardown(test_check__marks_must_fit_the_map, tree_setup,
						tree_teardown),
		cmocka_unit_test_setup_teardown(test_check__lower_files_must_be_what_they_were,
						tree_setup, tree_teardown),
		cmocka_unit_test_setup_teardown(test_check__map_must_keep_the_rules, tree_setup,
						tree_teardown),
		cmocka_unit_test_setup_teardown(
			test_check__end_of_the_log_is_repaired_where_nothing_is_lost, tree_setup,
			tree_teardown),
		cmocka_unit_test_setup_teardown(test_check__entries_without_a_file_are_dropped,
						tree_setup, tree_teardown),
		cmocka_unit_test_setup_teardown(
			test_check__guards_are_set_where_nothing_else_is_repaired, tree_setup,
			tree_teardown),
		cmocka_unit_test_setup_teardown(test_check__own_blocks_behind_the_end_are_dropped,
						tree_setup, tree_teardown),
		cmocka_unit_test_setup_teardown(test_check__redirects_must_lead_somewhere,
						tree_setup, tree_teardown),
		cmocka_unit_test_setup_teardown(test_check__reserved_names_must_be_known,
						tree_setup, tree_teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
