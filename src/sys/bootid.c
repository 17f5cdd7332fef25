// SPDX-License-Identifier: Apache-2.0
#include "veneer/bootid.h"

#include "veneer/cleanup.h"
#include "veneer/file.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static char known[BOOTID_SIZE];

static int ask(char ret[BOOTID_SIZE])
{
	_cleanup_(closep) int fd = open(BOOTID_PATH, O_RDONLY | O_CLOEXEC);
	ssize_t n;

	if (fd < 0)
		return -errno;
	n = file_pread(fd, ret, BOOTID_SIZE - 1, 0);
	if (n < 0)
		return (int)n;
	if (n != BOOTID_SIZE - 1)
		return -EIO;
	ret[n] = '\0';
	return 0;
}

int bootid_read(char ret[BOOTID_SIZE])
{
	char text[BOOTID_SIZE];
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
