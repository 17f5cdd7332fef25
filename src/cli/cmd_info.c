// SPDX-License-Identifier: Apache-2.0
/* Prints the features that work here, the reasons why others do not, and the properties of a
 * mount. */
#include "commands.h"

#include "mount_find.h"
#include "usage.h"

#include "veneer/base/cleanup.h"
#include "veneer/base/human_units.h"
#include "veneer/base/log.h"
#include "veneer/server/metrics.h"
#include "veneer/server/sb_registry.h"
#include "veneer/sys/probe.h"

#include <fcntl.h>
#include <getopt.h>
#include <jansson.h>
#include <linux/capability.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/utsname.h>

static int print_usage(void)
{
	printf("usage: veneer info [--json] [MOUNTPOINT|DIRECTORY]\n\n"
	       "Without an argument: the features that work here, and why others do not. For a\n"
	       "mount of veneer: its layers, its options in effect, how files are opened and\n"
	       "why, its quota and its container. For another directory: the features of its\n"
	       "file system for an upper, which are probed with files that are removed again.\n\n"
	       "  --json  one JSON object\n\n"
	       "Exit code: 0; 1 when it cannot be found out; 2 for wrong usage.\n");
	return 0;
}

/* ---- features ---- */

struct features {
	json_t *list; /* or NULL: lines on standard output */
	bool has_failed;
};

/* why: the effect of the feature, or its requirement. */
static void feature(struct features *f, const char *name, bool works, const char *why)
{
	if (!f->list)
		printf("  %-16s %-3s  %s\n", name, works ? "yes" : "no", why);
	else if (json_array_append_new(f->list, json_pack("{ss, sb, ss}", "name", name, "works",
							  works, "why", why)) < 0)
		f->has_failed = true;
}

static bool has_kernel(unsigned major, unsigned minor)
{
	struct utsname u;
	unsigned a, b;

	return uname(&u) == 0 && sscanf(u.release, "%u.%u", &a, &b) == 2 &&
	       (a > major || (a == major && b >= minor));
}

static bool is_first_user_namespace(void)
{
	unsigned inside = 1, outside = 1, len = 0;
	FILE *f = fopen("/proc/self/uid_map", "re");
	bool r = f && fscanf(f, "%u %u %u", &inside, &outside, &len) == 3 && !inside && !outside &&
		 len == UINT32_MAX;

	if (f)
		fclose(f);
	return r;
}

static bool has_admin(void)
{
	unsigned long long caps = 0;
	char line[128];
	FILE *f = fopen("/proc/self/status", "re");

	while (f && fgets(line, sizeof(line), f) && sscanf(line, "CapEff: %llx", &caps) != 1)
		;
	if (f)
		fclose(f);
	return caps >> CAP_SYS_ADMIN & 1;
}

static bool is_in_path(const char *program)
{
	_cleanup_(freep) char *path = strdup(getenv("PATH") ? getenv("PATH") : "/usr/bin:/bin");
	char *rest = path, *dir, name[4096];

	while ((dir = rest ? strsep(&rest, ":") : NULL)) {
		snprintf(name, sizeof(name), "%s/%s", dir, program);
		if (access(name, X_OK) == 0)
			return true;
	}
	return false;
}

static void look_at_machine(struct features *f)
{
	const bool is_root = is_first_user_namespace() && has_admin(), is_admin = has_admin();
	const int fuse = open("/dev/fuse", O_RDWR | O_CLOEXEC);
	char why[128];

	snprintf(why, sizeof(why), "/dev/fuse cannot be opened: %s", strerror(errno));
	if (fuse >= 0)
		close(fuse);
	feature(f, "mount", fuse >= 0 && (is_admin || is_in_path("fusermount3")),
		fuse < 0   ? why
		: is_admin ? "by itself"
		: is_in_path("fusermount3")
			? "by fusermount3"
			: "without CAP_SYS_ADMIN it needs fusermount3(1), of the package fuse3");
	feature(f, "passthrough", is_root && has_kernel(6, 9),
		!has_kernel(6, 9) ? "the kernel reads unchanged files by itself since Linux 6.9"
		: is_root
			? "the kernel reads unchanged files by itself, all mounts and the host "
			  "share their pages"
			: "the kernel lets only root of the machine pass files through: io=cached");
	feature(f, "share=pages", is_admin && sb_registry_is_built(),
		!sb_registry_is_built() ? "built with -Dsharedsb=disabled"
		: is_admin ? "mounts of one image can keep unchanged files once (not by default)"
			   : "needs CAP_SYS_ADMIN in the user namespace");
	feature(f, "recovery", has_kernel(6, 9),
		has_kernel(6, 9)
			? "programs in mounts do not notice when a server is killed"
			: "before Linux 6.9, requests in progress fail when a server is killed");
	feature(f, "memory limit", has_kernel(6, 18),
		has_kernel(6, 18) ? "a server with a limit gives unused inodes back"
				  : "inodes are given back since Linux 6.18");
	feature(f, "trusted.*", is_root,
		is_root ? "marks are kept where users cannot write them"
			: "marks are user.* attributes; only root of the machine avoids them");
	feature(f, "log", log_has_journal() || log_has_syslog(),
		log_has_journal()  ? "servers log to the journal"
		: log_has_syslog() ? "servers log to syslog"
				   : "neither journal nor syslog: messages of servers are lost; "
				     "VENEER_LOG=file:PATH keeps them");
	feature(f, "metrics", metrics_is_built(),
		metrics_is_built() ? "veneer server --metrics answers Prometheus"
				   : "built without libmicrohttpd");
}

static int look_at_directory(struct features *f, const char *path)
{
	_cleanup_(closep) int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	struct probe_dir can;
	int r = fd < 0 ? -errno : probe_work_dir(fd, &can);

	if (r < 0) {
		log_error("%s: cannot be tried as an upper: %s", path, strerror(-r));
		return r;
	}
	feature(f, "writable", !can.is_readonly,
		can.is_readonly ? "the file system is mounted read-only" : "files can be made");
	feature(f, "user.*", can.has_user_xattr,
		can.has_user_xattr ? "first writes copy blocks"
				   : "without attributes first writes copy whole files");
	feature(f, "trusted.*", can.has_trusted_xattr,
		can.has_trusted_xattr ? "marks are kept where users cannot write them"
				      : "needs root of the machine");
	feature(f, "whiteouts", can.has_whiteout,
		can.has_whiteout ? "devices 0:0, as overlayfs has them" : "files called .wh.NAME");
	feature(f, "RENAME_WHITEOUT", can.has_rename_whiteout,
		can.has_rename_whiteout ? "removing takes one step" : "removing takes two steps");
	feature(f, "O_TMPFILE", can.has_tmpfile,
		can.has_tmpfile ? "files without a name"
				: "files begin under a name in the work directory");
	feature(f, "ACLs", can.has_acl,
		can.has_acl ? "access control lists"
			    : "the file system keeps no access control lists");
	feature(f, "one sync", can.has_true_extents,
		can.has_true_extents ? "fsync of a partial file syncs its data alone"
				     : "fsync of a partial file syncs its data and the block map");
	return 0;
}

/* ---- a mount ---- */

__attribute__((format(printf, 2, 3))) static void line(const char *what, const char *format, ...)
{
	_cleanup_(freep) char *raw = NULL, *text = NULL;
	va_list ap;
	int n;

	va_start(ap, format);
	n = vasprintf(&raw, format, ap);
	va_end(ap);
	text = n < 0 ? NULL : report_line(raw);
	printf("  %-16s %s\n", what, text ? text : "?");
}

static void print_quota(const struct report_mount *m)
{
	const struct quota_usage *q = &m->quota;

	if (q->max_bytes)
		line("size=", "%s of %s taken", human_units_bytes(q->bytes).text,
		     human_units_bytes(q->max_bytes).text);
	if (q->max_inodes)
		line("inodes=", "%s of %s taken", human_units_count(q->inodes).text,
		     human_units_count(q->max_inodes).text);
}

static void print_mount(const struct report *r)
{
	const struct report_mount *m = &r->mounts[0];

	line("mount point", "%s", m->mountpoint);
	if (m->container)
		line("container", "%s", m->container);
	for (size_t k = 0; m->lowers && k < m->nlower; k++)
		line(k ? "" : "lower layers", "%s", m->lowers[k]);
	line("upper", "%s", m->upper ? m->upper : "none: the mount is read-only");
	line("options", "%s", m->options ? m->options : "not reported by this server");
	line("files are opened", "%s%s%s", m->mode, m->mode_reason ? ": " : "",
	     m->mode_reason ? m->mode_reason : "");
	if (m->has_quota)
		print_quota(m);
	else
		line("quota", "none");
	line("server", "process %ld, version %s", (long)r->pid, r->version);
}

static int print_mount_json(const struct report *r)
{
	_cleanup_(freep) char *text = NULL;
	int e = report_json(r, &text);
	json_t *all = e < 0 ? NULL : json_loads(text, 0, NULL);
	json_t *m = json_array_get(json_object_get(all, "mounts"), 0), *one = json_object();
	static const char *const keys[] = { "mountpoint", "container", "lowers",      "upper",
					    "options",	  "mode",      "mode_reason", "quota" };

	for (size_t k = 0; one && k < sizeof(keys) / sizeof(*keys); k++)
		if (json_object_get(m, keys[k]) &&
		    json_object_set(one, keys[k], json_object_get(m, keys[k])) < 0)
			e = -ENOMEM;
	if (json_object_set(one, "server", json_object_get(json_object_get(all, "server"), "pid")) <
		    0 ||
	    json_object_set(one, "version", json_object_get(all, "version")) < 0)
		e = -ENOMEM;
	if (e == 0 && (!m || !one || json_dumpf(one, stdout, JSON_INDENT(2)) < 0))
		e = -ENOMEM;
	putchar('\n');
	json_decref(one);
	json_decref(all);
	return e;
}

/* ---- the command ---- */

static int print_features(const char *path, bool is_json)
{
	struct features f = { .list = is_json ? json_array() : NULL };
	json_t *all;
	int r = 0;

	if (!is_json)
		printf("veneer %s, on %s\n", VENEER_VERSION,
		       path ? path : "this machine, for this user");
	if (path)
		r = look_at_directory(&f, path);
	else
		look_at_machine(&f);
	if (r < 0 || !is_json) {
		json_decref(f.list);
		return r;
	}
	all = json_pack("{ss, so}", "version", VENEER_VERSION, "features", f.list);
	r = all && !f.has_failed && json_dumpf(all, stdout, JSON_INDENT(2)) == 0 ? 0 : -ENOMEM;
	putchar('\n');
	json_decref(all);
	return r;
}

/* Exit code. */
static int info(const char *path, bool is_json)
{
	_cleanup_(report_release) struct report one = { .pid = 0 };
	int r = path ? mount_find_look(path, "veneer info", &one) : 0;

	if (r == 0)
		r = print_features(path, is_json);
	else if (r > 0 && is_json)
		r = print_mount_json(&one);
	else if (r > 0)
		print_mount(&one);
	return r < 0;
}

int cmd_info(int argc, char **argv)
{
	static const struct option options[] = {
		{ "json", no_argument, NULL, 'j' },
		{ "help", no_argument, NULL, 'h' },
		{ NULL, 0, NULL, 0 },
	};
	bool is_json = false;
	int c;

	opterr = 0;
	while ((c = getopt_long(argc, argv, ":h", options, NULL)) != -1) {
		if (c == 'h')
			return print_usage();
		if (c == '?') {
			usage_wrong_option(argv, c);
			return usage_hint("info");
		}
		is_json = true;
	}
	if (argc - optind > 1) {
		usage_unexpected(argv[optind + 1]);
		return usage_hint("info");
	}
	return info(argv[optind], is_json);
}
