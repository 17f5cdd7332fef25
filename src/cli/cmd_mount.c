// SPDX-License-Identifier: Apache-2.0
/* The mount program, which Podman, Docker and mount(8) run. It opens the directories in the
 * caller's namespaces, hands them to the server, mounts, and returns when the mount answers. */
#include "commands.h"

#include "veneer/base/cleanup.h"
#include "veneer/base/log.h"
#include "veneer/fuse/attach.h"
#include "veneer/prefetch/state_dir.h"
#include "veneer/server/client.h"
#include "veneer/server/sandbox_setup.h"
#include "veneer/server/standalone.h"

#include <fcntl.h>
#include <fuse_lowlevel.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#define ERR_SIZE (PATH_MAX * 2)

static int print_version(void)
{
	printf("fuse-overlayfs: version %s (veneer)\n", VENEER_VERSION);
	printf("FUSE library version %s\n", fuse_pkgversion());
	return 0;
}

static int print_help(void)
{
	printf("usage: veneer [mount] [-f] [-d] -o OPTION[,OPTION...] MOUNTPOINT\n"
	       "\n"
	       "  -f                      stay in the foreground\n"
	       "  -d, --debug             foreground, and print each request\n"
	       "  -h, --help              this text\n"
	       "  -V, --version           version, in fuse-overlayfs's form\n"
	       "\n"
	       "  lowerdir=A[:B...]       read-only layers, the top one first; required\n"
	       "  upperdir=U              where changes go; without it the mount is read-only\n"
	       "  workdir=W               an empty directory on the file system of U\n"
	       "  uidmapping=D:P:N[:...]  N ids from D on disk are shown from P on; gidmapping=\n"
	       "  squash_to_root          show everything as owned by 0:0\n"
	       "  squash_to_uid=N         show this owner; squash_to_gid=N\n"
	       "  cow=map|copy            copy up blocks (default), or whole files\n"
	       "  io=auto|passthrough|cached|direct\n"
	       "                          how files are opened (default: auto)\n"
	       "  coherence=auto|strict|fast\n"
	       "                          which unchanged files passthrough takes (auto)\n"
	       "  partial=auto|cached|direct\n"
	       "                          how passthrough reads files changed in part (auto)\n"
	       "  writeback=auto|on|off   on: the kernel sends writes later (io=cached)\n"
	       "  promote=off|auto|eager|written|RATE\n"
	       "                          complete files changed in part (default: written)\n"
	       "  promote_max=SIZE        limit of the data copied by that, in all (1G)\n"
	       "  share=off|pages         one page cache for all mounts of an image (off)\n"
	       "  locks=local|server      keep file locks in the kernel (default) or server\n"
	       "  branches=off|on         on: a snapshot can always be taken (io=auto)\n"
	       "  squash=off|N            above 2N snapshots, merge the oldest (off)\n"
	       "  copies=auto|N|all       in how many mounts data stays cached (io=cached)\n"
	       "  cpu-latency=auto|off|US\n"
	       "                          how long waking a processor may take (auto)\n"
	       "  layers=auto|static      static: remote layers do not change, and are shared\n"
	       "  prefetch=off|read|full  read ahead the first reads of starts (off)\n"
	       "  prefetch_window=SEC     how long a start lasts (default: 15)\n"
	       "  size=BYTES, inodes=N    limits of U (K, M, G, T; k, m; default: none)\n"
	       "  volatile, fsync=0|1, sync=0|1\n"
	       "                          volatile and fsync=0: no sync before the end\n"
	       "  xattr_permissions=0|1|2\n"
	       "                          owners and modes: in inodes (0) or in attributes of U\n"
	       "  userxattr               trust user.* attributes with privileges, too\n"
	       "  noxattrs=0|1            1: no extended attributes\n"
	       "  noacl                   no POSIX ACLs\n"
	       "  static_nlink            link count 1 for directories\n"
	       "  redirect_dir=off        no renames of directories of lower layers (EXDEV)\n"
	       "  private                 makes cow=copy the default\n"
	       "  standalone              a process for this mount alone\n"
	       "  strict                  an unknown option is an error\n"
	       "  debug                   the same as -d\n"
	       "  timeout=SECONDS         how long the kernel keeps names (default: for ever)\n"
	       "  ro, rw, suid, nosuid, dev, nodev, exec, noexec, atime, noatime\n"
	       "                          flags of the mount, see mount(8)\n"
	       "  allow_other, default_permissions\n"
	       "                          access by others, see mount.fuse3(8)\n"
	       "  allow_root              access by root alone, if root mounts\n"
	       "\n"
	       "Without effect, for callers of fuse-overlayfs; any other option is ignored:\n"
	       "\n"
	       "  threaded=0|1, fast_ino=0|1, fast_ino_check=0|1, ino32_t\n"
	       "  xino=off|auto|on, context=LABEL, plugins=PATHS, max_write, max_write=N\n"
	       "  splice_read, splice_write, splice_move, kernel_cache, diratime, nodiratime\n"
	       "\n"
	       "Exit code: 0 when the mount answers; 1, and a sentence on standard error.\n");
	return 0;
}

/* Mount by the server, or in a process of its own if no server can be had. */
static int mount_by_server(struct mount_opts *opts, struct mount_dirs *dirs, int argc, char **argv,
			   const char *cwd)
{
	const struct client_mount m = {
		.argc = argc,
		.argv = argv,
		.cwd = cwd,
		.is_root = geteuid() == 0,
		.opts = opts,
		.dirs = dirs,
	};
	_cleanup_(rundir_release) struct rundir at = { .fd = -1 };
	char err[ERR_SIZE] = "";
	int r;

	if (opts->io == IO_AUTO || opts->io == IO_PASSTHROUGH)
		mount_dirs_clone(dirs);
	r = rundir_open(&at, err, sizeof(err)) < 0 ? CLIENT_NO_SERVER
						   : client_mount(&at, &m, err, sizeof(err));
	if (r == CLIENT_NO_SERVER) {
		log_warn("%s: this mount gets a server of its own", err);
		rundir_release(&at);
		return standalone_start(opts, dirs);
	}
	if (r < 0)
		log_error("%s", err);
	return r < 0 ? 1 : 0;
}

/* The rule of fusermount3, whose own message is less clear and comes after everything is open. */
static bool is_place_for_users(const char *path, const struct stat *st)
{
	return getuid() == 0 ||
	       (access(path, W_OK) == 0 && (!(st->st_mode & S_ISVTX) || st->st_uid == getuid()));
}

/* Check the mount point before a server is asked or started. The kernel would also mount on a file,
 * which is of no use. */
static int check_place(const char *path)
{
	struct stat st;
	int r = stat(path, &st) < 0 ? errno : S_ISDIR(st.st_mode) ? 0 : ENOTDIR;

	if (r == ENOTCONN)
		log_error("cannot mount at %s: the server of a mount there is dead; `veneer "
			  "umount` takes it away",
			  path);
	else if (r)
		log_error("cannot mount at %s: %s", path, strerror(r));
	else if (!attach_may_bind() && !is_place_for_users(path, &st)) {
		log_error("cannot mount at %s: without privileges it takes a directory that the "
			  "user may write, and owns if it is sticky",
			  path);
		return -EACCES;
	}
	return -r;
}

/* libfuse advises to load the module, which does not help in a container. */
static int check_device(const char *mountpoint)
{
	_cleanup_(closep) int fd = open("/dev/fuse", O_RDWR | O_CLOEXEC);
	const int r = fd < 0 ? errno : 0;

	if (r == ENOENT || r == ENODEV || r == ENXIO)
		log_error("cannot mount at %s: /dev/fuse is not there: in a container it takes "
			  "`--device /dev/fuse`, on a machine `modprobe fuse`",
			  mountpoint);
	else if (r == EPERM || r == EACCES)
		log_error("cannot mount at %s: cannot open /dev/fuse: %s; in a container it takes "
			  "`--device /dev/fuse`",
			  mountpoint, strerror(r));
	else
		return 0;
	return -r;
}

static int run(struct mount_opts *opts, int argc, char **argv, const char *cwd)
{
	const bool is_foreground = opts->is_foreground || opts->is_debug;
	_cleanup_(mount_dirs_release) struct mount_dirs dirs;
	char err[ERR_SIZE] = "";

	sandbox_setup_prepare();
	/* Descriptors of the caller must not stay open as long as the mount lives. */
	if (!is_foreground)
		close_range(3, ~0u, 0);
	if (mount_dirs_open(opts, &dirs, err, sizeof(err)) < 0) {
		log_error("%s", err);
		return 1;
	}
	if (check_place(opts->mountpoint) < 0 || check_device(opts->mountpoint) < 0)
		return 1;
	if (opts->prefetch != PREFETCH_OFF && state_dir_is_wanted())
		dirs.state = state_dir_ask();
	if (is_foreground)
		return standalone_run(opts, &dirs, -1);
	return opts->is_standalone ? standalone_start(opts, &dirs)
				   : mount_by_server(opts, &dirs, argc, argv, cwd);
}

int cmd_mount(int argc, char **argv)
{
	_cleanup_(options_release) struct mount_opts opts;
	char cwd[PATH_MAX], err[ERR_SIZE] = "out of memory";

	sandbox_setup_hold_standard_fds();
	if (!getcwd(cwd, sizeof(cwd)))
		strcpy(cwd, "/");
	if (options_parse(&(struct options_argv){ argc, argv, cwd, geteuid() == 0, false }, &opts,
			  err, sizeof(err)) < 0) {
		opts = (struct mount_opts){ 0 };
		log_error("%s", err);
		return 1;
	}
	if (opts.wants_help)
		return print_help();
	if (opts.wants_version)
		return print_version();
	for (size_t i = 0; i < opts.n_unknown; i++)
		log_warn("unknown argument ignored: %s", opts.unknown[i]);
	if (opts.is_debug)
		log_set_level(LOG_LVL_DEBUG);
	opts.has_no_device_whiteouts = getenv("FUSE_OVERLAYFS_DISABLE_OVL_WHITEOUT") != NULL;
	return run(&opts, argc, argv, cwd);
}
