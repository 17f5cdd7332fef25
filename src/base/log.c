// SPDX-License-Identifier: Apache-2.0
#include "veneer/base/log.h"

#include "logline.h"
#include "veneer/base/cleanup.h"
#include "veneer/base/clock.h"
#include "veneer/base/hash.h"
#include "veneer/base/lock.h"
#include "veneer/base/utf8.h"

#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <syslog.h>
#include <time.h>

#define JOURNAL "/run/systemd/journal/socket"

enum { LINE_SIZE = 2048, NAME_SIZE = 64, KEPT_LINES = 64, REPEAT_S = 60, JOURNAL_WAIT_S = 1 };

static _Atomic int max_level = LOG_LVL_INFO;
static _Atomic int sink = LOG_STDERR;
static __thread const char *subject;

static mutex_t name_lock = PTHREAD_MUTEX_INITIALIZER;
GUARDED_BY(name_lock) static char name[NAME_SIZE] = "veneer";
static char syslog_ident[NAME_SIZE]; /* openlog keeps a pointer to it: written once */

/* Errors of late: a container that reads a damaged file in a loop must not fill the host's log. */
static mutex_t kept_lock = PTHREAD_MUTEX_INITIALIZER;
GUARDED_BY(kept_lock) static struct {
	uint64_t hash;
	time_t until;
} kept[KEPT_LINES];
GUARDED_BY(kept_lock) static size_t next_kept;

static bool is_repeated(const char *line)
{
	const uint64_t hash = hash_key(line, strlen(line), 0);
	const int64_t now = clock_s();

	LOCK_SCOPE(&kept_lock);
	for (size_t i = 0; i < KEPT_LINES; i++)
		if (kept[i].hash == hash && now < kept[i].until)
			return true;
	kept[next_kept].hash = hash;
	kept[next_kept].until = now + REPEAT_S;
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
	if (sink == LOG_SYSLOG)
		return;
	memcpy(syslog_ident, name, sizeof(syslog_ident));
	openlog(syslog_ident, LOG_PID, LOG_DAEMON);
	sink = LOG_SYSLOG;
}

void log_to(enum log_sink where)
{
	if (where == LOG_SYSLOG)
		log_to_syslog();
	else
		sink = (int)where;
}

bool log_is_of_system(void)
{
	return sink == LOG_JOURNAL || sink == LOG_SYSLOG;
}

bool log_has_journal(void)
{
	return access(JOURNAL, W_OK) == 0;
}

bool log_has_syslog(void)
{
	struct stat st;

	return stat("/dev/log", &st) == 0 && S_ISSOCK(st.st_mode);
}

void log_say_if_lost(const char *instead)
{
	if (isatty(STDERR_FILENO) && !log_has_journal() && !log_has_syslog())
		log_warn("there is neither a journal nor syslog: what the server says is lost; %s",
			 instead);
}

/* "DEVICE:INODE" of the stream that the manager connected to the journal; a shell may have
 * redirected it since. */
bool log_is_journal(int fd)
{
	const char *stream = getenv("JOURNAL_STREAM");
	unsigned long long dev, ino;
	struct stat st;

	return stream && sscanf(stream, "%llu:%llu", &dev, &ino) == 2 && fstat(fd, &st) == 0 &&
	       st.st_dev == dev && st.st_ino == ino;
}

static const char *const sink_names[] = { "stderr", "json", "journal", "syslog" };

const char *log_sink_name(enum log_sink where)
{
	return sink_names[where];
}

bool log_choose(const char *text, enum log_sink *ret)
{
	for (int i = 0; i < 4; i++)
		if (!strcmp(text, sink_names[i])) {
			*ret = (enum log_sink)i;
			return true;
		}
	return false;
}

const char *log_about(const char *mountpoint)
{
	const char *before = subject;

	subject = mountpoint;
	return before;
}

void log_release(void)
{
	if (sink == LOG_SYSLOG)
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
	for (char *p = text; *p;) {
		const size_t n = utf8_len((unsigned char *)p), len = n ? n : 1;

		if (utf8_is_control((unsigned char *)p, n))
			memset(p, '?', len);
		p += len;
	}
}

static void write_line(const char *line, size_t len)
{
	ssize_t n;

	do {
		n = write(STDERR_FILENO, line, len);
	} while (n < 0 && errno == EINTR);
}

/* Nothing stays open, since the descriptors of a server outlive it and are closed by the next
 * (recovery.c); systemd's library keeps one for good. */
static bool send_to_journal(const char *text, size_t len)
{
	static const struct sockaddr_un to = { .sun_family = AF_UNIX, .sun_path = JOURNAL };
	const struct timeval limit = { .tv_sec = JOURNAL_WAIT_S };
	_cleanup_(closep) int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);

	return fd >= 0 && setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit)) == 0 &&
	       sendto(fd, text, len, MSG_NOSIGNAL, (const struct sockaddr *)&to, sizeof(to)) ==
		       (ssize_t)len;
}

/* False: the journal is not there. */
static bool write_structured(int priority, const char *message)
{
	char own_name[NAME_SIZE], text[LOGLINE_MAX];
	struct logline l = { .priority = priority,
			     .name = own_name,
			     .pid = getpid(),
			     .mount = subject,
			     .message = message };

	clock_gettime(CLOCK_REALTIME, &l.at);
	mutex_lock(&name_lock);
	memcpy(own_name, name, sizeof(own_name));
	mutex_unlock(&name_lock);
	if (sink == LOG_JOURNAL)
		return send_to_journal(text, logline_journal(&l, text));
	write_line(text, logline_json(&l, text));
	return true;
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
	if (sink == LOG_SYSLOG) {
		syslog(priorities[level], "%s", line + start);
	} else if (sink == LOG_STDERR || !write_structured(priorities[level], line + start)) {
		size_t len = strlen(line);

		line[len++] = '\n';
		write_line(line, len);
	}
	errno = saved;
}

bool log_allows(struct log_limit *l, int64_t now_ms, unsigned *ret_left_out)
{
	LOCK_SCOPE(&l->lock);

	if (!l->since_ms || now_ms - l->since_ms >= LOG_LIMIT_MS) {
		l->since_ms = now_ms;
		l->n = 0;
	}
	if (l->n == LOG_LIMIT_LINES) {
		l->n_left_out++;
		return false;
	}
	l->n++;
	*ret_left_out = l->n_left_out;
	l->n_left_out = 0;
	return true;
}
