# SPDX-License-Identifier: Apache-2.0
"""Libraries of a few lines of C that stand between a server and the C library."""

# A page that test and server share: a file that the environment variable names. Found before the server has a root of its own.
_FLAG = r"""
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

static volatile unsigned char *flag;

__attribute__((constructor)) static void find(void)
{
	int fd = open(getenv("VARIABLE"), O_RDWR | O_CLOEXEC);
	void *p = fd < 0 ? MAP_FAILED : mmap(NULL, 1, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

	if (p != MAP_FAILED)
		flag = p;
	if (fd >= 0)
		close(fd);
}
"""


def with_flag(variable, text):
    """The text behind the definition of `flag`, which is NULL without such a file."""
    return _FLAG.replace("VARIABLE", variable) + text
