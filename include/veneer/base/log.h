/* SPDX-License-Identifier: Apache-2.0 */
/* One line per event, to standard error or a log of the system. Decides no policy. */
#pragma once

#include "veneer/base/lock.h"

#include <stdbool.h>
#include <stdint.h>

enum log_level { LOG_LVL_ERROR, LOG_LVL_WARN, LOG_LVL_INFO, LOG_LVL_DEBUG };

/* Name printed before each line ("veneer: ..."); copied. Default "veneer". */
void log_set_name(const char *name);
/* Lines above this level are dropped. Default LOG_LVL_INFO. */
void log_set_level(enum log_level level);
/* From now on write to syslog (LOG_DAEMON) instead of standard error: called once, by the
 * daemon, after it has let go of its caller's descriptors. */
void log_to_syslog(void);
/* The destination of log lines: text or JSON objects to standard error, the journal of systemd with
 * fields (where that does not answer within a second, standard error), or syslog. */
enum log_sink { LOG_STDERR, LOG_JSON, LOG_JOURNAL, LOG_SYSLOG };
void log_to(enum log_sink where);
/* "stderr", "json", "journal", "syslog". False: none of these. */
bool log_choose(const char *text, enum log_sink *ret);
const char *log_sink_name(enum log_sink where);
/* Lines go to a log of the system, and not to standard error. */
bool log_is_of_system(void);
/* There is a journal; this descriptor is connected with it, says the manager that started this
 * process. */
bool log_has_journal(void);
bool log_has_syslog(void);
bool log_is_journal(int fd);
/* On a terminal, where there is neither journal nor syslog: a line that the server's messages are
 * lost, and how to keep them. */
void log_say_if_lost(const char *instead);
/* From now on log lines of this thread are about the mount there (NULL: about none), a field of
 * structured lines; borrowed until the next call. Returns the previous value. */
const char *log_about(const char *mountpoint);
/* Close the connection of syslog; the next line opens it again. */
void log_release(void);

/* A kind of line that others may cause at will: at most LOG_LIMIT_LINES in LOG_LIMIT_MS. All zeros
 * at first. */
#define LOG_LIMIT_LINES 20u
#define LOG_LIMIT_MS	10000
struct log_limit {
	mutex_t lock;
	GUARDED_BY(lock) int64_t since_ms;
	GUARDED_BY(lock) unsigned n, n_left_out;
};
/* False: the line is to be left out. Else *ret_left_out is how many were since the last one.
 * Thread-safe. */
bool log_allows(struct log_limit *l, int64_t now_ms, unsigned *ret_left_out);

/* Thread-safe; the line is written with one write(2). Keeps errno. No newline in fmt. */
void log_line(enum log_level level, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

#define log_error(...) log_line(LOG_LVL_ERROR, __VA_ARGS__)
#define log_warn(...)  log_line(LOG_LVL_WARN, __VA_ARGS__)
#define log_info(...)  log_line(LOG_LVL_INFO, __VA_ARGS__)
#define log_debug(...) log_line(LOG_LVL_DEBUG, __VA_ARGS__)
