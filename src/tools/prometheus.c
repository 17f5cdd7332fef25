// SPDX-License-Identifier: Apache-2.0
/* All lines of a family must stand together, so the mounts are walked once for each family. */
#include "veneer/tools/prometheus.h"

#include "veneer/base/cleanup.h"

#include <inttypes.h>
#include <string.h>

struct page {
	const struct report *r;
	char **labels; /* the escaped mount point of each mount */
	FILE *out;
};

/* Escape backslash, quote and newline, as the format requires. */
static char *escape(const char *s)
{
	char *text = malloc(strlen(s) * 2 + 1), *to = text;

	for (; text && *s; s++) {
		if (*s == '\\' || *s == '"' || *s == '\n')
			*to++ = '\\';
		*to++ = *s == '\n' ? 'n' : *s;
	}
	if (text)
		*to = '\0';
	return text;
}

static void family(const struct page *p, const char *name, const char *type, const char *help)
{
	fprintf(p->out, "# HELP veneer_%s %s.\n# TYPE veneer_%s %s\n", name, help, name, type);
}

/* Totals over all mounts, ended ones included. */
static void family_of_server(const struct page *p, const char *name, const char *help)
{
	fprintf(p->out,
		"# HELP veneer_server_%s %s; all mounts, ended ones too.\n# TYPE veneer_server_%s "
		"counter\n",
		name, help, name);
}

static void lone(const struct page *p, const char *name, const char *help, uint64_t value)
{
	family(p, name, "gauge", help);
	fprintf(p->out, "veneer_%s %" PRIu64 "\n", name, value);
}

static void print_server(const struct page *p)
{
	const struct report *r = p->r;

	family(p, "build_info", "gauge", "Version of the server");
	fprintf(p->out, "veneer_build_info{version=\"%s\"} 1\n", r->version);
	lone(p, "uptime_seconds", "Since the server started", r->uptime_s);
	lone(p, "mounts", "Mounts that are served", r->mounts_served);
	lone(p, "images", "Merged trees of lower layers that mounts use", r->share.images);
	lone(p, "images_kept", "Merged trees of lower layers that no mount uses", r->share.kept);
	lone(p, "layers", "Lower layers that are open", r->share.layers);
	lone(p, "cache_bytes", "Mapped by the block cache", r->windows.bytes);
	lone(p, "cache_budget_bytes", "Limit of the mapped bytes of the block cache",
	     r->windows.budget);
	lone(p, "cache_windows", "Windows that the block cache has", r->windows.count);
	lone(p, "copies_limit", "Copies of a part of a lower file that pages of mounts may hold",
	     r->limiter.copies.limit);
	lone(p, "copies_extents", "Parts of lower files that pages of mounts hold",
	     r->limiter.copies.extents);
	lone(p, "copies_held", "Copies of them", r->limiter.copies.copies);
	lone(p, "copies_extra_bytes", "Size of the copies beyond one each",
	     r->limiter.copies.extra_bytes);
	family(p, "copies_cpu_seconds_total", "counter", "Processor time that limiting them took");
	fprintf(p->out, "veneer_copies_cpu_seconds_total %" PRIu64 ".%06" PRIu64 "\n",
		r->limiter.cpu_ns / 1000000000, r->limiter.cpu_ns / 1000 % 1000000);
	lone(p, "watches", "Directories of layers that are watched for changes", r->share.watches);
	family(p, "mounts_by_image_total", "counter", "Mounts by where their image came from");
	fprintf(p->out, "veneer_mounts_by_image_total{image=\"new\"} %" PRIu64 "\n", r->share.made);
	fprintf(p->out, "veneer_mounts_by_image_total{image=\"shared\"} %" PRIu64 "\n",
		r->share.shared);
	fprintf(p->out, "veneer_mounts_by_image_total{image=\"kept\"} %" PRIu64 "\n",
		r->share.resumed);
	lone(p, "inodes", "Files that the kernel knows of, in all mounts", r->inodes_served);
	lone(p, "descriptors_open", "Files of layers that are open", r->descriptors);
	lone(p, "resident_memory_bytes", "Memory of the server that is in use", r->rss_bytes);
	family(p, "memory_bytes", "gauge", "Memory of the server by purpose");
	for (int i = 0; i < STATS_MEMORIES; i++) {
		const char *name = stats_memory_name((enum stats_memory)i);

		fprintf(p->out, "veneer_memory_bytes{purpose=\"%.*s\"} %" PRIu64 "\n",
			(int)strcspn(name, "_"), name, r->memory[i]);
	}
}

static void print_images(const struct page *p)
{
	family(p, "image_mounts", "gauge", "Mounts of an image");
	for (size_t i = 0; i < p->r->nimages; i++)
		fprintf(p->out, "veneer_image_mounts{image=\"%zu\"} %zu\n", i,
			p->r->images[i].nmounts);
	family(p, "image_layers", "gauge", "Layers of an image");
	for (size_t i = 0; i < p->r->nimages; i++)
		fprintf(p->out, "veneer_image_layers{image=\"%zu\"} %zu\n", i,
			p->r->images[i].nlayers);
	family(p, "image_bytes", "gauge", "Memory that an image takes");
	for (size_t i = 0; i < p->r->nimages; i++)
		fprintf(p->out, "veneer_image_bytes{image=\"%zu\"} %" PRIu64 "\n", i,
			p->r->images[i].bytes);
}

static void of_mount(const struct page *p, const char *name, size_t i, uint64_t value)
{
	fprintf(p->out, "veneer_%s{mountpoint=\"%s\"} %" PRIu64 "\n", name, p->labels[i], value);
}

static void print_info(const struct page *p, size_t i)
{
	const struct report_mount *m = &p->r->mounts[i];
	_cleanup_(freep) char *container = m->container ? escape(m->container) : NULL;

	fprintf(p->out,
		"veneer_mount_info{mountpoint=\"%s\",mode=\"%s\",image=\"%zu\",container=\"%s\"} "
		"1\n",
		p->labels[i], m->mode, m->image, container ? container : "");
}

/* Print a row for each mount with this limit. */
static void print_quota(const struct page *p, const char *name, const char *help,
			uint64_t (*limit)(const struct quota_usage *q),
			uint64_t (*value)(const struct quota_usage *q))
{
	family(p, name, "gauge", help);
	for (size_t i = 0; i < p->r->nmounts; i++)
		if (p->r->mounts[i].has_quota && limit(&p->r->mounts[i].quota))
			of_mount(p, name, i, value(&p->r->mounts[i].quota));
}

static uint64_t quota_bytes(const struct quota_usage *q)
{
	return q->bytes;
}
static uint64_t quota_max_bytes(const struct quota_usage *q)
{
	return q->max_bytes;
}
static uint64_t quota_inodes(const struct quota_usage *q)
{
	return q->inodes;
}
static uint64_t quota_max_inodes(const struct quota_usage *q)
{
	return q->max_inodes;
}

static void print_quotas(const struct page *p)
{
	print_quota(p, "quota_bytes", "Bytes that the upper takes of its size=", quota_max_bytes,
		    quota_bytes);
	print_quota(p, "quota_max_bytes", "Bytes that the upper may take, size=", quota_max_bytes,
		    quota_max_bytes);
	print_quota(p, "quota_inodes",
		    "Inodes that the upper takes of its inodes=", quota_max_inodes, quota_inodes);
	print_quota(p, "quota_max_inodes",
		    "Inodes that the upper may take, inodes=", quota_max_inodes, quota_max_inodes);
}

static void print_mount_gauges(const struct page *p)
{
	const struct report *r = p->r;

	family(p, "mount_info", "gauge", "How a mount is served");
	for (size_t i = 0; i < r->nmounts; i++)
		print_info(p, i);
	family(p, "mount_inodes", "gauge", "Files that the kernel knows of");
	for (size_t i = 0; i < r->nmounts; i++)
		of_mount(p, "mount_inodes", i, r->mounts[i].inodes);
	family(p, "map_files", "gauge", "Partial files in the upper");
	for (size_t i = 0; i < r->nmounts; i++)
		of_mount(p, "map_files", i, r->mounts[i].map_files);
	family(p, "map_log_bytes", "gauge", "Length of the log of the block map");
	for (size_t i = 0; i < r->nmounts; i++)
		of_mount(p, "map_log_bytes", i, r->mounts[i].map_log_bytes);
	family(p, "cow_not_copied_bytes", "gauge",
	       "Bytes that copying whole files up would have copied in addition");
	for (size_t i = 0; i < r->nmounts; i++)
		of_mount(p, "cow_not_copied_bytes", i, stats_not_copied(&r->mounts[i].values));
}

static void print_counters(const struct page *p)
{
	for (int c = 0; c < STATS_COUNTERS; c++) {
		const struct stats_name *n = stats_name((enum stats_counter)c);
		char name[96];

		snprintf(name, sizeof(name), "%s_%s_total", n->group, n->key);
		family(p, name, "counter", n->help);
		for (size_t i = 0; i < p->r->nmounts; i++)
			of_mount(p, name, i, p->r->mounts[i].values.counters[c]);
		family_of_server(p, name, n->help);
		fprintf(p->out, "veneer_server_%s %" PRIu64 "\n", name, p->r->totals.counters[c]);
	}
}

static uint64_t requests(const struct stats_op *op)
{
	return op->requests;
}
static uint64_t errors(const struct stats_op *op)
{
	return op->errors;
}

static void print_ops(const struct page *p, const char *name, const char *help,
		      uint64_t (*value)(const struct stats_op *op))
{
	char op[32];

	family(p, name, "counter", help);
	for (size_t i = 0; i < p->r->nmounts; i++)
		for (uint32_t k = 0; k < STATS_OPCODES; k++)
			if (p->r->mounts[i].values.ops[k].requests && report_op_name(k, op))
				fprintf(p->out,
					"veneer_%s{mountpoint=\"%s\",op=\"%s\"} %" PRIu64 "\n",
					name, p->labels[i], op,
					value(&p->r->mounts[i].values.ops[k]));
	family_of_server(p, name, help);
	for (uint32_t k = 0; k < STATS_OPCODES; k++)
		if (p->r->totals.ops[k].requests && report_op_name(k, op))
			fprintf(p->out, "veneer_server_%s{op=\"%s\"} %" PRIu64 "\n", name, op,
				value(&p->r->totals.ops[k]));
}

static void print_histogram(const struct page *p, const char *mountpoint, const char *op,
			    const struct stats_op *o)
{
	static const char name[] = "veneer_request_duration_seconds";
	uint64_t sum = 0;

	for (unsigned k = 0; k < STATS_BUCKETS; k++) {
		uint64_t bound_us = stats_bound_us(k);

		sum += o->buckets[k];
		if (bound_us)
			fprintf(p->out,
				"%s_bucket{mountpoint=\"%s\",op=\"%s\",le=\"%" PRIu64 ".%06" PRIu64
				"\"} %" PRIu64 "\n",
				name, mountpoint, op, bound_us / 1000000, bound_us % 1000000, sum);
	}
	fprintf(p->out, "%s_bucket{mountpoint=\"%s\",op=\"%s\",le=\"+Inf\"} %" PRIu64 "\n", name,
		mountpoint, op, sum);
	fprintf(p->out, "%s_sum{mountpoint=\"%s\",op=\"%s\"} %" PRIu64 ".%09" PRIu64 "\n", name,
		mountpoint, op, o->sum_ns / 1000000000, o->sum_ns % 1000000000);
	fprintf(p->out, "%s_count{mountpoint=\"%s\",op=\"%s\"} %" PRIu64 "\n", name, mountpoint, op,
		sum);
}

static void print_histograms(const struct page *p)
{
	char op[32];

	family(p, "request_duration_seconds", "histogram", "How long requests took to answer");
	for (size_t i = 0; i < p->r->nmounts; i++)
		for (uint32_t k = 0; k < STATS_OPCODES; k++)
			if (p->r->mounts[i].values.ops[k].requests && report_op_name(k, op))
				print_histogram(p, p->labels[i], op,
						&p->r->mounts[i].values.ops[k]);
}

/* Number the labels: mounts may be stacked on one mount point, and no two lines may have the same
 * labels. */
static char *label_of(const struct report *r, size_t i)
{
	_cleanup_(freep) char *escaped = escape(r->mounts[i].mountpoint);
	char *numbered = NULL;
	unsigned nth = 1;

	for (size_t k = 0; k < i; k++)
		nth += !strcmp(r->mounts[k].mountpoint, r->mounts[i].mountpoint);
	if (nth == 1 || !escaped)
		return steal_ptr(&escaped);
	return asprintf(&numbered, "%s#%u", escaped, nth) < 0 ? NULL : numbered;
}

int prometheus_print(const struct report *r, FILE *out)
{
	struct page p = { r, calloc(r->nmounts + 1, sizeof(char *)), out };
	int result = p.labels ? 0 : -ENOMEM;

	for (size_t i = 0; result == 0 && i < r->nmounts; i++) {
		p.labels[i] = label_of(r, i);
		result = p.labels[i] ? 0 : -ENOMEM;
	}
	if (result == 0) {
		print_server(&p);
		print_images(&p);
		print_mount_gauges(&p);
		print_quotas(&p);
		print_counters(&p);
		print_ops(&p, "requests_total", "Requests of the kernel", requests);
		print_ops(&p, "request_errors_total", "Requests answered with an error", errors);
		print_histograms(&p);
	}
	for (size_t i = 0; p.labels && i < r->nmounts; i++)
		free(p.labels[i]);
	free(p.labels);
	return result;
}
