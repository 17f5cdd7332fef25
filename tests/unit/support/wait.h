/* SPDX-License-Identifier: Apache-2.0 */
/* Waiting for a condition, and never for a time. The limit ends a test that fails. */
#pragma once

#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

#define WAIT_LIMIT_MS 60000u

/* A statement; the caller asserts the condition. */
#define wait_until(condition)                                                                \
	for (unsigned waited_ms = 0; !(condition) && waited_ms < WAIT_LIMIT_MS; waited_ms++) \
	usleep(1000)

/* The letter that /proc shows for a thread of any process ('S': it sleeps), 'X' if there is none.
 */
static inline char wait_thread_state(pid_t tid)
{
	char path[64], text[512];
	const char *end;
	ssize_t n;
	int fd;

	snprintf(path, sizeof(path), "/proc/%d/stat", (int)tid);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return 'X';
	n = read(fd, text, sizeof(text) - 1);
	close(fd);
	text[n > 0 ? n : 0] = '\0';
	end = strrchr(text, ')');
	return end && end[1] ? end[2] : 'X';
}

/* The thread sleeps or has ended: without a call of another it goes no further. */
static inline bool wait_is_at_rest(pid_t tid)
{
	return strchr("SZX", wait_thread_state(tid));
}
