// SPDX-License-Identifier: Apache-2.0
/* One line of JSON, and one with its checksum in hexadecimal digits. */
#include "veneer/layer/branch_chain.h"

#include "veneer/base/array.h"
#include "veneer/base/cleanup.h"
#include "veneer/base/hash.h"
#include "veneer/base/invariants.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DIGITS	 16 /* of a number or a checksum */
#define SUM_LINE (DIGITS + 1)

/* ---- numbers ---- */

struct digits {
	char text[DIGITS + 1];
};

static struct digits digits_of(uint64_t number)
{
	struct digits d;

	snprintf(d.text, sizeof(d.text), "%016" PRIx64, number);
	return d;
}

/* Just as digits_of wrote it. */
static bool read_digits(const char *text, uint64_t *ret)
{
	char *end;

	if (strnlen(text, DIGITS) < DIGITS || !isxdigit((unsigned char)*text))
		return false;
	for (size_t k = 0; k < DIGITS; k++)
		if (!isxdigit((unsigned char)text[k]) || isupper((unsigned char)text[k]))
			return false;
	*ret = strtoull(text, &end, 16);
	return true;
}

/* ---- the struct ---- */

bool branch_chain_is_name(const char *name)
{
	const size_t len = strnlen(name, BRANCH_CHAIN_NAME_MAX + 1);

	if (!len || len > BRANCH_CHAIN_NAME_MAX || !isalnum((unsigned char)*name))
		return false;
	for (const char *s = name; *s; s++)
		if ((unsigned char)*s >= 0x80 ||
		    (!isalnum((unsigned char)*s) && !strchr("._-", *s)))
			return false;
	return true;
}

const struct branch_chain_entry *branch_chain_by_id(const struct branch_chain *c, uint64_t id)
{
	for (size_t k = 0; id && k < c->n; k++)
		if (c->entries[k].id == id)
			return &c->entries[k];
	return NULL;
}

const struct branch_chain_entry *branch_chain_by_name(const struct branch_chain *c,
						      const char *name)
{
	for (size_t k = 0; k < c->n; k++)
		if (!strcmp(c->entries[k].name, name))
			return &c->entries[k];
	return NULL;
}

size_t branch_chain_below(const struct branch_chain *c, uint64_t id, uint64_t *ret)
{
	const struct branch_chain_entry *e;
	size_t n = 0;

	/* A parent comes before its children, so this ends. */
	for (; (e = branch_chain_by_id(c, id)); id = e->parent) {
		if (ret)
			ret[n] = id;
		n++;
	}
	return n;
}

int branch_chain_add(struct branch_chain *c, const struct branch_chain_entry *e)
{
	int r;

	if (!e->id || !branch_chain_is_name(e->name) ||
	    (e->parent && !branch_chain_by_id(c, e->parent)))
		return -EINVAL;
	if (branch_chain_by_id(c, e->id) || branch_chain_by_name(c, e->name))
		return -EEXIST;
	if (c->n == BRANCH_CHAIN_MAX)
		return -E2BIG;
	r = array_grow(&c->entries, c->n);
	if (r == 0)
		c->entries[c->n++] = *e;
	INVARIANTS(branch_chain_check_invariants(c));
	return r;
}

int branch_chain_remove(struct branch_chain *c, uint64_t id)
{
	const struct branch_chain_entry *e = branch_chain_by_id(c, id);
	size_t at;

	if (!e)
		return -ENOENT;
	for (size_t k = 0; k < c->n; k++)
		if (c->head == id || c->entries[k].parent == id)
			return -EBUSY;
	at = (size_t)(e - c->entries);
	memmove(&c->entries[at], &c->entries[at + 1], (--c->n - at) * sizeof(*c->entries));
	INVARIANTS(branch_chain_check_invariants(c));
	return 0;
}

static bool is_among(uint64_t id, const uint64_t *ids, size_t n)
{
	for (size_t k = 0; k < n; k++)
		if (ids[k] == id)
			return true;
	return false;
}

int branch_chain_absorb(struct branch_chain *c, uint64_t id, const uint64_t *ids, size_t n)
{
	const struct branch_chain_entry *e;
	int r = 0;

	while (r == 0 && (e = branch_chain_by_id(c, id)) && is_among(e->parent, ids, n)) {
		struct branch_chain_entry *top = &c->entries[e - c->entries];
		const uint64_t gone = top->parent;
		const struct branch_chain_entry *below = branch_chain_by_id(c, gone);

		top->parent = below ? below->parent : 0;
		r = branch_chain_remove(c, gone);
	}
	return r == -ENOENT ? -EUCLEAN : r;
}

void branch_chain_release(struct branch_chain *c)
{
	free(c->entries);
	*c = (struct branch_chain){ 0 };
}

/* All of a short chain, and the last one of another; head is the caller's. */
const char *branch_chain_check_invariants(const struct branch_chain *c)
{
	if (c->n > BRANCH_CHAIN_MAX)
		return "branch_chain: there are no more than BRANCH_CHAIN_MAX";
	for (size_t k = c->n > INVARIANTS_MAX ? c->n - 1 : 0; k < c->n; k++) {
		const struct branch_chain_entry *e = &c->entries[k];
		const struct branch_chain before = { .n = k, .entries = c->entries };

		if (!e->id || !branch_chain_is_name(e->name))
			return "branch_chain: each one has a number and a name";
		if (branch_chain_by_id(&before, e->id) || branch_chain_by_name(&before, e->name))
			return "branch_chain: no two have the same number or name";
		if (e->parent && !branch_chain_by_id(&before, e->parent))
			return "branch_chain: a parent comes before its children";
	}
	return NULL;
}

/* ---- from text ---- */

static void json_freep(json_t **j)
{
	json_decref(*j);
}

/* A number that may be 0 only where that is allowed, which stands for null. */
static bool read_number(const json_t *j, bool may_be_null, uint64_t *ret)
{
	*ret = 0;
	if (json_is_null(j))
		return may_be_null;
	return json_is_string(j) && json_string_length(j) == DIGITS &&
	       read_digits(json_string_value(j), ret) && *ret;
}

static int read_entry(const json_t *j, struct branch_chain *c)
{
	struct branch_chain_entry e = { .time_ns = 0 };
	const json_t *name = json_object_get(j, "name"), *when = json_object_get(j, "time");
	int r;

	if (json_object_size(j) != 4 || !read_number(json_object_get(j, "id"), false, &e.id) ||
	    !read_number(json_object_get(j, "parent"), true, &e.parent) || !json_is_integer(when) ||
	    !json_is_string(name) || strlen(json_string_value(name)) != json_string_length(name) ||
	    !branch_chain_is_name(json_string_value(name)))
		return -EUCLEAN;
	e.time_ns = json_integer_value(when);
	strcpy(e.name, json_string_value(name));
	r = branch_chain_add(c, &e);
	return r == -ENOMEM ? r : r < 0 ? -EUCLEAN : 0;
}

static int read_object(const json_t *j, struct branch_chain *c)
{
	const json_t *version = json_object_get(j, "veneer_branches"),
		     *entries = json_object_get(j, "snapshots");
	int r = 0;

	if (!json_is_integer(version))
		return -EUCLEAN;
	if (json_integer_value(version) > BRANCH_CHAIN_VERSION)
		return -EPROTO;
	if (json_integer_value(version) != BRANCH_CHAIN_VERSION || json_object_size(j) != 3 ||
	    !json_is_array(entries) || json_array_size(entries) > BRANCH_CHAIN_MAX ||
	    !read_number(json_object_get(j, "head"), true, &c->head))
		return -EUCLEAN;
	for (size_t k = 0; k < json_array_size(entries) && r == 0; k++)
		r = read_entry(json_array_get(entries, k), c);
	if (r == 0 && c->head && !branch_chain_by_id(c, c->head))
		r = -EUCLEAN;
	return r;
}

int branch_chain_parse(const char *text, size_t len, struct branch_chain *ret)
{
	_cleanup_(json_freep) json_t *j = NULL;
	struct branch_chain c = { 0 };
	uint64_t sum;
	int r;

	if (len <= SUM_LINE || len > BRANCH_CHAIN_BYTES || text[len - 1] != '\n' ||
	    text[len - SUM_LINE - 1] != '\n' || !read_digits(text + len - SUM_LINE, &sum) ||
	    hash_checksum(text, len - SUM_LINE) != sum)
		return -EUCLEAN;
	j = json_loadb(text, len - SUM_LINE, JSON_REJECT_DUPLICATES, NULL);
	r = j ? read_object(j, &c) : -EUCLEAN;
	if (r < 0)
		branch_chain_release(&c);
	else
		*ret = c;
	return r;
}

/* ---- to text ---- */

static json_t *number(uint64_t n)
{
	return n ? json_string(digits_of(n).text) : json_null();
}

static json_t *object_of(const struct branch_chain *c)
{
	json_t *entries = json_array();

	for (size_t k = 0; k < c->n; k++) {
		const struct branch_chain_entry *e = &c->entries[k];

		if (json_array_append_new(entries,
					  json_pack("{s:o, s:s, s:o, s:I}", "id", number(e->id),
						    "name", e->name, "parent", number(e->parent),
						    "time", (json_int_t)e->time_ns)) < 0) {
			json_decref(entries);
			return NULL;
		}
	}
	return json_pack("{s:i, s:o, s:o}", "veneer_branches", BRANCH_CHAIN_VERSION, "head",
			 number(c->head), "snapshots", entries);
}

static bool is_same(const struct branch_chain *a, const struct branch_chain *b)
{
	if (a->n != b->n || a->head != b->head)
		return false;
	for (size_t k = 0; k < a->n; k++) {
		const struct branch_chain_entry *x = &a->entries[k], *y = &b->entries[k];

		if (x->id != y->id || x->parent != y->parent || x->time_ns != y->time_ns ||
		    strcmp(x->name, y->name) != 0)
			return false;
	}
	return true;
}

/* Without memory jansson 2.14 leaves pieces out, and says nothing. */
static int check_text(const struct branch_chain *c, const char *text, size_t len)
{
	_cleanup_(branch_chain_release) struct branch_chain read = { 0 };

	return branch_chain_parse(text, len, &read) == 0 && is_same(c, &read) ? 0 : -ENOMEM;
}

int branch_chain_format(const struct branch_chain *c, char **ret, size_t *ret_len)
{
	_cleanup_(json_freep) json_t *j = object_of(c);
	_cleanup_(freep) char *line = j ? json_dumps(j, JSON_COMPACT) : NULL;
	_cleanup_(freep) char *text = NULL, *all = NULL;
	int len, r;

	if (!line || (len = asprintf(&text, "%s\n", line)) < 0)
		return -ENOMEM;
	if ((size_t)len + SUM_LINE > BRANCH_CHAIN_BYTES)
		return -E2BIG;
	len = asprintf(&all, "%s%s\n", text, digits_of(hash_checksum(text, (size_t)len)).text);
	if (len < 0)
		return -ENOMEM;
	r = check_text(c, all, (size_t)len);
	if (r < 0)
		return r;
	*ret = steal_ptr(&all);
	*ret_len = (size_t)len;
	return 0;
}
