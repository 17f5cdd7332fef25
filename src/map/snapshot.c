// SPDX-License-Identifier: Apache-2.0
#include "snapshot-internal.h"

#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "veneer/base/cleanup.h"
#include "veneer/base/cursor.h"
#include "veneer/base/hash.h"
#include "veneer/base/log.h"
#include "veneer/map/journal_reader.h"
#include "veneer/map/mapfile.h"
#include "veneer/sys/file.h"
#include "veneer/sys/xattr.h"

#define HEADER_BYTES sizeof(struct format_map_header)
#define TEMP_TRIES   16

static void blkmap_freep(struct blkmap **m)
{
	blkmap_free(*m);
}

void snapshot_header_encode(struct format_map_header *h,
			    uint8_t out[sizeof(struct format_map_header)])
{
	struct format_map_header le = {
		.version = htole32(h->version),
		.header_len = htole32(h->header_len),
		.compat = htole64(h->compat),
		.incompat = htole64(h->incompat),
		.uuid = htole64(h->uuid),
		.generation = htole64(h->generation),
		.next_id = htole64(h->next_id),
		.lost_first = htole64(h->lost_first),
		.lost_end = htole64(h->lost_end),
		.self_ino = htole64(h->self_ino),
		.self_btime_ns = htole64(h->self_btime_ns),
		.snapshot_len = htole64(h->snapshot_len),
		.snapshot_files = htole64(h->snapshot_files),
		.snapshot_sum = htole64(h->snapshot_sum),
	};

	memcpy(le.magic, FORMAT_MAP_MAGIC, sizeof(le.magic));
	h->checksum = hash_checksum(&le, offsetof(struct format_map_header, checksum));
	le.checksum = htole64(h->checksum);
	memcpy(out, &le, sizeof(le));
}

uint64_t snapshot_seed(const struct format_map_header *h)
{
	struct format_map_header copy = *h;
	uint8_t bytes[HEADER_BYTES];

	snapshot_header_encode(&copy, bytes);
	return hash_checksum(bytes, FORMAT_MAP_SEED_BYTES);
}

static const char *header_broken_rule(const struct format_map_header *h)
{
	if (h->incompat & ~FORMAT_MAP_INCOMPAT_KNOWN)
		return "written by a newer version: unknown incompatible feature";
	if (h->uuid == 0 || h->generation == 0)
		return "uuid or generation is 0";
	if (h->next_id == 0 || h->next_id > FORMAT_ID_END || h->lost_first > h->lost_end ||
	    h->lost_end > h->next_id)
		return "file ids out of range";
	if (h->snapshot_len % 8 || h->snapshot_len > FORMAT_SIZE_MAX - HEADER_BYTES)
		return "snapshot length";
	if (h->reserved)
		return "reserved bytes not 0";
	return NULL;
}

int snapshot_header_decode(const void *p, size_t len, struct format_map_header *ret,
			   const char **ret_why)
{
	struct cursor c = cursor_over(p, len);
	const uint8_t *magic = cursor_bytes(&c, 8);

	if (!magic || memcmp(magic, FORMAT_MAP_MAGIC, 8) != 0) {
		*ret_why = "no map file: magic missing";
		return -EUCLEAN;
	}

	struct format_map_header h = { .version = cursor_u32(&c) };

	h.header_len = cursor_u32(&c);
	h.compat = cursor_u64(&c);
	h.incompat = cursor_u64(&c);
	h.uuid = cursor_u64(&c);
	h.generation = cursor_u64(&c);
	h.next_id = cursor_u64(&c);
	h.lost_first = cursor_u64(&c);
	h.lost_end = cursor_u64(&c);
	h.self_ino = cursor_u64(&c);
	h.self_btime_ns = cursor_u64(&c);
	h.snapshot_len = cursor_u64(&c);
	h.snapshot_files = cursor_u64(&c);
	h.snapshot_sum = cursor_u64(&c);
	h.reserved = cursor_u64(&c);
	h.checksum = cursor_u64(&c);
	memcpy(h.magic, magic, 8);
	if (c.bad) {
		*ret_why = "header cut short";
		return -EUCLEAN;
	}
	if (h.version != FORMAT_MAP_VERSION || h.header_len != HEADER_BYTES) {
		*ret_why = "version or header length unknown";
		return -EUCLEAN;
	}
	if (h.checksum != hash_checksum(p, offsetof(struct format_map_header, checksum))) {
		*ret_why = "header checksum";
		return -EUCLEAN;
	}
	*ret_why = header_broken_rule(&h);
	if (*ret_why)
		return -EUCLEAN;
	*ret = h;
	return 0;
}

int snapshot_apply(struct table *t, const struct record *rec, const struct format_map_header *h,
		   const char **ret_why)
{
	if (rec->type != FORMAT_REC_NEW && rec->type != FORMAT_REC_OWN_RUN &&
	    rec->type != FORMAT_REC_OWN_BITS && rec->type != FORMAT_REC_ZERO_RUN &&
	    rec->type != FORMAT_REC_ZERO_BITS) {
		*ret_why = "record type not allowed in a snapshot";
		return -EUCLEAN;
	}
	if (rec->id >= h->next_id) {
		*ret_why = "file id not below next_id";
		return -EUCLEAN;
	}
	return table_apply(t, rec, ret_why);
}

static int load_records(struct journal_reader *rd, struct table *t,
			const struct format_map_header *h)
{
	while (rd->off < rd->end) {
		struct record rec;
		uint64_t off = rd->off;
		int r = journal_reader_next(rd, &rec);

		if (r == 0)
			return -EUCLEAN;
		r = r < 0 ? r : snapshot_apply(t, &rec, h, &rd->why);
		if (r < 0) {
			rd->off = off;
			return r;
		}
	}
	if (rd->sum != h->snapshot_sum || t->count != h->snapshot_files) {
		rd->why = "last checksum or number of files is not the header's";
		return -EUCLEAN;
	}
	return 0;
}

int snapshot_load(int fd, struct table *t, struct format_map_header *ret,
		  struct snapshot_damage *ret_damage)
{
	uint8_t bytes[HEADER_BYTES];
	struct format_map_header h;
	ssize_t n = file_pread(fd, bytes, sizeof(bytes), 0);

	*ret_damage = (struct snapshot_damage){ 0 };
	if (n < 0)
		return (int)n;

	int r = snapshot_header_decode(bytes, (size_t)n, &h, &ret_damage->rule);

	if (r < 0)
		return r;

	struct journal_reader rd;

	r = journal_reader_init(&rd, fd, HEADER_BYTES, HEADER_BYTES + h.snapshot_len,
				snapshot_seed(&h));
	if (r < 0)
		return r;
	t->is_loading = true;
	r = load_records(&rd, t, &h);
	t->is_loading = false;
	*ret_damage = (struct snapshot_damage){ rd.off, rd.why };
	journal_reader_release(&rd);
	if (r < 0)
		return r;
	t->next_id = h.next_id;
	t->lost_first = h.lost_first;
	t->lost_end = h.lost_end;
	*ret = h;
	return 0;
}

struct sink {
	struct buf *out;
	uint64_t sum;
	uint64_t nfiles;
};

static int sink_put(struct sink *s, const struct record *rec)
{
	uint8_t bytes[FORMAT_REC_BYTES_MAX];
	uint64_t sum;
	size_t len = record_encode(rec, s->sum, bytes, &sum);
	int r = buf_put(s->out, bytes, len);

	if (r == 0)
		s->sum = sum;
	return r;
}

/* Whole chunks in a row are one run, and so are the blocks of one chunk that are in a row. */
static int sink_put_map(struct sink *s, file_id_t id, const struct blkmap *m, bool is_zero)
{
	uint64_t chunk = 0, bits[2];
	int r = 0;

	while (r == 0 && blkmap_next_chunk(m, &chunk, bits)) {
		unsigned first = bits[0] ? (unsigned)__builtin_ctzll(bits[0])
					 : 64 + (unsigned)__builtin_ctzll(bits[1]);
		unsigned nset =
			(unsigned)(__builtin_popcountll(bits[0]) + __builtin_popcountll(bits[1]));
		blk_t blk = chunk * CHUNK_BLKS + first;
		blk_t clip_end = (blkmap_clip(m) + BLK_BYTES - 1) / BLK_BYTES;
		bool is_own;
		blk_t n = blkmap_run(m, blk, clip_end - blk, &is_own);
		struct record rec = { .type = is_zero ? FORMAT_REC_ZERO_RUN : FORMAT_REC_OWN_RUN,
				      .id = id };

		if (n >= nset) {
			blk_t whole_end = (blk + n) / CHUNK_BLKS * CHUNK_BLKS;

			n = whole_end > blk ? whole_end - blk : n;
			n = blk + n > clip_end ? clip_end - blk : n;
			rec.run.blk = blk;
			rec.run.n = n;
			chunk = (blk + n + CHUNK_BLKS - 1) / CHUNK_BLKS;
		} else {
			rec.type = is_zero ? FORMAT_REC_ZERO_BITS : FORMAT_REC_OWN_BITS;
			rec.bits.chunk = chunk++;
			memcpy(rec.bits.bits, bits, sizeof(bits));
		}
		r = sink_put(s, &rec);
	}
	return r;
}

/* All of m, and then which of it may read as zeros. */
static int sink_put_own(struct sink *s, const struct table_file *f, const struct blkmap *m)
{
	_cleanup_(blkmap_freep) struct blkmap *zeros = NULL;
	int r = sink_put_map(s, f->id, m, false);

	r = r ?: table_zeros_in(f, m, &zeros);
	return r == 0 && zeros ? sink_put_map(s, f->id, zeros, true) : r;
}

static int put_committed(void *arg, struct table_file *f)
{
	struct sink *s = arg;
	struct blkmap *m = f->map;
	struct blkmap *made = NULL;

	if (f->cut || f->pend) {
		made = table_committed(f);
		if (!made)
			return -ENOMEM;
		m = made;
	}

	struct record rec = { .type = FORMAT_REC_NEW, .id = f->id, .fresh.clip = blkmap_clip(m) };
	int r = sink_put(s, &rec);

	r = r ?: sink_put_own(s, f, m);
	blkmap_free(made);
	s->nfiles++;
	return r;
}

static int put_pending(void *arg, struct table_file *f)
{
	struct sink *s = arg;

	if (f->is_gone)
		return sink_put(s, &(struct record){ .type = FORMAT_REC_GONE, .id = f->id });

	struct record rec = { .type = FORMAT_REC_TRUNCATE,
			      .id = f->id,
			      .truncate.size = blkmap_clip(f->map) };
	int r = f->cut ? sink_put(s, &rec) : 0;

	return r == 0 && f->pend ? sink_put_own(s, f, f->pend) : r;
}

int snapshot_build(const struct table *t, struct format_map_header *h, uint64_t nonce,
		   struct buf *out, uint64_t *ret_sum)
{
	uint8_t bytes[HEADER_BYTES] = { 0 };
	size_t start = out->len;
	struct sink s = { .out = out };
	int r = buf_put(out, bytes, sizeof(bytes));

	h->version = FORMAT_MAP_VERSION;
	h->header_len = HEADER_BYTES;
	h->compat &= FORMAT_MAP_COMPAT_KNOWN;
	h->reserved = 0;
	h->next_id = t->next_id;
	h->lost_first = t->lost_first;
	h->lost_end = t->lost_end;
	s.sum = snapshot_seed(h);
	r = r ?: table_each(t, put_committed, &s);
	if (r < 0)
		return r;
	h->snapshot_len = out->len - start - HEADER_BYTES;
	h->snapshot_files = s.nfiles;
	h->snapshot_sum = s.sum;
	snapshot_header_encode(h, bytes);
	memcpy(out->data + start, bytes, sizeof(bytes));

	s.sum = h->checksum;
	if (t->in_session) {
		struct record rec = { .type = FORMAT_REC_OPEN };

		rec.open.epoch = t->epoch;
		rec.open.nonce = nonce;
		r = sink_put(&s, &rec);
		r = r ?: table_each(t, put_pending, &s);
	}
	*ret_sum = s.sum;
	return r;
}

int snapshot_temp_open(int work_fd, char name[SNAPSHOT_TEMP_BYTES])
{
	for (unsigned i = 0; i < TEMP_TRIES; i++) {
		uint64_t nonce;

		if (getrandom(&nonce, sizeof(nonce), 0) != sizeof(nonce))
			return -errno;
		snprintf(name, SNAPSHOT_TEMP_BYTES, "veneer-map-%016llx",
			 (unsigned long long)nonce);

		int fd = openat(work_fd, name, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC,
				0644);

		if (fd >= 0)
			return fd;
		if (errno != EEXIST)
			return -errno;
	}
	return -EEXIST;
}

int snapshot_identify(int fd, struct format_map_header *h)
{
	struct statx sx;

	if (statx(fd, "", AT_EMPTY_PATH, STATX_INO | STATX_BTIME, &sx) < 0)
		return -errno;
	h->self_ino = sx.stx_ino;
	h->self_btime_ns = 0;
	if (sx.stx_mask & STATX_BTIME)
		h->self_btime_ns =
			(uint64_t)sx.stx_btime.tv_sec * 1000000000u + sx.stx_btime.tv_nsec;
	return 0;
}

int snapshot_is_copy(int fd, const struct format_map_header *h)
{
	struct format_map_header self;
	int r = snapshot_identify(fd, &self);

	return r < 0 ? r : self.self_ino != h->self_ino || self.self_btime_ns != h->self_btime_ns;
}

void snapshot_copy_put(int fd, const struct format_map_header *h, uint64_t end, uint64_t end_sum)
{
	struct format_map_copy c = { .end = htole64(end), .end_sum = htole64(end_sum) };
	struct format_map_header head = *h;
	int r;

	snapshot_header_encode(&head, (uint8_t *)&c.head);
	c.checksum = htole64(hash_checksum(&c, offsetof(struct format_map_copy, checksum)));
	r = xattr_set(fd, "", FORMAT_MAP_COPY_ATTR, &c, sizeof(c), 0);
	if (r < 0)
		log_debug("a map has no second copy of its header: %s", strerror(-r));
}

int snapshot_copy_get(int fd, struct format_map_header *ret, uint64_t *ret_end,
		      uint64_t *ret_end_sum)
{
	struct format_map_copy c;
	const char *why;

	if (xattr_get(fd, "", FORMAT_MAP_COPY_ATTR, &c, sizeof(c)) != sizeof(c) ||
	    le64toh(c.checksum) != hash_checksum(&c, offsetof(struct format_map_copy, checksum)))
		return -EUCLEAN;
	*ret_end = le64toh(c.end);
	*ret_end_sum = le64toh(c.end_sum);
	return snapshot_header_decode(&c.head, sizeof(c.head), ret, &why);
}

int snapshot_publish(int work_fd, const char *name, int rootfd)
{
	struct stat before;

	if (fstat(rootfd, &before) < 0 || renameat(work_fd, name, rootfd, MAPFILE_NAME) < 0)
		return -errno;
	/* Restore the times of the layer's root, so that the change does not show. */
	futimens(rootfd, (const struct timespec[2]){ before.st_atim, before.st_mtim });
	return 0;
}
