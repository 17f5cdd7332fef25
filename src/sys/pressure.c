// SPDX-License-Identifier: Apache-2.0
#include "veneer/sys/pressure.h"

#include "veneer/base/cleanup.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>

int pressure_parse(const char *text)
{
	unsigned whole, hundredths;
	const char *line = strstr(text, "some avg10=");

	if (!line || sscanf(line, "some avg10=%3u.%2u", &whole, &hundredths) != 2)
		return -1;
	return (int)(whole * 100 + hundredths);
}

int pressure_read(const char *path)
{
	_cleanup_(closep) int fd = open(path, O_RDONLY | O_CLOEXEC);
	char text[256];
	ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof(text) - 1);

	if (n < 0)
		return -1;
	text[n] = '\0';
	return pressure_parse(text);
}

int pressure_some(const char *resource)
{
	char path[64];

	snprintf(path, sizeof(path), "/proc/pressure/%s", resource);
	return pressure_read(path);
}
