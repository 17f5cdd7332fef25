// SPDX-License-Identifier: Apache-2.0
#include "support/tree.h"

#include "layer/branch_store.h"
#include "veneer/layer/branch_dir.h"

static void test_branch_store__places_are_sixteen_digits_and_a_suffix(void **state)
{
	static const char *const wrong[] = { "",
					     "0",
					     "000000000000000",
					     "00000000000000001",
					     "000000000000000A",
					     "0000000000000001.new",
					     "0x00000000000001",
					     "-000000000000001",
					     " 00000000000001",
					     "000000000000000g" };
	uint64_t id = 99;

	(void)state;
	assert_string_equal(branch_store_place_of(0x1f, "").name, "000000000000001f");
	assert_string_equal(branch_store_place_of(UINT64_MAX, BRANCH_STORE_NEW).name,
			    "ffffffffffffffff.new");
	assert_true(branch_store_is_place("000000000000001f", "", &id));
	assert_int_equal(id, 0x1f);
	assert_true(branch_store_is_place("ffffffffffffffff.new", BRANCH_STORE_NEW, &id));
	assert_int_equal(id, UINT64_MAX);
	for (size_t i = 0; i < sizeof(wrong) / sizeof(*wrong); i++)
		if (branch_store_is_place(wrong[i], "", &id))
			fail_msg("\"%s\" was taken", wrong[i]);
}

static int open_all(struct tree_dirs *d)
{
	int fd = openat(d->s.fd, "upper", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	int r = branch_store_open_all(fd);

	close(fd);
	return r;
}

static void test_branch_store__directory_of_all_is_one_or_damage(void **state)
{
	struct tree_dirs *d = *state;
	int fd;

	assert_int_equal(open_all(d), -ENOENT);
	tree_put_text(d, "upper/" BRANCH_DIR_NAME, "a file");
	assert_int_equal(open_all(d), -EUCLEAN);
	assert_int_equal(unlinkat(d->s.fd, "upper/" BRANCH_DIR_NAME, 0), 0);
	/* A link leads anywhere. */
	assert_int_equal(symlinkat("/tmp", d->s.fd, "upper/" BRANCH_DIR_NAME), 0);
	assert_true(open_all(d) < 0);
	assert_int_equal(unlinkat(d->s.fd, "upper/" BRANCH_DIR_NAME, 0), 0);
	tree_put_dir(d, "upper/" BRANCH_DIR_NAME);
	fd = open_all(d);
	assert_true(fd >= 0);
	assert_true(branch_store_open_at(fd, "none") < 0);
	close(fd);
}

static void test_branch_store__chain_is_replaced_as_a_whole(void **state)
{
	struct branch_chain c = { 0 }, got = { 0 };
	const struct branch_chain_entry e = { .id = 5, .time_ns = 7, .name = "one" };
	struct tree_dirs *d = *state;
	int fd;

	tree_put_dir(d, "upper/" BRANCH_DIR_NAME);
	fd = open_all(d);
	assert_int_equal(branch_store_read(fd, &got), -ENOENT);
	assert_int_equal(branch_chain_add(&c, &e), 0);
	c.head = 5;
	assert_int_equal(branch_store_write(fd, &c, true), 0);
	assert_int_equal(branch_store_read(fd, &got), 0);
	assert_int_equal(got.n, 1);
	assert_int_equal(got.head, 5);
	assert_string_equal(got.entries[0].name, "one");
	branch_chain_release(&got);
	tree_put_text(d, "upper/" BRANCH_DIR_NAME "/chain", "damaged");
	got = (struct branch_chain){ 0 };
	assert_int_equal(branch_store_read(fd, &got), -EUCLEAN);
	branch_chain_release(&got);
	/* One that is there is no reason not to write. */
	assert_int_equal(branch_store_write(fd, &c, false), 0);
	got = (struct branch_chain){ 0 };
	assert_int_equal(branch_store_read(fd, &got), 0);
	branch_chain_release(&got);
	branch_chain_release(&c);
	close(fd);
}

#define row(test) cmocka_unit_test_setup_teardown(test, tree_setup, tree_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_branch_store__places_are_sixteen_digits_and_a_suffix),
		row(test_branch_store__directory_of_all_is_one_or_damage),
		row(test_branch_store__chain_is_replaced_as_a_whole),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
