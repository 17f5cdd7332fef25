// SPDX-License-Identifier: Apache-2.0
#include "veneer/sys/mem_usage.h"

#include "veneer/sys/file.h"
#include "veneer/sys/pressure.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

#define TEXT_MAX      8192
#define SHORT_PERCENT 90u /* used, without the page cache: the rest is for requests */
#define SHORT_PRESSED_PERCENT \
	66u /* the same if programs wait: below it, they wait for the memory of a smaller group */
#define NO_LIMIT ((uint64_t)1 << 60) /* without a limit v1 reports a number near 2^63 */

/* Names of the same files in v1 and v2. */
struct kind {
	const char *dir; /* below the root of control groups */
	const char *limit, *used, *pressure;
	const char *cold, *warm; /* lines of memory.stat with the page cache */
};

static const struct kind v1 = { "/memory",	   "memory.limit_in_bytes", "memory.usage_in_bytes",
				"memory.pressure", "total_inactive_file ",  "total_active_file " };
static const struct kind v2 = {
	"", "memory.max", "memory.current", "memory.pressure", "inactive_file ", "active_file "
};

static bool read_text(const char *dir, const char *name, char text[TEXT_MAX])
{
	char path[PATH_MAX];

	return snprintf(path, sizeof(path), "%s/%s", dir, name) < (int)sizeof(path) &&
	       file_read_text(path, text, TEXT_MAX) > 0;
}

/* The number after a line's name; 0: there is no such line. */
static uint64_t line_value(const char *text, const char *name)
{
	const size_t len = strlen(name);
	uint64_t v = 0;

	for (const char *s = text; s; s = strchr(s, '\n')) {
		s += *s == '\n';
		if (!strncmp(s, name, len)) {
			sscanf(s + len, "%" SCNu64, &v);
			break;
		}
	}
	return v;
}

static bool read_number(const char *dir, const char *name, uint64_t *ret)
{
	char text[TEXT_MAX];

	return read_text(dir, name, text) && sscanf(text, "%" SCNu64, ret) == 1;
}

static bool is_pressed(const char *dir, const char *name)
{
	char path[PATH_MAX];

	return snprintf(path, sizeof(path), "%s/%s", dir, name) < (int)sizeof(path) &&
	       pressure_read(path) >= PRESSURE_HIGH;
}

/* False: there is no such group, or it has no limit. */
static bool read_group(const char *dir, const struct kind *k, struct mem_usage *ret)
{
	struct mem_usage m = { .limit = 0 };
	char text[TEXT_MAX];

	if (!read_number(dir, k->limit, &m.limit) || m.limit >= NO_LIMIT || !m.limit ||
	    !read_number(dir, k->used, &m.used))
		return false;
	if (read_text(dir, "memory.stat", text))
		m.cache = line_value(text, k->cold) + line_value(text, k->warm);
	if (m.cache > m.used)
		m.cache = m.used;
	m.is_pressed = is_pressed(dir, k->pressure);
	*ret = m;
	return true;
}

static uint64_t room(const struct mem_usage *m)
{
	const uint64_t taken = m->used - m->cache;

	return m->limit > taken ? m->limit - taken : 0;
}

/* Read the group at path and those above it. Of a group in another namespace only the root is
 * visible. */
static bool read_groups(const char *root, const char *path, const struct kind *k,
			struct mem_usage *best, bool has_best)
{
	char dir[PATH_MAX];
	const size_t base = strlen(root) + strlen(k->dir);
	size_t len = (size_t)snprintf(dir, sizeof(dir), "%s%s%s", root, k->dir, path);

	if (len >= sizeof(dir))
		return has_best;
	for (;; len--) {
		struct mem_usage m;

		if (len > base && dir[len] != '/' && dir[len] != '\0')
			continue;
		dir[len] = '\0';
		if (read_group(dir, k, &m) && (!has_best || room(&m) < room(best))) {
			*best = m;
			has_best = true;
		}
		if (len <= base)
			return has_best;
	}
}

/* Lines are "N:controllers:path". */
static bool read_own_groups(const char *proc, const char *groups, struct mem_usage *best,
			    bool has_best)
{
	char text[TEXT_MAX], *rest = text, *line;

	if (!read_text(proc, "self/cgroup", text))
		return has_best;
	while ((line = strsep(&rest, "\n"))) {
		char *controllers = strchr(line, ':'),
		     *path = controllers ? strchr(controllers + 1, ':') : NULL;

		if (!path)
			continue;
		*path++ = '\0';
		if (!strcmp(controllers, ":"))
			has_best = read_groups(groups, path, &v2, best, has_best);
		else if (strstr(controllers, "memory"))
			has_best = read_groups(groups, path, &v1, best, has_best);
	}
	return has_best;
}

static bool read_host(const char *proc, struct mem_usage *ret)
{
	char text[TEXT_MAX];
	uint64_t available, free;

	if (!read_text(proc, "meminfo", text))
		return false;
	ret->limit = line_value(text, "MemTotal:") * 1024;
	available = line_value(text, "MemAvailable:") * 1024;
	free = line_value(text, "MemFree:") * 1024;
	if (!ret->limit || free > ret->limit)
		return false;
	ret->used = ret->limit - free;
	ret->cache = available > free ? available - free : 0;
	if (ret->cache > ret->used)
		ret->cache = ret->used;
	ret->is_pressed = is_pressed(proc, "pressure/memory");
	return true;
}

int mem_usage_read_at(const char *proc, const char *groups, struct mem_usage *ret)
{
	struct mem_usage best;
	const bool has_host = read_host(proc, &best);

	if (!read_own_groups(proc, groups, &best, has_host))
		return -ENOENT;
	*ret = best;
	return 0;
}

int mem_usage_read(struct mem_usage *ret)
{
	return mem_usage_read_at("/proc", "/sys/fs/cgroup", ret);
}

unsigned mem_usage_percent(const struct mem_usage *m, uint64_t counted_cache)
{
	const uint64_t free_cache = counted_cache < m->cache ? m->cache - counted_cache : 0;
	const uint64_t used = m->used - free_cache;

	return used >= m->limit ? 100 : (unsigned)(used * 100 / m->limit);
}

bool mem_usage_is_short(const struct mem_usage *m)
{
	const unsigned used = mem_usage_percent(m, 0);

	return used > SHORT_PERCENT || (used > SHORT_PRESSED_PERCENT && m->is_pressed);
}
