/* SPDX-License-Identifier: Apache-2.0 */
/* The lines of /proc/PID/mountinfo, for the module and its fuzzer. Pure. */
#pragma once

#include "veneer/sys/mountinfo.h"

/* A directory that is asked for. */
struct mountinfo_place {
	unsigned long long mount; /* its number; 0: not known */
	char *path; /* as this process would call the directory, without a last slash */
	bool is_known, is_special;
};

/* Read one line, which is changed, for each of the places. False: it is no such line. */
bool mountinfo_read_line(char *line, struct mountinfo_place *places, size_t n);
/* Does it tell of the file system with this device? In doubt yes. */
bool mountinfo_line_may_be(const char *line, unsigned dev_major, unsigned dev_minor);
