/* SPDX-License-Identifier: Apache-2.0 */
/* One line per event, to standard error or the system log. Decides no policy. */
#pragma once

#include <stdbool.h>

enum log_level { LOG_LVL_ERROR, LOG_LVL_WARN, LOG_LVL_INFO, LOG_LVL_DEBUG };

/* Name printed before each line ("veneer: ..."); copied. Default "veneer". */
void log_set_name(const char *name);
/* Lines above this level are dropped. Default LOG_LVL_INFO. */
void log_set_level(enum log_level level);
/* From now on write to syslog (LOG_DAEMON) instead of standard error: called once, by the
 * daemon, after it has let go of its caller's descriptors. */
void log_to_syslog(void);
/* Let go of what syslog has open; the next line opens it again. */
void log_release(void);

/* Thread-safe; the line is written with one write(2). Keeps errno. No newline in fmt. */
void log_line(enum log_level level, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

#define log_error(...) log_line(LOG_LVL_ERROR, __VA_ARGS__)
#define log_warn(...) log_line(LOG_LVL_WARN, __VA_ARGS__)
#define log_info(...) log_line(LOG_LVL_INFO, __VA_ARGS__)
#define log_debug(...) log_line(LOG_LVL_DEBUG, __VA_ARGS__)
