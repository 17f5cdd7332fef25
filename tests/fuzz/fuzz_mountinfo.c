// SPDX-License-Identifier: Apache-2.0
/* An input is /proc/PID/mountinfo: its lines. */
#include "support.h"

#include "sys/mountinfo-internal.h"
#include "veneer/base/cleanup.h"

#include <stdio.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* As the module itself: line by line, with what stands behind a NUL in it. */
static void read_all(FILE *f, struct mountinfo_place *places, size_t n)
{
	_cleanup_(freep) char *line = NULL;
	size_t size = 0;
	ssize_t len;

	while ((len = getline(&line, &size, f)) > 0) {
		if (line[len - 1] == '\n')
			line[len - 1] = '\0';
		mountinfo_line_may_be(line, 0, 35);
		if (!mountinfo_read_line(line, places, n))
			break;
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char root[] = "", plain[] = "/mnt/a b", deep[] = "/very/deep/down";
	struct mountinfo_place places[] = {
		{ .mount = 1, .path = root },
		{ .mount = 36, .path = plain },
		{ .mount = 42, .path = deep },
		{ .mount = 0 },
	};
	FILE *f = size ? fmemopen((void *)data, size, "r") : NULL;

	if (!f)
		return 0;
	read_all(f, places, sizeof(places) / sizeof(*places));
	fclose(f);
	fuzz_require(!places[3].is_known && !places[3].is_special);
	return 0;
}
