// SPDX-License-Identifier: Apache-2.0
/* Data is written in full, because OCI layers have no sparse files. */
#include "veneer/tools/diff.h"

#include "archive_fill.h"
#include "archive_library.h"
#include "first_names.h"

#include "veneer/base/cleanup.h"
#include "veneer/base/log.h"
#include "veneer/data/read.h"
#include "veneer/layer/whiteout.h"

#include <archive.h>
#include <archive_entry.h>
#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <string.h>

/* clang-format off */
#define CALLS(CALL) \
	CALL(archive_entry_clear) CALL(archive_entry_free) CALL(archive_entry_new) \
	CALL(archive_entry_set_hardlink) CALL(archive_entry_set_mode) \
	CALL(archive_entry_set_mtime) CALL(archive_entry_set_pathname) \
	CALL(archive_entry_set_size) CALL(archive_errno) CALL(archive_error_string) \
	CALL(archive_write_add_filter_none) CALL(archive_write_close) \
	CALL(archive_write_data) CALL(archive_write_free) CALL(archive_write_header) \
	CALL(archive_write_new) CALL(archive_write_open_fd) \
	CALL(archive_write_set_bytes_in_last_block) \
	CALL(archive_write_set_format_pax) CALL(archive_write_set_options)
/* clang-format on */

#define STEP_BYTES ((size_t)1 << 20)

ARCHIVE_LIBRARY_LOADER(CALLS)

struct writing {
	const struct diff *d;
	struct archive *a;
	struct archive_entry *entry;
	struct first_names names;
	char *buf;
	void (*step)(void *arg, const struct diff_progress *p);
	void *arg;
	struct diff_progress p;
};

static int check(struct writing *w, int r)
{
	if (r == ARCHIVE_OK || r == ARCHIVE_WARN)
		return 0;
	log_error("cannot write the archive: %s", lib.archive_error_string(w->a));
	r = lib.archive_errno(w->a);
	return r > 0 ? -r : -EIO;
}

/* ---- one entry ---- */

static int write_data(struct writing *w, const struct diff_entry *e, uint64_t size)
{
	struct source *src;
	int r = image_source(w->d->full, e->image_entry, &src), fd;

	fd = r < 0 ? r : source_pin(src);
	if (fd < 0)
		return fd;
	for (uint64_t off = 0; r == 0 && off < size;) {
		size_t n = size - off < STEP_BYTES ? (size_t)(size - off) : STEP_BYTES;

		r = read_source(src, w->buf, n, off);
		if (r == 0 && lib.archive_write_data(w->a, w->buf, n) != (la_ssize_t)n)
			r = check(w, ARCHIVE_FATAL);
		off += n;
		w->p.bytes += n;
		if (r == 0 && w->step)
			w->step(w->arg, &w->p);
	}
	fd_cache_unpin(&src->fd);
	return r;
}

static void begin_entry(struct writing *w, const char *path)
{
	lib.archive_entry_clear(w->entry);
	lib.archive_entry_set_pathname(w->entry, path);
}

static int write_marker(struct writing *w, const char *path, const char *name)
{
	_cleanup_(freep) char *full = NULL;

	if (asprintf(&full, "%s%s%s", path, *path ? "/" : "", name) < 0)
		return -ENOMEM;
	begin_entry(w, full);
	lib.archive_entry_set_mode(w->entry, S_IFREG | 0600);
	lib.archive_entry_set_size(w->entry, 0);
	lib.archive_entry_set_mtime(w->entry, 0, 0);
	return check(w, lib.archive_write_header(w->a, w->entry));
}

static int write_whiteout(struct writing *w, const struct diff_entry *e)
{
	_cleanup_(freep) char *dir = strdup(e->path), *name = NULL;
	char *slash = dir ? strrchr(dir, '/') : NULL;

	if (!dir || asprintf(&name, WHITEOUT_PREFIX "%s", slash ? slash + 1 : dir) < 0)
		return -ENOMEM;
	*(slash ? slash : dir) = '\0';
	return write_marker(w, dir, name);
}

static int write_object(struct writing *w, const struct diff_entry *e)
{
	_cleanup_(closep) int fd = image_open_path(w->d->full, e->image_entry);
	const char *first = NULL;
	struct stat st;
	int r = fd < 0 ? fd : image_stat(w->d->full, e->image_entry, &st);

	if (r < 0)
		return r;
	if (S_ISSOCK(st.st_mode)) {
		log_warn("%s/%s: a socket, which an archive cannot hold, is left out",
			 w->d->upper->path, e->path);
		return 0;
	}
	begin_entry(w, e->path);
	r = archive_fill_stat(w->entry, &st);
	if (!S_ISDIR(st.st_mode) && st.st_nlink > 1)
		first = first_names_of(&w->names, e, &st);
	if (first)
		lib.archive_entry_set_hardlink(w->entry, first);
	else
		r = r
			    ?: archive_fill_xattrs(w->entry, fd, &st,
						   image_override(w->d->full, e->image_entry),
						   e->path);
	lib.archive_entry_set_size(w->entry, S_ISREG(st.st_mode) && !first ? st.st_size : 0);
	if (r == 0 && S_ISLNK(st.st_mode))
		r = archive_fill_target(w->entry, w->d->full, e->image_entry);
	r = r ?: check(w, lib.archive_write_header(w->a, w->entry));
	if (r == 0 && S_ISREG(st.st_mode) && !first)
		r = write_data(w, e, (uint64_t)st.st_size);
	else if (r == 0 && S_ISREG(st.st_mode))
		w->p.bytes += (uint64_t)st.st_size;
	return r == 0 && e->is_opaque ? write_marker(w, e->path, WHITEOUT_OPAQUE_NAME) : r;
}

static int write_all(struct writing *w)
{
	int r = 0;

	for (size_t i = 0; r == 0 && i < w->d->n; i++) {
		const struct diff_entry *e = &w->d->entries[i];

		if (e->kind == 'D')
			r = e->is_implied ? 0 : write_whiteout(w, e);
		else
			r = write_object(w, e);
		if (r < 0)
			log_error("%s/%s: %s", w->d->upper->path, e->path,
				  strerror(r == -EUCLEAN ? EIO : -r));
		w->p.entries++;
		if (w->step)
			w->step(w->arg, &w->p);
	}
	return r;
}

/* Write only one header for attributes, as libarchive's other one repeats it. Names are bytes.
 * libarchive marks names that are not ASCII itself. With hdrcharset=BINARY it would mark all, and
 * GNU tar warns of the unknown keyword for each. */
static int open_archive(struct writing *w, int fd)
{
	int r = check(w, lib.archive_write_set_format_pax(w->a));

	r = r ?: check(w, lib.archive_write_set_options(w->a, "xattrheader=SCHILY"));
	r = r ?: check(w, lib.archive_write_add_filter_none(w->a));
	r = r ?: check(w, lib.archive_write_set_bytes_in_last_block(w->a, 1));
	return r ?: check(w, lib.archive_write_open_fd(w->a, fd));
}

/* A failed archive stays until the process ends. archive_write_free would end it as if it were
 * complete, and after archive_write_fail libarchive 3.6 leaks its buffers. Only the leak checker
 * reads this variable, so the compiler must store it. */
static struct archive *volatile unfinished;

int diff_tar_write(const struct diff *d, int fd,
		   void (*step)(void *arg, const struct diff_progress *p), void *arg,
		   struct diff_progress *ret)
{
	struct writing w = { .d = d, .step = step, .arg = arg, .p.nentries = d->n };
	int r = load();

	*ret = w.p;
	if (r < 0)
		return r;
	w.a = lib.archive_write_new();
	w.entry = lib.archive_entry_new();
	w.buf = malloc(STEP_BYTES);
	r = w.a && w.entry && w.buf ? 0 : -ENOMEM;

	for (size_t i = 0; i < d->n; i++)
		w.p.nbytes += d->entries[i].size;
	r = r ?: open_archive(&w, fd);
	r = r ?: write_all(&w);
	if (r == 0)
		r = check(&w, lib.archive_write_close(w.a));
	if (r == 0)
		lib.archive_write_free(w.a);
	else
		unfinished = w.a;
	lib.archive_entry_free(w.entry);
	first_names_release(&w.names);
	free(w.buf);
	*ret = w.p;
	return r;
}
