// SPDX-License-Identifier: Apache-2.0
#include "veneer/tools/inspect.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdarg.h>
#include <string.h>
#include <sys/stat.h>

#include "layer_walk.h"
#include "veneer/base/cleanup.h"
#include "veneer/base/human_units.h"
#include "veneer/layer/branch_dir.h"
#include "veneer/layer/map_recover.h"
#include "veneer/layer/partial_xattr.h"
#include "veneer/map/journal_end.h"
#include "veneer/map/mapfile.h"
#include "veneer/map/session_epoch.h"
#include "veneer/map/snapshot.h"
#include "veneer/sys/file.h"
#include "veneer/sys/path.h"
#include "veneer/sys/xattr.h"

#define TRIES 3

/* The object of a line. */
struct place {
	const struct inspect_out *to;
	FILE *out; /* of to */
	const char *layer; /* NULL: unknown */
	const char *path;
};

static void end_line(const struct place *p, const char *code)
{
	fputc('\n', p->out);
	if (p->to->line)
		p->to->line(p->to->arg, code, p->layer, p->path);
}

static void print_header(const struct place *p, const struct format_map_header *h)
{
	fprintf(p->out, "  version %u, uuid %016" PRIx64 ", generation %" PRIu64, h->version,
		h->uuid, h->generation);
	end_line(p, "header");
	fprintf(p->out, "  features compatible %#" PRIx64 ", incompatible %#" PRIx64, h->compat,
		h->incompat);
	end_line(p, "header");
	fprintf(p->out, "  next id %" PRIu64, h->next_id);
	if (h->lost_end)
		fprintf(p->out, ", lost ids %" PRIu64 " to %" PRIu64, h->lost_first,
			h->lost_end - 1);
	end_line(p, "header");
	fprintf(p->out, "  written as inode %" PRIu64 ", born %" PRIu64 " ns", h->self_ino,
		h->self_btime_ns);
	end_line(p, "header");
	fprintf(p->out, "  snapshot %" PRIu64 " bytes, %" PRIu64 " files, checksum %016" PRIx64,
		h->snapshot_len, h->snapshot_files, h->snapshot_sum);
	end_line(p, "header");
}

static void print_bits(FILE *out, uint64_t chunk, const uint64_t bits[2])
{
	const char *sep = " blocks ";

	for (unsigned i = 0; i < CHUNK_BLKS; i++) {
		unsigned first = i;

		while (i < CHUNK_BLKS && (bits[i / 64] >> (i % 64) & 1))
			i++;
		if (i == first)
			continue;
		fprintf(out, "%s%" PRIu64, sep, chunk * CHUNK_BLKS + first);
		if (i - first > 1)
			fprintf(out, "-%" PRIu64, chunk * CHUNK_BLKS + i - 1);
		sep = ",";
	}
}

static void print_record(const struct place *p, uint64_t off, const struct record *rec)
{
	FILE *out = p->out;

	fprintf(out, "  %8" PRIu64 "  %-8s", off, record_name(rec->type));
	if (rec->id)
		fprintf(out, " file %" PRIu64, rec->id);
	switch (rec->type) {
	case FORMAT_REC_OPEN:
		fprintf(out, " boot %016" PRIx64 " session %016" PRIx64, rec->open.epoch,
			rec->open.nonce);
		break;
	case FORMAT_REC_NEW:
		fprintf(out, " clip %" PRIu64, rec->fresh.clip);
		break;
	case FORMAT_REC_OWN_RUN:
	case FORMAT_REC_ZERO_RUN:
		fprintf(out, " blocks %" PRIu64, rec->run.blk);
		if (rec->run.n > 1)
			fprintf(out, "-%" PRIu64, rec->run.blk + rec->run.n - 1);
		break;
	case FORMAT_REC_OWN_BITS:
	case FORMAT_REC_ZERO_BITS:
		print_bits(out, rec->bits.chunk, rec->bits.bits);
		break;
	case FORMAT_REC_TRUNCATE:
		fprintf(out, " size %" PRIu64, rec->truncate.size);
		break;
	default:
		break;
	}
	end_line(p, "record");
}

static int print_damage(const struct place *p, uint64_t off, const char *rule)
{
	fprintf(p->out, "  %8" PRIu64 "  DAMAGED: %s", off, rule);
	end_line(p, "damaged");
	return -EUCLEAN;
}

/* Print all records, and apply each to t, which finds broken rules. h is NULL in the log. */
static int print_records(const struct place *p, struct journal_reader *rd, struct table *t,
			 const struct format_map_header *h)
{
	for (;;) {
		struct record rec;
		const char *why = NULL;
		uint64_t off = rd->off;
		int r = rd->off < rd->end ? journal_reader_next(rd, &rec) : 0;

		if (r == -EUCLEAN)
			return print_damage(p, off, rd->why);
		if (r <= 0)
			return r;
		print_record(p, off, &rec);
		if (!h && rec.type != FORMAT_REC_OPEN && !t->in_session)
			return print_damage(p, off, "change outside a session");
		r = h ? snapshot_apply(t, &rec, h, &why) : table_apply(t, &rec, &why);
		if (r < 0)
			return r == -EUCLEAN ? print_damage(p, off, why) : r;
	}
}

static int print_snapshot(const struct place *p, int fd, const struct format_map_header *h,
			  struct table *t)
{
	struct journal_reader rd;
	uint64_t end = sizeof(*h) + h->snapshot_len;
	int r = journal_reader_init(&rd, fd, sizeof(*h), end, snapshot_seed(h));

	if (r < 0)
		return r;
	fputs(" snapshot", p->out);
	end_line(p, "snapshot");
	t->is_loading = true;
	r = print_records(p, &rd, t, h);
	t->is_loading = false;
	if (r == 0 && rd.off != end)
		r = print_damage(p, rd.off, rd.why);
	if (r == 0 && (rd.sum != h->snapshot_sum || t->count != h->snapshot_files))
		r = print_damage(p, rd.off, "last checksum or number of files is not the header's");
	journal_reader_release(&rd);
	return r;
}

/* Print the log's records, and check the bytes after its end where no power cut can have torn it. A
 * live writer may be adding records. */
static int print_to_end(const struct place *p, struct journal_reader *rd, struct table *t,
			const struct format_map_header *h)
{
	for (int attempt = 0;; attempt++) {
		int r = print_records(p, rd, t, NULL);
		const char *why;

		r = r ?: journal_end_check(rd, t, h, &why);
		if (r <= 0)
			return r;
		if (attempt == TRIES)
			return print_damage(p, rd->off, why);
	}
}

static const char *session_text(const struct table *t)
{
	if (!t->in_session)
		return "closed cleanly";
	return session_epoch_is_of(t) > 0
		       ? "session open: trusted in this boot only, else the committed part"
		       : "session of an earlier boot open: only the committed part counts";
}

static int print_log(const struct place *p, int fd, const struct format_map_header *h,
		     struct table *t)
{
	struct journal_reader rd;
	struct stat st;
	int r = journal_reader_init(&rd, fd, sizeof(*h) + h->snapshot_len, UINT64_MAX, h->checksum);

	if (r < 0)
		return r;
	fputs(" log", p->out);
	end_line(p, "log");
	r = print_to_end(p, &rd, t, h);
	if (r == 0) {
		fprintf(p->out, "  %8" PRIu64 "  end of log: %s", rd.off, rd.why);
		if (fstat(fd, &st) == 0 && (uint64_t)st.st_size > rd.off)
			fprintf(p->out, "; %" PRIu64 " bytes behind it",
				(uint64_t)st.st_size - rd.off);
		end_line(p, "log-end");
		fprintf(p->out, " %s, %s", human_units_of(t->count, "file").text, session_text(t));
		end_line(p, "session");
	}
	journal_reader_release(&rd);
	return r;
}

int inspect_map(int fd, const char *layer, const char *path, const struct inspect_out *to)
{
	const struct place p = { to, to->out, layer, path };
	uint8_t bytes[sizeof(struct format_map_header)];
	struct format_map_header h;
	const char *why;
	ssize_t n = file_pread(fd, bytes, sizeof(bytes), 0);
	struct table t;
	int r;

	fprintf(p.out, "%s%s%s: map", layer ? layer : "", layer ? "/" : "", path);
	end_line(&p, "map");
	if (n < 0)
		return (int)n;
	r = snapshot_header_decode(bytes, (size_t)n, &h, &why);
	if (r < 0)
		return print_damage(&p, 0, why);
	print_header(&p, &h);
	table_init(&t);
	r = print_snapshot(&p, fd, &h, &t);
	r = r ?: print_log(&p, fd, &h, &t);
	table_release(&t);
	return r;
}

void inspect_say(const struct inspect_out *to, const char *code, const char *layer,
		 const char *path, const char *fmt, ...)
{
	const struct place p = { to, to->out, layer, path };
	va_list ap;

	fprintf(p.out, "%s%s%s: ", layer ? layer : "", layer && *path ? "/" : "", path);
	va_start(ap, fmt);
	vfprintf(p.out, fmt, ap);
	va_end(ap);
	end_line(&p, code);
}

/* ---- partial files ---- */

struct listing_walk {
	struct layer *layer;
	struct place at; /* the file */
	struct mapfile *map; /* NULL: none, or damaged */
	size_t nfiles;
	int result;
};

static int damaged(struct listing_walk *w, const char *why)
{
	fprintf(w->at.out, ", DAMAGED: %s", why);
	end_line(&w->at, "damaged");
	w->result = -EUCLEAN;
	return 0;
}

static int print_ownership(struct listing_walk *w, const struct partial_xattr *m, uint64_t size)
{
	const blk_t end = (size + BLK_BYTES - 1) / BLK_BYTES;
	uint64_t clip, nown = 0;
	blk_t n;

	if (mapfile_clip(w->map, m->file_id, &clip) < 0)
		return damaged(w, "the map has no such file");
	for (blk_t at = 0; at < end; at += n) {
		bool is_own;

		if (mapfile_run(w->map, m->file_id, at, end - at, &is_own, &n) < 0)
			break;
		nown += is_own ? n : 0;
	}
	fprintf(w->at.out, ", own %" PRIu64 " of %" PRIu64 " blocks, clip %" PRIu64, nown, end,
		clip);
	/* Until the size is recorded, only the file's size counts. */
	fputs(clip > size ? " (behind its end)" : "", w->at.out);
	end_line(&w->at, "partial");
	return 0;
}

static int print_partial(struct listing_walk *w, int dirfd, const char *name, const char *path,
			 const struct stat *st)
{
	_cleanup_(freep) char *value = NULL;
	ssize_t n = xattr_get_alloc(dirfd, name, FORMAT_PARTIAL_ATTR, &value);
	_cleanup_(closep) int fd = -1;
	struct partial_xattr m;

	if (n < 0)
		return n == -ENODATA || n == -EOPNOTSUPP || n == -ENOENT ? 0 : (int)n;
	w->nfiles++;
	w->at.path = path;
	fprintf(w->at.out, "%s/%s: %jd bytes", w->layer->path, path, (intmax_t)st->st_size);
	if (partial_xattr_decode(value, (size_t)n, &m) < 0)
		return damaged(w, "partial mark");
	fprintf(w->at.out,
		", file %" PRIu64 ", %s %s (%" PRIu64 " bytes, modified %jd.%09" PRIu32 ")",
		m.file_id, m.is_copy ? "a copy of" : "lower",
		m.path[0] ? m.path : "at the same path", m.lower_size, (intmax_t)m.lower_mtime_s,
		m.lower_mtime_ns);
	if (!w->map)
		return damaged(w, "no map to be read");
	if ((uint32_t)mapfile_uuid(w->map) != m.uuid_low)
		return damaged(w, "made in another layer");
	fd = openat(dirfd, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
	if (map_recover_enter(w->layer, w->map, &m, fd) == -ENOENT)
		return damaged(w, "the map has no such file");
	return print_ownership(w, &m, (uint64_t)st->st_size);
}

static int list_entry(void *arg, const struct layer_walk_entry *e, void **ret_dir)
{
	struct listing_walk *w = arg;

	(void)ret_dir;
	/* Each snapshot is a layer of its own. */
	if (!strcmp(e->path, BRANCH_DIR_NAME))
		return 1;
	return S_ISREG(e->st.st_mode) ? print_partial(w, e->dirfd, e->name, e->path, &e->st) : 0;
}

static int miss_dir(void *arg, const char *path, int error)
{
	struct listing_walk *w = arg;

	inspect_say(w->at.to, "unreadable", w->layer->path, path, "cannot be looked at: %s",
		    strerror(-error));
	w->result = -EUCLEAN;
	return 0;
}

/* Print the map's own lines; 0 if the layer has none. */
static int print_layer_map(struct layer *l, const struct inspect_out *to)
{
	struct stat st;

	if (fstatat(l->rootfd, MAPFILE_NAME, &st, AT_SYMLINK_NOFOLLOW) < 0) {
		if (errno != ENOENT)
			return -errno;
		inspect_say(to, "no-map", l->path, "", "no map");
		return 0;
	}
	if (!S_ISREG(st.st_mode)) {
		inspect_say(to, "damaged", l->path, "", "DAMAGED: %s is not a regular file",
			    MAPFILE_NAME);
		return -EUCLEAN;
	}
	_cleanup_(closep) int fd =
		path_open(l->rootfd, MAPFILE_NAME, O_RDONLY | O_NOFOLLOW | O_NONBLOCK, 0);

	if (fd < 0)
		return fd;
	return inspect_map(fd, l->path, MAPFILE_NAME, to);
}

int inspect_layer(struct layer *l, const struct inspect_out *to)
{
	struct listing_walk w = { .layer = l, .at = { to, to->out, l->path, "" } };
	const struct layer_walk_hooks hooks = { .fn = list_entry, .miss = miss_dir, .arg = &w };
	int r;

	w.result = print_layer_map(l, to);
	if (w.result < 0 && w.result != -EUCLEAN)
		return w.result;
	if (w.result == 0) {
		r = layer_map(l, &w.map);
		if (r == -EUCLEAN)
			w.result = r;
		else if (r < 0 && r != -ENOENT)
			return r;
	}
	r = layer_walk(l->rootfd, NULL, &hooks);
	return r ?: w.result;
}

int inspect_file(struct layer *l, const char *path, const struct inspect_out *to)
{
	struct listing_walk w = { .layer = l, .at = { to, to->out, l->path, "" } };
	_cleanup_(freep) char *dir = strdup(path);
	_cleanup_(closep) int dirfd = -1;
	const char *name = strrchr(path, '/');
	struct stat st;
	int r;

	if (!dir)
		return -ENOMEM;
	dir[name ? name - path : 0] = '\0';
	name = name ? name + 1 : path;
	dirfd = path_open(l->rootfd, dir, O_RDONLY | O_DIRECTORY, 0);
	if (dirfd < 0)
		return dirfd;
	if (fstatat(dirfd, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return -errno;
	r = layer_map(l, &w.map);
	if (r < 0 && r != -EUCLEAN && r != -ENOENT)
		return r;
	r = print_partial(&w, dirfd, name, path, &st);
	if (r == 0 && !w.nfiles)
		inspect_say(to, "plain", l->path, path, "no partial file");
	return r ?: w.result;
}
