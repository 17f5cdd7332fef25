// SPDX-License-Identifier: Apache-2.0
/* The other end of report.c: what the text of a report says. It may be that of another version. */
#include "veneer/tools/report.h"

#include "veneer/base/cleanup.h"

#include <jansson.h>
#include <string.h>

static void decrefp(json_t **j)
{
	json_decref(*j);
}

static uint64_t number(const json_t *j, const char *key)
{
	json_int_t n = json_integer_value(json_object_get(j, key));

	return n > 0 ? (uint64_t)n : 0;
}

/* 0, also for what is missing or no string: *ret is NULL then. */
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

/* An older server does not say which, only how many. */
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
	const json_t *map = json_object_get(j, "map"), *quota = json_object_get(j, "quota");
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
	ret->map_files = number(map, "files");
	ret->map_log_bytes = number(map, "log_bytes");
	ret->has_quota = json_is_object(quota);
	ret->quota = (struct quota_usage){ .bytes = number(quota, "bytes"),
					   .max_bytes = number(quota, "max_bytes"),
					   .inodes = number(quota, "inodes"),
					   .max_inodes = number(quota, "max_inodes") };
	parse_values(j, &ret->values);
	return r;
}

static int parse_server(const json_t *j, struct report *ret)
{
	const json_t *server = json_object_get(j, "server"),
		     *memory = json_object_get(server, "memory");
	const json_t *cache = json_object_get(j, "cache"), *copies = json_object_get(j, "copies");
	const json_t *sharing = json_object_get(server, "sharing");
	int r = string(j, "version", &ret->version);

	if (r == 0 && (!ret->version || !json_is_object(server)))
		r = -EBADMSG;
	ret->pid = (pid_t)number(server, "pid");
	ret->uptime_s = number(server, "uptime_s");
	ret->mounts_served = number(server, "mounts");
	ret->share = (struct layer_registry_stats){
		.images = number(server, "images"),
		.kept = number(sharing, "images_kept"),
		.layers = number(sharing, "layers"),
		.watches = number(sharing, "watches"),
		.made = number(sharing, "mounts_new_image"),
		.shared = number(sharing, "mounts_shared_image"),
		.resumed = number(sharing, "mounts_kept_image"),
	};
	ret->inodes_served = number(server, "inodes");
	ret->descriptors = number(server, "descriptors");
	ret->rss_bytes = number(memory, "rss_bytes");
	for (int i = 0; i < STATS_MEMORIES; i++)
		ret->memory[i] = number(memory, stats_memory_name((enum stats_memory)i));
	ret->windows = (struct mmap_cache_usage){
		.bytes = number(cache, "bytes"),
		.count = number(cache, "windows"),
		.budget = number(cache, "budget_bytes"),
	};
	ret->limiter = (struct page_dup_limiter_usage){
		.is_running = number(copies, "running"),
		.cpu_ns = number(copies, "cpu_us") * 1000,
		.drop_ns = number(copies, "dropping_us") * 1000,
		.copies = {
			.limit = (uint32_t)number(copies, "limit"),
			.mounts = number(copies, "mounts"),
			.extents = number(copies, "extents"),
			.copies = number(copies, "copies"),
			.extra_bytes = number(copies, "extra_bytes"),
			.forgotten = number(copies, "forgotten"),
		},
	};
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
		const json_t *image = json_array_get(images, i);

		r = report_make_room(ret);
		if (r == 0)
			ret->images[ret->nimages++] = (struct report_image){
				.nlayers = number(image, "layers"),
				.nmounts = number(image, "mounts"),
				.bytes = number(image, "bytes"),
			};
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
