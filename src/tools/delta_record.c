// SPDX-License-Identifier: Apache-2.0
#include "delta_record.h"

#include "veneer/base/cleanup.h"
#include "veneer/base/hash.h"

#include <endian.h>
#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define VERSION	   1
#define HEX_DIGITS 16
#define NS_PER_S   1000000000u

/* ---- writing ---- */

static json_t *hex(uint64_t v)
{
	char text[HEX_DIGITS + 1];

	snprintf(text, sizeof(text), "%016" PRIx64, v);
	return json_string(text);
}

/* j is taken over. */
static char *dump(json_t *j)
{
	char *text = j ? json_dumps(j, JSON_COMPACT) : NULL;

	json_decref(j);
	return text;
}

char *delta_record_format_head(const struct delta_head *h)
{
	return dump(json_pack("{si, so, so*, ss, sI, sI, so, so}", "veneer_delta", VERSION, "id",
			      hex(h->id), "from", h->from ? hex(h->from) : NULL, "name", h->name,
			      "time", (json_int_t)h->time_ns, "first", (json_int_t)h->first, "sum",
			      hex(h->sum), "names", hex(h->names)));
}

static json_t *pack_zeros(const struct delta_record *r)
{
	json_t *list = json_array();

	for (size_t k = 0; k < r->nzeros; k++)
		if (json_array_append_new(list, json_pack("[II]", (json_int_t)r->zeros[k].off,
							  (json_int_t)r->zeros[k].len)) < 0) {
			json_decref(list);
			return NULL;
		}
	return list;
}

static int put_flag(json_t *j, const char *name, bool value)
{
	return value ? json_object_set_new(j, name, json_true()) : 0;
}

static int put_partial(json_t *j, const struct delta_record *r)
{
	if (!r->is_partial)
		return 0;
	return json_object_set_new(j, "base_size", json_integer((json_int_t)r->base_size)) ||
	       (r->nzeros && json_object_set_new(j, "zeros", pack_zeros(r)));
}

char *delta_record_format(const struct delta_record *r)
{
	json_t *j = json_pack("{so, so*}", "sum", hex(r->sum), "base_sum",
			      r->has_base_sum ? hex(r->base_sum) : NULL);

	if (!j)
		return NULL;
	if (put_flag(j, "same", r->is_same) || put_flag(j, "opaque", r->is_opaque) ||
	    put_flag(j, "socket", r->is_socket) || put_flag(j, "links", r->has_links) ||
	    put_flag(j, "copy", r->is_copy) ||
	    (r->mtime_ns && json_object_set_new(j, "mtime_ns", json_integer(r->mtime_ns))) ||
	    put_partial(j, r) ||
	    (r->end && (json_object_set_new(j, "at", json_integer((json_int_t)r->at)) ||
			json_object_set_new(j, "end", json_integer((json_int_t)r->end))))) {
		json_decref(j);
		return NULL;
	}
	return dump(j);
}

char *delta_record_format_end(const struct delta_end *e)
{
	return dump(json_pack("{sI, so, so*}", "entries", (json_int_t)e->entries, "sum",
			      hex(e->sum), "base_sum", e->has_base_sum ? hex(e->base_sum) : NULL));
}

/* ---- reading ---- */

static json_t *load(const char *text, size_t len)
{
	json_t *j = len <= DELTA_TEXT_MAX ? json_loadb(text, len, JSON_REJECT_DUPLICATES, NULL)
					  : NULL;

	if (json_is_object(j))
		return j;
	json_decref(j);
	return NULL;
}

/* 1; 0: missing; -EUCLEAN. */
static int get_hex(json_t *j, const char *name, uint64_t *ret)
{
	json_t *v = json_object_get(j, name);
	const char *s = json_string_value(v);

	*ret = 0;
	if (!v)
		return 0;
	if (!s || json_string_length(v) != HEX_DIGITS ||
	    strspn(s, "0123456789abcdef") != HEX_DIGITS)
		return -EUCLEAN;
	*ret = strtoull(s, NULL, 16);
	return 1;
}

/* get_hex for a number that is not negative. */
static int get_count(json_t *j, const char *name, uint64_t *ret)
{
	json_t *v = json_object_get(j, name);

	*ret = 0;
	if (!v)
		return 0;
	if (!json_is_integer(v) || json_integer_value(v) < 0)
		return -EUCLEAN;
	*ret = (uint64_t)json_integer_value(v);
	return 1;
}

int delta_record_parse_head(const char *text, size_t len, struct delta_head *ret)
{
	_cleanup_(json_decrefp) json_t *j = load(text, len);
	struct delta_head h = { 0 };
	const char *name = json_string_value(json_object_get(j, "name"));
	uint64_t version = 0;

	if (!j || get_count(j, "veneer_delta", &version) != 1)
		return -EUCLEAN;
	if (version != VERSION)
		return -EPROTO;
	if (get_hex(j, "id", &h.id) != 1 || get_hex(j, "from", &h.from) < 0 ||
	    get_count(j, "first", &h.first) < 0 || get_hex(j, "sum", &h.sum) < 0 ||
	    get_hex(j, "names", &h.names) < 0 || !name)
		return -EUCLEAN;
	if (h.id ? !branch_chain_is_name(name) : *name || h.from || h.first)
		return -EUCLEAN;
	if (h.id && h.id == h.from)
		return -EUCLEAN;
	h.time_ns = json_integer_value(json_object_get(j, "time"));
	snprintf(h.name, sizeof(h.name), "%s", name);
	*ret = h;
	return 0;
}

static int get_zeros(json_t *j, struct delta_record *r)
{
	json_t *list = json_object_get(j, "zeros");
	const size_t n = json_array_size(list);
	uint64_t end = 0;

	if ((list && !json_is_array(list)) || n > DELTA_ZEROS_MAX)
		return -EUCLEAN;
	r->zeros = n ? calloc(n, sizeof(*r->zeros)) : NULL;
	if (n && !r->zeros)
		return -ENOMEM;
	for (r->nzeros = 0; r->nzeros < n; r->nzeros++) {
		json_int_t off, len;

		if (json_unpack(json_array_get(list, r->nzeros), "[II!]", &off, &len) < 0 ||
		    off < 0 || (uint64_t)off < end || len <= 0 || len > INT64_MAX - off)
			return -EUCLEAN;
		r->zeros[r->nzeros] = (struct delta_range){ (uint64_t)off, (uint64_t)len };
		end = (uint64_t)off + (uint64_t)len;
	}
	return 0;
}

static int parse_record(json_t *j, struct delta_record *r)
{
	int base = get_hex(j, "base_sum", &r->base_sum),
	    size = get_count(j, "base_size", &r->base_size);
	uint64_t ns;

	if (get_hex(j, "sum", &r->sum) != 1 || base < 0 || size < 0 ||
	    get_count(j, "mtime_ns", &ns) < 0 || ns >= NS_PER_S || get_count(j, "at", &r->at) < 0 ||
	    get_count(j, "end", &r->end) < 0 || r->end < r->at)
		return -EUCLEAN;
	r->has_base_sum = base == 1;
	r->is_partial = size == 1;
	r->mtime_ns = (uint32_t)ns;
	r->is_same = json_is_true(json_object_get(j, "same"));
	r->is_opaque = json_is_true(json_object_get(j, "opaque"));
	r->is_socket = json_is_true(json_object_get(j, "socket"));
	r->has_links = json_is_true(json_object_get(j, "links"));
	r->is_copy = json_is_true(json_object_get(j, "copy"));
	return get_zeros(j, r);
}

int delta_record_parse(const char *text, size_t len, struct delta_record *ret)
{
	_cleanup_(json_decrefp) json_t *j = load(text, len);
	struct delta_record r = { 0 };
	int k = j ? parse_record(j, &r) : -EUCLEAN;

	if (k < 0)
		delta_record_release(&r);
	else
		*ret = r;
	return k;
}

int delta_record_parse_end(const char *text, size_t len, struct delta_end *ret)
{
	_cleanup_(json_decrefp) json_t *j = load(text, len);
	struct delta_end e = { 0 };
	int base = j ? get_hex(j, "base_sum", &e.base_sum) : -EUCLEAN;

	if (base < 0 || get_hex(j, "sum", &e.sum) != 1 || get_count(j, "entries", &e.entries) != 1)
		return -EUCLEAN;
	e.has_base_sum = base == 1;
	*ret = e;
	return 0;
}

void delta_record_release(struct delta_record *r)
{
	free(r->zeros);
	r->zeros = NULL;
	r->nzeros = 0;
}

uint64_t delta_record_next_names(uint64_t names, const char *path, uint64_t at, uint64_t end)
{
	const uint64_t all[] = { htole64(names), htole64(hash_checksum(path, strlen(path))),
				 htole64(at), htole64(end) };

	return hash_checksum(all, sizeof(all));
}

uint64_t delta_record_next_sum(uint64_t sum, uint64_t header, uint64_t data, uint64_t base)
{
	const uint64_t all[] = { htole64(sum), htole64(header), htole64(data), htole64(base) };

	return hash_checksum(all, sizeof(all));
}
