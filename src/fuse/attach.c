// SPDX-License-Identifier: Apache-2.0
#include "veneer/attach.h"

#include "veneer/cleanup.h"
#include "veneer/log.h"

#include <fcntl.h>
#include <fuse_lowlevel.h>
#include <linux/capability.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#define READAHEAD_KIB 512u

struct attach {
	struct fuse_session *se; /* answers nothing: it knows how to mount */
	char *mountpoint;
	uint64_t mount_id;	/* 0: could not be told */
	unsigned dev_major, dev_minor;
};

/* libfuse says why a mount failed on its own; kept for our one sentence. */
static _Thread_local char fuse_message[256];

static void keep_message(enum fuse_log_level level, const char *fmt, va_list ap)
{
	(void)level;
	vsnprintf(fuse_message, sizeof(fuse_message), fmt, ap);
	fuse_message[strcspn(fuse_message, "\n")] = '\0';
	log_debug("libfuse: %s", fuse_message);
}

/* The mount that is seen at path, without asking whoever serves it. False when it cannot be told. */
static bool mount_at(const char *path, struct statx *ret)
{
	return statx(AT_FDCWD, path, AT_STATX_DONT_SYNC | AT_NO_AUTOMOUNT | AT_SYMLINK_NOFOLLOW, STATX_MNT_ID, ret) == 0 &&
	       (ret->stx_mask & STATX_MNT_ID);
}

static void note_mount(struct attach *a)
{
	struct statx stx;

	if (!mount_at(a->mountpoint, &stx))
		return;
	a->mount_id = stx.stx_mnt_id;
	a->dev_major = stx.stx_dev_major;
	a->dev_minor = stx.stx_dev_minor;
}

static int fail_mount(const char *mountpoint, int r, char *err, size_t err_size)
{
	snprintf(err, err_size, "cannot mount at %s: %s", mountpoint, strerror(-r));
	return r;
}

static int new_session(const struct mount_opts *o, bool is_readonly, struct fuse_session **ret)
{
	const struct fuse_lowlevel_ops ops = { .init = NULL };
	_cleanup_(freep) char *options = NULL;
	struct fuse_args args = FUSE_ARGS_INIT(0, NULL);

	/* Opens are not asked about, so without an upper the kernel must know that nothing can be written. */
	if (asprintf(&options, "-o%s%s", o->kernel_opts, is_readonly ? ",ro" : "") >= 0 &&
	    fuse_opt_add_arg(&args, "veneer") == 0 && fuse_opt_add_arg(&args, options) == 0)
		*ret = fuse_session_new(&args, &ops, sizeof(ops), NULL);
	fuse_opt_free_args(&args);
	return *ret ? 0 : -ENOMEM;
}

int attach_new(const struct mount_opts *o, bool is_readonly, struct attach **ret, char *err, size_t err_size)
{
	struct attach *a = calloc(1, sizeof(*a));

	fuse_set_log_func(keep_message);
	*fuse_message = '\0';
	if (!a || !(a->mountpoint = strdup(o->mountpoint)) || new_session(o, is_readonly, &a->se) < 0) {
		snprintf(err, err_size, "cannot mount at %s: %s", o->mountpoint, *fuse_message ? fuse_message : "out of memory");
		attach_free(a);
		return -ENOMEM;
	}
	if (fuse_session_mount(a->se, a->mountpoint) != 0) {
		snprintf(err, err_size, "cannot mount at %s: %s", a->mountpoint, *fuse_message ? fuse_message : strerror(errno));
		attach_free(a);
		return -EIO;
	}
	note_mount(a);
	*ret = a;
	return 0;
}

/* As libfuse reads the same words. */
static unsigned long mount_flags(const char *kernel_opts)
{
	static const struct {
		const char *word;
		unsigned long flag;
		bool is_set;
	} words[] = {
		{ "suid", MS_NOSUID, false }, { "nosuid", MS_NOSUID, true }, { "dev", MS_NODEV, false },
		{ "nodev", MS_NODEV, true },  { "exec", MS_NOEXEC, false },  { "noexec", MS_NOEXEC, true },
		{ "noatime", MS_NOATIME, true },
	};
	unsigned long flags = MS_NOSUID | MS_NODEV;

	for (const char *p = kernel_opts; *p; p += strcspn(p, ","), p += *p == ',')
		for (size_t i = 0; i < sizeof(words) / sizeof(*words); i++)
			if (strcspn(p, ",") == strlen(words[i].word) && !strncmp(p, words[i].word, strlen(words[i].word)))
				flags = words[i].is_set ? flags | words[i].flag : flags & ~words[i].flag;
	return flags;
}

/* The kernel makes no new file system of a descriptor that has one. */
int attach_join(const struct mount_opts *o, int fuse_fd, struct attach **ret, char *err, size_t err_size)
{
	struct attach *a = calloc(1, sizeof(*a));
	char data[128];

	if (!a || !(a->mountpoint = strdup(o->mountpoint))) {
		attach_free(a);
		return fail_mount(o->mountpoint, -ENOMEM, err, err_size);
	}
	snprintf(data, sizeof(data), "fd=%d,rootmode=40000,user_id=%u,group_id=%u", fuse_fd, (unsigned)getuid(),
		 (unsigned)getgid());
	if (mount("fuse-overlayfs", a->mountpoint, "fuse.fuse-overlayfs", mount_flags(o->kernel_opts), data) < 0) {
		int r = -errno;

		attach_free(a);
		return fail_mount(o->mountpoint, r, err, err_size);
	}
	note_mount(a);
	*ret = a;
	return 0;
}

bool attach_may_bind(void)
{
	struct __user_cap_header_struct head = { .version = _LINUX_CAPABILITY_VERSION_3 };
	struct __user_cap_data_struct data[2];

	return syscall(SYS_capget, &head, data) == 0 && data[0].effective & 1u << CAP_SYS_ADMIN;
}

/* By way of the mount point: what is mounted nowhere cannot be bound before Linux 6.15. */
int attach_narrow(struct attach *a, const char *name, char *err, size_t err_size)
{
	_cleanup_(freep) char *path = NULL;
	_cleanup_(closep) int fd = -1;
	int r = 0;

	if (asprintf(&path, "%s/%s", a->mountpoint, name) < 0)
		return fail_mount(a->mountpoint, -ENOMEM, err, err_size);
	fd = open_tree(AT_FDCWD, path, OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC);
	if (fd < 0 || umount2(a->mountpoint, MNT_DETACH) < 0)
		r = -errno;
	else if (move_mount(fd, "", AT_FDCWD, a->mountpoint, MOVE_MOUNT_F_EMPTY_PATH) < 0)
		r = -errno;
	if (r < 0)
		return fail_mount(a->mountpoint, r, err, err_size);
	note_mount(a);
	return 0;
}

int attach_fd(const struct attach *a)
{
	return a->se ? fuse_session_fd(a->se) : -1;
}

void attach_device(const struct attach *a, unsigned *ret_major, unsigned *ret_minor)
{
	*ret_major = a->dev_major;
	*ret_minor = a->dev_minor;
}

/* 128 KiB ahead, the kernel's default, make eight requests of a MiB; FUSE can only ask for less. Takes root of the
 * machine; without it reading from end to end takes more requests, and nothing else is lost. */
void attach_tune(const struct attach *a)
{
	_cleanup_(closep) int fd = -1;
	char path[64], now[16] = "";

	snprintf(path, sizeof(path), "/sys/class/bdi/%u:%u/read_ahead_kb", a->dev_major, a->dev_minor);
	fd = a->mount_id ? open(path, O_RDWR | O_CLOEXEC) : -1;
	if (fd >= 0 && read(fd, now, sizeof(now) - 1) > 0 && strtoul(now, NULL, 10) < READAHEAD_KIB &&
	    dprintf(fd, "%u", READAHEAD_KIB) < 0)
		log_debug("%s: %s", path, strerror(errno));
}

int attach_detach(struct attach *a)
{
	struct statx stx;

	/* Our mount may have been detached, and another be in its place. */
	if (!mount_at(a->mountpoint, &stx) || stx.stx_mnt_id != a->mount_id)
		return -ENOENT;
	if (umount2(a->mountpoint, MNT_DETACH) == 0)
		return 0;
	if (errno != EPERM)
		return -errno;
	/* Without privileges, by the program that mounted it. */
	if (a->se)
		fuse_session_unmount(a->se);
	return 0;
}

bool attach_is_detached(const struct attach *a)
{
	_cleanup_(freep) char *line = NULL;
	unsigned dev_major, dev_minor;
	bool is_detached = a->mount_id != 0;
	size_t size = 0;
	FILE *f = fopen("/proc/self/mountinfo", "re");

	if (!f)
		return false;
	/* Another mount of it, a bind mount for one, counts too. */
	while (getline(&line, &size, f) > 0)
		if (sscanf(line, "%*u %*u %u:%u", &dev_major, &dev_minor) != 2 ||
		    (dev_major == a->dev_major && dev_minor == a->dev_minor))
			is_detached = false;
	if (ferror(f))
		is_detached = false;
	fclose(f);
	return is_detached;
}

/* libfuse frees what it knows of a mount only when it unmounts it, unless its descriptor says that the mount is gone: a
 * pipe that nobody reads says so as well. */
static bool put_pipe_in_its_place(struct attach *a)
{
	int ends[2];
	bool r;

	if (fuse_session_fd(a->se) < 0 || pipe2(ends, O_CLOEXEC) < 0)
		return false;
	close(ends[0]);
	r = dup3(ends[1], fuse_session_fd(a->se), O_CLOEXEC) >= 0;
	close(ends[1]);
	return r;
}

void attach_disown(struct attach *a)
{
	if (a->se)
		put_pipe_in_its_place(a);
}

static void let_go(struct attach *a)
{
	if (put_pipe_in_its_place(a))
		fuse_session_unmount(a->se);
}

void attach_free(struct attach *a)
{
	if (!a)
		return;
	if (a->se) {
		let_go(a);
		fuse_session_destroy(a->se);
	}
	free(a->mountpoint);
	free(a);
}
