// SPDX-License-Identifier: Apache-2.0
/* Opening the file. It is reached through a directory that another process opened, and by a server
 * whose root shows nothing of it: SQLite is given /proc/self/fd/N/profile.db, and kept from making
 * another path of that. */
#include "profile-internal.h"

#include "veneer/base/cleanup.h"
#include "veneer/base/hash.h"

#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#define BUSY_MS	   500
#define PAGE_BYTES 4096
#define OPS_A_LOOK 100000 /* steps of SQLite's machine between two looks at the time */
#define CPU_MS_MAX 3000 /* a file that makes it run for longer is none of ours */
#define HEAP_BYTES (128 << 20) /* of SQLite in all threads: nor is one that makes it take more */
#define VFS	   "veneer"

static const char schema[] =
	"CREATE TABLE image(id INTEGER PRIMARY KEY, key INTEGER NOT NULL UNIQUE, starts INTEGER "
	"NOT NULL,"
	" last_seen INTEGER NOT NULL, judged INTEGER NOT NULL, precision REAL NOT NULL, label BLOB "
	"NOT NULL);"
	"CREATE TABLE layer(image INTEGER NOT NULL, pos INTEGER NOT NULL, key INTEGER NOT NULL,"
	" PRIMARY KEY(image, pos)) WITHOUT ROWID;"
	"CREATE INDEX layer_key ON layer(key);"
	"CREATE TABLE file(id INTEGER PRIMARY KEY, image INTEGER NOT NULL, path BLOB NOT NULL, "
	"layer INTEGER NOT NULL,"
	" UNIQUE(image, path));"
	"CREATE TABLE item(file INTEGER NOT NULL, kind INTEGER NOT NULL, extent INTEGER NOT NULL, "
	"seen INTEGER NOT NULL,"
	" count INTEGER NOT NULL, first_ms INTEGER NOT NULL, place INTEGER NOT NULL, last_start "
	"INTEGER NOT NULL,"
	" last_seen INTEGER NOT NULL, PRIMARY KEY(file, kind, extent)) WITHOUT ROWID;";

/* ---- keys ---- */

uint64_t profile_layer_key(dev_t dev, ino_t ino, int64_t btime_s, int64_t btime_ns)
{
	const uint64_t words[] = { dev, ino, (uint64_t)btime_s, (uint64_t)btime_ns };

	return hash_checksum(words, sizeof(words));
}

uint64_t profile_image_key(const struct profile_stack *s)
{
	const uint64_t key = hash_checksum(s->layers, s->n * sizeof(*s->layers));

	return key ? key : 1;
}

/* ---- calls ---- */

/* 0 for SQLITE_OK, SQLITE_ROW and SQLITE_DONE. */
static int errno_of(int code)
{
	switch (code & 0xff) {
	case SQLITE_OK:
	case SQLITE_ROW:
	case SQLITE_DONE:
		return 0;
	case SQLITE_BUSY:
	case SQLITE_LOCKED:
		return -EBUSY;
	case SQLITE_READONLY:
	case SQLITE_PERM:
		return -EROFS;
	case SQLITE_FULL:
		return -ENOSPC;
	case SQLITE_NOMEM:
		return -ENOMEM;
	case SQLITE_IOERR:
	case SQLITE_CANTOPEN:
	case SQLITE_PROTOCOL:
		return -EIO;
	default:
		/* Not a database, damaged, another schema, or one that makes a query run for
		 * ever. */
		return -EUCLEAN;
	}
}

int profile_fail(int r, char *err, size_t err_size)
{
	snprintf(err, err_size, "%s: %s", PROFILE_FILE,
		 r == -EUCLEAN ? "it is damaged"
		 : r == -EBUSY ? "somebody has it locked"
		 : r == -EROFS ? "it cannot be written"
			       : strerror(-r));
	return r;
}

int profile_run(struct profile *p, const char *sql)
{
	return errno_of(sqlite3_exec(p->db, sql, NULL, NULL, NULL));
}

int profile_prepare(struct profile *p, const char *sql, sqlite3_stmt **ret)
{
	return errno_of(sqlite3_prepare_v2(p->db, sql, -1, ret, NULL));
}

void profile_finish(sqlite3_stmt **s)
{
	sqlite3_finalize(*s);
}

int profile_bind(sqlite3_stmt *s, const char *types, ...)
{
	int code = SQLITE_OK;
	va_list ap;

	va_start(ap, types);
	for (int i = 0; code == SQLITE_OK && types[i]; i++) {
		const char *path;

		if (types[i] == 'i') {
			code = sqlite3_bind_int64(s, i + 1, va_arg(ap, int64_t));
		} else if (types[i] == 'd') {
			code = sqlite3_bind_double(s, i + 1, va_arg(ap, double));
		} else {
			path = va_arg(ap, const char *);
			code = sqlite3_bind_blob64(s, i + 1, path, strlen(path), SQLITE_STATIC);
		}
	}
	va_end(ap);
	return errno_of(code);
}

int profile_step(sqlite3_stmt *s)
{
	int code = sqlite3_step(s);

	return code == SQLITE_ROW ? 1 : code == SQLITE_DONE ? 0 : errno_of(code) ?: -EIO;
}

int profile_do_bound(sqlite3_stmt *s)
{
	int r = profile_step(s);

	sqlite3_reset(s);
	return r > 0 ? 0 : r;
}

/* ---- opening ---- */

/* The path as it is: files behind /proc/self/fd have no other name. */
static int keep_path(sqlite3_vfs *vfs, const char *path, int size, char *ret)
{
	(void)vfs;
	return snprintf(ret, (size_t)size, "%s", path) < size ? SQLITE_OK : SQLITE_CANTOPEN;
}

static void set_up_sqlite(void)
{
	static sqlite3_vfs vfs;
	const sqlite3_vfs *plain = sqlite3_vfs_find("unix");

	sqlite3_hard_heap_limit64(HEAP_BYTES);
	if (!plain)
		return;
	vfs = *plain;
	vfs.zName = VFS;
	vfs.pNext = NULL;
	vfs.xFullPathname = keep_path;
	sqlite3_vfs_register(&vfs, 0);
}

/* Processor time, as the machine may be busy. */
static int64_t cpu_ms(void)
{
	struct timespec used = { 0 };

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &used);
	return used.tv_sec * 1000 + used.tv_nsec / 1000000;
}

static int is_too_long(void *arg)
{
	const struct profile *p = arg;

	return cpu_ms() - p->began_cpu_ms > CPU_MS_MAX;
}

/* Nothing that SQLite would wait for, or read for minutes. */
static int look(int dirfd, char *err, size_t err_size)
{
	static const char *const names[] = { PROFILE_FILE, PROFILE_FILE "-wal", PROFILE_FILE "-shm",
					     PROFILE_FILE "-journal" };
	struct stat st;

	for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++) {
		if (fstatat(dirfd, names[i], &st, AT_SYMLINK_NOFOLLOW) < 0)
			continue;
		if (!S_ISREG(st.st_mode) || st.st_size > (off_t)PROFILE_BYTES_OPENED) {
			snprintf(err, err_size, "%s: it is %s", names[i],
				 S_ISREG(st.st_mode) ? "far too large" : "no file");
			return S_ISREG(st.st_mode) ? -EFBIG : -EUCLEAN;
		}
	}
	return 0;
}

static int version_of(struct profile *p, int *ret)
{
	_cleanup_(profile_finish) sqlite3_stmt *s = NULL;
	int r = profile_prepare(p, "PRAGMA user_version", &s);

	r = r ?: profile_step(s);
	if (r > 0)
		*ret = sqlite3_column_int(s, 0);
	return r < 0 ? r : 0;
}

/* The first process makes the tables. */
static int make_tables(struct profile *p)
{
	int version = 0,
	    r = profile_run(
		    p, "PRAGMA auto_vacuum=INCREMENTAL; PRAGMA journal_mode=WAL; BEGIN IMMEDIATE");

	r = r ?: version_of(p, &version);
	if (r == 0 && version == 0)
		r = profile_run(p, schema) ?: profile_run(p, "PRAGMA user_version=1");
	if (r == 0)
		return profile_run(p, "COMMIT");
	profile_run(p, "ROLLBACK");
	return r;
}

static int check_version(struct profile *p, bool is_readonly, char *err, size_t err_size)
{
	int version = 0, r = version_of(p, &version);

	if (r == 0 && version == 0 && !is_readonly)
		r = make_tables(p) ?: version_of(p, &version);
	if (r < 0)
		return profile_fail(r, err, err_size);
	if (version == PROFILE_VERSION)
		return 0;
	snprintf(err, err_size, "%s: it is %s", PROFILE_FILE,
		 version > PROFILE_VERSION ? "of a newer version" : "damaged");
	return version > PROFILE_VERSION ? -EPROTO : -EUCLEAN;
}

static int set_up(struct profile *p, bool is_readonly, char *err, size_t err_size)
{
	char sql[256];
	int r;

	p->began_cpu_ms = cpu_ms();
	sqlite3_progress_handler(p->db, OPS_A_LOOK, is_too_long, p);
	sqlite3_busy_timeout(p->db, BUSY_MS);
	sqlite3_db_config(p->db, SQLITE_DBCONFIG_DEFENSIVE, 1, NULL);
	sqlite3_db_config(p->db, SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0, NULL);
	snprintf(sql, sizeof(sql),
		 "PRAGMA temp_store=MEMORY; PRAGMA synchronous=NORMAL; PRAGMA max_page_count=%u",
		 PROFILE_BYTES_MAX / PAGE_BYTES);
	r = check_version(p, is_readonly, err, err_size);
	if (r < 0)
		return r;
	if (!is_readonly && sqlite3_db_readonly(p->db, "main") != 0) {
		snprintf(err, err_size, "%s: it cannot be written", PROFILE_FILE);
		return -EROFS;
	}
	r = profile_run(p, sql);
	return r < 0 ? profile_fail(r, err, err_size) : 0;
}

int profile_open(int dirfd, bool is_readonly, struct profile **ret, char *err, size_t err_size)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;
	const int flags = is_readonly ? SQLITE_OPEN_READONLY
				      : SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE;
	char path[sizeof("/proc/self/fd/-2147483648/" PROFILE_FILE)];
	struct profile *p = calloc(1, sizeof(*p));
	int r;

	pthread_once(&once, set_up_sqlite);
	snprintf(err, err_size, "out of memory");
	if (!p)
		return -ENOMEM;
	r = look(dirfd, err, err_size);
	snprintf(path, sizeof(path), "/proc/self/fd/%d/%s", dirfd, PROFILE_FILE);
	if (r == 0 &&
	    sqlite3_open_v2(path, &p->db, flags | SQLITE_OPEN_NOMUTEX | SQLITE_OPEN_PRIVATECACHE,
			    VFS) != SQLITE_OK) {
		r = p->db ? profile_fail(errno_of(sqlite3_extended_errcode(p->db)) ?: -EIO, err,
					 err_size)
			  : -ENOMEM;
		if (is_readonly && faccessat(dirfd, PROFILE_FILE, F_OK, 0) < 0 && errno == ENOENT)
			r = -ENOENT;
	}
	r = r ?: set_up(p, is_readonly, err, err_size);
	if (r < 0)
		profile_close(p);
	else
		*ret = p;
	return r;
}

void profile_close(struct profile *p)
{
	if (!p)
		return;
	sqlite3_close(p->db);
	free(p);
}
