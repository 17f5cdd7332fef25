// SPDX-License-Identifier: Apache-2.0
#include "veneer/inspect.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <string.h>
#include <sys/stat.h>

#include "../map/journal.h"
#include "../map/snapshot.h"
#include "veneer/cleanup.h"
#include "veneer/file.h"
#include "veneer/mapfile.h"
#include "veneer/mark.h"
#include "veneer/path.h"
#include "veneer/xattr.h"

static void print_header(FILE *out, const struct format_map_header *h)
{
	fprintf(out, "  version %u, uuid %016" PRIx64 ", generation %" PRIu64 "\n", h->version,
		h->uuid, h->generation);
	fprintf(out, "  features compatible %#" PRIx64 ", incompatible %#" PRIx64 "\n", h->compat,
		h->incompat);
	fprintf(out, "  next id %" PRIu64, h->next_id);
	if (h->lost_end)
		fprintf(out, ", lost ids %" PRIu64 " to %" PRIu64, h->lost_first, h->lost_end - 1);
	fprintf(out, "\n  written as inode %" PRIu64 ", born %" PRIu64 " ns\n", h->self_ino,
		h->self_btime_ns);
	fprintf(out, "  snapshot %" PRIu64 " bytes, %" PRIu64 " files, checksum %016" PRIx64 "\n",
		h->snapshot_len, h->snapshot_files, h->snapshot_sum);
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

static void print_record(FILE *out, uint64_t off, const struct record *rec)
{
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
		fprintf(out, " blocks %" PRIu64, rec->run.blk);
		if (rec->run.n > 1)
			fprintf(out, "-%" PRIu64, rec->run.blk + rec->run.n - 1);
		break;
	case FORMAT_REC_OWN_BITS:
		print_bits(out, rec->bits.chunk, rec->bits.bits);
		break;
	case FORMAT_REC_TRUNCATE:
		fprintf(out, " size %" PRIu64, rec->truncate.size);
		break;
	default:
		break;
	}
	fputc('\n', out);
}

static int print_damage(FILE *out, uint64_t off, const char *rule)
{
	fprintf(out, "  %8" PRIu64 "  DAMAGED: %s\n", off, rule);
	return -EUCLEAN;
}

/* Print records until there is none; each is also done to t, which finds what breaks the rules.
 * h is NULL in the log. */
static int print_records(FILE *out, struct journal_reader *rd, struct table *t,
			 const struct format_map_header *h)
{
	for (;;) {
		struct record rec;
		const char *why = NULL;
		uint64_t off = rd->off;
		int r = rd->off < rd->end ? journal_reader_next(rd, &rec) : 0;

		if (r == -EUCLEAN)
			return print_damage(out, off, rd->why);
		if (r <= 0)
			return r;
		print_record(out, off, &rec);
		if (!h && rec.type != FORMAT_REC_OPEN && !t->in_session)
			return print_damage(out, off, "change outside a session");
		r = h ? snapshot_apply(t, &rec, h, &why) : table_apply(t, &rec, &why);
		if (r < 0)
			return r == -EUCLEAN ? print_damage(out, off, why) : r;
	}
}

static int print_snapshot(FILE *out, int fd, const struct format_map_header *h, struct table *t)
{
	struct journal_reader rd;
	uint64_t end = sizeof(*h) + h->snapshot_len;
	int r = journal_reader_init(&rd, fd, sizeof(*h), end, snapshot_seed(h));

	if (r < 0)
		return r;
	fprintf(out, " snapshot\n");
	t->is_loading = true;
	r = print_records(out, &rd, t, h);
	t->is_loading = false;
	if (r == 0 && rd.off != end)
		r = print_damage(out, rd.off, rd.why);
	if (r == 0 && (rd.sum != h->snapshot_sum || t->count != h->snapshot_files))
		r = print_damage(out, rd.off,
				 "last checksum or number of files is not the header's");
	journal_reader_release(&rd);
	return r;
}

static int print_log(FILE *out, int fd, const struct format_map_header *h, struct table *t)
{
	struct journal_reader rd;
	struct stat st;
	int r = journal_reader_init(&rd, fd, sizeof(*h) + h->snapshot_len, UINT64_MAX, h->checksum);

	if (r < 0)
		return r;
	fprintf(out, " log\n");
	r = print_records(out, &rd, t, NULL);
	if (r == 0) {
		fprintf(out, "  %8" PRIu64 "  end of log: %s", rd.off, rd.why);
		if (fstat(fd, &st) == 0 && (uint64_t)st.st_size > rd.off)
			fprintf(out, "; %" PRIu64 " bytes behind it",
				(uint64_t)st.st_size - rd.off);
		fprintf(out, "\n %zu files, %s\n", t->count,
			t->in_session
				? "session open: trusted in this boot only, else what was committed"
				: "closed cleanly");
	}
	journal_reader_release(&rd);
	return r;
}

int inspect_map(int fd, const char *name, FILE *out)
{
	uint8_t bytes[sizeof(struct format_map_header)];
	struct format_map_header h;
	const char *why;
	ssize_t n = file_pread(fd, bytes, sizeof(bytes), 0);

	fprintf(out, "%s: map\n", name);
	if (n < 0)
		return (int)n;

	int r = snapshot_header_decode(bytes, (size_t)n, &h, &why);

	if (r < 0)
		return print_damage(out, 0, why);
	print_header(out, &h);

	struct table t;

	table_init(&t);
	r = print_snapshot(out, fd, &h, &t);
	r = r ?: print_log(out, fd, &h, &t);
	table_release(&t);
	return r;
}

/* The walk over a layer: directories still to be read, as paths, so that one is open at a time. */
struct walk {
	int rootfd;
	const char *name;
	FILE *out;
	struct mapfile *mf; /* NULL: none, or damaged */
	char **dirs;
	size_t ndirs, cap;
	int result;
};

static int walk_push(struct walk *w, const char *path)
{
	if (w->ndirs == w->cap) {
		size_t cap = w->cap ? w->cap * 2 : 16;
		char **dirs = reallocarray(w->dirs, cap, sizeof(*dirs));

		if (!dirs)
			return -ENOMEM;
		w->dirs = dirs;
		w->cap = cap;
	}
	w->dirs[w->ndirs] = strdup(path);
	if (!w->dirs[w->ndirs])
		return -ENOMEM;
	w->ndirs++;
	return 0;
}

static int print_ownership(struct walk *w, const struct mark *m)
{
	uint64_t clip, nown = 0;

	if (!w->mf || mapfile_clip(w->mf, m->file_id, &clip) < 0) {
		fprintf(w->out, " DAMAGED: the map has no such file\n");
		return -EUCLEAN;
	}

	blk_t end = (clip + BLK_BYTES - 1) / BLK_BYTES, n;

	for (blk_t at = 0; at < end; at += n) {
		bool is_own;

		if (mapfile_run(w->mf, m->file_id, at, end - at, &is_own, &n) < 0)
			break;
		nown += is_own ? n : 0;
	}
	fprintf(w->out, " own %" PRIu64 " of %" PRIu64 " blocks, clip %" PRIu64 "\n", nown, end,
		clip);
	return 0;
}

static int print_mark(struct walk *w, const char *path)
{
	char value[sizeof(struct format_partial) + MARK_PATH_MAX];
	struct mark m;
	ssize_t n = -1;
	_cleanup_(closep) int fd = path_open(w->rootfd, path, O_PATH | O_NOFOLLOW, 0);

	if (fd < 0)
		return fd == -ENOENT ? 0 : fd;
	n = xattr_get(fd, "", FORMAT_PARTIAL_ATTR, value, sizeof(value));
	if (n == -ENODATA || n == -EOPNOTSUPP)
		return 0;
	if (n < 0 && n != -ERANGE)
		return (int)n;
	fprintf(w->out, "%s/%s:", w->name, path);
	if (n < 0 || mark_decode(value, (size_t)n, &m) < 0) {
		fprintf(w->out, " DAMAGED: partial mark\n");
		return -EUCLEAN;
	}
	fprintf(w->out, " file %" PRIu64 ", lower %s (%" PRIu64 " bytes),", m.file_id,
		m.path[0] ? m.path : "at the same path", m.lower_size);
	if (w->mf && (uint32_t)mapfile_uuid(w->mf) != m.uuid_low) {
		fprintf(w->out, " DAMAGED: made in another layer, uuid ...%08x\n", m.uuid_low);
		return -EUCLEAN;
	}
	return print_ownership(w, &m);
}

/* Damage is told and passed by; anything else ends the walk. */
static int walk_entry(struct walk *w, int dirfd, const char *dir, const char *name)
{
	char path[MARK_PATH_MAX];
	struct stat st;
	int r = 0;

	if (strcmp(name, ".") == 0 || strcmp(name, "..") == 0)
		return 0;
	if (snprintf(path, sizeof(path), "%s%s%s", dir, dir[0] ? "/" : "", name) >=
	    (int)sizeof(path))
		return -ENAMETOOLONG;
	if (fstatat(dirfd, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return errno == ENOENT ? 0 : -errno;
	if (S_ISDIR(st.st_mode))
		return walk_push(w, path);
	if (S_ISREG(st.st_mode))
		r = print_mark(w, path);
	if (r == -EUCLEAN)
		w->result = r;
	return r == -EUCLEAN ? 0 : r;
}

static int walk_dir(struct walk *w, const char *path)
{
	int fd = path_open(w->rootfd, path, O_RDONLY | O_DIRECTORY, 0);

	if (fd < 0)
		return fd == -ENOENT ? 0 : fd;

	DIR *d = fdopendir(fd);
	int r = 0;

	if (!d) {
		r = -errno;
		close(fd);
		return r;
	}
	while (r == 0) {
		errno = 0;

		const struct dirent *e = readdir(d);

		if (!e) {
			r = -errno;
			break;
		}
		r = walk_entry(w, fd, path, e->d_name);
	}
	closedir(d);
	return r;
}

static int walk_layer(struct walk *w)
{
	int r = walk_push(w, "");

	while (r == 0 && w->ndirs > 0) {
		_cleanup_(freep) char *path = w->dirs[--w->ndirs];

		r = walk_dir(w, path);
	}
	while (w->ndirs > 0)
		free(w->dirs[--w->ndirs]);
	free(w->dirs);
	return r;
}

/* The map's own lines; 0 when the layer has none. */
static int print_layer_map(int rootfd, const char *name, FILE *out)
{
	struct stat st;
	char map_name[MARK_PATH_MAX];

	if (fstatat(rootfd, MAPFILE_NAME, &st, AT_SYMLINK_NOFOLLOW) < 0) {
		if (errno != ENOENT)
			return -errno;
		fprintf(out, "%s: no map\n", name);
		return 0;
	}
	if (!S_ISREG(st.st_mode)) {
		fprintf(out, "%s: DAMAGED: %s is not a regular file\n", name, MAPFILE_NAME);
		return -EUCLEAN;
	}
	_cleanup_(closep) int fd =
		path_open(rootfd, MAPFILE_NAME, O_RDONLY | O_NOFOLLOW | O_NONBLOCK, 0);

	if (fd < 0)
		return fd;
	snprintf(map_name, sizeof(map_name), "%s/%s", name, MAPFILE_NAME);
	return inspect_map(fd, map_name, out);
}

int inspect_layer(int rootfd, const char *name, FILE *out)
{
	struct walk w = { .rootfd = rootfd, .name = name, .out = out };

	w.result = print_layer_map(rootfd, name, out);
	if (w.result < 0 && w.result != -EUCLEAN)
		return w.result;
	if (w.result == 0) {
		int r = mapfile_open(rootfd, -1, MAPFILE_READONLY, name, NULL, &w.mf);

		if (r < 0)
			return r;
	}

	int r = walk_layer(&w);

	mapfile_close(w.mf);
	return r ?: w.result;
}
