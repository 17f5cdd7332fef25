// SPDX-License-Identifier: Apache-2.0
#include "options-internal.h"

#include "veneer/base/array.h"
#include "veneer/base/cleanup.h"
#include "veneer/base/human_units.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define WINDOW_MAX_S 60

_Static_assert(sizeof(enum io_mode) == sizeof(int) && sizeof(enum coherence) == sizeof(int) &&
		       sizeof(enum partial_mode) == sizeof(int) &&
		       sizeof(enum writeback_mode) == sizeof(int) &&
		       sizeof(enum prefetch_mode) == sizeof(int) &&
		       sizeof(enum locking) == sizeof(int) &&
		       sizeof(enum branches_mode) == sizeof(int) &&
		       sizeof(enum cow_mode) == sizeof(int) &&
		       sizeof(enum share_mode) == sizeof(int) &&
		       sizeof(enum promote_policy_mode) == sizeof(int),
	       "set_word stores an int");

struct opt_row {
	/* "word" is matched as a whole; "key=" takes the rest as its value. */
	const char *name;
	int (*set)(struct options_parser *p, const struct opt_row *row, char *value);
	size_t field; /* offset in struct mount_opts */
	const char *form; /* form of the value, for messages; set_word chooses among its words
			     between bars */
};

int options_fail(struct options_parser *p, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(p->err, p->err_size, fmt, ap);
	va_end(ap);
	return -EINVAL;
}

void options_strv_freep(char ***v)
{
	for (char **s = *v; s && *s; s++)
		free(*s);
	free(*v);
}

int options_strv_push(char ***v, size_t *n, char *s)
{
	if (!s || array_grow(v, *n + 1) < 0) {
		free(s);
		return -ENOMEM;
	}
	(*v)[(*n)++] = s;
	(*v)[*n] = NULL;
	return 0;
}

int options_put_word(struct options_parser *p, const char *word)
{
	int r = p->kernel.len > 0 ? buf_put(&p->kernel, ",", 1) : 0;

	return r < 0 ? r : buf_put(&p->kernel, word, strlen(word));
}

/* ---- values ---- */

/* Parse a decimal number without trailing characters. */
static bool integer(const char *s, int64_t *ret)
{
	char *end;
	long long v;

	errno = 0;
	v = strtoll(s, &end, 10);
	if (end == s || *end || errno)
		return false;
	*ret = v;
	return true;
}

static int name_len(const struct opt_row *row)
{
	return (int)strcspn(row->name, "=");
}

static int set_path(struct options_parser *p, const struct opt_row *row, char *value)
{
	char **field = (char **)((char *)&p->o + row->field);
	char *path = NULL;
	int r;

	if (!*value)
		return options_fail(
			p,
			"no directory is given for %.*s: a mount that changes nothing leaves "
			"the option out",
			name_len(row), row->name);
	r = options_path_parse(p->cwd, value, value + strlen(value), &path);
	if (r < 0)
		return r;
	free(*field);
	*field = path;
	return 0;
}

static const char *lower_end(const char *s)
{
	for (bool is_escaped = false; *s; s++) {
		if (*s == ':' && !is_escaped)
			break;
		is_escaped = *s == '\\';
	}
	return s;
}

static int set_lower(struct options_parser *p, const struct opt_row *row, char *value)
{
	_cleanup_(options_strv_freep) char **lower = NULL;
	size_t n = 0;

	(void)row;
	for (const char *s = value, *end; *s; s = end + (*end == ':')) {
		char *path;
		int r;

		end = lower_end(s);
		if (end == s)
			continue;
		if (s[0] == '/' && s[1] == '/')
			return options_fail(p, "plugin layers are not supported: %.*s",
					    (int)(end - s), s);
		r = options_path_parse(p->cwd, s, end, &path);
		if (r == 0)
			r = options_strv_push(&lower, &n, path);
		if (r < 0)
			return r;
	}
	options_strv_freep(&p->o.lower);
	p->o.lower = steal_ptr(&lower);
	p->o.n_lower = n;
	return 0;
}

static int set_id_maps(struct options_parser *p, const struct opt_row *row, char *value)
{
	struct id_maps *field = (struct id_maps *)((char *)&p->o + row->field);
	struct id_maps maps;
	int r = idmap_parse(value, &maps);

	if (r == -EINVAL)
		return options_fail(p, "invalid mapping specified: %s; the form is %s%s", value,
				    row->name, row->form);
	if (r < 0)
		return r;
	free(field->rows);
	*field = maps;
	return 0;
}

static int bad_value(struct options_parser *p, const struct opt_row *row, const char *value)
{
	return options_fail(p, "invalid value for %.*s: %s; it takes %s", name_len(row), row->name,
			    value, row->form);
}

static int set_squash_id(struct options_parser *p, const struct opt_row *row, char *value)
{
	int64_t v;

	/* 1.x spells "do not squash" as -1; (uid_t)-1 is not an id. */
	if (!integer(value, &v) || v < -1 || v >= UINT32_MAX)
		return bad_value(p, row, value);
	*(int64_t *)((char *)&p->o + row->field) = v;
	return 0;
}

static int set_flag(struct options_parser *p, const struct opt_row *row, char *value)
{
	(void)value;
	*((bool *)((char *)&p->o + row->field)) = true;
	return 0;
}

static int set_debug(struct options_parser *p, const struct opt_row *row, char *value)
{
	p->o.is_foreground = true;
	return set_flag(p, row, value);
}

static int set_bool(struct options_parser *p, const struct opt_row *row, char *value)
{
	int64_t v;

	if (!integer(value, &v))
		return bad_value(p, row, value);
	*((bool *)((char *)&p->o + row->field)) = v != 0;
	return 0;
}

/* The field is the negation of the option. */
static int set_not_bool(struct options_parser *p, const struct opt_row *row, char *value)
{
	bool *field = (bool *)((char *)&p->o + row->field);
	int r = set_bool(p, row, value);

	if (r == 0)
		*field = !*field;
	return r;
}

static int set_timeout(struct options_parser *p, const struct opt_row *row, char *value)
{
	char *end;
	double v = strtod(value, &end);

	if (end == value || *end || !isfinite(v) || v < 0)
		return bad_value(p, row, value);
	p->o.timeout_s = v;
	return 0;
}

static int set_xattr_permissions(struct options_parser *p, const struct opt_row *row, char *value)
{
	int64_t v;

	if (!integer(value, &v) || v < 0 || v > 2)
		return bad_value(p, row, value);
	p->o.xattr_permissions = (int)v;
	return 0;
}

static int set_redirect_dir(struct options_parser *p, const struct opt_row *row, char *value)
{
	(void)row;
	if (strcmp(value, "off") != 0)
		return options_fail(p, "fuse-overlayfs only supports redirect_dir=off");
	p->o.has_no_redirects = true;
	return 0;
}

/* The index of the value among the words between the bars of the form; -1: not found. */
static int word_number(const struct opt_row *row, const char *value)
{
	const size_t len = strcspn(value, "|,");
	int k = 0;

	for (const char *word = len && !value[len] ? row->form : NULL; word; k++) {
		const char *bar = strchr(word, '|');

		if (strncmp(word, value, len) == 0 && strchr("|,", word[len]))
			return k;
		word = bar ? bar + 1 : NULL;
	}
	return -1;
}

/* Set an enumeration field, whose values are in the order of the words. */
static int set_word(struct options_parser *p, const struct opt_row *row, char *value)
{
	const int k = word_number(row, value);

	if (k < 0)
		return bad_value(p, row, value);
	*(int *)((char *)&p->o + row->field) = k;
	return 0;
}

/* fuse-overlayfs takes 0 and 1, and its callers accept either result. */
static int set_writeback(struct options_parser *p, const struct opt_row *row, char *value)
{
	char chosen[] = "auto", off[] = "off";

	return set_word(p, row, !strcmp(value, "1") ? chosen : !strcmp(value, "0") ? off : value);
}

static int set_layers(struct options_parser *p, const struct opt_row *row, char *value)
{
	const int k = word_number(row, value);

	p->o.has_static_layers = k == 1;
	return k < 0 ? bad_value(p, row, value) : 0;
}

static int ignore_word(struct options_parser *p, const struct opt_row *row, char *value)
{
	return word_number(row, value) < 0 ? bad_value(p, row, value) : 0;
}

static int set_cow(struct options_parser *p, const struct opt_row *row, char *value)
{
	p->o.is_cow_given = true;
	return set_word(p, row, value);
}

static int set_promote(struct options_parser *p, const struct opt_row *row, char *value)
{
	p->o.promote_rate = PROMOTE_POLICY_RATE_DEFAULT;
	if (human_units_scan(value, "KMG", 1024, &p->o.promote_rate)) {
		p->o.promote = PROMOTE_POLICY_AUTO;
		return 0;
	}
	return set_word(p, row, value);
}

static int set_promote_max(struct options_parser *p, const struct opt_row *row, char *value)
{
	return human_units_scan(value, "KMGT", 1024, &p->o.promote_max) ? 0
									: bad_value(p, row, value);
}

static int set_size(struct options_parser *p, const struct opt_row *row, char *value)
{
	return human_units_scan(value, "KMGT", 1024, &p->o.max_bytes) ||
			       human_units_scan(value, "kmgt", 1024, &p->o.max_bytes)
		       ? 0
		       : bad_value(p, row, value);
}

static int set_inodes(struct options_parser *p, const struct opt_row *row, char *value)
{
	return human_units_scan(value, "km", 1000, &p->o.max_inodes) ||
			       human_units_scan(value, "KM", 1000, &p->o.max_inodes)
		       ? 0
		       : bad_value(p, row, value);
}

static int set_squash(struct options_parser *p, const struct opt_row *row, char *value)
{
	uint64_t n = 0;

	if (strcmp(value, "off") != 0 &&
	    (!human_units_scan(value, "", 1, &n) || !n || n > OPTIONS_SQUASH_MAX))
		return bad_value(p, row, value);
	p->o.squash = (unsigned)n;
	return 0;
}

static int set_copies(struct options_parser *p, const struct opt_row *row, char *value)
{
	int64_t v;

	if (strcmp(value, "auto") == 0)
		p->o.copies = OPTIONS_COPIES_AUTO;
	else if (strcmp(value, "all") == 0)
		p->o.copies = OPTIONS_COPIES_ALL;
	else if (integer(value, &v) && v >= 1 && v < OPTIONS_COPIES_ALL)
		p->o.copies = (uint32_t)v;
	else
		return bad_value(p, row, value);
	return 0;
}

static int set_window(struct options_parser *p, const struct opt_row *row, char *value)
{
	char *end;
	double v = strtod(value, &end);

	if (end == value || *end || !(v > 0 && v <= WINDOW_MAX_S))
		return bad_value(p, row, value);
	p->o.window_s = v;
	return 0;
}

static int ignore_integer(struct options_parser *p, const struct opt_row *row, char *value)
{
	int64_t v;

	return integer(value, &v) ? 0 : bad_value(p, row, value);
}

static int ignore(struct options_parser *p, const struct opt_row *row, char *value)
{
	(void)p, (void)row, (void)value;
	return 0;
}

static int pass_on(struct options_parser *p, const struct opt_row *row, char *value)
{
	(void)value;
	return options_put_word(p, row->name);
}

/* The kernel has no such option. libfuse passes allow_other and refuses other users itself, but
 * opens and names in the kernel's cache bypass that check. If root mounts, the owner is root, and
 * the kernel admits only the owner. */
static int allow_root(struct options_parser *p, const struct opt_row *row, char *value)
{
	(void)row, (void)value;
	p->allows_root = true;
	return 0;
}

static int allow_other(struct options_parser *p, const struct opt_row *row, char *value)
{
	p->allows_other = true;
	return pass_on(p, row, value);
}

static int pass_on_access(struct options_parser *p, const struct opt_row *row, char *value)
{
	p->o.is_readonly = strcmp(row->name, "ro") == 0;
	return pass_on(p, row, value);
}

/* libfuse knows only "noatime"; "atime" is its absence. */
static int set_atime(struct options_parser *p, const struct opt_row *row, char *value)
{
	(void)value;
	p->o.keeps_atime = strcmp(row->name, "atime") == 0;
	return 0;
}

static int set_cpu_latency(struct options_parser *p, const struct opt_row *row, char *value)
{
	return cpu_latency_parse(value, &p->o.cpu_latency) ? 0 : bad_value(p, row, value);
}

/* ---- the table ---- */

#define FIELD(f) offsetof(struct mount_opts, f)
#define FLAG	 "0 or 1"

static const struct opt_row rows[] = {
	{ "lowerdir=", set_lower, 0, NULL },
	{ "upperdir=", set_path, FIELD(upper), NULL },
	{ "workdir=", set_path, FIELD(work), NULL },
	{ "uidmapping=", set_id_maps, FIELD(uids), "ON_DISK:SHOWN:COUNT[:...]" },
	{ "gidmapping=", set_id_maps, FIELD(gids), "ON_DISK:SHOWN:COUNT[:...]" },
	{ "squash_to_root", set_flag, FIELD(squash_to_root), NULL },
	{ "squash_to_uid=", set_squash_id, FIELD(squash_uid), "a user id" },
	{ "squash_to_gid=", set_squash_id, FIELD(squash_gid), "a group id" },
	{ "static_nlink", set_flag, FIELD(has_static_nlink), NULL },
	{ "noacl", set_flag, FIELD(has_no_acl), NULL },
	{ "xattr_permissions=", set_xattr_permissions, 0, "0, 1 or 2" },
	{ "userxattr", set_flag, FIELD(is_userxattr), NULL },
	{ "volatile", set_flag, FIELD(is_volatile), NULL },
	{ "fsync=", set_not_bool, FIELD(is_volatile), FLAG },
	{ "sync=", set_not_bool, FIELD(is_volatile), FLAG },
	{ "noxattrs=", set_bool, FIELD(has_no_xattrs), FLAG },
	{ "timeout=", set_timeout, 0, "seconds, 0 or more" },
	{ "writeback=", set_writeback, FIELD(writeback), "auto|on|off" },
	{ "cow=", set_cow, FIELD(cow), "map|copy" },
	{ "io=", set_word, FIELD(io), "auto|passthrough|cached|direct" },
	{ "coherence=", set_word, FIELD(coherence), "auto|strict|fast" },
	{ "share=", set_word, FIELD(share), "off|pages" },
	{ "partial=", set_word, FIELD(partial), "auto|cached|direct" },
	{ "locks=", set_word, FIELD(locks), "local|server" },
	{ "branches=", set_word, FIELD(branches), "off|on" },
	{ "squash=", set_squash, 0, "off or a number of snapshots" },
	{ "promote=", set_promote, FIELD(promote),
	  "off|auto|eager|written, or bytes a second, with K, M or G behind them" },
	{ "promote_max=", set_promote_max, 0, "bytes, with K, M, G or T behind them" },
	{ "cpu-latency=", set_cpu_latency, 0, CPU_LATENCY_FORM },
	{ "copies=", set_copies, 0, "auto, all or a number of mounts" },
	{ "layers=", set_layers, 0, "auto|static" },
	{ "size=", set_size, 0, "bytes, with K, M, G or T behind them" },
	{ "inodes=", set_inodes, 0, "a number, with k or m behind it" },
	{ "prefetch=", set_word, FIELD(prefetch), "off|read|full" },
	{ "prefetch_window=", set_window, 0, "seconds, above 0 and at most 60" },
	{ "private", set_flag, FIELD(is_private), NULL },
	{ "standalone", set_flag, FIELD(is_standalone), NULL },
	{ "strict", set_flag, FIELD(is_strict), NULL },
	{ "redirect_dir=", set_redirect_dir, 0, NULL },
	{ "xino=", ignore_word, 0, "off|auto|on" },
	{ "debug", set_debug, FIELD(is_debug), NULL },
	{ "threaded=", ignore_integer, 0, "a number" },
	{ "fast_ino=", ignore_integer, 0, "a number" },
	{ "fast_ino_check=", ignore_integer, 0, "a number" },
	{ "plugins=", ignore, 0, NULL },
	{ "context=", ignore, 0, NULL },
	{ "ino32_t", ignore, 0, NULL },
	{ "splice_write", ignore, 0, NULL },
	{ "splice_read", ignore, 0, NULL },
	{ "splice_move", ignore, 0, NULL },
	{ "kernel_cache", ignore, 0, NULL },
	{ "max_write", ignore, 0, NULL },
	{ "max_write=", ignore, 0, NULL },
	/* Some versions of libfuse refuse a session with one of these two. */
	{ "diratime", ignore, 0, NULL },
	{ "nodiratime", ignore, 0, NULL },
	{ "ro", pass_on_access, 0, NULL },
	{ "rw", pass_on_access, 0, NULL },
	{ "suid", pass_on, 0, NULL },
	{ "nosuid", pass_on, 0, NULL },
	{ "dev", pass_on, 0, NULL },
	{ "nodev", pass_on, 0, NULL },
	{ "exec", pass_on, 0, NULL },
	{ "noexec", pass_on, 0, NULL },
	{ "atime", set_atime, 0, NULL },
	{ "noatime", set_atime, 0, NULL },
	{ "allow_root", allow_root, 0, NULL },
	{ "allow_other", allow_other, 0, NULL },
	{ "default_permissions", pass_on, 0, NULL },
};

int options_set(struct options_parser *p, char *opt)
{
	size_t len = strcspn(opt, "=");

	if (opt[0] == '\0')
		return 0;
	if (opt[len] == '=')
		len++;
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		size_t value_len;

		if (strncmp(rows[i].name, opt, len) != 0 || rows[i].name[len] != '\0')
			continue;
		value_len = strlen(opt + len);
		if (value_len >= 2 && opt[len] == '"' && opt[len + value_len - 1] == '"') {
			opt[len + value_len - 1] = '\0';
			len++;
		}
		return rows[i].set(p, &rows[i], opt + len);
	}
	return -ENOENT;
}

/* ---- the options in effect ---- */

__attribute__((format(printf, 2, 3))) static int put(struct buf *b, const char *format, ...)
{
	char text[128];
	va_list ap;
	int n;

	va_start(ap, format);
	n = vsnprintf(text, sizeof(text), format, ap);
	va_end(ap);
	return buf_put(b, text, (size_t)n < sizeof(text) ? (size_t)n : sizeof(text) - 1)
		       ?: buf_put(b, ",", 1);
}

/* Append the word of the form that the field selects. */
static int put_choice(struct buf *b, const struct opt_row *row, int k)
{
	const char *word = row->form;

	for (; k > 0 && strchr(word, '|'); k--)
		word = strchr(word, '|') + 1;
	return put(b, "%s%.*s", row->name, (int)strcspn(word, "|,"), word);
}

static int put_row(struct buf *b, const struct opt_row *row, const struct mount_opts *o)
{
	const char *field = (const char *)o + row->field;

	if (row->set == set_word || row->set == set_cow)
		return put_choice(b, row, *(const int *)field);
	if (row->set == set_promote)
		return put_choice(b, row, (int)o->promote);
	if (row->set == set_layers)
		return put_choice(b, row, o->has_static_layers);
	return (row->set == set_flag || row->set == set_debug) && *(const bool *)field
		       ? put(b, "%s", row->name)
		       : 0;
}

static int put_numbers(struct buf *b, const struct mount_opts *o)
{
	int r = o->has_no_xattrs ? put(b, "noxattrs=1") : 0;

	r = r ?: o->timeout_s != OPTIONS_DEFAULT_TIMEOUT_S ? put(b, "timeout=%g", o->timeout_s) : 0;
	r = r ?: o->cpu_latency == CPU_LATENCY_OFF ? put(b, "cpu-latency=off") : 0;
	r = r ?: o->cpu_latency >= 0 ? put(b, "cpu-latency=%d", o->cpu_latency) : 0;
	r = r ?: o->xattr_permissions ? put(b, "xattr_permissions=%d", o->xattr_permissions) : 0;
	r = r
		    ?: o->promote_max != PROMOTE_POLICY_WRITTEN_MAX
		       ? put(b, "promote_max=%" PRIu64, o->promote_max)
		       : 0;
	r = r ?: o->squash ? put(b, "squash=%" PRIu64, (uint64_t)o->squash) : 0;
	r = r ?: o->max_bytes ? put(b, "size=%" PRIu64, o->max_bytes) : 0;
	return r ?: o->max_inodes ? put(b, "inodes=%" PRIu64, o->max_inodes) : 0;
}

int options_in_effect(const struct mount_opts *o, char **ret)
{
	_cleanup_(buf_release) struct buf b = { 0 };
	int r = 0;

	for (size_t i = 0; r == 0 && i < sizeof(rows) / sizeof(*rows); i++)
		r = put_row(&b, &rows[i], o);
	r = r ?: put_numbers(&b, o);
	r = r ?: buf_put(&b, o->kernel_opts, strlen(o->kernel_opts) + 1);
	if (r == 0)
		*ret = (char *)steal_ptr(&b.data);
	return r;
}
