// SPDX-License-Identifier: Apache-2.0
/* Each rule of page_dups_check_invariants, broken by hand in a table of three mounts. */
#include "base/page_dups.c"

#include "support/broken.h"

#define KEY(i) (&(const struct page_dups_key){ 1, 2, i })

static struct page_dups *c;

static void send(uint32_t mount, uint32_t index)
{
	const struct page_dups_sent s = {
		.key = *KEY(index), .mount = mount, .node = 7, .nblk = CHUNK_BLKS
	};

	assert_int_equal(page_dups_note(c, &s, 0), 0);
}

static int setup(void **state)
{
	(void)state;
	if (page_dups_new(&page_dups_rules_default, &c) < 0)
		return -1;
	for (uint32_t mount = 1; mount <= 3; mount++)
		if (page_dups_join(c, mount, PAGE_DUPS_AUTO) < 0)
			return -1;
	for (uint32_t mount = 1; mount <= 3; mount++)
		send(mount, 0);
	send(1, 1);
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	page_dups_free(c);
	return 0;
}

#define CHECK page_dups_check_invariants(c, KEY(0))

static void test_page_dups_invariants__each_rule_can_be_broken(void **state)
{
	struct extent *e = &c->extents[find(c, KEY(0))];
	struct copy *p = &c->copies[e->first];

	(void)state;
	EXPECT_BROKEN(CHECK, "page_dups: one copy may stay, and quiet extents are extents",
		      c->limit, 0);
	EXPECT_BROKEN(CHECK, "page_dups: one copy may stay, and quiet extents are extents",
		      c->quiet, c->extent_slots.end + 1);
	EXPECT_BROKEN(CHECK, "page_dups: an extent is in the bucket of its key, once", e->key.index,
		      5);
	EXPECT_BROKEN(CHECK, "page_dups: a copy is of a mount that takes part", p->mount, 9);
	EXPECT_BROKEN(CHECK, "page_dups: an extent has one copy of a mount", p->next, e->first);
	EXPECT_BROKEN(CHECK,
		      "page_dups: nheld of an extent is the number of its copies that are held",
		      p->is_held, false);
	EXPECT_BROKEN(CHECK, "page_dups: extents and copies are all counted", c->nextents, 3);
	EXPECT_BROKEN(CHECK, "page_dups: extents and copies are all counted", c->ncopies, 3);
	EXPECT_BROKEN(CHECK, "page_dups: extents and copies are all counted", c->nheld, 5);
	EXPECT_BROKEN(CHECK, "page_dups: extents and copies are all counted", c->members[0].ncopies,
		      1);
	EXPECT_BROKEN(CHECK, "page_dups: extra_blk is what all extents have", c->extra_blk,
		      c->extra_blk + 1);
}

static void test_page_dups_invariants__large_table_is_checked_where_it_changed(void **state)
{
	struct extent *e;

	(void)state;
	for (uint32_t k = 2; k <= INVARIANTS_MAX; k++)
		send(2, k);
	e = &c->extents[find(c, KEY(0))];
	EXPECT_BROKEN(CHECK,
		      "page_dups: nheld of an extent is the number of its copies that are held",
		      e->nheld, 2);
	e->nheld--;
	assert_null(page_dups_check_invariants(c, KEY(1)));
	assert_null(page_dups_check_invariants(c, NULL));
	e->nheld++;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_page_dups_invariants__each_rule_can_be_broken,
						setup, teardown),
		cmocka_unit_test_setup_teardown(
			test_page_dups_invariants__large_table_is_checked_where_it_changed, setup,
			teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
