/* SPDX-License-Identifier: Apache-2.0 */
/* The lines of /proc/PID/mountinfo, for the module and its fuzzer. Pure. */
#pragma once

#include "veneer/sys/mountinfo.h"

/* A requested directory. */
struct mountinfo_place {
	unsigned long long mount; /* mount id; 0: unknown */
	char *path; /* path of the directory for this process, without a trailing slash */
	bool is_known, is_special;
};

/* Read one line for each of the places; modifies it. False: the line is malformed. */
bool mountinfo_read_line(char *line, struct mountinfo_place *places, size_t n);
/* May the line be of the file system with this device? In doubt true. */
bool mountinfo_line_may_be(const char *line, unsigned dev_major, unsigned dev_minor);
