// SPDX-License-Identifier: Apache-2.0
#include "history-internal.h"

#include "sim.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* One comparison with one set of names. */
struct compare {
	const struct history_look *look;
	bool says;
	unsigned n;
};

__attribute__((format(printf, 2, 3))) static void differ(struct compare *c, const char *fmt, ...)
{
	char line[256];
	va_list ap;

	c->n++;
	if (!c->says)
		return;
	va_start(ap, fmt);
	vsnprintf(line, sizeof(line), fmt, ap);
	va_end(ap);
	c->look->say(line);
}

static size_t first(const struct compare *c, const struct history_list *l)
{
	return history_first(l, c->look->doubt, c->look->op);
}

static bool is_value(const struct compare *c, const struct history_list *l, uint64_t value)
{
	for (size_t k = first(c, l); k < l->n; k++)
		if (l->e[k].value == value || (l->e[k].is_below && value < l->e[k].value))
			return true;
	return false;
}

static bool is_text(const struct compare *c, const struct history_list *l, const char *text)
{
	for (size_t k = first(c, l); k < l->n; k++)
		if (!strcmp(l->e[k].bytes, text))
			return true;
	return false;
}

static bool is_zero(const uint8_t *p, size_t len)
{
	for (size_t k = 0; k < len; k++)
		if (p[k])
			return false;
	return true;
}

static bool is_bytes(const struct history_event *e, const uint8_t *p, size_t len)
{
	return e->bytes ? memcmp(e->bytes, p, len) == 0 : is_zero(p, len);
}

/* Where it is no longer like the newest one. */
static size_t same_bytes(const struct history_list *l, const uint8_t *p, size_t len)
{
	const uint8_t *newest = l->e[l->n - 1].bytes;
	size_t k = 0;

	while (k < len && p[k] == (newest ? newest[k] : 0))
		k++;
	return k;
}

/* What is wrong with a block, for people. */
static const char *describe(const struct history_list *l, const uint8_t *p, size_t len, char *room,
			    size_t size)
{
	if (is_zero(p, len))
		return "zeros";
	for (size_t k = 0; k < l->n; k++)
		if (is_bytes(&l->e[k], p, len)) {
			snprintf(room, size, "as operation %" PRIu64 " left it", l->e[k].op);
			return room;
		}
	snprintf(room, size, "as never before, %zu bytes like the newest", same_bytes(l, p, len));
	return room;
}

static void compare_bytes(struct compare *c, const struct history_thing *t,
			  const struct history_found *f)
{
	for (uint64_t at = 0; at < f->size && at < HISTORY_BYTES; at += HISTORY_BLK) {
		const struct history_list *l = &t->blocks[at / HISTORY_BLK];
		const size_t len = f->size - at < HISTORY_BLK ? (size_t)(f->size - at)
							      : HISTORY_BLK;
		size_t k = first(c, l);
		char room[64];

		while (k < l->n && !is_bytes(&l->e[k], f->bytes + at, len))
			k++;
		if (k == l->n)
			differ(c,
			       "%s: block %" PRIu64 " is wrong: %s; operations %" PRIu64
			       " to %" PRIu64 " may be seen",
			       f->path, at / HISTORY_BLK,
			       describe(l, f->bytes + at, len, room, sizeof(room)),
			       l->e[first(c, l)].op, l->e[l->n - 1].op);
	}
}

static void compare_thing(struct compare *c, const struct history_thing *t,
			  const struct history_found *f)
{
	if (t->kind != f->kind) {
		differ(c, "%s is a %s, not a %s", f->path, history_kind_names[f->kind],
		       history_kind_names[t->kind]);
		return;
	}
	if (f->is_unreadable) {
		differ(c, "%s cannot be read", f->path);
		return;
	}
	if (t->kind == HISTORY_SYMLINK) {
		if (strcmp(t->target, f->target) != 0)
			differ(c, "%s leads to %s", f->path, f->target);
		return;
	}
	if (!is_value(c, &t->mode, f->mode))
		differ(c, "%s has mode %o", f->path, f->mode);
	if (!is_text(c, &t->xattr, f->xattr))
		differ(c, "%s has the attribute '%s'", f->path, f->xattr);
	if (t->kind != HISTORY_FILE)
		return;
	if (!is_value(c, &t->size, f->size))
		differ(c, "%s has %" PRIu64 " bytes, not %" PRIu64, f->path, f->size,
		       t->size.e[t->size.n - 1].value);
	compare_bytes(c, t, f);
}

static const struct history_found *found_at(const struct history_look *look, const char *path)
{
	for (size_t k = 0; k < look->n; k++)
		if (!strcmp(look->found[k].path, path))
			return &look->found[k];
	return NULL;
}

static bool has_name(const struct history_names *n, const char *path)
{
	for (size_t k = 0; k < n->n; k++)
		if (!strcmp(n->at[k].path, path))
			return true;
	return false;
}

/* Names of one file are one inode, and no other is. */
static void compare_numbers(struct compare *c, const struct history_names *n, size_t k)
{
	const struct history_found *f = found_at(c->look, n->at[k].path);

	for (size_t j = 0; j < k; j++) {
		const struct history_found *g = found_at(c->look, n->at[j].path);

		if (g && (n->at[k].thing == n->at[j].thing) != (f->ino == g->ino))
			differ(c, "%s and %s: %s", f->path, g->path,
			       f->ino == g->ino ? "one number" : "two numbers");
	}
}

static unsigned compare(const struct history_look *look, const struct history_names *n, bool says)
{
	struct compare c = { .look = look, .says = says };

	for (size_t k = 0; k < n->n; k++) {
		const struct history_found *f = found_at(look, n->at[k].path);

		if (!f) {
			differ(&c, "%s is missing", n->at[k].path);
			continue;
		}
		compare_thing(&c, n->at[k].thing, f);
		compare_numbers(&c, n, k);
	}
	for (size_t k = 0; k < look->n; k++)
		if (!has_name(n, look->found[k].path))
			differ(&c, "%s is there", look->found[k].path);
	return c.n;
}

static size_t first_names(struct history *h, const struct history_look *look)
{
	size_t k = history_candidates(h) - 1;

	if (look->doubt == HISTORY_CUT)
		return 0;
	while (look->doubt == HISTORY_LAST_OP && k > 0 && history_candidate(h, k)->op >= look->op)
		k--;
	return k;
}

unsigned history_check(struct history *h, const struct history_look *look)
{
	const size_t end = history_candidates(h), begin = first_names(h, look);
	size_t best = end - 1;
	unsigned least = UINT32_MAX;

	for (size_t k = end; least && k-- > begin;) {
		const unsigned n = compare(look, history_candidate(h, k), false);

		if (n < least) {
			least = n;
			best = k;
		}
	}
	if (least)
		return compare(look, history_candidate(h, best), true);
	history_choose(h, look, best);
	for (size_t k = 0; k < history_now(h)->n; k++) {
		const struct history_name *n = &history_now(h)->at[k];

		history_take(n->thing, found_at(look, n->path), look);
	}
	return 0;
}
