// SPDX-License-Identifier: Apache-2.0
#include "branch_store.h"

#include "veneer/base/cleanup.h"
#include "veneer/base/log.h"
#include "veneer/layer/branch_dir.h"
#include "veneer/sys/file.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define CHAIN	  "chain"
#define CHAIN_NEW "chain.new"

struct branch_store_place branch_store_place_of(uint64_t id, const char *suffix)
{
	struct branch_store_place p;

	snprintf(p.name, sizeof(p.name), "%016" PRIx64 "%s", id, suffix);
	return p;
}

bool branch_store_is_place(const char *name, const char *suffix, uint64_t *ret_id)
{
	char *end;

	*ret_id = strtoull(name, &end, 16);
	return *ret_id && !strcmp(branch_store_place_of(*ret_id, suffix).name, name);
}

int branch_store_open_at(int dirfd, const char *name)
{
	int fd = openat(dirfd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

	return fd < 0 ? -errno : fd;
}

/* After a crash it may not have its name yet: the next mount that writes gives it that. */
int branch_store_open_root(int dir, uint64_t id)
{
	int fd = branch_store_open_at(dir, branch_store_place_of(id, "").name);

	return fd == -ENOENT
		       ? branch_store_open_at(dir, branch_store_place_of(id, BRANCH_STORE_NEW).name)
		       : fd;
}

/* Where it cannot be opened there is one only if it can be seen: some file systems refuse such
 * names, and of a root that may not be searched nothing is shown. */
int branch_store_open_all(int rootfd)
{
	int fd = branch_store_open_at(rootfd, BRANCH_DIR_NAME);
	struct stat st;

	if (fd >= 0 || fd == -ENOENT)
		return fd;
	if (fstatat(rootfd, BRANCH_DIR_NAME, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return errno == EIO || errno == ENOMEM ? -errno : -ENOENT;
	return fd == -ELOOP || fd == -ENOTDIR ? -EUCLEAN : fd;
}

static int read_text(int dir, char **ret, size_t *ret_len)
{
	_cleanup_(closep) int fd =
		openat(dir, CHAIN, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
	_cleanup_(freep) char *text = NULL;
	struct stat st;
	ssize_t n;

	if (fd < 0 || fstat(fd, &st) < 0)
		return errno == ELOOP ? -EUCLEAN : -errno;
	if (!S_ISREG(st.st_mode) || st.st_size > BRANCH_CHAIN_BYTES)
		return -EUCLEAN;
	text = malloc((size_t)st.st_size + 1);
	if (!text)
		return -ENOMEM;
	n = file_pread(fd, text, (size_t)st.st_size, 0);
	if (n < 0)
		return (int)n;
	*ret_len = (size_t)n;
	*ret = steal_ptr(&text);
	return 0;
}

int branch_store_read(int dir, struct branch_chain *ret)
{
	_cleanup_(freep) char *text = NULL;
	size_t len = 0;
	int r = read_text(dir, &text, &len);

	return r ?: branch_chain_parse(text, len, ret);
}

/* An object of that name may be a FIFO, or another name of a foreign file. */
static int create_new(int dir)
{
	int fd;

	unlinkat(dir, CHAIN_NEW, 0);
	fd = openat(dir, CHAIN_NEW, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
	return fd < 0 ? -errno : fd;
}

static int write_text(int dir, const char *text, size_t len, bool is_volatile)
{
	_cleanup_(closep) int fd = create_new(dir);
	int r;

	if (fd < 0)
		return fd;
	r = file_pwrite(fd, text, len, 0);
	if (r == 0 && !is_volatile && fdatasync(fd) < 0)
		r = -errno;
	if (r == 0 && renameat(dir, CHAIN_NEW, dir, CHAIN) < 0)
		r = -errno;
	if (r < 0)
		unlinkat(dir, CHAIN_NEW, 0);
	return r;
}

int branch_store_write(int dir, const struct branch_chain *next, bool is_volatile)
{
	_cleanup_(freep) char *text = NULL;
	size_t len;
	int r = branch_chain_format(next, &text, &len);

	r = r ?: write_text(dir, text, len, is_volatile);
	/* It holds from here on, also if the sync fails. */
	if (r == 0 && !is_volatile && fsync(dir) < 0)
		log_error("cannot sync the chain of snapshots: %s", strerror(errno));
	return r;
}
