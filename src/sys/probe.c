// SPDX-License-Identifier: Apache-2.0
#include "veneer/sys/probe.h"

#include "veneer/base/cleanup.h"
#include "veneer/base/types.h"
#include "veneer/sys/path.h"

#include <endian.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <linux/fs.h>
#include <linux/magic.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/vfs.h>
#include <sys/xattr.h>

enum {
	NAME_SIZE = 64,
	SUPER_MAGIC_XFS = 0x58465342, /* not in every <linux/magic.h> */
	FLAG_EXTENTS = 0x00080000, /* FS_EXTENT_FL, the "e" of lsattr */
};

static void scratch_name(char name[static NAME_SIZE], char kind, uint64_t salt)
{
	snprintf(name, NAME_SIZE, ".veneer-probe-%016" PRIx64 "-%c", salt, kind);
}

/* Was lack of room the only fault? The kernel reports missing permission or support first. */
static bool wants_room(void)
{
	return errno == ENOSPC || errno == EDQUOT;
}

static bool has_xattr(int fd, const char *attr, const void *value, size_t size)
{
	return !fsetxattr(fd, attr, value, size, 0) || wants_room();
}

static bool knows_xattr(int fd, const char *attr)
{
	return fgetxattr(fd, attr, NULL, 0) >= 0 || errno == ENODATA;
}

static bool has_acl(int fd)
{
	/* The smallest valid ACL, u::rw- g::--- o::---: it equals the file's mode and names no id,
	 * which this user namespace might lack. */
	const struct {
		uint32_t version;
		struct {
			uint16_t tag, perm;
			uint32_t id;
		} entries[3];
	} acl = {
		htole32(2),
		{
			{ htole16(0x01), htole16(6), UINT32_MAX },
			{ htole16(0x04), 0, UINT32_MAX },
			{ htole16(0x20), 0, UINT32_MAX },
		},
	};

	return has_xattr(fd, "system.posix_acl_access", &acl, sizeof(acl));
}

static bool is_whiteout(int dirfd, const char *name)
{
	struct stat st;

	return !fstatat(dirfd, name, &st, AT_SYMLINK_NOFOLLOW) && S_ISCHR(st.st_mode) &&
	       st.st_rdev == makedev(0, 0);
}

static bool has_whiteout(int dirfd, uint64_t salt)
{
	char name[NAME_SIZE];

	scratch_name(name, 'w', salt);
	if (mknodat(dirfd, name, S_IFCHR, makedev(0, 0)) < 0)
		return wants_room();

	bool is_real = is_whiteout(dirfd, name);

	unlinkat(dirfd, name, 0);
	return is_real;
}

static bool has_tmpfile(int dirfd, uint64_t salt)
{
	_cleanup_(closep) int fd = openat(dirfd, ".", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
	char name[NAME_SIZE], link[NAME_SIZE];

	if (fd < 0)
		return wants_room();
	scratch_name(name, 't', salt);
	snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
	if (linkat(AT_FDCWD, link, dirfd, name, AT_SYMLINK_FOLLOW) < 0)
		return wants_room();
	unlinkat(dirfd, name, 0);
	return true;
}

static bool has_reserved_names(int dirfd, uint64_t salt)
{
	char name[NAME_SIZE];
	int fd;

	snprintf(name, sizeof(name), ".wh..wh.probe-%016" PRIx64, salt);
	fd = openat(dirfd, name, O_CREAT | O_EXCL | O_WRONLY | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (fd < 0)
		return wants_room() || errno == EMFILE || errno == ENFILE || errno == ENOMEM;
	close(fd);
	return unlinkat(dirfd, name, 0) == 0;
}

/* Renames the scratch file: the caller removes both names. */
static bool has_rename_whiteout(int dirfd, const char *from, const char *to)
{
	if (renameat2(dirfd, from, dirfd, to, RENAME_WHITEOUT) < 0)
		return wants_room();
	return is_whiteout(dirfd, from);
}

/* Does a small text file contain this line? */
static bool has_line(FILE *f, const char *wanted)
{
	char line[256];

	rewind(f);
	while (fgets(line, sizeof(line), f)) {
		line[strcspn(line, "\n")] = '\0';
		if (!strcmp(line, wanted))
			return true;
	}
	return false;
}

/* Open the list of all options in force of an ext4, by device name; NULL: unreadable. */
static FILE *open_ext4_options(int fd)
{
	char link[NAME_SIZE], target[PATH_MAX], path[PATH_MAX];
	struct stat st;

	if (fstat(fd, &st) < 0)
		return NULL;
	snprintf(link, sizeof(link), "/sys/dev/block/%u:%u", major(st.st_dev), minor(st.st_dev));

	ssize_t n = readlink(link, target, sizeof(target) - 1);

	if (n < 0)
		return NULL;
	target[n] = '\0';

	const char *device = strrchr(target, '/');

	snprintf(path, sizeof(path), "/proc/fs/ext4/%.64s/options", device ? device + 1 : target);
	return fopen(path, "re");
}

/* On ext4 only the journal keeps data ahead of extents. A file system may lack one, or be mounted
 * with data=writeback; ext2 and ext3 share its magic number. An unreadable value counts against
 * it. */
static bool ext4_is_ordered(int fd)
{
	int flags = 0;

	if (ioctl(fd, FS_IOC_GETFLAGS, &flags) < 0 || !(flags & FLAG_EXTENTS))
		return false;

	FILE *f = open_ext4_options(fd);

	if (!f)
		return false;

	bool is_ordered = has_line(f, "barrier") &&
			  (has_line(f, "data=ordered") || has_line(f, "data=journal"));

	fclose(f);
	return is_ordered;
}

/* The list has a line for each of the three journal modes. Without such a line, or unreadable,
 * there is no journal. */
static bool wants_name_sync(int fd)
{
	struct statfs fs;

	if (fstatfs(fd, &fs) < 0 || (uint32_t)fs.f_type != EXT4_SUPER_MAGIC)
		return false;

	FILE *f = open_ext4_options(fd);
	bool has_journal = f && (has_line(f, "data=ordered") || has_line(f, "data=journal") ||
				 has_line(f, "data=writeback"));

	if (f)
		fclose(f);
	return !has_journal;
}

/* Is `option` among the super block options (the last field) of the mount of fd? True also if the
 * mount cannot be found. */
static bool may_have_option(int fd, const char *option)
{
	struct statx stx;
	char line[PATH_MAX * 2];
	bool may = true;
	FILE *f;

	if (statx(fd, "", AT_EMPTY_PATH, STATX_MNT_ID, &stx) < 0 || !(stx.stx_mask & STATX_MNT_ID))
		return true;
	f = fopen("/proc/self/mountinfo", "re");
	if (!f)
		return true;
	while (fgets(line, sizeof(line), f)) {
		if (strtoull(line, NULL, 10) != stx.stx_mnt_id)
			continue;
		line[strcspn(line, "\n")] = '\0';

		char *rest = strrchr(line, ' ');
		char *word;

		if (!rest)
			break;
		rest++;
		may = false;
		while ((word = strsep(&rest, ",")))
			may = may || !strcmp(word, option);
		break;
	}
	fclose(f);
	return may;
}

bool probe_true_extents(int fd)
{
	struct statfs fs;

	/* With another block size an extent covers less or more than a block here. */
	if (fstatfs(fd, &fs) < 0 || fs.f_bsize != BLK_BYTES)
		return false;
	if ((uint32_t)fs.f_type == EXT4_SUPER_MAGIC)
		return ext4_is_ordered(fd);
	/* btrfs writes zeros into the block of a file's old end, which no program wrote. */
	return (uint32_t)fs.f_type == SUPER_MAGIC_XFS && !may_have_option(fd, "nobarrier");
}

bool probe_is_ordered(int fd)
{
	struct statfs fs;

	if (fstatfs(fd, &fs) < 0)
		return false;
	if ((uint32_t)fs.f_type == TMPFS_MAGIC || (uint32_t)fs.f_type == RAMFS_MAGIC)
		return true;
	if ((uint32_t)fs.f_type == BTRFS_SUPER_MAGIC)
		return !may_have_option(fd, "nobarrier");
	return probe_true_extents(fd);
}

bool probe_wants_whole_sync(int fd)
{
	struct statfs fs;

	return fstatfs(fd, &fs) == 0 && (uint32_t)fs.f_type == BTRFS_SUPER_MAGIC;
}

static void probe_file(int fd, struct probe_dir *p)
{
	p->has_user_xattr = has_xattr(fd, "user.veneer-probe", "y", 1);
	p->has_trusted_xattr = has_xattr(fd, "trusted.veneer-probe", "y", 1);
	p->has_acl = has_acl(fd);
	p->has_noatime = fcntl(fd, F_SETFL, O_NOATIME) == 0;
}

/* Without room for a file, probe by the directory alone. */
static void probe_directory(int fd, struct probe_dir *p)
{
	p->has_user_xattr = knows_xattr(fd, "user.veneer-probe");
	p->has_trusted_xattr = has_xattr(fd, "trusted.veneer-probe", "y", 1);
	fremovexattr(fd, "trusted.veneer-probe");
	p->has_acl = knows_xattr(fd, "system.posix_acl_access");
}

int probe_work_dir(int dirfd, struct probe_dir *ret)
{
	_cleanup_(closep) int own = openat(dirfd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	struct probe_dir p = { 0 };
	char name[NAME_SIZE], renamed[NAME_SIZE];
	uint64_t salt;

	if (own < 0)
		return -errno;
	if (getrandom(&salt, sizeof(salt), 0) != sizeof(salt))
		salt = (uint64_t)getpid();
	scratch_name(name, 'f', salt);
	scratch_name(renamed, 'r', salt);

	_cleanup_(closep) int fd = openat(own, name, O_CREAT | O_EXCL | O_RDWR | O_CLOEXEC, 0600);

	if (fd < 0 && errno == EROFS) {
		p.is_readonly = true;
		p.has_true_extents = probe_true_extents(own);
		*ret = p;
		return 0;
	}
	if (fd < 0 && !wants_room())
		return -errno;
	if (fd < 0)
		probe_directory(own, &p);
	else
		probe_file(fd, &p);
	p.has_true_extents = probe_true_extents(fd < 0 ? own : fd);
	p.wants_whole_sync = p.wants_size_sync = probe_wants_whole_sync(own);
	/* True extents imply a journal, or XFS. */
	p.wants_name_sync = !p.has_true_extents && wants_name_sync(own);
	p.has_tmpfile = has_tmpfile(own, salt);
	p.has_whiteout = has_whiteout(own, salt);
	p.has_reserved_names = has_reserved_names(own, salt);
	p.has_rename_whiteout = has_rename_whiteout(own, name, renamed);
	unlinkat(own, name, 0);
	unlinkat(own, renamed, 0);
	*ret = p;
	return 0;
}

static enum { UNKNOWN, NONE, TRUSTED } ask_trusted(void)
{
	_cleanup_(closep) int fd = memfd_create("veneer-privilege", MFD_CLOEXEC);

	if (fd < 0)
		return UNKNOWN;
	if (fsetxattr(fd, "trusted.veneer", "", 0, 0) == 0)
		return TRUSTED;
	return errno == EPERM ? NONE : UNKNOWN;
}

bool probe_is_trusted(void)
{
	static _Atomic int known;

	if (known == UNKNOWN)
		known = ask_trusted();
	return known != NONE;
}
