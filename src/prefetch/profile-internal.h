/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the parts of profile: a connection, and statements on it. Results are 0 or the -errno
 * nearest to the error of SQLite. */
#pragma once

#include "veneer/prefetch/profile.h"

#include <sqlite3.h>

struct profile {
	sqlite3 *db;
	int64_t began_cpu_ms; /* processor time of the thread that opened it, and alone uses it */
};

/* r, with its sentence. */
int profile_fail(int r, char *err, size_t err_size);
/* Run statements that give no rows. */
int profile_run(struct profile *p, const char *sql);
/* Make a statement; profile_finish ends it. */
int profile_prepare(struct profile *p, const char *sql, sqlite3_stmt **ret);
void profile_finish(sqlite3_stmt **s);
/* Bind in order: 'i' int64_t, 'd' double, 't' path (const char *). The strings are borrowed until
 * the next reset. */
int profile_bind(sqlite3_stmt *s, const char *types, ...);
/* 1: a row; 0: no more; else -errno. */
int profile_step(sqlite3_stmt *s);
/* Bind, run to the end, reset. */
#define profile_do(s, ...) (profile_bind(s, __VA_ARGS__) ?: profile_do_bound(s))
int profile_do_bound(sqlite3_stmt *s);
