// SPDX-License-Identifier: Apache-2.0
#include "veneer/tools/report.h"

#include "veneer/base/array.h"
#include "veneer/base/cleanup.h"
#include "veneer/base/container_path.h"
#include "veneer/base/utf8.h"
#include "veneer/layer/fd_cache.h"

#include <ctype.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

/* ---- the picture ---- */

/* Of a file in /proc, as a string. */
static bool read_proc(const char *path, char *buf, size_t size)
{
	_cleanup_(closep) int fd = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t n = fd < 0 ? -1 : read(fd, buf, size - 1);

	buf[n > 0 ? n : 0] = '\0';
	return n > 0;
}

static uint64_t resident_bytes(void)
{
	unsigned long pages = 0;
	char buf[128];

	if (!read_proc("/proc/self/statm", buf, sizeof(buf)) || sscanf(buf, "%*u %lu", &pages) != 1)
		return 0;
	return (uint64_t)pages * (uint64_t)sysconf(_SC_PAGESIZE);
}

static uint64_t uptime_s(void)
{
	unsigned long long start = 0, started_s;
	struct timespec now;
	char buf[1024];
	/* The name in front may hold anything, blanks and brackets too. */
	const char *p = read_proc("/proc/self/stat", buf, sizeof(buf)) ? strrchr(buf, ')') : NULL;

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
	/* Where nothing is shared, images and layers are counted here. */
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
	pthread_mutex_lock(&t->lock);
	to->inodes = node_table_count(t->nodes);
	pthread_mutex_unlock(&t->lock);
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
	if (!ret->version)
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
	for (size_t i = 0; i < r->nmounts; i++) {
		release_mount(&r->mounts[i]);
	}
	free(r->mounts);
	free(r->images);
	free(r->version);
	*r = (struct report){ .pid = 0 };
}

/* ---- its text ---- */

static void decrefp(json_t **j)
{
	json_decref(*j);
}

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

static json_t *path_or_null(const char *path)
{
	_cleanup_(freep) char *text = path ? report_path(path) : NULL;

	return path ? json_string(text) : json_null();
}

/* The failure of any of these is found by its child missing: every caller passes results on to
 * json_object_set_new, which fails for NULL, and add() notes it. */
struct writer {
	bool has_failed;
};

static void add(struct writer *w, json_t *to, const char *key, json_t *value)
{
	if (json_object_set_new(to, key, value) < 0)
		w->has_failed = true;
}

static void add_number(struct writer *w, json_t *to, const char *key, uint64_t n)
{
	add(w, to, key, json_integer(n > INT64_MAX ? INT64_MAX : (json_int_t)n));
}

static void append_number(struct writer *w, json_t *to, uint64_t n)
{
	if (json_array_append_new(to, json_integer((json_int_t)n)) < 0)
		w->has_failed = true;
}

/* The object of this name in `to`, made when it is not there. */
static json_t *group(struct writer *w, json_t *to, const char *key)
{
	json_t *found = json_object_get(to, key);

	if (!found) {
		add(w, to, key, json_object());
		found = json_object_get(to, key);
	}
	return found;
}

static json_t *latency_json(struct writer *w, const struct stats_op *op)
{
	json_t *j = json_object(), *buckets;

	add_number(w, j, "count", stats_answered(op));
	add_number(w, j, "sum", op->sum_ns / 1000);
	add_number(w, j, "p50", stats_percentile_us(op, 50));
	add_number(w, j, "p90", stats_percentile_us(op, 90));
	add_number(w, j, "p99", stats_percentile_us(op, 99));
	add_number(w, j, "max", op->max_ns / 1000 + (op->max_ns % 1000 != 0));
	add(w, j, "buckets", json_array());
	buckets = json_object_get(j, "buckets");
	for (size_t k = 0; k < STATS_BUCKETS; k++)
		append_number(w, buckets, op->buckets[k]);
	return j;
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

static void add_values(struct writer *w, json_t *to, const struct stats_values *v)
{
	const uint64_t predicted = v->counters[STATS_PREDICTED_BYTES],
		       hits = v->counters[STATS_PREFETCH_HITS];
	json_t *requests = group(w, to, "requests"), *errors = group(w, to, "errors"),
	       *latency = group(w, to, "latency_us");

	for (uint32_t i = 0; i < STATS_OPCODES; i++) {
		const struct stats_op *op = &v->ops[i];
		char name[32];

		if (!op->requests || !report_op_name(i, name))
			continue;
		add_number(w, requests, name, op->requests);
		if (op->errors)
			add_number(w, errors, name, op->errors);
		if (stats_answered(op))
			add(w, latency, name, latency_json(w, op));
	}
	for (int i = 0; i < STATS_COUNTERS; i++) {
		const struct stats_name *name = stats_name((enum stats_counter)i);

		add_number(w, group(w, to, name->group), name->key, v->counters[i]);
	}
	add_number(w, group(w, to, "cow"), "not_copied_bytes", stats_not_copied(v));
	add(w, group(w, to, "learning"), "precision",
	    predicted ? json_real((double)hits / (double)predicted) : json_null());
}

static json_t *lowers_json(struct writer *w, const struct report_mount *m)
{
	json_t *j = json_array();

	for (size_t k = 0; m->lowers && k < m->nlower; k++)
		if (json_array_append_new(j, path_or_null(m->lowers[k])) < 0)
			w->has_failed = true;
	return j;
}

static json_t *mount_json(struct writer *w, const struct report_mount *m)
{
	json_t *j = json_object();

	add(w, j, "mountpoint", path_or_null(m->mountpoint));
	add(w, j, "container", path_or_null(m->container));
	add(w, j, "mode", json_string(m->mode));
	add(w, j, "mode_reason", path_or_null(m->mode_reason));
	add(w, j, "options", path_or_null(m->options));
	add_number(w, j, "lower", m->nlower);
	add(w, j, "lowers", lowers_json(w, m));
	add(w, j, "upper", path_or_null(m->upper));
	add(w, j, "unknown_options", path_or_null(m->unknown));
	add_number(w, j, "image", m->image);
	add_number(w, j, "inodes", m->inodes);
	add_values(w, j, &m->values);
	add_number(w, group(w, j, "map"), "files", m->map_files);
	add_number(w, group(w, j, "map"), "log_bytes", m->map_log_bytes);
	if (m->has_quota) {
		add_number(w, group(w, j, "quota"), "bytes", m->quota.bytes);
		add_number(w, group(w, j, "quota"), "max_bytes", m->quota.max_bytes);
		add_number(w, group(w, j, "quota"), "inodes", m->quota.inodes);
		add_number(w, group(w, j, "quota"), "max_inodes", m->quota.max_inodes);
	}
	return j;
}

static json_t *image_json(struct writer *w, const struct report_image *image)
{
	json_t *j = json_object();

	add_number(w, j, "layers", image->nlayers);
	add_number(w, j, "mounts", image->nmounts);
	add_number(w, j, "bytes", image->bytes);
	return j;
}

static json_t *server_json(struct writer *w, const struct report *r)
{
	json_t *j = json_object(), *memory, *sharing;

	add_number(w, j, "pid", (uint64_t)r->pid);
	add_number(w, j, "uptime_s", r->uptime_s);
	add_number(w, j, "mounts", r->mounts_served);
	add_number(w, j, "images", r->share.images);
	add_number(w, j, "inodes", r->inodes_served);
	add_number(w, j, "descriptors", r->descriptors);
	sharing = group(w, j, "sharing");
	add_number(w, sharing, "images_kept", r->share.kept);
	add_number(w, sharing, "layers", r->share.layers);
	add_number(w, sharing, "watches", r->share.watches);
	add_number(w, sharing, "mounts_new_image", r->share.made);
	add_number(w, sharing, "mounts_shared_image", r->share.shared);
	add_number(w, sharing, "mounts_kept_image", r->share.resumed);
	memory = group(w, j, "memory");
	add_number(w, memory, "rss_bytes", r->rss_bytes);
	for (int i = 0; i < STATS_MEMORIES; i++)
		add_number(w, memory, stats_memory_name((enum stats_memory)i), r->memory[i]);
	return j;
}

static json_t *cache_json(struct writer *w, const struct report *r)
{
	json_t *j = json_object();

	add_number(w, j, "bytes", r->windows.bytes);
	add_number(w, j, "budget_bytes", r->windows.budget);
	add_number(w, j, "windows", r->windows.count);
	add_number(w, j, "hits", r->totals.counters[STATS_WINDOW_HITS]);
	add_number(w, j, "misses", r->totals.counters[STATS_WINDOW_MISSES]);
	add_number(w, j, "evictions", r->totals.counters[STATS_WINDOW_EVICTIONS]);
	return j;
}

static json_t *copies_json(struct writer *w, const struct report *r)
{
	const struct page_dup_limiter_usage *k = &r->limiter;
	json_t *j = json_object();

	add_number(w, j, "running", k->is_running);
	add_number(w, j, "limit", k->copies.limit);
	add_number(w, j, "mounts", k->copies.mounts);
	add_number(w, j, "extents", k->copies.extents);
	add_number(w, j, "copies", k->copies.copies);
	add_number(w, j, "extra_bytes", k->copies.extra_bytes);
	add_number(w, j, "evictions", r->totals.counters[STATS_COPIES_EVICTED]);
	add_number(w, j, "refaults", r->totals.counters[STATS_COPIES_REFAULTS]);
	add_number(w, j, "forgotten", k->copies.forgotten + k->lost);
	add_number(w, j, "cpu_us", k->cpu_ns / 1000);
	add_number(w, j, "dropping_us", k->drop_ns / 1000);
	return j;
}

static json_t *bounds_json(struct writer *w)
{
	json_t *j = json_array();

	for (unsigned k = 0; k + 1 < STATS_BUCKETS; k++)
		append_number(w, j, stats_bound_us(k));
	return j;
}

static void append_object(struct writer *w, json_t *to, json_t *value)
{
	if (json_array_append_new(to, value) < 0)
		w->has_failed = true;
}

int report_json(const struct report *r, char **ret)
{
	_cleanup_(decrefp) json_t *j = json_object();
	struct writer w = { .has_failed = false };
	json_t *mounts, *images;
	char *text;

	add(&w, j, "version", json_string(r->version));
	add(&w, j, "server", server_json(&w, r));
	add(&w, j, "latency_bounds_us", bounds_json(&w));
	add_values(&w, group(&w, j, "totals"), &r->totals);
	add(&w, j, "mounts", json_array());
	mounts = json_object_get(j, "mounts");
	for (size_t i = 0; i < r->nmounts; i++)
		append_object(&w, mounts, mount_json(&w, &r->mounts[i]));
	add(&w, j, "images", json_array());
	images = json_object_get(j, "images");
	for (size_t i = 0; i < r->nimages; i++)
		append_object(&w, images, image_json(&w, &r->images[i]));
	add(&w, j, "cache", cache_json(&w, r));
	add(&w, j, "copies", copies_json(&w, r));
	text = w.has_failed ? NULL : json_dumps(j, JSON_COMPACT);
	if (!text)
		return -ENOMEM;
	*ret = text;
	return 0;
}

int report_one(struct mount *m, char **ret_json)
{
	struct report r;
	int result = report_begin(&r);

	result = result ?: report_add(&r, m);
	result = result ?: report_json(&r, ret_json);
	report_release(&r);
	return result;
}
