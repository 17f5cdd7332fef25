// SPDX-License-Identifier: Apache-2.0
#include "veneer/server/client.h"

#include "veneer/base/cleanup.h"
#include "veneer/sys/mountinfo.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>

/* A mount of a shared superblock has /NUMBER there as its root. */
static uint32_t number_of(uint64_t mount)
{
	struct mountinfo_mount m = { .id = mount };
	unsigned number = 0;

	if (mountinfo_find(&m, 1) < 0 || !m.root || sscanf(m.root, "/%9u", &number) != 1)
		number = 0;
	free(m.root);
	free(m.point);
	return number;
}

int client_target_of(const char *path, struct client_target *ret)
{
	_cleanup_(closep) int fd = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
	struct statx st;

	if (fd < 0 || statx(fd, "", AT_EMPTY_PATH, STATX_INO | STATX_MNT_ID, &st) < 0)
		return -errno;
	*ret = (struct client_target){ st.stx_dev_major, st.stx_dev_minor, st.stx_ino, 0 };
	if (st.stx_mask & STATX_MNT_ID)
		ret->number = number_of(st.stx_mnt_id);
	return 0;
}
