// SPDX-License-Identifier: Apache-2.0
/* An input is the text of a chain of snapshots; it is read as it is, and as a line that lacks its
 * checksum. Of what is read some snapshots are made one, by numbers drawn from the text. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support.h"

#include "veneer/base/hash.h"
#include "veneer/layer/branch_chain.h"
#include "veneer/layer/branch_merge.h"

#define MERGES	   4
#define ABSORB_MAX 8

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static bool is_same(const struct branch_chain *a, const struct branch_chain *b)
{
	if (a->n != b->n || a->head != b->head)
		return false;
	for (size_t k = 0; k < a->n; k++)
		if (a->entries[k].id != b->entries[k].id ||
		    a->entries[k].parent != b->entries[k].parent ||
		    a->entries[k].time_ns != b->entries[k].time_ns ||
		    strcmp(a->entries[k].name, b->entries[k].name) != 0)
			return false;
	return true;
}

/* What its text gives back. */
static struct branch_chain copy(const struct branch_chain *c)
{
	struct branch_chain again;
	char *out;
	size_t n;

	fuzz_require(branch_chain_format(c, &out, &n) == 0);
	fuzz_require(branch_chain_parse(out, n, &again) == 0);
	free(out);
	fuzz_require(is_same(c, &again));
	return again;
}

static uint64_t draw(uint64_t *seed)
{
	*seed = *seed * 6364136223846793005u + 1442695040888963407u;
	return *seed >> 32;
}

/* Mostly the number of a snapshot that there is; sometimes none at all. */
static uint64_t draw_id(const struct branch_chain *c, uint64_t *seed)
{
	const uint64_t how = draw(seed) % 16;

	return c->n && how > 1 ? c->entries[draw(seed) % c->n].id : how ? draw(seed) : 0;
}

static bool is_among(uint64_t id, const uint64_t *ids, size_t n)
{
	for (size_t k = 0; k < n; k++)
		if (ids[k] == id)
			return true;
	return false;
}

/* Only what may go is gone, and only id stands on something else: on the next that it stood on. */
static void expect_absorbed(const struct branch_chain *before, const struct branch_chain *after,
			    uint64_t id, const uint64_t *ids, size_t n, bool is_busy)
{
	const struct branch_chain_entry *top = branch_chain_by_id(before, id), *now;
	uint64_t parent = top ? top->parent : 0;
	size_t at = 0;

	while (parent && !branch_chain_by_id(after, parent))
		parent = branch_chain_by_id(before, parent)->parent;
	now = branch_chain_by_id(after, id);
	fuzz_require(!now || is_busy || now->parent == parent);
	for (size_t k = 0; k < before->n; k++) {
		const struct branch_chain_entry *was = &before->entries[k],
						*is = &after->entries[at];

		if (at < after->n && is->id == was->id) {
			fuzz_require(is->parent == was->parent || is->id == id);
			at++;
		} else {
			fuzz_require(was->id != id && is_among(was->id, ids, n));
		}
	}
	fuzz_require(at == after->n && after->head == before->head);
}

static void absorb(const struct branch_chain *c, uint64_t *seed)
{
	struct branch_chain merged = copy(c), again;
	const uint64_t id = draw_id(c, seed);
	const size_t n = draw(seed) % ABSORB_MAX;
	const struct branch_chain_entry *e;
	uint64_t ids[ABSORB_MAX];

	for (size_t k = 0; k < n; k++)
		ids[k] = draw_id(c, seed);

	int r = branch_chain_absorb(&merged, id, ids, n);

	fuzz_require(r == 0 || r == -EBUSY || r == -EUCLEAN);
	expect_absorbed(c, &merged, id, ids, n, r == -EBUSY);
	e = branch_chain_by_id(&merged, id);
	fuzz_require(r < 0 || !e || !is_among(e->parent, ids, n));
	again = copy(&merged);
	branch_chain_release(&again);
	branch_chain_release(&merged);
}

/* What a plan lists always becomes one. */
static void merge(const struct branch_chain *c, uint64_t *seed)
{
	const struct branch_chain_entry *from = branch_chain_by_id(c, draw_id(c, seed)),
					*to = branch_chain_by_id(c, draw_id(c, seed));
	struct branch_chain merged = copy(c);
	uint64_t *ids = calloc(BRANCH_CHAIN_MAX, sizeof(*ids));
	size_t n = 0;

	fuzz_require(ids);
	if (branch_merge_plan(c, from ? from->name : NULL, to ? to->name : NULL, ids, &n) == 0) {
		fuzz_require(branch_chain_absorb(&merged, ids[0], ids, n) == 0);
		fuzz_require(merged.n == c->n - (n - 1));
		expect_absorbed(c, &merged, ids[0], ids, n, false);
	}
	free(ids);
	branch_chain_release(&merged);
}

static void check(const char *text, size_t len)
{
	uint64_t seed = hash_checksum(text, len);
	struct branch_chain c, again;

	if (branch_chain_parse(text, len, &c) < 0)
		return;
	for (size_t k = 0; k < c.n; k++)
		fuzz_require(branch_chain_is_name(c.entries[k].name) &&
			     branch_chain_below(&c, c.entries[k].id, NULL) <= c.n);
	again = copy(&c);
	branch_chain_release(&again);
	for (int k = 0; k < MERGES; k++) {
		absorb(&c, &seed);
		merge(&c, &seed);
	}
	branch_chain_release(&c);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static char summed[65536];
	int n;

	check((const char *)data, size);
	if (size > sizeof(summed) - 32)
		return 0;
	memcpy(summed, data, size);
	summed[size++] = '\n';
	n = snprintf(summed + size, 32, "%016llx\n",
		     (unsigned long long)hash_checksum(summed, size));
	check(summed, size + (size_t)n);
	return 0;
}
