// SPDX-License-Identifier: Apache-2.0
#include "options-internal.h"

#include <endian.h>
#include <errno.h>
#include <linux/posix_acl.h>
#include <linux/posix_acl_xattr.h>
#include <stdlib.h>
#include <string.h>

#include "veneer/base/array.h"
#include "veneer/base/cleanup.h"

/* Read the next number between colons. Skips empty fields, as callers start their maps with a
 * colon. 1: *ret is set; 0: no more; -EINVAL: not an id. */
static int next_id(const char **s, uint32_t *ret)
{
	char text[16], *end;
	unsigned long long v;
	size_t len;

	*s += strspn(*s, ":");
	len = strcspn(*s, ":");
	if (len == 0)
		return 0;
	if (len >= sizeof(text) || **s < '0' || **s > '9')
		return -EINVAL;
	memcpy(text, *s, len);
	text[len] = '\0';
	v = strtoull(text, &end, 10);
	if (*end || v > UINT32_MAX)
		return -EINVAL;
	*s += len;
	*ret = (uint32_t)v;
	return 1;
}

/* 1: *ret is the next row; 0: no more; -EINVAL. */
static int next_row(const char **s, struct id_map *ret)
{
	struct id_map row;
	int r;

	r = next_id(s, &row.outside);
	if (r <= 0)
		return r;
	if (next_id(s, &row.inside) <= 0 || next_id(s, &row.len) <= 0)
		return -EINVAL;
	if ((uint64_t)row.outside + row.len > 1ULL << 32 ||
	    (uint64_t)row.inside + row.len > 1ULL << 32)
		return -EINVAL;
	*ret = row;
	return 1;
}

int idmap_parse(const char *text, struct id_maps *ret)
{
	_cleanup_(freep) struct id_map *rows = NULL;
	size_t n = 0, cap = 0;
	struct id_map row;
	int r;

	while ((r = next_row(&text, &row)) > 0) {
		if (array_reserve(&rows, &cap, n + 1) < 0)
			return -ENOMEM;
		rows[n++] = row;
	}
	if (r < 0)
		return r;
	ret->rows = steal_ptr(&rows);
	ret->n = n;
	return 0;
}

/* Map an id in one direction: ids that count from `from` become ids that count from `to`. */
static uint32_t map_id(const struct id_maps *m, uint32_t id, bool to_disk)
{
	if (m->n == 0)
		return id;
	for (size_t i = 0; i < m->n; i++) {
		const struct id_map *row = &m->rows[i];
		uint32_t from = to_disk ? row->inside : row->outside;
		uint32_t to = to_disk ? row->outside : row->inside;

		if (id >= from && id - from < row->len)
			return to + (id - from);
	}
	return ID_OVERFLOW;
}

static bool has_outside(const struct id_maps *m, uint32_t id)
{
	for (size_t i = 0; i < m->n; i++)
		if (id >= m->rows[i].outside && id - m->rows[i].outside < m->rows[i].len)
			return true;
	return false;
}

bool idmap_has(const struct id_maps *m, uint32_t id)
{
	if (m->n == 0)
		return true;
	for (size_t i = 0; i < m->n; i++)
		if (id >= m->rows[i].inside && id - m->rows[i].inside < m->rows[i].len)
			return true;
	return false;
}

int idmap_acl(const struct id_maps *uids, const struct id_maps *gids, void *value, size_t size,
	      bool to_disk)
{
	struct posix_acl_xattr_header *header = value;
	struct posix_acl_xattr_entry *e = (struct posix_acl_xattr_entry *)(header + 1);

	if ((uids->n == 0 && gids->n == 0) || size < sizeof(*header) ||
	    le32toh(header->a_version) != POSIX_ACL_XATTR_VERSION ||
	    (size - sizeof(*header)) % sizeof(*e) != 0)
		return 0;
	for (size_t n = (size - sizeof(*header)) / sizeof(*e); n > 0; n--, e++) {
		const uint16_t tag = le16toh(e->e_tag);
		const struct id_maps *m = tag == ACL_USER ? uids : gids;

		if (tag != ACL_USER && tag != ACL_GROUP)
			continue;
		if (to_disk && !idmap_has(m, le32toh(e->e_id)))
			return -EINVAL;
		e->e_id = htole32(map_id(m, le32toh(e->e_id), to_disk));
	}
	return 0;
}

uint32_t idmap_to_disk(const struct id_maps *m, uint32_t id)
{
	return map_id(m, id, true);
}

uint32_t idmap_from_disk(const struct id_maps *m, uint32_t id)
{
	uint32_t shown = map_id(m, id, false);

	return m->n && shown == ID_OVERFLOW && id != ID_OVERFLOW && !has_outside(m, id) ? ID_INVALID
											: shown;
}
