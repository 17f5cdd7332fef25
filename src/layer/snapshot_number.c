// SPDX-License-Identifier: Apache-2.0
#include "veneer/layer/snapshot_number.h"

#include "veneer/sys/xattr.h"

#include <endian.h>
#include <errno.h>

int snapshot_number_write(int fd, uint64_t number)
{
	const uint64_t value = htole64(number);
	int r = xattr_set(fd, "", SNAPSHOT_NUMBER_ATTR, &value, sizeof(value), 0);

	if (r == -EPERM || r == -EOPNOTSUPP)
		r = xattr_set(fd, "", SNAPSHOT_NUMBER_USER_ATTR, &value, sizeof(value), 0);
	return r == -EOPNOTSUPP ? 0 : r;
}

bool snapshot_number_read(int dirfd, const char *name, bool is_doubted, uint64_t *ret)
{
	uint64_t value;
	ssize_t n = xattr_get(dirfd, name, SNAPSHOT_NUMBER_ATTR, &value, sizeof(value));

	if (n < 0 && !is_doubted)
		n = xattr_get(dirfd, name, SNAPSHOT_NUMBER_USER_ATTR, &value, sizeof(value));
	*ret = n == sizeof(value) ? le64toh(value) : 0;
	return *ret != 0;
}
