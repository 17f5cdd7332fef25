// SPDX-License-Identifier: Apache-2.0
#include "veneer/tools/report.h"

#include "veneer/base/array.h"
#include "veneer/base/cleanup.h"
#include "veneer/base/container_path.h"
#include "veneer/base/utf8.h"
#include "veneer/layer/fd_cache.h"
#include "veneer/sys/cpu_latency.h"
#include "veneer/sys/file.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

/* ---- collecting ---- */

static uint64_t resident_bytes(void)
{
	unsigned long pages = 0;
	char buf[128];

	if (file_read_text("/proc/self/statm", buf, sizeof(buf)) <= 0 ||
	    sscanf(buf, "%*u %lu", &pages) != 1)
		return 0;
	return (uint64_t)pages * (uint64_t)sysconf(_SC_PAGESIZE);
}

static uint64_t uptime_s(void)
{
	unsigned long long start = 0, started_s;
	struct timespec now;
	char buf[1024];
	/* Skip the process name, which may contain anything, even blanks and brackets. */
	const char *p = file_read_text("/proc/self/stat", buf, sizeof(buf)) > 0 ? strrchr(buf, ')')
										: NULL;

	if (!p ||
	    sscanf(p,
		   ") %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d %*d %*d %*d %*d %*d "
		   "%llu",
		   &start) != 1 ||
	    clock_gettime(CLOCK_BOOTTIME, &now) < 0)
		return 0;
	started_s = start / (unsigned long long)sysconf(_SC_CLK_TCK);
	return (unsigned long long)now.tv_sec > started_s ? (uint64_t)now.tv_sec - started_s : 0;
}

int report_make_room(struct report *r)
{
	if (array_grow(&r->mounts, r->nmounts) < 0 || array_grow(&r->images, r->nimages) < 0)
		return -ENOMEM;
	memset(&r->mounts[r->nmounts], 0, sizeof(*r->mounts));
	memset(&r->images[r->nimages], 0, sizeof(*r->images));
	return 0;
}

static size_t add_image(struct report *r, const struct image *img)
{
	struct layer *const *layers;
	size_t k = 0;

	while (k < r->nimages && r->images[k].key != img)
		k++;
	if (k == r->nimages)
		r->images[r->nimages++] = (struct report_image){
			.key = img, .nlayers = image_layers(img, &layers), .bytes = image_bytes(img)
		};
	/* If nothing is shared, count images and layers here. */
	if (r->share.images < r->nimages) {
		r->share.images = r->nimages;
		r->memory[STATS_MEM_IMAGES] = r->share.bytes += r->images[k].bytes;
	}
	r->images[k].nmounts++;
	return k;
}

static int add_paths(struct report_mount *to, const struct mount *m)
{
	const struct mount_opts *o = &m->opts;
	char id[NAME_MAX + 1];

	to->mountpoint = strdup(o->mountpoint);
	to->mode = strdup(mount_mode(m));
	to->mode_reason = strdup(mount_mode_reason(m));
	to->upper = m->tree.upper ? strdup(o->upper) : NULL;
	to->unknown = options_unknown(o);
	to->lowers = calloc(o->n_lower + 1, sizeof(*to->lowers));
	if (!to->mountpoint || !to->mode || !to->mode_reason || (m->tree.upper && !to->upper) ||
	    (o->n_unknown && !to->unknown) || !to->lowers)
		return -ENOMEM;
	for (; to->nlower < o->n_lower; to->nlower++)
		if (!(to->lowers[to->nlower] = strdup(o->lower[to->nlower])))
			return -ENOMEM;
	if (container_path_short_id(o->mountpoint, id) && !(to->container = strdup(id)))
		return -ENOMEM;
	return options_in_effect(o, &to->options);
}

int report_add(struct report *r, struct mount *m)
{
	struct union_fs *t = &m->tree;
	struct report_mount *to;

	if (report_make_room(r) < 0)
		return -ENOMEM;
	to = &r->mounts[r->nmounts++];
	if (add_paths(to, m) < 0)
		return -ENOMEM;
	to->image = add_image(r, t->image);
	to->inodes = inode_count(t);
	r->mounts_served++;
	r->inodes_served += to->inodes;
	to->map_files = t->map ? mapfile_count(t->map) : 0;
	to->map_log_bytes = t->map ? mapfile_log_bytes(t->map) : 0;
	to->has_quota = quota_usage(t->quota, &to->quota);
	stats_read(t->stats, &to->values);
	return 0;
}

int report_begin(struct report *ret)
{
	*ret = (struct report){ .pid = getpid(),
				.uptime_s = uptime_s(),
				.rss_bytes = resident_bytes() };
	ret->version = strdup(VENEER_VERSION);
	ret->cpu_latency = strdup(cpu_latency_state());
	if (!ret->version || !ret->cpu_latency)
		return -ENOMEM;
	ret->descriptors = fd_cache_count();
	for (int i = 0; i < STATS_MEMORIES; i++)
		ret->memory[i] = stats_memory((enum stats_memory)i);
	layer_registry_stats(&ret->share);
	ret->memory[STATS_MEM_IMAGES] = ret->share.bytes;
	mmap_cache_usage(&ret->windows);
	page_dup_limiter_usage(&ret->limiter);
	ret->memory[STATS_MEM_WINDOWS] = ret->windows.bytes;
	stats_read(NULL, &ret->totals);
	return 0;
}

static void release_mount(struct report_mount *m)
{
	for (size_t k = 0; m->lowers && k < m->nlower; k++)
		free(m->lowers[k]);
	free(m->lowers);
	free(m->mountpoint);
	free(m->mode);
	free(m->mode_reason);
	free(m->options);
	free(m->container);
	free(m->unknown);
	free(m->upper);
}

void report_release(struct report *r)
{
	for (size_t i = 0; i < r->nmounts; i++)
		release_mount(&r->mounts[i]);
	free(r->mounts);
	free(r->images);
	free(r->version);
	free(r->cpu_latency);
	*r = (struct report){ .pid = 0 };
}

/* ---- gains ---- */

static void take_off(uint64_t *n, uint64_t begun)
{
	*n = *n > begun ? *n - begun : 0;
}

void report_subtract(struct stats_values *ended, const struct stats_values *begun)
{
	for (size_t i = 0; i < STATS_COUNTERS; i++)
		take_off(&ended->counters[i], begun->counters[i]);
	for (size_t i = 0; i < STATS_OPCODES; i++) {
		struct stats_op *op = &ended->ops[i];

		take_off(&op->requests, begun->ops[i].requests);
		take_off(&op->errors, begun->ops[i].errors);
		take_off(&op->sum_ns, begun->ops[i].sum_ns);
		for (size_t k = 0; k < STATS_BUCKETS; k++)
			take_off(&op->buckets[k], begun->ops[i].buckets[k]);
	}
}

/* ---- names ---- */

static char *spell(const char *s, bool spells_controls)
{
	const unsigned char *p = (const unsigned char *)s;
	char *text = malloc(strlen(s) * 4 + 1), *to = text;

	if (!text)
		return NULL;
	while (*p) {
		size_t n = utf8_len(p);

		if (n && !(spells_controls && utf8_is_control(p, n))) {
			memcpy(to, p, n);
			to += n;
			p += n;
		} else {
			to += sprintf(to, "\\x%02x", *p++);
		}
	}
	*to = '\0';
	return text;
}

char *report_path(const char *path)
{
	return spell(path, false);
}

char *report_line(const char *text)
{
	return spell(text, true);
}

bool report_op_name(uint32_t opcode, char ret[32])
{
	const char *name = stats_op_name(opcode);
	size_t k = 0;

	for (; name && k < 31 && name[k]; k++)
		ret[k] = (char)tolower((unsigned char)name[k]);
	ret[k] = '\0';
	return name != NULL;
}
