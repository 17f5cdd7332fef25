// SPDX-License-Identifier: Apache-2.0
#include "stats_text-internal.h"

#include "text_table.h"

#include "veneer/base/cleanup.h"
#include "veneer/base/human_units.h"
#include "veneer/base/minmax.h"

#include <stdio.h>
#include <string.h>

#define COUNT(n)	human_units_count(n).text
#define OF(n, noun)	human_units_of(n, noun).text
#define BYTES(n)	human_units_bytes(n).text
#define TIME(us)	human_units_time(us).text
#define RATE(n)		human_units_rate(n).text
#define UNSEEN_SENTENCE "The kernel's own reads of passed-through files are not counted here.\n"
#define OP_READ		15u
#define OP_WRITE	16u

uint64_t stats_text_sum_errors(const struct stats_values *v)
{
	uint64_t sum = 0;

	for (size_t i = 0; i < STATS_OPCODES; i++)
		sum += v->ops[i].errors;
	return sum;
}

struct stats_op stats_text_sum_ops(const struct stats_values *v)
{
	struct stats_op all = { .requests = 0 };

	for (size_t i = 0; i < STATS_OPCODES; i++) {
		all.max_ns = MAX(v->ops[i].max_ns, all.max_ns);
		for (size_t k = 0; k < STATS_BUCKETS; k++)
			all.buckets[k] += v->ops[i].buckets[k];
	}
	return all;
}

static bool is_nearly(uint64_t n, uint64_t max)
{
	return max && n >= max - max / 10;
}

bool stats_text_is_urgent(const struct report_mount *m)
{
	return m->has_quota && (is_nearly(m->quota.bytes, m->quota.max_bytes) ||
				is_nearly(m->quota.inodes, m->quota.max_inodes));
}

/* The share of the limit that is nearer. */
static struct human_units quota_share(const struct report_mount *m)
{
	const struct quota_usage *q = &m->quota;
	const double bytes = q->max_bytes ? (double)q->bytes / (double)q->max_bytes : 0;
	const double inodes = q->max_inodes ? (double)q->inodes / (double)q->max_inodes : 0;

	return bytes >= inodes ? human_units_share(q->bytes, q->max_bytes)
			       : human_units_share(q->inodes, q->max_inodes);
}

static const char *plural(uint64_t n)
{
	return n == 1 ? "" : "s";
}

/* ---- a single report ---- */

/* Print copies if they are limited. */
static void print_copies(const struct report *r, FILE *out)
{
	const struct page_dups_usage *c = &r->limiter.copies;

	if (!r->limiter.is_running)
		return;
	fprintf(out, "copies in %s: %s of %s, limit %s, %s beyond the first; ",
		OF(c->mounts, "mount"), COUNT(c->copies), OF(c->extents, "extent"), COUNT(c->limit),
		BYTES(c->extra_bytes));
	fprintf(out, "%s evicted, %s refaulted, %s of CPU\n",
		COUNT(r->totals.counters[STATS_COPIES_EVICTED]),
		COUNT(r->totals.counters[STATS_COPIES_REFAULTS]), TIME(r->limiter.cpu_ns / 1000));
}

static void print_cpu_latency(const struct report *r, FILE *out)
{
	const uint64_t *c = r->totals.counters;

	if (r->cpu_latency)
		fprintf(out, "processors kept awake: %s times, %s in all; now: %s\n",
			COUNT(c[STATS_CPU_LATENCY_RAISES]), TIME(c[STATS_CPU_LATENCY_HELD_US]),
			r->cpu_latency);
}

void stats_text_print_server(const struct report *r, FILE *out)
{
	fprintf(out, "veneer %s, server %ld, up %s: %s mount%s of %s image%s, ", r->version,
		(long)r->pid, human_units_age(r->uptime_s).text, COUNT(r->mounts_served),
		plural(r->mounts_served), COUNT(r->share.images), plural(r->share.images));
	if (r->share.kept)
		fprintf(out, "%s kept, ", COUNT(r->share.kept));
	fprintf(out, "%s open file%s of layers\n", COUNT(r->descriptors), plural(r->descriptors));
	fprintf(out,
		"memory %s: images %s, inodes %s, block maps %s, buffers %s, copies %s; windows of "
		"the page cache %s\n",
		BYTES(r->rss_bytes), BYTES(r->memory[STATS_MEM_IMAGES]),
		BYTES(r->memory[STATS_MEM_INODES]), BYTES(r->memory[STATS_MEM_MAPS]),
		BYTES(r->memory[STATS_MEM_BUFFERS]), BYTES(r->memory[STATS_MEM_COPIES]),
		BYTES(r->memory[STATS_MEM_WINDOWS]));
	print_copies(r, out);
	print_cpu_latency(r, out);
}

static int print_mounts(const struct report *r, bool has_colours, FILE *out)
{
	static const char *const heads[] = { "MODE",	  "LAYERS",	"INODES",  "REQUESTS",
					     "ERRORS",	  "READ",	"WRITTEN", "COW WRITES",
					     "COPIED",	  "NOT COPIED", "QUOTA",   "CONTAINER",
					     "MOUNTPOINT" };
	_cleanup_(freep) bool *is_red = calloc(r->nmounts + 1, sizeof(*is_red));
	_cleanup_(text_table_release) struct text_table g = { .ncolumns = 0 };
	bool has_unseen = false;
	int result;

	if (!is_red)
		return -ENOMEM;
	text_table_init(&g, "lrrrrrrrrrrll", heads);
	g.is_red = is_red;
	for (size_t i = 0; i < r->nmounts; i++) {
		const struct report_mount *m = &r->mounts[i];
		const uint64_t *c = m->values.counters;
		char layers[48];

		is_red[i] = has_colours && stats_text_is_urgent(m);
		snprintf(layers, sizeof(layers), m->upper ? "%zu+1" : "%zu", m->nlower);
		text_table_put(&g, m->mode);
		text_table_put(&g, layers);
		text_table_put(&g, COUNT(m->inodes));
		text_table_put(&g, COUNT(stats_sum_requests(&m->values)));
		text_table_put(&g, COUNT(stats_text_sum_errors(&m->values)));
		text_table_put(&g, BYTES(c[STATS_READ_BYTES]));
		text_table_put(&g, BYTES(c[STATS_WRITE_BYTES]));
		text_table_put(&g, COUNT(c[STATS_COW_WRITES]));
		text_table_put(&g, BYTES(c[STATS_COPYUP_BYTES] + c[STATS_FILL_BYTES]));
		text_table_put(&g, BYTES(stats_not_copied(&m->values)));
		text_table_put(&g, quota_share(m).text);
		text_table_put(&g, m->container ? m->container : "-");
		text_table_put(&g, m->mountpoint);
		has_unseen |= c[STATS_OPENS_PASSTHROUGH] != 0;
	}
	result = text_table_print(&g, out);
	if (has_unseen)
		fputs(UNSEEN_SENTENCE, out);
	return result;
}

/* Sort the kinds of request by frequency; returns their number. */
static size_t sort_ops(const struct stats_values *v, uint32_t order[STATS_OPCODES])
{
	size_t n = 0;

	for (uint32_t i = 0; i < STATS_OPCODES; i++) {
		size_t at = n;

		if (!v->ops[i].requests || !stats_op_name(i))
			continue;
		for (; at > 0 && v->ops[order[at - 1]].requests < v->ops[i].requests; at--)
			order[at] = order[at - 1];
		order[at] = i;
		n++;
	}
	return n;
}

static int print_ops(const struct stats_values *v, FILE *out)
{
	static const char *const heads[] = { "REQUEST", "COUNT", "SHARE", "ERRORS", "AVERAGE",
					     "50 %",	"90 %",	 "99 %",  "LONGEST" };
	_cleanup_(text_table_release) struct text_table g = { .ncolumns = 0 };
	uint32_t order[STATS_OPCODES];
	size_t n = sort_ops(v, order);
	uint64_t all = stats_sum_requests(v);

	if (!n)
		return fputs("no requests yet\n", out) < 0 ? -EIO : 0;
	text_table_init(&g, "lrrrrrrrr", heads);
	for (size_t i = 0; i < n; i++) {
		const struct stats_op *op = &v->ops[order[i]];
		uint64_t answered = stats_answered(op);
		char name[32];

		report_op_name(order[i], name);
		text_table_put(&g, name);
		text_table_put(&g, COUNT(op->requests));
		text_table_put(&g, human_units_share(op->requests, all).text);
		text_table_put(&g, COUNT(op->errors));
		text_table_put(&g, answered ? TIME(op->sum_ns / answered / 1000) : "-");
		text_table_put(&g, answered ? TIME(stats_percentile_us(op, 50)) : "-");
		text_table_put(&g, answered ? TIME(stats_percentile_us(op, 90)) : "-");
		text_table_put(&g, answered ? TIME(stats_percentile_us(op, 99)) : "-");
		text_table_put(&g, answered ? TIME(op->max_ns / 1000) : "-");
	}
	return text_table_print(&g, out);
}

int stats_text_print(const struct report *r, bool has_colours, FILE *out)
{
	int result = 0;

	stats_text_print_server(r, out);
	if (r->nmounts) {
		fputc('\n', out);
		result = print_mounts(r, has_colours, out);
	}
	fputs("\nAll mounts since the server started:\n", out);
	return result ?: print_ops(&r->totals, out);
}

/* Begin a line of a mount with its topic. */
static void topic(FILE *out, const char *name)
{
	fprintf(out, "  %-15s", name);
}

static void print_hits(FILE *out, const char *name, uint64_t hits, uint64_t misses)
{
	topic(out, name);
	fprintf(out, "%s of %s were there (%s)\n", COUNT(hits), COUNT(hits + misses),
		human_units_share(hits, hits + misses).text);
}

static int print_head(const struct report_mount *m, FILE *out)
{
	_cleanup_(freep) char *mountpoint = text_table_text(m->mountpoint);
	_cleanup_(freep) char *upper = m->upper ? text_table_text(m->upper) : NULL;
	_cleanup_(freep) char *unknown = m->unknown ? text_table_text(m->unknown) : NULL;

	if (!mountpoint || (m->upper && !upper) || (m->unknown && !unknown))
		return -ENOMEM;
	fprintf(out, "%s: %s, %zu lower layer%s (image %zu)%s%s, %s inode%s\n", mountpoint, m->mode,
		m->nlower, plural(m->nlower), m->image, upper ? ", upper " : "", upper ? upper : "",
		COUNT(m->inodes), plural(m->inodes));
	if (unknown) {
		topic(out, "ignored");
		fprintf(out, "%s\n", unknown);
	}
	if (m->container) {
		topic(out, "container");
		fprintf(out, "%s\n", m->container);
	}
	if (m->mode_reason) {
		topic(out, "mode");
		fprintf(out, "%s: %s\n", m->mode, m->mode_reason);
	}
	return 0;
}

int stats_text_print_mount(const struct report_mount *m, FILE *out)
{
	const struct stats_values *v = &m->values;
	const uint64_t *c = v->counters;
	int result = print_head(m, out);

	if (result < 0)
		return result;
	topic(out, "copy-on-write");
	fprintf(out,
		"%s write%s made %s own; %s copy-up%s; %s copied from lower files, %s not copied\n",
		COUNT(c[STATS_COW_WRITES]), plural(c[STATS_COW_WRITES]), BYTES(c[STATS_COW_BYTES]),
		COUNT(c[STATS_COPYUPS]), plural(c[STATS_COPYUPS]),
		BYTES(c[STATS_COPYUP_BYTES] + c[STATS_FILL_BYTES]), BYTES(stats_not_copied(v)));
	topic(out, "block map");
	fprintf(out, "%s, %s, log of %s\n", OF(m->map_files, "partial file"),
		OF(c[STATS_MAP_RECORDS], "record"), BYTES(m->map_log_bytes));
	topic(out, "promotion");
	fprintf(out,
		"%s chunk%s and %s file%s completed with %s from lower files, %s of it cloned\n",
		COUNT(c[STATS_PROMOTED_CHUNKS]), plural(c[STATS_PROMOTED_CHUNKS]),
		COUNT(c[STATS_PROMOTED_FILES]), plural(c[STATS_PROMOTED_FILES]),
		BYTES(c[STATS_PROMOTED_BYTES]), BYTES(c[STATS_PROMOTED_CLONED]));
	topic(out, "flat copies");
	fprintf(out, "%s of lower layers, %s\n", OF(c[STATS_FLAT_FILES], "file"),
		BYTES(c[STATS_FLAT_BYTES]));
	topic(out, "squash");
	fprintf(out, "%s became one with another; %s, %s copied\n",
		OF(c[STATS_SQUASHED_SNAPSHOTS], "snapshot"), OF(c[STATS_SQUASHED_ENTRIES], "entry"),
		BYTES(c[STATS_SQUASHED_BYTES]));
	topic(out, "intercepted");
	fprintf(out, "%s of %s, %s of %s%s\n", OF(v->ops[OP_READ].requests, "read"),
		BYTES(c[STATS_READ_BYTES]), OF(v->ops[OP_WRITE].requests, "write"),
		BYTES(c[STATS_WRITE_BYTES]),
		c[STATS_OPENS_PASSTHROUGH] ? "; passed-through ones are not seen" : "");
	topic(out, "opens");
	fprintf(out, "%s passthrough, %s cached, %s direct; %s\n",
		COUNT(c[STATS_OPENS_PASSTHROUGH]), COUNT(c[STATS_OPENS_CACHED]),
		COUNT(c[STATS_OPENS_DIRECT]), OF(c[STATS_NODE_SWITCHES], "node switch"));
	print_hits(out, "cached blocks", c[STATS_WINDOW_HITS], c[STATS_WINDOW_MISSES]);
	print_hits(out, "descriptors", c[STATS_FD_HITS], c[STATS_FD_MISSES]);
	fputc('\n', out);
	return print_ops(v, out);
}

/* ---- rates ---- */

/* Find the mount in the earlier report: the nth one at the same mount point. */
static const struct report_mount *find_before(const struct report *begun,
					      const struct report *ended, size_t i)
{
	const char *place = ended->mounts[i].mountpoint;
	size_t nth = 0;

	for (size_t k = 0; k < i; k++)
		nth += !strcmp(ended->mounts[k].mountpoint, place);
	for (size_t k = 0; k < begun->nmounts; k++)
		if (!strcmp(begun->mounts[k].mountpoint, place) && nth-- == 0)
			return &begun->mounts[k];
	return NULL;
}

static int compare_busy(const void *pa, const void *pb)
{
	const struct busy *a = pa, *b = pb;

	if (a->requests != b->requests)
		return a->requests < b->requests ? 1 : -1;
	return strcmp(a->m->mountpoint, b->m->mountpoint);
}

struct busy *stats_text_gained(const struct report *begun, const struct report *ended)
{
	struct busy *list = calloc(ended->nmounts + 1, sizeof(*list));

	for (size_t i = 0; list && i < ended->nmounts; i++) {
		const struct report_mount *before = find_before(begun, ended, i);

		list[i].m = &ended->mounts[i];
		list[i].gained = ended->mounts[i].values;
		if (before)
			report_subtract(&list[i].gained, &before->values);
		list[i].requests = stats_sum_requests(&list[i].gained);
	}
	if (list)
		qsort(list, ended->nmounts, sizeof(*list), compare_busy);
	return list;
}

static int print_busy(const struct busy *list, size_t n, double s, FILE *out)
{
	static const char *const heads[] = { "MODE",	   "REQ/S",   "ERR/S",	 "READ/S",
					     "BYTES/S",	   "WRITE/S", "BYTES/S", "COW/S",
					     "MADE OWN/S", "50 %",    "99 %",	 "MOUNTPOINT" };
	_cleanup_(text_table_release) struct text_table g = { .ncolumns = 0 };

	text_table_init(&g, "lrrrrrrrrrrl", heads);
	for (size_t i = 0; i < n; i++) {
		const struct stats_values *v = &list[i].gained;
		struct stats_op all = stats_text_sum_ops(v);
		bool has_any = stats_answered(&all);

		text_table_put(&g, list[i].m->mode);
		text_table_put(&g, RATE((double)list[i].requests / s));
		text_table_put(&g, RATE((double)stats_text_sum_errors(v) / s));
		text_table_put(&g, RATE((double)v->ops[OP_READ].requests / s));
		text_table_put(&g, BYTES((uint64_t)((double)v->counters[STATS_READ_BYTES] / s)));
		text_table_put(&g, RATE((double)v->ops[OP_WRITE].requests / s));
		text_table_put(&g, BYTES((uint64_t)((double)v->counters[STATS_WRITE_BYTES] / s)));
		text_table_put(&g, RATE((double)v->counters[STATS_COW_WRITES] / s));
		text_table_put(&g, BYTES((uint64_t)((double)v->counters[STATS_COW_BYTES] / s)));
		text_table_put(&g, has_any ? TIME(stats_percentile_us(&all, 50)) : "-");
		text_table_put(&g, has_any ? TIME(stats_percentile_us(&all, 99)) : "-");
		text_table_put(&g,
			       list[i].m->container ? list[i].m->container : list[i].m->mountpoint);
	}
	return text_table_print(&g, out);
}

int stats_text_print_op_rates(const struct stats_values *v, double s, size_t limit, FILE *out)
{
	static const char *const heads[] = { "REQUEST", "PER S", "ERR/S", "50 %", "90 %", "99 %" };
	_cleanup_(text_table_release) struct text_table g = { .ncolumns = 0 };
	uint32_t order[STATS_OPCODES];
	size_t n = sort_ops(v, order);

	if (!n || !limit)
		return 0;
	fputc('\n', out);
	text_table_init(&g, "lrrrrr", heads);
	for (size_t i = 0; i < n && i < limit; i++) {
		const struct stats_op *op = &v->ops[order[i]];
		bool has_any = stats_answered(op);
		char name[32];

		report_op_name(order[i], name);
		text_table_put(&g, name);
		text_table_put(&g, RATE((double)op->requests / s));
		text_table_put(&g, RATE((double)op->errors / s));
		text_table_put(&g, has_any ? TIME(stats_percentile_us(op, 50)) : "-");
		text_table_put(&g, has_any ? TIME(stats_percentile_us(op, 90)) : "-");
		text_table_put(&g, has_any ? TIME(stats_percentile_us(op, 99)) : "-");
	}
	return text_table_print(&g, out);
}

struct stats_values *stats_text_gained_in_all(const struct report *begun,
					      const struct report *ended)
{
	struct stats_values *all = malloc(sizeof(*all));

	if (!all)
		return NULL;
	*all = ended->totals;
	/* Another server has counted from zero. */
	if (begun->pid == ended->pid)
		report_subtract(all, &begun->totals);
	return all;
}

int stats_text_print_rates(const struct report *begun, const struct report *ended, double seconds,
			   FILE *out)
{
	_cleanup_(freep) struct busy *list = stats_text_gained(begun, ended);
	_cleanup_(freep) struct stats_values *all = stats_text_gained_in_all(begun, ended);
	double s = seconds > 0.001 ? seconds : 0.001;
	int r = 0;

	if (!list || !all)
		return -ENOMEM;
	stats_text_print_server(ended, out);
	fputc('\n', out);
	if (ended->nmounts)
		r = print_busy(list, ended->nmounts, s, out);
	else
		fputs("no mounts\n", out);
	return r ?: stats_text_print_op_rates(all, s, SIZE_MAX, out);
}

int stats_text_print_json(const struct report *begun, const struct report *ended, double seconds,
			  FILE *out)
{
	_cleanup_(freep) struct busy *list = stats_text_gained(begun, ended);
	_cleanup_(freep) struct stats_values *all = stats_text_gained_in_all(begun, ended);
	_cleanup_(freep) struct report_mount *mounts = calloc(ended->nmounts + 1, sizeof(*mounts));
	_cleanup_(freep) char *text = NULL;
	struct report r = *ended;

	if (!list || !all || !mounts)
		return -ENOMEM;
	for (size_t i = 0; i < ended->nmounts; i++) {
		mounts[i] = *list[i].m;
		mounts[i].values = list[i].gained;
	}
	r.mounts = mounts;
	r.totals = *all;
	if (report_json(&r, &text) < 0)
		return -ENOMEM;
	/* The text is an object, and never an empty one. */
	fprintf(out, "{\"seconds\":%.6f,%s\n", seconds, text + 1);
	return 0;
}
