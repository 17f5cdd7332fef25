// SPDX-License-Identifier: Apache-2.0
#include "veneer/commands.h"

#include "offline.h"

#include "veneer/cleanup.h"
#include "veneer/client.h"
#include "veneer/fdcache.h"
#include "veneer/file.h"
#include "veneer/flatten.h"
#include "veneer/keep.h"
#include "veneer/log.h"
#include "veneer/mount.h"
#include "veneer/rmtree.h"

#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>

/* In the upper: hidden from every mount of the layer, and on its file system. */
#define OWN_WORK_DIR ".wh..wh.flatten"
#define REDRAW_MS 100

static int print_usage(FILE *out)
{
	fprintf(out,
		"usage: veneer flatten [--quiet] -o lowerdir=A[:B...],upperdir=U[,workdir=W]\n"
		"       veneer flatten [--quiet] --in-place MOUNTPOINT|U\n"
		"       veneer flatten [--quiet] --in-place -o lowerdir=A[:B...],upperdir=U[,workdir=W]\n\n"
		"Make the upper U, which is not mounted, a layer of plain files that overlayfs and fuse-overlayfs read:\n"
		"blocks that partial files have in lower layers are copied into them, directories that were renamed get\n"
		"copies of what is merged into them, and the block map goes. It can be stopped at any moment and run again.\n"
		"With --in-place, the same of a mount that is in use, by the server that serves it: all partial files become\n"
		"plain ones, whoever has them open; renamed directories stay as they are, and so does an empty map. The third\n"
		"form does that if U is mounted, and otherwise what the first does.\n"
		"Exit code: 0; 1 when something was left as it is, or it had to stop; 2 for wrong usage.\n");
	return out == stderr ? 2 : 0;
}

/* ---- progress ---- */

struct progress {
	bool is_shown;
	uint64_t start_ms, drawn_ms;
};

/* What a server says of its work. */
struct live {
	struct progress shown;
	struct promote_progress last;
};

static uint64_t now_ms(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000 + (uint64_t)ts.tv_nsec / 1000000;
}

static const char *bytes_text(char out[32], uint64_t n)
{
	static const char *const units[] = { "B", "KiB", "MiB", "GiB", "TiB" };
	double v = (double)n;
	size_t u = 0;

	while (v >= 1024 && u + 1 < sizeof(units) / sizeof(*units)) {
		v /= 1024;
		u++;
	}
	snprintf(out, 32, v < 10 && u ? "%.1f %s" : "%.0f %s", v, units[u]);
	return out;
}

static void draw_live(void *arg, const struct promote_progress *s)
{
	struct live *l = arg;
	uint64_t now = now_ms();
	char done[32];

	l->last = *s;
	if (!l->shown.is_shown || now - l->shown.drawn_ms < REDRAW_MS)
		return;
	l->shown.drawn_ms = now;
	fprintf(stderr, "\r%zu of %zu files, %s\033[K", s->files, s->nfiles, bytes_text(done, s->bytes));
	fflush(stderr);
}

static void draw(void *arg, const struct flatten_stats *s)
{
	struct progress *p = arg;
	uint64_t now = now_ms(), passed = now - p->start_ms + 1, rate = s->bytes * 1000 / passed;
	char done[32], all[32], speed[32], left[48] = "";

	if (!p->is_shown || now - p->drawn_ms < REDRAW_MS)
		return;
	p->drawn_ms = now;
	if (rate && s->nbytes > s->bytes)
		snprintf(left, sizeof(left), ", %" PRIu64 " s left", (s->nbytes - s->bytes) / rate + 1);
	fprintf(stderr, "\r%zu of %zu files, %s of %s, %s/s%s\033[K", s->files, s->nfiles, bytes_text(done, s->bytes),
		bytes_text(all, s->nbytes), bytes_text(speed, rate), left);
	if (s->copied)
		fprintf(stderr, ", %zu entries copied\033[K", s->copied);
	fflush(stderr);
}

static void wipe(const struct progress *p)
{
	if (p->is_shown && p->drawn_ms) {
		fprintf(stderr, "\r\033[K");
		fflush(stderr);
	}
}

static void print_end(const char *upper, const struct flatten_stats *s)
{
	char bytes[32];

	if (!s->files && !s->dirs && !s->copied && !s->left) {
		printf("%s: %s\n", upper, s->has_removed_map ? "its map was empty and is gone" : "is flat");
		return;
	}
	printf("%s: %zu files made whole, %s copied into them", upper, s->files > s->left ? s->files - s->left : 0,
	       bytes_text(bytes, s->bytes));
	if (s->dirs || s->copied)
		printf(", %zu renamed directories expanded by %zu entries", s->dirs, s->copied);
	if (s->left)
		printf("; %zu left as they are", s->left);
	printf("\n");
}

/* ---- the mount that nobody sees ---- */

static void say_why(const char *upper, int r)
{
	if (r == -ENOSPC || r == -EDQUOT)
		log_error("%s: no room left; it shows what it showed, run this again when there is room", upper);
	else
		log_error("%s: stopped: %s", upper, strerror(-r));
}

/* Under the lock, which mount_open takes once more. */
static int prepare(int rootfd, struct mount_opts *opts, struct keep *times, bool *ret_is_own_work)
{
	int r = mount_lock_upper(rootfd), is_old;

	if (r == -EBUSY) {
		log_error("upperdir %s is in use by a mount", opts->upper);
		return r;
	}
	is_old = keep_load(rootfd, times);
	r = is_old == 0 ? keep_take(rootfd, times) : is_old < 0 ? is_old : 0;
	*ret_is_own_work = !opts->work;
	if (r == 0 && !opts->work) {
		if (mkdirat(rootfd, OWN_WORK_DIR, 0700) < 0 && errno != EEXIST)
			r = -errno;
		if (r == 0 && asprintf(&opts->work, "%s/" OWN_WORK_DIR, opts->upper) < 0) {
			opts->work = NULL;
			r = -ENOMEM;
		}
	}
	if (r < 0)
		say_why(opts->upper, r);
	flock(rootfd, LOCK_UN);
	return r;
}

static int flatten(struct mount_opts *opts, bool is_quiet)
{
	_cleanup_(freep) char *upper = strdup(opts->upper);
	struct progress p = { .is_shown = !is_quiet && isatty(STDERR_FILENO), .start_ms = now_ms() };
	struct flatten_stats s;
	char err[PATH_MAX * 2] = "";
	struct mount m;
	int r;

	if (!upper)
		return -ENOMEM;
	r = mount_open(&m, opts, err, sizeof(err));
	if (r < 0) {
		log_error("%s", err);
	} else {
		r = flatten_tree(&m.tree, draw, &p, &s);
		wipe(&p);
		if (r < 0)
			say_why(upper, r);
		else if (!is_quiet)
			print_end(upper, &s);
	}
	mount_close(&m);
	return r < 0 ? r : s.left > 0;
}

static int flatten_offline(struct mount_opts *opts, bool is_quiet)
{
	_cleanup_(closep) int rootfd = -1;
	struct keep times;
	bool is_own_work = false;
	int r;

	umask(0);
	signal(SIGXFSZ, SIG_IGN);
	fdcache_init();
	file_guard_init();
	rootfd = open(opts->upper, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (rootfd < 0) {
		log_error("cannot open upperdir %s: %s", opts->upper, strerror(errno));
		return 1;
	}
	r = prepare(rootfd, opts, &times, &is_own_work);
	if (r == 0)
		r = flatten(opts, is_quiet);
	if (r != -EBUSY) {
		if (is_own_work)
			rmtree(rootfd, OWN_WORK_DIR);
		keep_put_back(rootfd, &times);
	}
	return r != 0;
}

/* ---- the mount that is in use ---- */

static void print_live_end(const char *path, const struct promote_progress *s)
{
	char bytes[32], cloned[32];

	printf("%s: %zu files made whole, %s brought into them", path, s->files, bytes_text(bytes, s->bytes));
	if (s->cloned)
		printf(", %s of it cloned", bytes_text(cloned, s->cloned));
	if (s->left)
		printf("; %zu left as they are (the server's log says why)", s->left);
	printf("\n");
}

/* Exit code; -ENOENT: no server has it, and err says so. */
static int flatten_live(const char *path, bool is_quiet, char *err, size_t err_size)
{
	struct live live = { .shown = { .is_shown = !is_quiet && isatty(STDERR_FILENO), .start_ms = now_ms() } };
	_cleanup_(rundir_release) struct rundir at = { .fd = -1 };
	_cleanup_(closep) int fd = -1;
	struct stat st;
	int r = stat(path, &st) < 0 ? -errno : 0;

	if (r < 0 || !S_ISDIR(st.st_mode)) {
		log_error("%s: %s", path, strerror(r < 0 ? -r : ENOTDIR));
		return 1;
	}
	r = rundir_open(&at, err, err_size);
	r = r ?: client_connect(&at, false, &fd, err, err_size);
	if (r == -ENOENT)
		snprintf(err, err_size, "no server is running: nobody listens at %s", at.path);
	r = r ?: client_flatten(fd, st.st_dev, st.st_ino, draw_live, &live, err, err_size);
	wipe(&live.shown);
	if (r == -ENOENT)
		return r;
	if (r < 0)
		log_error("%s: %s", path, err);
	else if (!is_quiet)
		print_live_end(path, &live.last);
	return r < 0 || live.last.left > 0;
}

static int in_place(const char *path, bool is_quiet)
{
	char err[PATH_MAX * 2] = "";
	int r = flatten_live(path, is_quiet, err, sizeof(err));

	if (r != -ENOENT)
		return r;
	log_error("%s: %s; what nobody has mounted needs -o lowerdir=...,upperdir=...", path, err);
	return 1;
}

int cmd_flatten(int argc, char **argv)
{
	char err[PATH_MAX * 2] = "";
	struct offline_args args;
	struct mount_opts opts;
	int r = -ENOENT;

	if (argc < 2 || offline_arguments(argc, argv, "--quiet --in-place", true, &args) < 0)
		return print_usage(stderr);
	if (args.wants_help)
		return print_usage(stdout);
	if (args.path && args.is_in_place && !args.nlists)
		return in_place(args.path, args.is_quiet);
	if (args.path)
		return print_usage(stderr);
	if (offline_options(&args, &opts) < 0)
		return 2;
	if (args.is_in_place)
		r = flatten_live(opts.upper, args.is_quiet, err, sizeof(err));
	if (r == -ENOENT)
		r = flatten_offline(&opts, args.is_quiet);
	options_release(&opts);
	return r;
}
