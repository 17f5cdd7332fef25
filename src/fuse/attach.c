// SPDX-License-Identifier: Apache-2.0
#include "veneer/fuse/attach.h"

#include "veneer/base/cleanup.h"
#include "veneer/base/log.h"

#include <fcntl.h>
#include <fuse_lowlevel.h>
#include <linux/capability.h>
#include <pthread.h>
#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#define READAHEAD_KIB	     512u
#define FIRST_USER_NAMESPACE 0xeffffffdu /* its inode: PROC_USER_INIT_INO of linux/proc_ns.h */

struct attach {
	struct fuse_session *se; /* mounts and answers nothing; NULL where libfuse did not mount */
	int fuse_fd; /* of a file system made without libfuse; -1: se has it, or another attach */
	int detached_fd; /* the mount, attached nowhere; -1 */
	char *mountpoint;
	uint64_t mount_id; /* 0: not known */
	unsigned dev_major, dev_minor;
};

/* The last log line of libfuse, for our one sentence about a failed mount. */
static _Thread_local char fuse_message[256];

static void keep_message(enum fuse_log_level level, const char *fmt, va_list ap)
{
	(void)level;
	vsnprintf(fuse_message, sizeof(fuse_message), fmt, ap);
	fuse_message[strcspn(fuse_message, "\n")] = '\0';
	log_debug("libfuse: %s", fuse_message);
}

/* Find the mount that is seen at path, or that fd belongs to, without asking its server. False: not
 * known. */
static bool mount_at(int fd, const char *path, struct statx *ret)
{
	return statx(fd, path,
		     AT_EMPTY_PATH | AT_STATX_DONT_SYNC | AT_NO_AUTOMOUNT | AT_SYMLINK_NOFOLLOW,
		     STATX_MNT_ID, ret) == 0 &&
	       (ret->stx_mask & STATX_MNT_ID);
}

static void note_mount(struct attach *a, int fd, const char *path)
{
	struct statx stx;

	if (!mount_at(fd, path, &stx))
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

static struct attach *new_attach(const struct mount_opts *o)
{
	struct attach *a = calloc(1, sizeof(*a));

	if (!a)
		return NULL;
	a->fuse_fd = a->detached_fd = -1;
	a->mountpoint = strdup(o->mountpoint);
	if (!a->mountpoint) {
		free(a);
		return NULL;
	}
	return a;
}

static int new_session(const struct mount_opts *o, bool is_readonly, struct fuse_session **ret)
{
	const struct fuse_lowlevel_ops ops = { .init = NULL };
	_cleanup_(freep) char *options = NULL;
	struct fuse_args args = FUSE_ARGS_INIT(0, NULL);

	/* The kernel sends no OPEN, so it must know itself that a mount without an upper is
	 * read-only. */
	if (asprintf(&options, "-o%s%s", o->kernel_opts, is_readonly ? ",ro" : "") >= 0 &&
	    fuse_opt_add_arg(&args, "veneer") == 0 && fuse_opt_add_arg(&args, options) == 0)
		*ret = fuse_session_new(&args, &ops, sizeof(ops), NULL);
	fuse_opt_free_args(&args);
	return *ret ? 0 : -ENOMEM;
}

/* ---- detached mounts ---- */

/* Options stand between commas; a backslash escapes a character. */
static char *next_option(char **at)
{
	char *word = *at, *from = word, *to = word;

	if (!*word)
		return NULL;
	while (*from && *from != ',') {
		if (*from == '\\' && from[1])
			from++;
		*to++ = *from++;
	}
	*at = *from ? from + 1 : from;
	*to = '\0';
	return word;
}

static unsigned apply_flag(unsigned attrs, const char *word)
{
	static const struct {
		const char *word;
		unsigned attr;
		bool is_set;
	} words[] = {
		{ "suid", MOUNT_ATTR_NOSUID, false },	 { "nosuid", MOUNT_ATTR_NOSUID, true },
		{ "dev", MOUNT_ATTR_NODEV, false },	 { "nodev", MOUNT_ATTR_NODEV, true },
		{ "exec", MOUNT_ATTR_NOEXEC, false },	 { "noexec", MOUNT_ATTR_NOEXEC, true },
		{ "noatime", MOUNT_ATTR_NOATIME, true }, { "ro", MOUNT_ATTR_RDONLY, true },
		{ "rw", MOUNT_ATTR_RDONLY, false },
	};

	for (size_t i = 0; i < sizeof(words) / sizeof(*words); i++)
		if (!strcmp(word, words[i].word))
			return words[i].is_set ? attrs | words[i].attr : attrs & ~words[i].attr;
	return attrs;
}

/* value: NULL of a flag. */
static int set(int fs, const char *key, const char *value)
{
	return fsconfig(fs, value ? FSCONFIG_SET_STRING : FSCONFIG_SET_FLAG, key, value, 0) < 0
		       ? -errno
		       : 0;
}

static int set_number(int fs, const char *key, unsigned number)
{
	char text[16];

	snprintf(text, sizeof(text), "%u", number);
	return set(fs, key, text);
}

/* Set the same options as libfuse does, so that the mount table reads the same. */
static int set_options(int fs, char *words, unsigned *ret_attrs)
{
	const char *source = "fuse-overlayfs", *word;
	int r = 0;

	*ret_attrs = MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV;
	while (r == 0 && (word = next_option(&words))) {
		if (!strncmp(word, "fsname=", 7))
			source = word + 7;
		else if (!strcmp(word, "default_permissions"))
			r = set(fs, word, NULL);
		else if (!strcmp(word, "allow_other"))
			r = set(fs, word, NULL);
		else
			*ret_attrs = apply_flag(*ret_attrs, word);
	}
	if (r == 0)
		r = set(fs, "source", source);
	return r < 0 ? r : set(fs, "subtype", "fuse-overlayfs");
}

/* Make a detached mount. Of a descriptor that has a file system the kernel makes another mount of
 * that. */
static int make_detached(const struct mount_opts *o, bool is_readonly, int fuse_fd, int *ret)
{
	_cleanup_(freep) char *words = strdup(o->kernel_opts);
	_cleanup_(closep) int fs = fsopen("fuse", FSOPEN_CLOEXEC);
	unsigned attrs = 0;
	int r = !words ? -ENOMEM : fs < 0 ? -errno : set_options(fs, words, &attrs);

	if (is_readonly)
		attrs |= MOUNT_ATTR_RDONLY;
	if (r == 0 && attrs & MOUNT_ATTR_RDONLY)
		r = set(fs, "ro", NULL);
	if (r == 0)
		r = set_number(fs, "fd", (unsigned)fuse_fd);
	if (r == 0)
		r = set(fs, "rootmode", "40000");
	if (r == 0)
		r = set_number(fs, "user_id", getuid());
	if (r == 0)
		r = set_number(fs, "group_id", getgid());
	if (r == 0 && fsconfig(fs, FSCONFIG_CMD_CREATE, NULL, NULL, 0) < 0)
		r = -errno;
	if (r < 0)
		return r;
	*ret = fsmount(fs, FSMOUNT_CLOEXEC, attrs);
	return *ret < 0 ? -errno : 0;
}

/* fuse_fd: -1, or that of the file system, borrowed. */
static int attach_detached(const struct mount_opts *o, bool is_readonly, int fuse_fd,
			   struct attach **ret, char *err, size_t err_size)
{
	_cleanup_(closep) int place = open(o->mountpoint, O_PATH | O_DIRECTORY | O_CLOEXEC);
	struct attach *a;
	int r = 0;

	/* As EIO: callers take ENOTCONN for a file system that has gone. */
	if (place < 0) {
		fail_mount(o->mountpoint, -errno, err, err_size);
		return -EIO;
	}
	a = new_attach(o);
	if (!a)
		return fail_mount(o->mountpoint, -ENOMEM, err, err_size);
	if (fuse_fd < 0 && (a->fuse_fd = open("/dev/fuse", O_RDWR | O_CLOEXEC)) < 0) {
		r = -errno;
		snprintf(err, err_size, "cannot mount at %s: cannot open /dev/fuse: %s",
			 o->mountpoint, strerror(-r));
		attach_free(a);
		return -EIO;
	}
	r = make_detached(o, is_readonly, fuse_fd < 0 ? a->fuse_fd : fuse_fd, &a->detached_fd);
	if (r < 0) {
		attach_free(a);
		return fail_mount(o->mountpoint, r, err, err_size);
	}
	note_mount(a, a->detached_fd, "");
	*ret = a;
	return 0;
}

int attach_new_detached(const struct mount_opts *o, struct attach **ret, char *err, size_t err_size)
{
	return attach_detached(o, false, -1, ret, err, err_size);
}

int attach_join_sb(const struct mount_opts *o, int fuse_fd, struct attach **ret, char *err,
		   size_t err_size)
{
	return attach_detached(o, false, fuse_fd, ret, err, err_size);
}

bool attach_may_bind(void)
{
	struct __user_cap_header_struct head = { .version = _LINUX_CAPABILITY_VERSION_3 };
	struct __user_cap_data_struct data[2];

	return syscall(SYS_capget, &head, data) == 0 && data[0].effective & 1u << CAP_SYS_ADMIN;
}

/* ---- mounts at the mount point ---- */

static int attach_by_libfuse(const struct mount_opts *o, bool is_readonly, struct attach **ret,
			     char *err, size_t err_size)
{
	struct attach *a = new_attach(o);

	*fuse_message = '\0';
	if (!a || new_session(o, is_readonly, &a->se) < 0) {
		snprintf(err, err_size, "cannot mount at %s: %s", o->mountpoint,
			 *fuse_message ? fuse_message : "out of memory");
		attach_free(a);
		return -ENOMEM;
	}
	if (fuse_session_mount(a->se, a->mountpoint) != 0) {
		snprintf(err, err_size, "cannot mount at %s: %s", a->mountpoint,
			 *fuse_message ? fuse_message : strerror(errno));
		attach_free(a);
		return -EIO;
	}
	note_mount(a, AT_FDCWD, a->mountpoint);
	*ret = a;
	return 0;
}

/* As mount(2) would. libfuse 3.17.2 also runs mount(8) for /etc/mtab, even where that is a link
 * into /proc: a confined process cannot, and it takes milliseconds. */
static int attach_by_kernel(const struct mount_opts *o, bool is_readonly, struct attach **ret,
			    char *err, size_t err_size)
{
	int r = attach_detached(o, is_readonly, -1, ret, err, err_size);

	if (r < 0)
		return r;
	r = move_mount((*ret)->detached_fd, "", AT_FDCWD, o->mountpoint,
		       MOVE_MOUNT_F_EMPTY_PATH | MOVE_MOUNT_T_SYMLINKS) < 0
		    ? -errno
		    : 0;
	if (r < 0) {
		attach_free(*ret);
		*ret = NULL;
		return fail_mount(o->mountpoint, r, err, err_size);
	}
	/* An open descriptor would keep the file system when it is unmounted. */
	closep(&(*ret)->detached_fd);
	return 0;
}

/* Linux before 5.2 and filters of system calls do not know it. */
static bool has_fsopen(void)
{
	_cleanup_(closep) int fd = fsopen("fuse", FSOPEN_CLOEXEC);

	return fd >= 0;
}

int attach_new(const struct mount_opts *o, bool is_readonly, struct attach **ret, char *err,
	       size_t err_size)
{
	fuse_set_log_func(keep_message);
	return attach_may_bind() && has_fsopen()
		       ? attach_by_kernel(o, is_readonly, ret, err, err_size)
		       : attach_by_libfuse(o, is_readonly, ret, err, err_size);
}

struct clone_job {
	const struct attach *attach;
	const char *name;
	int result;
};

/* Runs in a thread with a mount namespace of its own, which ends with the thread. Mounts made there
 * do not propagate back. A process that has changed its root never shares a superblock
 * (mountinfo_plain), so "/" is a mount. */
static void *clone_in_namespace(void *arg)
{
	struct clone_job *s = arg;
	const char *mountpoint = s->attach->mountpoint;
	_cleanup_(freep) char *path = NULL;

	if (asprintf(&path, "%s/%s", mountpoint, s->name) < 0) {
		s->result = -ENOMEM;
		return NULL;
	}
	if (unshare(CLONE_NEWNS) < 0 || mount(NULL, "/", NULL, MS_REC | MS_SLAVE, NULL) < 0 ||
	    move_mount(s->attach->detached_fd, "", AT_FDCWD, mountpoint, MOVE_MOUNT_F_EMPTY_PATH) <
		    0 ||
	    (s->result = open_tree(AT_FDCWD, path, OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC)) < 0)
		s->result = -errno;
	return NULL;
}

/* A detached mount of the directory. Before Linux 6.15 the kernel clones nothing of a detached
 * mount: there the file system is attached in a namespace that nobody sees. */
static int clone_subdir(const struct attach *a, const char *name)
{
	struct clone_job s = { .attach = a, .name = name };
	pthread_t thread;
	int r, fd = open_tree(a->detached_fd, name, OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC);

	if (fd >= 0 || errno != EINVAL)
		return fd < 0 ? -errno : fd;
	r = pthread_create(&thread, NULL, clone_in_namespace, &s);
	if (r != 0)
		return -r;
	pthread_join(thread, NULL);
	return s.result;
}

int attach_mount_subdir(struct attach *a, const char *name, char *err, size_t err_size)
{
	_cleanup_(closep) int fd = clone_subdir(a, name);
	int r = fd < 0 ? fd : 0;

	if (r == 0 && move_mount(fd, "", AT_FDCWD, a->mountpoint, MOVE_MOUNT_F_EMPTY_PATH) < 0)
		r = -errno;
	if (r < 0)
		return fail_mount(a->mountpoint, r, err, err_size);
	note_mount(a, fd, "");
	return 0;
}

int attach_fd(const struct attach *a)
{
	return a->se ? fuse_session_fd(a->se) : a->fuse_fd;
}

void attach_device(const struct attach *a, unsigned *ret_major, unsigned *ret_minor)
{
	*ret_major = a->dev_major;
	*ret_minor = a->dev_minor;
}

static bool is_in_first_user_namespace(void)
{
	struct stat st;

	return stat("/proc/self/ns/user", &st) == 0 && st.st_ino == FIRST_USER_NAMESPACE;
}

/* The kernel's default of 128 KiB makes eight requests of a MiB, and FUSE can only ask for less.
 * Only root of the first user namespace may change it. In another user namespace each mount has
 * pages of its own, and root keeps the default too. A wider window reads more unused pages of small
 * programs, and memory is short when there are many mounts (doc/internals/page-copies.md). */
void attach_tune(const struct attach *a)
{
	_cleanup_(closep) int fd = -1;
	char path[64], now[16] = "";

	if (!is_in_first_user_namespace())
		return;
	snprintf(path, sizeof(path), "/sys/class/bdi/%u:%u/read_ahead_kb", a->dev_major,
		 a->dev_minor);
	fd = a->mount_id ? open(path, O_RDWR | O_CLOEXEC) : -1;
	if (fd >= 0 && read(fd, now, sizeof(now) - 1) > 0 &&
	    strtoul(now, NULL, 10) < READAHEAD_KIB && dprintf(fd, "%u", READAHEAD_KIB) < 0)
		log_debug("%s: %s", path, strerror(errno));
}

int attach_detach(struct attach *a)
{
	struct statx stx;

	/* Our mount may have been detached, and another one may be there. */
	if (!mount_at(AT_FDCWD, a->mountpoint, &stx) || stx.stx_mnt_id != a->mount_id)
		return -ENOENT;
	if (umount2(a->mountpoint, MNT_DETACH) == 0)
		return 0;
	if (errno != EPERM)
		return -errno;
	/* Without privileges fusermount3 unmounts. */
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
	/* Any mount of the file system counts, such as a bind mount. */
	while (getline(&line, &size, f) > 0)
		if (sscanf(line, "%*u %*u %u:%u", &dev_major, &dev_minor) != 2 ||
		    (dev_major == a->dev_major && dev_minor == a->dev_minor))
			is_detached = false;
	if (ferror(f))
		is_detached = false;
	fclose(f);
	return is_detached;
}

/* libfuse frees its data of a mount only when it unmounts it, unless poll(2) of its descriptor says
 * that the mount is gone. So does a pipe that nobody reads. */
static bool replace_by_pipe(struct attach *a)
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

void attach_close_fd(struct attach *a)
{
	if (a->se)
		replace_by_pipe(a);
	closep(&a->fuse_fd);
}

static void free_libfuse_mount(struct attach *a)
{
	if (replace_by_pipe(a))
		fuse_session_unmount(a->se);
}

void attach_free(struct attach *a)
{
	if (!a)
		return;
	if (a->se) {
		free_libfuse_mount(a);
		fuse_session_destroy(a->se);
	}
	closep(&a->fuse_fd);
	closep(&a->detached_fd);
	free(a->mountpoint);
	free(a);
}
