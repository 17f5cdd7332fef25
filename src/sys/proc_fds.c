// SPDX-License-Identifier: Apache-2.0
#include "veneer/sys/proc_fds.h"

#include "veneer/base/cleanup.h"
#include "veneer/sys/file.h"
#include "veneer/sys/mountinfo.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define CALL_TRIES   4
#define CALL_WAIT_US 100 /* until a thread that has just called sleeps */

struct asked {
	pid_t tid;
	unsigned dev_major, dev_minor;
	ino_t ino;
	uint64_t last; /* the latest mount; most files are open by one */
	void (*seen)(const char *root, void *arg);
	void *arg;
};

/* Read and terminate a file of the process. Bytes read or -errno. */
static ssize_t read_proc(pid_t tid, const char *name, char *buf, size_t size)
{
	char path[64];

	snprintf(path, sizeof(path), "/proc/%d/%s", (int)tid, name);
	return file_read_text(path, buf, size);
}

/* Find the mount by which a descriptor has the file. 1; 0: another file, or the kernel does not
 * tell (before Linux 5.8); -errno. Uses the target of the descriptor and not its fdinfo: for epoll,
 * fdinfo waits for a lock that the process holds during page faults. Such a fault may be of a file
 * that this server must read, and the wait cannot be killed. */
static int mount_of(const struct asked *a, const char *number, uint64_t *ret)
{
	const unsigned wanted = STATX_INO | STATX_MNT_ID;
	struct statx link, file;
	char path[64];

	snprintf(path, sizeof(path), "/proc/%d/fd/%.16s", (int)a->tid, number);
	/* Does not wait for a file system that does not answer. */
	if (statx(AT_FDCWD, path, AT_SYMLINK_NOFOLLOW, STATX_MODE, &link) < 0 ||
	    statx(AT_FDCWD, path, AT_NO_AUTOMOUNT | AT_STATX_DONT_SYNC, wanted, &file) < 0)
		return -errno;
	/* An O_PATH descriptor can be neither read nor written. */
	if (!(link.stx_mode & (S_IRUSR | S_IWUSR)) || (file.stx_mask & wanted) != wanted ||
	    file.stx_dev_major != a->dev_major || file.stx_dev_minor != a->dev_minor ||
	    file.stx_ino != a->ino)
		return 0;
	*ret = file.stx_mnt_id;
	return 1;
}

static int tell(struct asked *a, uint64_t mount)
{
	_cleanup_(freep) char *root = NULL;
	int r;

	if (mount == a->last)
		return 0;
	r = mountinfo_root_of(a->tid, mount, a->dev_major, a->dev_minor, &root);
	if (r < 0)
		return r;
	a->last = mount;
	a->seen(root, a->arg);
	return 0;
}

/* Find the descriptor of the lock call in which the thread waits. A 32-bit process has other call
 * numbers and is not recognized. */
static bool waits_with(pid_t tid, unsigned *ret_fd)
{
	char text[256];
	long number;

	for (int i = 0; i < CALL_TRIES; i++) {
		if (read_proc(tid, "syscall", text, sizeof(text)) <= 0)
			return false;
		if (sscanf(text, "%ld 0x%x", &number, ret_fd) == 2)
			return number == SYS_flock || number == SYS_fcntl;
		usleep(CALL_WAIT_US); /* "running" */
	}
	return false;
}

/* 1: the call's file was the wanted one. */
static int ask_call(struct asked *a)
{
	char number[16];
	uint64_t mount;
	unsigned fd;
	int r;

	if (!waits_with(a->tid, &fd))
		return 0;
	snprintf(number, sizeof(number), "%u", fd);
	if (mount_of(a, number, &mount) != 1)
		return 0;
	r = tell(a, mount);
	return r < 0 ? r : 1;
}

/* Call tell for every descriptor of the file. A mount that is shown nowhere may be any, so it is an
 * error. */
static int ask_all(struct asked *a)
{
	struct dirent *de;
	uint64_t mount;
	char path[48];
	int r = 0;
	DIR *d;

	snprintf(path, sizeof(path), "/proc/%d/fdinfo", (int)a->tid);
	d = opendir(path);
	if (!d)
		return -errno;
	while (r == 0 && (de = readdir(d)))
		if (de->d_name[0] != '.' && mount_of(a, de->d_name, &mount) == 1)
			r = tell(a, mount);
	closedir(d);
	return r;
}

int proc_fds_roots(pid_t tid, unsigned dev_major, unsigned dev_minor, ino_t ino,
		   void (*seen)(const char *root, void *arg), void *arg)
{
	struct asked a = { .tid = tid,
			   .dev_major = dev_major,
			   .dev_minor = dev_minor,
			   .ino = ino,
			   .seen = seen,
			   .arg = arg };
	int r = tid > 0 ? ask_call(&a) : -ESRCH;

	if (r == 0)
		r = ask_all(&a);
	return r < 0 ? r : 0;
}
