/* SPDX-License-Identifier: Apache-2.0 */
/* One line of the log in the forms that programs read. Pure, and without memory of its own: a line
 * about the lack of memory gets out as well. */
#pragma once

#include <stddef.h>
#include <sys/types.h>
#include <time.h>

#define LOGLINE_MAX 8192u /* bytes of a line in either form */

struct logline {
	int priority; /* that of syslog */
	const char *name; /* of the program */
	pid_t pid;
	const char *mount; /* its mount point; NULL: the line is about no mount */
	const char *message;
	struct timespec at;
};

/* As an object of JSON with a line end; bytes that are no UTF-8 are \xNN in the strings. A text
 * that is too long is cut, and the line stays an object. The number of bytes. */
size_t logline_json(const struct logline *l, char to[LOGLINE_MAX]);
/* As the journal of systemd takes it: a field a line. */
size_t logline_journal(const struct logline *l, char to[LOGLINE_MAX]);
