// SPDX-License-Identifier: Apache-2.0
/* Formats and parses the text of a report; the parser accepts other versions. */
#include "veneer/tools/report.h"

#include "veneer/base/cleanup.h"

#include <jansson.h>
#include <string.h>

/* A number in the text, { group: { key: N } } or, without a group, { key: N }. The rows are in the
 * order of the text. */
struct field {
	const char *group, *key;
	size_t at, size;
};

#define FIELD(group, key, type, member) \
	{ group, key, offsetof(type, member), sizeof(((type *)NULL)->member) }
#define NO_FIELD { NULL, NULL, 0, 0 }

static const struct field server_fields[] = {
	FIELD(NULL, "pid", struct report, pid),
	FIELD(NULL, "uptime_s", struct report, uptime_s),
	FIELD(NULL, "mounts", struct report, mounts_served),
	FIELD(NULL, "images", struct report, share.images),
	FIELD(NULL, "inodes", struct report, inodes_served),
	FIELD(NULL, "descriptors", struct report, descriptors),
	FIELD("sharing", "images_kept", struct report, share.kept),
	FIELD("sharing", "layers", struct report, share.layers),
	FIELD("sharing", "watches", struct report, share.watches),
	FIELD("sharing", "mounts_new_image", struct report, share.made),
	FIELD("sharing", "mounts_shared_image", struct report, share.shared),
	FIELD("sharing", "mounts_kept_image", struct report, share.resumed),
	FIELD("memory", "rss_bytes", struct report, rss_bytes),
	NO_FIELD,
};

static const struct field cache_fields[] = {
	FIELD("cache", "bytes", struct report, windows.bytes),
	FIELD("cache", "budget_bytes", struct report, windows.budget),
	FIELD("cache", "windows", struct report, windows.count),
	FIELD("copies", "running", struct report, limiter.is_running),
	FIELD("copies", "limit", struct report, limiter.copies.limit),
	FIELD("copies", "mounts", struct report, limiter.copies.mounts),
	FIELD("copies", "extents", struct report, limiter.copies.extents),
	FIELD("copies", "copies", struct report, limiter.copies.copies),
	FIELD("copies", "extra_bytes", struct report, limiter.copies.extra_bytes),
	NO_FIELD,
};

static const struct field quota_fields[] = {
	FIELD("quota", "bytes", struct report_mount, quota.bytes),
	FIELD("quota", "max_bytes", struct report_mount, quota.max_bytes),
	FIELD("quota", "inodes", struct report_mount, quota.inodes),
	FIELD("quota", "max_inodes", struct report_mount, quota.max_inodes),
	NO_FIELD,
};

static const struct field image_fields[] = {
	FIELD(NULL, "layers", struct report_image, nlayers),
	FIELD(NULL, "mounts", struct report_image, nmounts),
	FIELD(NULL, "bytes", struct report_image, bytes),
	NO_FIELD,
};

static void decrefp(json_t **j)
{
	json_decref(*j);
}

/* ---- writing ---- */

static json_t *path_or_null(const char *path)
{
	_cleanup_(freep) char *text = path ? report_path(path) : NULL;

	return path ? json_string(text) : json_null();
}

/* A failure of these calls shows in a missing child: every caller passes results on to
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

static void append(struct writer *w, json_t *to, json_t *value)
{
	if (json_array_append_new(to, value) < 0)
		w->has_failed = true;
}

/* The object of this name in `to`, created if needed. */
static json_t *group(struct writer *w, json_t *to, const char *key)
{
	json_t *found = json_object_get(to, key);

	if (!found) {
		add(w, to, key, json_object());
		found = json_object_get(to, key);
	}
	return found;
}

static void add_fields(struct writer *w, json_t *to, const struct field *f, const void *from)
{
	for (; f->key; f++) {
		const void *at = (const char *)from + f->at;
		uint64_t n = f->size == sizeof(bool)	   ? *(const bool *)at
			     : f->size == sizeof(uint32_t) ? *(const uint32_t *)at
							   : *(const uint64_t *)at;

		add_number(w, f->group ? group(w, to, f->group) : to, f->key, n);
	}
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
		append(w, buckets, json_integer((json_int_t)op->buckets[k]));
	return j;
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
		append(w, j, path_or_null(m->lowers[k]));
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
	if (m->has_quota)
		add_fields(w, j, quota_fields, m);
	return j;
}

static json_t *image_json(struct writer *w, const struct report_image *image)
{
	json_t *j = json_object();

	add_fields(w, j, image_fields, image);
	return j;
}

static json_t *server_json(struct writer *w, const struct report *r)
{
	json_t *j = json_object();

	add_fields(w, j, server_fields, r);
	add(w, j, "cpu_latency", path_or_null(r->cpu_latency));
	for (int i = 0; i < STATS_MEMORIES; i++)
		add_number(w, group(w, j, "memory"), stats_memory_name((enum stats_memory)i),
			   r->memory[i]);
	return j;
}

static void add_cache(struct writer *w, json_t *to, const struct report *r)
{
	const struct page_dup_limiter_usage *k = &r->limiter;
	json_t *cache, *copies;

	add_fields(w, to, cache_fields, r);
	cache = group(w, to, "cache");
	add_number(w, cache, "hits", r->totals.counters[STATS_WINDOW_HITS]);
	add_number(w, cache, "misses", r->totals.counters[STATS_WINDOW_MISSES]);
	add_number(w, cache, "evictions", r->totals.counters[STATS_WINDOW_EVICTIONS]);
	copies = group(w, to, "copies");
	add_number(w, copies, "evictions", r->totals.counters[STATS_COPIES_EVICTED]);
	add_number(w, copies, "refaults", r->totals.counters[STATS_COPIES_REFAULTS]);
	add_number(w, copies, "forgotten", k->copies.forgotten + k->lost);
	add_number(w, copies, "cpu_us", k->cpu_ns / 1000);
	add_number(w, copies, "dropping_us", k->drop_ns / 1000);
}

static json_t *bounds_json(struct writer *w)
{
	json_t *j = json_array();

	for (unsigned k = 0; k + 1 < STATS_BUCKETS; k++)
		append(w, j, json_integer((json_int_t)stats_bound_us(k)));
	return j;
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
		append(&w, mounts, mount_json(&w, &r->mounts[i]));
	add(&w, j, "images", json_array());
	images = json_object_get(j, "images");
	for (size_t i = 0; i < r->nimages; i++)
		append(&w, images, image_json(&w, &r->images[i]));
	add_cache(&w, j, r);
	text = w.has_failed ? NULL : json_dumps(j, JSON_COMPACT);
	if (!text)
		return -ENOMEM;
	*ret = text;
	return 0;
}

/* ---- reading ---- */

static uint64_t number(const json_t *j, const char *key)
{
	json_int_t n = json_integer_value(json_object_get(j, key));

	return n > 0 ? (uint64_t)n : 0;
}

static void parse_fields(const json_t *j, const struct field *f, void *to)
{
	for (; f->key; f++) {
		uint64_t n = number(f->group ? json_object_get(j, f->group) : j, f->key);
		void *at = (char *)to + f->at;

		if (f->size == sizeof(bool))
			*(bool *)at = n;
		else if (f->size == sizeof(uint32_t))
			*(uint32_t *)at = (uint32_t)n;
		else
			*(uint64_t *)at = n;
	}
}

/* 0, also if it is missing or not a string: *ret is NULL then. */
static int string(const json_t *j, const char *key, char **ret)
{
	const char *s = json_string_value(json_object_get(j, key));

	*ret = s ? strdup(s) : NULL;
	return s && !*ret ? -ENOMEM : 0;
}

static void parse_op(const json_t *j, const char *name, struct stats_op *ret)
{
	const json_t *latency = json_object_get(json_object_get(j, "latency_us"), name);
	const json_t *buckets = json_object_get(latency, "buckets");

	ret->requests = number(json_object_get(j, "requests"), name);
	ret->errors = number(json_object_get(j, "errors"), name);
	ret->sum_ns = number(latency, "sum") * 1000;
	ret->max_ns = number(latency, "max") * 1000;
	for (size_t k = 0; k < STATS_BUCKETS; k++) {
		json_int_t n = json_integer_value(json_array_get(buckets, k));

		ret->buckets[k] = n > 0 ? (uint64_t)n : 0;
	}
}

static void parse_values(const json_t *j, struct stats_values *ret)
{
	char name[32];

	for (int i = 0; i < STATS_COUNTERS; i++) {
		const struct stats_name *n = stats_name((enum stats_counter)i);

		ret->counters[i] = number(json_object_get(j, n->group), n->key);
	}
	for (uint32_t i = 0; i < STATS_OPCODES; i++)
		if (report_op_name(i, name))
			parse_op(j, name, &ret->ops[i]);
}

/* An older server gives only the number of lower layers. */
static int parse_lowers(const json_t *j, struct report_mount *ret)
{
	const size_t n = json_array_size(j);

	if (!n)
		return 0;
	ret->lowers = calloc(n + 1, sizeof(*ret->lowers));
	if (!ret->lowers)
		return -ENOMEM;
	for (; ret->nlower < n; ret->nlower++) {
		const char *s = json_string_value(json_array_get(j, ret->nlower));

		if (!(ret->lowers[ret->nlower] = strdup(s ? s : "")))
			return -ENOMEM;
	}
	return 0;
}

static int parse_mount(const json_t *j, struct report_mount *ret)
{
	int r = string(j, "mountpoint", &ret->mountpoint);

	r = r ?: string(j, "mode", &ret->mode);
	r = r ?: string(j, "upper", &ret->upper);
	r = r ?: string(j, "unknown_options", &ret->unknown);
	r = r ?: string(j, "mode_reason", &ret->mode_reason);
	r = r ?: string(j, "options", &ret->options);
	r = r ?: string(j, "container", &ret->container);
	r = r ?: parse_lowers(json_object_get(j, "lowers"), ret);
	if (r == 0 && (!ret->mountpoint || !ret->mode))
		r = -EBADMSG;
	if (!ret->lowers)
		ret->nlower = number(j, "lower");
	ret->image = number(j, "image");
	ret->inodes = number(j, "inodes");
	ret->map_files = number(json_object_get(j, "map"), "files");
	ret->map_log_bytes = number(json_object_get(j, "map"), "log_bytes");
	ret->has_quota = json_is_object(json_object_get(j, "quota"));
	parse_fields(j, quota_fields, ret);
	parse_values(j, &ret->values);
	return r;
}

static int parse_server(const json_t *j, struct report *ret)
{
	const json_t *server = json_object_get(j, "server"), *copies = json_object_get(j, "copies");
	int r = string(j, "version", &ret->version);

	if (r == 0 && (!ret->version || !json_is_object(server)))
		r = -EBADMSG;
	r = r ?: string(server, "cpu_latency", &ret->cpu_latency);
	parse_fields(server, server_fields, ret);
	parse_fields(j, cache_fields, ret);
	for (int i = 0; i < STATS_MEMORIES; i++)
		ret->memory[i] = number(json_object_get(server, "memory"),
					stats_memory_name((enum stats_memory)i));
	ret->limiter.cpu_ns = number(copies, "cpu_us") * 1000;
	ret->limiter.drop_ns = number(copies, "dropping_us") * 1000;
	ret->limiter.copies.forgotten = number(copies, "forgotten");
	ret->share.bytes = ret->memory[STATS_MEM_IMAGES];
	parse_values(json_object_get(j, "totals"), &ret->totals);
	return r;
}

static int parse_mounts(const json_t *mounts, struct report *ret)
{
	int r = 0;

	for (size_t i = 0; r == 0 && i < json_array_size(mounts); i++) {
		r = report_make_room(ret);
		if (r == 0)
			r = parse_mount(json_array_get(mounts, i), &ret->mounts[ret->nmounts++]);
	}
	return r;
}

static int parse_images(const json_t *images, struct report *ret)
{
	int r = 0;

	for (size_t i = 0; r == 0 && i < json_array_size(images); i++) {
		r = report_make_room(ret);
		if (r == 0)
			parse_fields(json_array_get(images, i), image_fields,
				     &ret->images[ret->nimages++]);
	}
	return r;
}

int report_parse(const char *json, struct report *ret)
{
	_cleanup_(decrefp) json_t *j = json_loads(json, 0, NULL);
	struct report report = { .pid = 0 };
	int r = parse_server(j, &report);

	r = r ?: parse_mounts(json_object_get(j, "mounts"), &report);
	r = r ?: parse_images(json_object_get(j, "images"), &report);
	if (r < 0)
		report_release(&report);
	else
		*ret = report;
	return r;
}

int report_only(const char *json, bool (*fits)(void *arg, const char *mountpoint), void *arg,
		char **ret_json)
{
	_cleanup_(decrefp) json_t *j = json_loads(json, 0, NULL);
	json_t *mounts = json_object_get(j, "mounts");
	size_t n = json_array_size(mounts);
	char *text;

	if (!json_is_array(mounts))
		return -EBADMSG;
	for (size_t i = n; i-- > 0;) {
		const char *mountpoint =
			json_string_value(json_object_get(json_array_get(mounts, i), "mountpoint"));

		if (!mountpoint || !fits(arg, mountpoint))
			json_array_remove(mounts, i);
	}
	if (json_array_size(mounts) == 0)
		return -ENOENT;
	text = json_dumps(j, JSON_COMPACT);
	if (!text)
		return -ENOMEM;
	*ret_json = text;
	return 0;
}
