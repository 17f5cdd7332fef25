// SPDX-License-Identifier: Apache-2.0
/* A mount with a dead server does not answer, so no path is looked up in it. Entries of /proc about
 * mounts and processes are compared as text. */
#include "commands.h"

#include "mount_find.h"
#include "umount_wait.h"
#include "usage.h"

#include "veneer/base/cleanup.h"
#include "veneer/base/log.h"
#include "veneer/tools/report.h"

#include <ctype.h>
#include <dirent.h>
#include <fcntl.h>
#include <getopt.h>
#include <limits.h>
#include <mntent.h>
#include <sched.h>
#include <spawn.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/wait.h>

#define HOLDERS_MAX 10

static int print_usage(void)
{
	printf("usage: veneer umount [-l] MOUNTPOINT...\n\n"
	       "Unmount, and wait until the upper is closed: nothing in it changes after that.\n"
	       "If the mount is busy, the processes that use it are printed. A mount with a dead\n"
	       "server is unmounted as well. Without privileges fusermount3 unmounts.\n\n"
	       "  -l, --lazy  also a busy mount: it leaves the tree at once, and ends when\n"
	       "              nothing uses it any more\n\n"
	       "Exit code: 0; 1 when something stays mounted, or was not; 2 for wrong usage.\n");
	return 0;
}

/* ---- holders ---- */

static bool leads_into(const char *link, const char *path)
{
	const size_t n = strlen(path);
	char to[PATH_MAX];
	ssize_t len = readlink(link, to, sizeof(to) - 1);

	if (len < 0)
		return false;
	to[len] = '\0';
	return !strncmp(to, path, n) &&
	       (to[n] == '\0' || to[n] == '/' || !strncmp(to + n, " (deleted)", 10));
}

static bool has_mapped(const char *pid, const char *path)
{
	char name[PATH_MAX], line[PATH_MAX + 256];
	bool is_found = false;
	FILE *f;

	snprintf(name, sizeof(name), "/proc/%s/maps", pid);
	f = fopen(name, "re");
	while (f && !is_found && fgets(line, sizeof(line), f)) {
		const char *at = strchr(line, '/');

		is_found = at && !strncmp(at, path, strlen(path)) && at[strlen(path)] == '/';
	}
	if (f)
		fclose(f);
	return is_found;
}

static const char *how_held(const char *pid, const char *path)
{
	static const char *const links[] = { "cwd", "root", "exe" };
	static const char *const words[] = { "works in it", "has it as its root",
					     "is a program from it" };
	char name[PATH_MAX];
	bool is_open = false;
	DIR *d;

	for (size_t i = 0; i < sizeof(links) / sizeof(*links); i++) {
		snprintf(name, sizeof(name), "/proc/%s/%s", pid, links[i]);
		if (leads_into(name, path))
			return words[i];
	}
	snprintf(name, sizeof(name), "/proc/%s/fd", pid);
	d = opendir(name);
	for (struct dirent *e = d ? readdir(d) : NULL; e && !is_open; e = readdir(d)) {
		snprintf(name, sizeof(name), "/proc/%s/fd/%s", pid, e->d_name);
		is_open = leads_into(name, path);
	}
	if (d)
		closedir(d);
	return is_open		       ? "has a file open in it"
	       : has_mapped(pid, path) ? "has a file of it mapped"
				       : NULL;
}

/* A server of FUSE file systems may hold layers of other mounts here, until those end. */
static bool is_server(const char *pid)
{
	char name[PATH_MAX], to[PATH_MAX];
	bool is_found = false;
	DIR *d;

	snprintf(name, sizeof(name), "/proc/%s/fd", pid);
	d = opendir(name);
	for (struct dirent *e = d ? readdir(d) : NULL; e && !is_found; e = readdir(d)) {
		ssize_t n = readlinkat(dirfd(d), e->d_name, to, sizeof(to) - 1);

		to[n > 0 ? n : 0] = '\0';
		is_found = !strcmp(to, "/dev/fuse");
	}
	if (d)
		closedir(d);
	return is_found;
}

static void print_holder(const char *pid, const char *how)
{
	char name[PATH_MAX], comm[64] = "?";
	_cleanup_(freep) char *text = NULL;
	FILE *f;

	snprintf(name, sizeof(name), "/proc/%s/comm", pid);
	f = fopen(name, "re");
	if (f && fgets(comm, sizeof(comm), f))
		comm[strcspn(comm, "\n")] = '\0';
	if (f)
		fclose(f);
	text = report_line(comm);
	fprintf(stderr, "  process %s (%s) %s\n", pid, text ? text : "?", how);
}

static void print_mounts_inside(const char *path, size_t *n)
{
	FILE *f = setmntent("/proc/self/mounts", "re");
	struct mntent *m;

	while (f && *n < HOLDERS_MAX && (m = getmntent(f)))
		if (!strncmp(m->mnt_dir, path, strlen(path)) && m->mnt_dir[strlen(path)] == '/') {
			_cleanup_(freep) char *text = report_line(m->mnt_dir);

			fprintf(stderr, "  something is mounted in it: %s\n", text ? text : "?");
			++*n;
		}
	if (f)
		endmntent(f);
}

/* Returns the number of printed holders; *ret_is_layer: layers of another mount are in it. */
static size_t print_holders(const char *path, bool *ret_is_layer)
{
	DIR *d = opendir("/proc");
	size_t n = 0;

	*ret_is_layer = false;
	for (struct dirent *e = d ? readdir(d) : NULL; e && n < HOLDERS_MAX; e = readdir(d)) {
		const char *how = isdigit((unsigned char)e->d_name[0]) ? how_held(e->d_name, path)
								       : NULL;

		if (!how)
			continue;
		if (is_server(e->d_name)) {
			*ret_is_layer = true;
			continue;
		}
		print_holder(e->d_name, how);
		n++;
	}
	if (d)
		closedir(d);
	return n;
}

static void say_who_holds(const char *path)
{
	bool is_layer = false;
	size_t inside = 0, n;

	log_error("%s is in use", path);
	print_mounts_inside(path, &inside);
	if (inside) {
		fprintf(stderr, "  unmount %s first, or all with -l\n",
			inside == 1 ? "that" : "those");
		return;
	}
	n = print_holders(path, &is_layer);
	if (is_layer)
		fprintf(stderr, "  layers of another mount lie in it: unmount that first (`veneer "
				"stats` lists mounts)\n");
	if (!n && !is_layer)
		fprintf(stderr, "  no process that may be looked at holds it: one in another mount "
				"namespace, or the kernel\n");
	if (n)
		fprintf(stderr, "  end %s, or unmount with -l: it goes when %s\n",
			n == 1 ? "it" : "them", n == 1 ? "it does" : "they do");
	else
		fprintf(stderr, "  or unmount with -l: it goes when nothing uses it any more\n");
}

/* ---- unmounting ---- */

static int by_fusermount(const char *path, bool is_lazy)
{
	const char *const argv[] = { "fusermount3", is_lazy ? "-uz" : "-u", "--", path, NULL };
	int status = -1, r;
	pid_t pid;

	r = posix_spawnp(&pid, argv[0], NULL, NULL, (char *const *)argv, environ);
	if (r) {
		log_error("cannot run fusermount3, which unmounts for those without privileges: %s",
			  strerror(r));
		return -r;
	}
	while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
		;
	return status == 0 ? 0 : -EBUSY;
}

/* flags: of umount2. 0 or -errno. */
static int unmount(const char *path, int flags)
{
	struct umount_wait closing;
	int r;

	umount_wait_prepare(&closing, path);
	r = umount2(path, UMOUNT_NOFOLLOW | flags) < 0 ? -errno : 0;
	if (r == -EPERM)
		r = by_fusermount(path, flags & MNT_DETACH);
	if (r == 0)
		umount_wait_until_closed(&closing, flags & MNT_DETACH);
	/* Other users cannot be found for certain: loop devices, exports, processes of other
	 * users. */
	else if (r == -EBUSY && closing.is_held)
		log_error("%s: its server took a request and does not answer; -l unmounts it "
			  "nevertheless",
			  path);
	umount_wait_release(&closing);
	return r;
}

static int unmount_given(const char *given, int flags)
{
	_cleanup_(freep) char *path = mount_find_path(given);
	int r;

	if (!path || !mount_find_is_ours(path)) {
		log_error("%s is not mounted by veneer; `veneer stats` lists what the server has "
			  "mounted",
			  given);
		return 1;
	}
	r = unmount(path, flags);
	if (r == -EBUSY)
		say_who_holds(path);
	else if (r < 0)
		log_error("cannot unmount %s: %s", path, strerror(-r));
	return r < 0;
}

int cmd_umount(int argc, char **argv)
{
	static const struct option options[] = {
		{ "lazy", no_argument, NULL, 'l' },
		{ "help", no_argument, NULL, 'h' },
		{ NULL, 0, NULL, 0 },
	};
	bool is_lazy = false;
	int c, code = 0;

	opterr = 0;
	while ((c = getopt_long(argc, argv, ":hl", options, NULL)) != -1) {
		if (c == 'h')
			return print_usage();
		if (c == '?') {
			usage_wrong_option(argv, c);
			return usage_hint("umount");
		}
		is_lazy = true;
	}
	if (optind == argc) {
		usage_missing("MOUNTPOINT");
		return usage_hint("umount");
	}
	for (; optind < argc; optind++)
		code |= unmount_given(argv[optind], is_lazy ? MNT_DETACH : 0);
	return code;
}

/* ---- for umount(8) ---- */

/* Exit codes of umount(8). */
enum { EXIT_USAGE = 1, EXIT_UMOUNT = 32 };

static int print_helper_usage(void)
{
	printf("usage: umount MOUNTPOINT\n"
	       "       umount.veneer MOUNTPOINT [-flnrv] [-N NAMESPACE]\n\n"
	       "umount(8) runs this helper, which unmounts as `veneer umount` does.\n\n"
	       "  -f            also a mount whose server does not answer\n"
	       "  -l            also a busy mount: it ends when nothing uses it any more\n"
	       "  -r            make a busy mount read-only\n"
	       "  -N NAMESPACE  in this mount namespace\n"
	       "  -n, -v        ignored, as is -t TYPE\n"
	       "  -h, --help    this text\n\n"
	       "Exit code: 0; 1 for wrong usage; 32 when it cannot be unmounted.\n");
	return 0;
}

static int wrong_helper_usage(const char *what)
{
	log_error("%s; umount.veneer --help", what);
	return EXIT_USAGE;
}

static int enter_namespace(const char *path)
{
	_cleanup_(closep) int fd = open(path, O_RDONLY | O_CLOEXEC);

	if (fd >= 0 && setns(fd, CLONE_NEWNS) == 0)
		return 0;
	log_error("cannot enter the mount namespace %s: %s", path, strerror(errno));
	return -errno;
}

struct helper_call {
	const char *mountpoint, *namespace; /* NULL: not given */
	int flags; /* of umount2 */
	bool or_readonly, is_verbose;
};

/* umount(8) has one type for all of FUSE, and runs this for every mount of it. Leave mounts of
 * other programs to umount(8). */
static int by_umount(const struct helper_call *h)
{
	const char *args[8];
	int n = 0;

	args[n++] = "umount";
	args[n++] = "-i";
	if (h->flags & MNT_DETACH)
		args[n++] = "-l";
	if (h->flags & MNT_FORCE)
		args[n++] = "-f";
	if (h->or_readonly)
		args[n++] = "-r";
	if (h->is_verbose)
		args[n++] = "-v";
	args[n++] = h->mountpoint;
	args[n] = NULL;
	execvp(args[0], (char *const *)args);
	log_error("cannot run umount: %s", strerror(errno));
	return EXIT_UMOUNT;
}

static int unmount_for_helper(const struct helper_call *h, const char *path)
{
	int r = unmount(path, h->flags);

	if (r == -EBUSY && h->or_readonly &&
	    mount(NULL, path, NULL, MS_REMOUNT | MS_RDONLY, NULL) == 0)
		return 0;
	if (r == -EBUSY)
		say_who_holds(path);
	else if (r < 0)
		log_error("cannot unmount %s: %s", path, strerror(-r));
	return r < 0 ? EXIT_UMOUNT : 0;
}

/* 0; -1: help was asked for; or an exit code. */
static int parse_helper_call(int argc, char **argv, struct helper_call *h)
{
	int c;

	opterr = 0;
	/* The mount point comes first, and not every getopt looks for options after it. */
	while ((c = getopt(argc, argv, "-fhlnrvt:N:")) != -1) {
		if (c == 'h')
			return -1;
		if (c == '?')
			return wrong_helper_usage("an option is unknown, or lacks its value");
		if (c == 1 && h->mountpoint)
			return wrong_helper_usage("one MOUNTPOINT is needed, and nothing besides");
		if (c == 1)
			h->mountpoint = optarg;
		if (c == 'N')
			h->namespace = optarg;
		h->flags |= c == 'l' ? MNT_DETACH : c == 'f' ? MNT_FORCE : 0;
		h->or_readonly |= c == 'r';
		h->is_verbose |= c == 'v';
	}
	/* The word after "--". */
	if (!h->mountpoint && optind < argc)
		h->mountpoint = argv[optind++];
	return h->mountpoint && optind == argc
		       ? 0
		       : wrong_helper_usage("one MOUNTPOINT is needed, and nothing besides");
}

int cmd_umount_helper(int argc, char **argv)
{
	struct helper_call h = { .mountpoint = NULL };
	_cleanup_(freep) char *path = NULL;
	int code;

	if (argc == 2 && !strcmp(argv[1], "--help"))
		return print_helper_usage();
	code = parse_helper_call(argc, argv, &h);
	if (code)
		return code < 0 ? print_helper_usage() : code;
	if (h.namespace && enter_namespace(h.namespace) < 0)
		return EXIT_UMOUNT;
	path = mount_find_path(h.mountpoint);
	if (!path)
		return wrong_helper_usage("the directory is not there");
	return !h.namespace && !mount_find_is_ours(path) ? by_umount(&h)
							 : unmount_for_helper(&h, path);
}
