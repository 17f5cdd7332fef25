// SPDX-License-Identifier: Apache-2.0
#include "veneer/map/record.h"

#include <endian.h>
#include <errno.h>
#include <string.h>

#include "veneer/base/cursor.h"
#include "veneer/base/hash.h"

#define HEAD_WORDS 1u
#define SUM_WORDS  1u

static const struct {
	const char *name;
	uint8_t payload_words;
} record_types[] = {
	[FORMAT_REC_END] = { "END", 0 },
	[FORMAT_REC_OPEN] = { "OPEN", 2 },
	[FORMAT_REC_NEW] = { "NEW", 2 },
	[FORMAT_REC_OWN_RUN] = { "OWN_RUN", 3 },
	[FORMAT_REC_OWN_BITS] = { "OWN_BITS", 4 },
	[FORMAT_REC_TRUNCATE] = { "TRUNCATE", 2 },
	[FORMAT_REC_GONE] = { "GONE", 1 },
	[FORMAT_REC_COMMIT] = { "COMMIT", 1 },
	[FORMAT_REC_CLEAN] = { "CLEAN", 0 },
	[FORMAT_REC_ZERO_RUN] = { "ZERO_RUN", 3 },
	[FORMAT_REC_ZERO_BITS] = { "ZERO_BITS", 4 },
};
#define NTYPES (sizeof(record_types) / sizeof(record_types[0]))

const char *record_name(enum format_record_type type)
{
	return (unsigned)type < NTYPES ? record_types[type].name : "?";
}

size_t record_len(enum format_record_type type)
{
	return 8u * (HEAD_WORDS + record_types[type].payload_words + SUM_WORDS);
}

static uint64_t record_sum(const uint8_t *p, size_t len, uint64_t prev)
{
	uint8_t summed[8 + FORMAT_REC_BYTES_MAX];
	uint64_t seed = htole64(prev);

	memcpy(summed, &seed, 8);
	memcpy(summed + 8, p, len);
	return hash_checksum(summed, 8 + len);
}

static unsigned record_payload(const struct record *rec, uint64_t w[4])
{
	w[0] = rec->id;
	switch (rec->type) {
	case FORMAT_REC_OPEN:
		w[0] = rec->open.epoch;
		w[1] = rec->open.nonce;
		break;
	case FORMAT_REC_NEW:
		w[1] = rec->fresh.clip;
		break;
	case FORMAT_REC_OWN_RUN:
	case FORMAT_REC_ZERO_RUN:
		w[1] = rec->run.blk;
		w[2] = rec->run.n;
		break;
	case FORMAT_REC_OWN_BITS:
	case FORMAT_REC_ZERO_BITS:
		w[1] = rec->bits.chunk;
		w[2] = rec->bits.bits[0];
		w[3] = rec->bits.bits[1];
		break;
	case FORMAT_REC_TRUNCATE:
		w[1] = rec->truncate.size;
		break;
	default:
		break;
	}
	return record_types[rec->type].payload_words;
}

size_t record_encode(const struct record *rec, uint64_t prev, uint8_t out[FORMAT_REC_BYTES_MAX],
		     uint64_t *ret_sum)
{
	uint64_t w[4];
	unsigned nwords = record_payload(rec, w);
	size_t len = record_len(rec->type);
	struct format_record_head head = { .type = (uint8_t)rec->type,
					   .words = (uint8_t)(len / 8) };

	memcpy(out, &head, sizeof(head));
	for (unsigned i = 0; i < nwords; i++) {
		uint64_t le = htole64(w[i]);

		memcpy(out + 8 + 8 * i, &le, 8);
	}

	uint64_t sum = record_sum(out, len - 8, prev);
	uint64_t le = htole64(sum);

	memcpy(out + len - 8, &le, 8);
	*ret_sum = sum;
	return len;
}

/* The rule that the fields break, or NULL. */
static const char *record_broken_rule(const struct record *rec)
{
	switch (rec->type) {
	case FORMAT_REC_OPEN:
	case FORMAT_REC_CLEAN:
		return NULL;
	case FORMAT_REC_NEW:
		if (rec->fresh.clip > FORMAT_SIZE_MAX)
			return "clip above the largest file";
		break;
	case FORMAT_REC_OWN_RUN:
	case FORMAT_REC_ZERO_RUN:
		if (rec->run.n == 0)
			return "empty run";
		if (rec->run.n > FORMAT_BLK_END || rec->run.blk > FORMAT_BLK_END - rec->run.n)
			return "block above the largest file";
		break;
	case FORMAT_REC_OWN_BITS:
	case FORMAT_REC_ZERO_BITS:
		if (rec->bits.chunk >= FORMAT_BLK_END / CHUNK_BLKS)
			return "chunk above the largest file";
		if (!rec->bits.bits[0] && !rec->bits.bits[1])
			return "empty bitmap";
		break;
	case FORMAT_REC_TRUNCATE:
		if (rec->truncate.size > FORMAT_SIZE_MAX)
			return "size above the largest file";
		break;
	default:
		break;
	}
	if (rec->id == 0 || rec->id >= FORMAT_ID_END)
		return "file id out of range";
	return NULL;
}

static void record_fields(struct cursor *c, struct record *rec)
{
	if (rec->type == FORMAT_REC_OPEN) {
		rec->open.epoch = cursor_u64(c);
		rec->open.nonce = cursor_u64(c);
		return;
	}
	if (rec->type == FORMAT_REC_CLEAN)
		return;
	rec->id = cursor_u64(c);
	if (rec->type == FORMAT_REC_NEW) {
		rec->fresh.clip = cursor_u64(c);
	} else if (rec->type == FORMAT_REC_OWN_RUN || rec->type == FORMAT_REC_ZERO_RUN) {
		rec->run.blk = cursor_u64(c);
		rec->run.n = cursor_u64(c);
	} else if (rec->type == FORMAT_REC_OWN_BITS || rec->type == FORMAT_REC_ZERO_BITS) {
		rec->bits.chunk = cursor_u64(c);
		rec->bits.bits[0] = cursor_u64(c);
		rec->bits.bits[1] = cursor_u64(c);
	} else if (rec->type == FORMAT_REC_TRUNCATE) {
		rec->truncate.size = cursor_u64(c);
	}
}

int record_decode(const void *p, size_t len, uint64_t prev, struct record *ret_rec,
		  uint64_t *ret_sum, const char **ret_why)
{
	struct cursor c = cursor_over(p, len);
	unsigned type = cursor_u8(&c);
	unsigned words = cursor_u8(&c);
	unsigned reserved0 = cursor_u16(&c);
	unsigned reserved1 = cursor_u32(&c);
	size_t rec_len = words * 8u;

	if (c.bad) {
		*ret_why = "end of file";
		return 0;
	}
	if (type == FORMAT_REC_END) {
		*ret_why = words || reserved0 || reserved1 ? "no record" : "zeros";
		return 0;
	}
	if (words < HEAD_WORDS + SUM_WORDS || words > FORMAT_REC_WORDS_MAX || rec_len > len) {
		*ret_why = rec_len > len ? "cut short by the end of file" : "length is no record's";
		return 0;
	}

	struct cursor tail = cursor_over((const uint8_t *)p + rec_len - 8, 8);
	uint64_t sum = record_sum(p, rec_len - 8, prev);

	if (cursor_u64(&tail) != sum) {
		*ret_why = "checksum does not fit: torn, or left over from an earlier log";
		return 0;
	}
	if (type >= NTYPES) {
		*ret_why = "unknown record type";
		return -EUCLEAN;
	}
	if (rec_len != record_len(type) || reserved0 || reserved1) {
		*ret_why = "length or reserved bytes wrong for the type";
		return -EUCLEAN;
	}

	struct record rec = { .type = type };

	record_fields(&c, &rec);
	*ret_why = record_broken_rule(&rec);
	if (*ret_why)
		return -EUCLEAN;
	*ret_rec = rec;
	*ret_sum = sum;
	return (int)rec_len;
}

int record_mend(const void *p, size_t len, uint64_t prev, struct record *ret_rec, uint64_t *ret_sum)
{
	for (size_t n = 8 * (HEAD_WORDS + SUM_WORDS); n <= len && n <= FORMAT_REC_BYTES_MAX;
	     n += 8) {
		uint8_t c[8 + FORMAT_REC_BYTES_MAX];
		uint64_t seed = htole64(prev), sum;
		const char *why;

		memcpy(c, &seed, 8);
		memcpy(c + 8, p, n);
		memcpy(&sum, c + n, 8);
		sum = le64toh(sum);
		/* If the byte is that of the length, it is no other. */
		if (c[8 + 1] != n / 8)
			c[8 + 1] = (uint8_t)(n / 8);
		else if (!hash_mend(c, 8, n, &sum))
			continue;
		sum = htole64(sum);
		memcpy(c + n, &sum, 8);
		if (record_decode(c + 8, n, prev, ret_rec, ret_sum, &why) == (int)n)
			return (int)n;
	}
	return 0;
}
