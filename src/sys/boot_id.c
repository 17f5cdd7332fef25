// SPDX-License-Identifier: Apache-2.0
#include "veneer/sys/boot_id.h"

#include "veneer/base/cleanup.h"
#include "veneer/base/lock.h"
#include "veneer/sys/file.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>

static mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static char known[BOOT_ID_SIZE];

static int ask(char ret[BOOT_ID_SIZE])
{
	_cleanup_(closep) int fd = open(BOOT_ID_PATH, O_RDONLY | O_CLOEXEC);
	ssize_t n;

	if (fd < 0)
		return -errno;
	n = file_pread(fd, ret, BOOT_ID_SIZE - 1, 0);
	if (n < 0)
		return (int)n;
	if (n != BOOT_ID_SIZE - 1)
		return -EIO;
	ret[n] = '\0';
	return 0;
}

int boot_id_read(char ret[BOOT_ID_SIZE])
{
	char text[BOOT_ID_SIZE];
	int r = 0;

	LOCK_SCOPE(&lock);
	if (!*known)
		r = ask(text);
	if (r < 0)
		return r;
	if (!*known)
		memcpy(known, text, sizeof(known));
	memcpy(ret, known, sizeof(known));
	return 0;
}
