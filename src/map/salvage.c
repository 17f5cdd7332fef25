// SPDX-License-Identifier: Apache-2.0
/* Checksums are chained, so that a record of which one byte is damaged is known exactly. A longer
 * gap is passed over in the snapshot alone. There the records of one file stand together, so that
 * the files next to the gap are known; and the header has the last checksum, which proves that the
 * rest belongs to this file. A gap in the log may be of any file. */
#include "salvage.h"

#include "veneer/base/hash.h"
#include "veneer/base/human_units.h"
#include "veneer/base/log.h"
#include "veneer/map/journal_end.h"
#include "veneer/sys/file.h"

#include <endian.h>
#include <errno.h>
#include <string.h>
#include <sys/stat.h>

#define HEADER_BYTES sizeof(struct format_map_header)
/* Each costs a millisecond. */
#define MENDED_MAX 64

/* Does a header look like one of a version with other rules? */
static bool is_newer(const struct format_map_header *raw, size_t n)
{
	return n == HEADER_BYTES && memcmp(raw->magic, FORMAT_MAP_MAGIC, sizeof(raw->magic)) == 0 &&
	       (le32toh(raw->version) != FORMAT_MAP_VERSION ||
		le64toh(raw->incompat) & ~FORMAT_MAP_INCOMPAT_KNOWN);
}

static int salvage_header(struct mapload *l)
{
	struct format_map_header raw;
	const char *why;
	ssize_t n = file_pread(l->fd, &raw, sizeof(raw), 0);
	uint64_t end, end_sum, sum;

	if (n < 0)
		return (int)n;
	if (snapshot_header_decode(&raw, (size_t)n, &l->head, &why) == 0)
		return 0;
	l->n_mended++;
	sum = le64toh(raw.checksum);
	if (n == HEADER_BYTES &&
	    hash_mend(&raw, 0, offsetof(struct format_map_header, checksum), &sum)) {
		raw.checksum = htole64(sum);
		if (snapshot_header_decode(&raw, sizeof(raw), &l->head, &why) == 0)
			return 0;
	}
	if (snapshot_copy_get(l->fd, &l->head, &end, &end_sum) == 0)
		return 0;
	return is_newer(&raw, (size_t)n) ? -EPROTONOSUPPORT : -EUCLEAN;
}

/* 1 and the record, damaged in one byte at most; 0: there is none; -errno. */
static int next_record(struct mapload *l, struct journal_reader *rd, struct record *ret)
{
	int r = journal_reader_next(rd, ret);

	if (r || l->n_mended >= MENDED_MAX)
		return r;
	r = journal_reader_mend(rd, ret);
	l->n_mended += r == 1;
	return r;
}

/* Move to where records lead to the end of the snapshot, as the header says it; to the end, if they
 * do nowhere. */
static int find_rest(const struct mapload *l, struct journal_reader *rd)
{
	int r;

	while ((r = journal_reader_resync(rd)) == 1) {
		const uint64_t off = rd->off, sum = rd->sum;
		struct record rec;

		while ((r = journal_reader_next(rd, &rec)) == 1)
			;
		if (rd->off == rd->end && rd->sum == l->head.snapshot_sum) {
			rd->off = off;
			rd->sum = sum;
			return 0;
		}
		/* These records belong to another file, and so do the next ones. */
		if (r < 0 && r != -EUCLEAN)
			return r;
	}
	rd->off = rd->end;
	return r;
}

static void drop_entry(struct mapload *l, file_id_t id)
{
	struct table_file *f = table_find_any(&l->table, id);

	if (f)
		table_remove(&l->table, f);
}

/* Files of which a record may be in the gap, or in one of those, have no entry: with their marks
 * alone they are damaged. */
static int pass_gap(struct mapload *l, struct journal_reader *rd, file_id_t before)
{
	int r;

	if (l->n_gaps++)
		return -EUCLEAN;
	drop_entry(l, before);
	r = find_rest(l, rd);
	while (r == 0 && rd->off < rd->end) {
		const uint64_t off = rd->off, sum = rd->sum;
		struct record rec;

		r = journal_reader_next(rd, &rec);
		if (r == 1 && rec.type == FORMAT_REC_NEW) {
			rd->off = off;
			rd->sum = sum;
			return 0;
		}
		r = r == 0 ? -EUCLEAN : r < 0 ? r : 0;
	}
	return r;
}

static int salvage_snapshot(struct mapload *l)
{
	struct journal_reader rd;
	file_id_t last = 0;
	struct stat st;

	if (fstat(l->fd, &st) < 0)
		return -errno;
	/* Of a file that was cut the log is gone. No writer makes a snapshot that is longer than a
	 * map may be. */
	if (l->head.snapshot_len > MAPFILE_BYTES_MAX ||
	    (uint64_t)st.st_size < HEADER_BYTES + l->head.snapshot_len)
		return -EUCLEAN;

	int r = journal_reader_init(&rd, l->fd, HEADER_BYTES, HEADER_BYTES + l->head.snapshot_len,
				    snapshot_seed(&l->head));

	l->table.is_loading = true;
	while (r == 0 && rd.off < rd.end) {
		struct record rec;
		const char *why;

		r = next_record(l, &rd, &rec);
		if (r == 0) {
			r = pass_gap(l, &rd, last);
		} else if (r == 1) {
			r = snapshot_apply(&l->table, &rec, &l->head, &why);
			last = rec.id;
		}
	}
	l->table.is_loading = false;
	if (r == 0 && !l->n_gaps &&
	    (rd.sum != l->head.snapshot_sum || l->table.count != l->head.snapshot_files))
		r = -EUCLEAN;
	journal_reader_release(&rd);
	l->table.next_id = l->head.next_id;
	/* A file that has no entry must not get one again: that of a file of a gap would say too
	 * little. */
	l->table.lost_first = l->n_gaps ? 0 : l->head.lost_first;
	l->table.lost_end = l->n_gaps ? 0 : l->head.lost_end;
	return r;
}

static int apply(struct mapload *l, const struct record *rec)
{
	const bool is_of_file = rec->type != FORMAT_REC_OPEN && rec->type != FORMAT_REC_CLEAN &&
				rec->type != FORMAT_REC_NEW;
	const char *why;

	if (rec->type != FORMAT_REC_OPEN && !l->table.in_session)
		return -EUCLEAN;
	return l->n_gaps && is_of_file && !table_find(&l->table, rec->id)
		       ? 0
		       : table_apply(&l->table, rec, &why);
}

static int salvage_log(struct mapload *l)
{
	int r = journal_reader_init(&l->rd, l->fd, HEADER_BYTES + l->head.snapshot_len, UINT64_MAX,
				    l->head.checksum);
	struct record rec;
	const char *why;

	while (r == 0 && (r = next_record(l, &l->rd, &rec)) == 1)
		r = apply(l, &rec);
	if (r < 0)
		return r;
	r = journal_end_check(&l->rd, &l->table, &l->head, &why);
	l->n_mended += r > 0;
	/* Zeros cannot have been records. */
	if (r == JOURNAL_TOO_LONG)
		r = journal_reader_stray_bytes(l->fd, l->rd.off + JOURNAL_TORN_BYTES);
	return r > 1 ? -EUCLEAN : r < 0 ? r : 0;
}

int salvage_load(struct mapload *l, const char *name)
{
	int r;

	table_release(&l->table);
	journal_reader_release(&l->rd);
	l->n_mended = l->n_gaps = 0;
	r = salvage_header(l);
	if (r < 0)
		return r;
	r = snapshot_is_copy(l->fd, &l->head);
	l->is_copy = r == 1;
	r = r < 0 ? r : salvage_snapshot(l);
	r = r ?: salvage_log(l);
	if (r < 0)
		return r;
	if (l->n_gaps)
		log_error("%s: map: %s can be used; others are damaged, and cannot be read: "
			  "`veneer check --repair` names them",
			  name, human_units_of(l->table.count, "partial file").text);
	else
		log_warn("%s: map: set right by its checksums, nothing is lost", name);
	return 0;
}
