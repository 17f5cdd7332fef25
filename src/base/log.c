// SPDX-License-Identifier: Apache-2.0
#include "veneer/log.h"

#include "veneer/cleanup.h"
#include "veneer/hash.h"

#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <syslog.h>
#include <time.h>

enum { LINE_SIZE = 2048, NAME_SIZE = 64, KEPT_LINES = 64, REPEAT_S = 60 };

static _Atomic int max_level = LOG_LVL_INFO;
static _Atomic bool is_syslog;

static pthread_mutex_t name_lock = PTHREAD_MUTEX_INITIALIZER;
static char name[NAME_SIZE] = "veneer"; /* guarded by name_lock */
static char syslog_ident[NAME_SIZE]; /* what openlog keeps a pointer to: written once */

/* Errors of late: a container that reads a damaged file in a loop must not fill the host's log. */
static pthread_mutex_t kept_lock = PTHREAD_MUTEX_INITIALIZER;
static struct {
	uint64_t hash;
	time_t until;
} kept[KEPT_LINES]; /* guarded by kept_lock */
static size_t next_kept; /* likewise */

static bool is_repeated(const char *line)
{
	const uint64_t hash = hash_key(line, strlen(line), 0);
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	LOCK_SCOPE(&kept_lock);
	for (size_t i = 0; i < KEPT_LINES; i++)
		if (kept[i].hash == hash && now.tv_sec < kept[i].until)
			return true;
	kept[next_kept].hash = hash;
	kept[next_kept].until = now.tv_sec + REPEAT_S;
	next_kept = (next_kept + 1) % KEPT_LINES;
	return false;
}

void log_set_name(const char *new_name)
{
	LOCK_SCOPE(&name_lock);
	snprintf(name, sizeof(name), "%s", new_name);
}

void log_set_level(enum log_level level)
{
	atomic_store_explicit(&max_level, (int)level, memory_order_relaxed);
}

void log_to_syslog(void)
{
	LOCK_SCOPE(&name_lock);
	if (is_syslog)
		return;
	memcpy(syslog_ident, name, sizeof(syslog_ident));
	openlog(syslog_ident, LOG_PID, LOG_DAEMON);
	is_syslog = true;
}

void log_release(void)
{
	if (is_syslog)
		closelog();
}

static size_t put_name(char *line, size_t size)
{
	LOCK_SCOPE(&name_lock);
	return (size_t)snprintf(line, size, "%s: ", name);
}

/* File names come from layers, and must neither forge a second line nor steer a terminal. */
static void defuse(char *text)
{
	for (char *p = text; *p; p++) {
		if ((unsigned char)*p < ' ' || *p == 0x7f)
			*p = '?';
	}
}

static void write_line(const char *line, size_t len)
{
	ssize_t n;

	do {
		n = write(STDERR_FILENO, line, len);
	} while (n < 0 && errno == EINTR);
}

void log_line(enum log_level level, const char *fmt, ...)
{
	static const int priorities[] = { LOG_ERR, LOG_WARNING, LOG_INFO, LOG_DEBUG };
	int saved = errno;
	char line[LINE_SIZE];
	va_list ap;

	if ((int)level > atomic_load_explicit(&max_level, memory_order_relaxed))
		return;

	size_t start = put_name(line, sizeof(line));

	errno = saved;
	va_start(ap, fmt);
	/* Leaves room for the newline. */
	int n = vsnprintf(line + start, sizeof(line) - start - 1, fmt, ap);
	va_end(ap);
	if (n < 0)
		snprintf(line + start, sizeof(line) - start - 1, "%s", fmt);
	defuse(line + start);
	if (level == LOG_LVL_ERROR && is_repeated(line)) {
		errno = saved;
		return;
	}
	if (is_syslog) {
		syslog(priorities[level], "%s", line + start);
	} else {
		size_t len = strlen(line);

		line[len++] = '\n';
		write_line(line, len);
	}
	errno = saved;
}
