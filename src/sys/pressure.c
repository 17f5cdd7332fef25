// SPDX-License-Identifier: Apache-2.0
#include "veneer/sys/pressure.h"

#include "veneer/sys/file.h"

#include <stdio.h>
#include <string.h>

static int parse(const char *text)
{
	unsigned whole, hundredths;
	const char *line = strstr(text, "some avg10=");

	if (!line || sscanf(line, "some avg10=%3u.%2u", &whole, &hundredths) != 2)
		return -1;
	return (int)(whole * 100 + hundredths);
}

int pressure_read(const char *path)
{
	char text[256];

	return file_read_text(path, text, sizeof(text)) < 0 ? -1 : parse(text);
}

int pressure_some(const char *resource)
{
	char path[64];

	snprintf(path, sizeof(path), "/proc/pressure/%s", resource);
	return pressure_read(path);
}
