/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the parts of profile: a connection, and statements on it. */
#pragma once

#include "veneer/prefetch/profile.h"

#include <sqlite3.h>

struct profile {
	sqlite3 *db;
};

/* Turn a code of SQLite into -errno; 0 for SQLITE_OK, SQLITE_ROW and SQLITE_DONE. */
int profile_errno(int code);
/* r, with its sentence. */
int profile_fail(int r, char *err, size_t err_size);
/* Run statements that give no rows. 0 or as profile_errno. */
int profile_run(struct profile *p, const char *sql);
void profile_finish(sqlite3_stmt **s);
/* Bind in order: 'i' int64_t, 'd' double, 't' path (const char *). The strings are borrowed until
 * the next reset. */
int profile_bind(sqlite3_stmt *s, const char *types, ...);
/* 1: a row; 0: no more; else as profile_errno. */
int profile_step(sqlite3_stmt *s);
/* Bind, run to the end, reset. */
#define profile_do(s, ...) (profile_bind(s, __VA_ARGS__) ?: profile_do_bound(s))
int profile_do_bound(sqlite3_stmt *s);
