// SPDX-License-Identifier: Apache-2.0
/* An input is a list of attributes of a layer's directory and of a file in it: a byte that names
 * the attribute, a byte and a byte of its length, its value. All that is believed of them must be a
 * plain path. */
#include "support.h"

#include "veneer/base/cleanup.h"
#include "veneer/layer/mode_xattr.h"
#include "veneer/layer/origin_xattr.h"
#include "veneer/layer/partial_xattr.h"
#include "veneer/layer/whiteout.h"
#include "veneer/sys/path.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#define VALUE_MAX 5000u

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const char *const attrs[] = {
	"trusted.overlay.redirect",	 "user.overlay.redirect",
	"trusted.overlay.opaque",	 "user.overlay.opaque",
	"trusted.overlay.metacopy",	 ORIGIN_XATTR_TRUSTED_ATTR,
	ORIGIN_XATTR_USER_ATTR,		 "security.fuseoverlayfs.override_stat",
	"user.containers.override_stat", "user.fuseoverlayfs.override_stat",
	"user.fuseoverlayfs.opaque",
};
#define NATTRS (sizeof(attrs) / sizeof(*attrs))

static void remove_attrs(int fd)
{
	for (size_t i = 0; i < NATTRS; i++)
		fremovexattr(fd, attrs[i]);
}

static void set_attrs(int fd, const uint8_t *data, size_t size)
{
	while (size >= 3) {
		size_t len = (size_t)(data[1] | data[2] << 8) % VALUE_MAX;

		if (len > size - 3)
			len = size - 3;
		fsetxattr(fd, attrs[data[0] % NATTRS], data + 3, len, 0);
		data += 3 + len;
		size -= 3 + len;
	}
}

static void require_path(const char *path, bool may_be_one_name)
{
	bool is_rooted = path[0] == '/';

	fuzz_require(strnlen(path, PATH_MAX) < PATH_MAX);
	fuzz_require(path_is_plain(path + is_rooted, strlen(path) - is_rooted));
	fuzz_require(is_rooted || (may_be_one_name && !strchr(path, '/')));
}

static void check_directory(int fd)
{
	char path[PATH_MAX];
	struct stat st = { .st_mode = S_IFDIR | 0755, .st_uid = 1 };
	int kind = whiteout_dir_kind(fd, false, path);

	if (kind == WHITEOUT_DIR_REDIRECTED)
		require_path(path, true);
	whiteout_has_redirect(fd);
	mode_xattr_apply(fd, "", mode_xattr_detect(fd), &st);
	fuzz_require(S_ISDIR(st.st_mode) && (st.st_mode & ~(S_IFMT | 07777)) == 0);
}

static void check_file(int dirfd, int fd, const char *name)
{
	char path[PATH_MAX];
	struct stat st = { .st_mode = S_IFREG | 0644 };

	if (origin_xattr_read(dirfd, name, false, path)) {
		fuzz_require(path[0] != '/');
		fuzz_require(path_is_plain(path, strlen(path)));
	}
	if (whiteout_metacopy(fd, path) == 1 && path[0])
		require_path(path, true);
	mode_xattr_apply(dirfd, name, mode_xattr_detect(fd), &st);
	fuzz_require(S_ISREG(st.st_mode) && st.st_uid != UINT32_MAX && st.st_gid != UINT32_MAX);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	const char *top;
	int dirfd = fuzz_directory(&top);
	_cleanup_(closep) int fd = openat(dirfd, "file", O_CREAT | O_RDWR | O_CLOEXEC, 0600);

	if (fd < 0)
		return 0;
	set_attrs(fd, data, size);
	check_file(dirfd, fd, "file");
	unlinkat(dirfd, "file", 0);
	set_attrs(dirfd, data, size);
	check_directory(dirfd);
	remove_attrs(dirfd);
	return 0;
}
