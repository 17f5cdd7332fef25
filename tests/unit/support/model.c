// SPDX-License-Identifier: Apache-2.0
#include "support/model.h"

#include "veneer/data/cow.h"
#include "veneer/data/cow_fallocate.h"
#include "veneer/data/cow_fsync.h"
#include "veneer/data/read.h"
#include "veneer/union/lookup.h"

#include <inttypes.h>
#include <linux/falloc.h>

bool model_new(struct model *m, const void *data, size_t size)
{
	m->data = calloc(1, MODEL_MAX);
	m->size = size;
	if (m->data && size)
		memcpy(m->data, data, size);
	return m->data;
}

void model_free(struct model *m)
{
	free(m->data);
}

void model_copy(struct model *to, const struct model *from)
{
	memcpy(to->data, from->data, MODEL_MAX);
	to->size = from->size;
}

static uint64_t below(uint64_t *state, uint64_t n)
{
	return tree_random(state) % n;
}

/* Block and chunk borders, the end of the file and just beside them are where things go wrong. */
static uint64_t place(uint64_t *state, size_t size)
{
	uint64_t at = below(state, MODEL_MAX);

	switch (below(state, 6)) {
	case 0:
		at &= ~(uint64_t)(BLK_BYTES - 1);
		break;
	case 1:
		at = (at & ~(uint64_t)(CHUNK_BYTES - 1)) + below(state, 3);
		break;
	case 2:
		at = size > 2 ? size - below(state, 3) : size;
		break;
	default:
		break;
	}
	return at < MODEL_MAX ? at : MODEL_MAX - 1;
}

static uint64_t length(uint64_t *state, uint64_t off)
{
	static const uint64_t most[] = {
		16, BLK_BYTES, BLK_BYTES, 3 * BLK_BYTES, 20 * BLK_BYTES, CHUNK_BYTES + BLK_BYTES
	};
	uint64_t len = 1 + below(state, most[below(state, 6)]);

	if (below(state, 3) == 0)
		len = (len + BLK_BYTES - 1) & ~(uint64_t)(BLK_BYTES - 1);
	return len < MODEL_MAX - off ? len : MODEL_MAX - off;
}

struct model_op model_next(uint64_t *state, size_t size)
{
	static const int modes[] = {
		0,
		FALLOC_FL_KEEP_SIZE,
		FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
		FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
		FALLOC_FL_ZERO_RANGE,
		FALLOC_FL_ZERO_RANGE | FALLOC_FL_KEEP_SIZE,
	};
	static const enum model_kind kinds[] = {
		MODEL_WRITE,	MODEL_WRITE,	MODEL_WRITE,	MODEL_WRITE, MODEL_WRITE,
		MODEL_WRITE,	MODEL_READ,	MODEL_READ,	MODEL_READ,  MODEL_READ,
		MODEL_TRUNCATE, MODEL_ALLOCATE, MODEL_ALLOCATE, MODEL_SEEK,  MODEL_SYNC,
	};
	struct model_op op = { .kind = kinds[below(state, sizeof(kinds) / sizeof(*kinds))] };

	op.off = place(state, size);
	op.len = op.kind == MODEL_TRUNCATE ? place(state, size) : length(state, op.off);
	op.mode = modes[below(state, 6)];
	op.seed = tree_random(state);
	return op;
}

static void grow(struct model *m, uint64_t end)
{
	if (end > m->size)
		m->size = end;
}

static void allocate(struct model *m, const struct model_op *op)
{
	uint64_t end = op->off + op->len;

	if (!(op->mode & FALLOC_FL_KEEP_SIZE))
		grow(m, end);
	if (op->mode & (FALLOC_FL_PUNCH_HOLE | FALLOC_FL_ZERO_RANGE))
		memset(m->data + op->off, 0, op->len);
}

static void bytes_of(const struct model_op *op, void *p)
{
	if (op->seed % 4)
		tree_pattern(p, op->len, op->seed);
	else
		memset(p, 0, op->len);
}

void model_apply(struct model *m, const struct model_op *op)
{
	switch (op->kind) {
	case MODEL_WRITE:
		bytes_of(op, m->data + op->off);
		grow(m, op->off + op->len);
		break;
	case MODEL_TRUNCATE:
		if (op->len < m->size)
			memset(m->data + op->len, 0, m->size - op->len);
		m->size = op->len;
		break;
	case MODEL_ALLOCATE:
		allocate(m, op);
		break;
	default:
		break;
	}
}

static int wrong(const char *what, uint64_t off, uint64_t len, uint64_t at)
{
	fprintf(stderr, "# %s of %" PRIu64 " bytes at %" PRIu64 " is wrong at %" PRIu64 "\n", what,
		len, off, at);
	return -EBADMSG;
}

static int do_read(struct union_fs *t, struct inode *i, const struct model *m,
		   const struct model_op *op)
{
	size_t want = op->off >= m->size	    ? 0
		      : op->len < m->size - op->off ? op->len
						    : m->size - op->off;
	uint8_t *p = malloc(op->len);
	ssize_t n = p ? read_file(t, i, p, op->len, (off_t)op->off) : -ENOMEM;
	int r = n < 0 ? (int)n : 0;

	if (r == 0 && (size_t)n != want)
		r = wrong("the length of a read", op->off, op->len, (uint64_t)n);
	for (size_t k = 0; r == 0 && k < want; k++)
		if (p[k] != m->data[op->off + k])
			r = wrong("a read", op->off, op->len, op->off + k);
	free(p);
	return r;
}

/* A hole reads as zeros, and the two directions agree with each other. */
static int do_seek(struct union_fs *t, struct inode *i, const struct model *m,
		   const struct model_op *op)
{
	off_t data = read_seek(t, i, (off_t)op->off, SEEK_DATA),
	      hole = read_seek(t, i, (off_t)op->off, SEEK_HOLE);
	uint64_t end = data < 0 ? m->size : (uint64_t)data;

	if (op->off >= m->size)
		return data == -ENXIO && hole == -ENXIO
			       ? 0
			       : wrong("a seek past the end", op->off, 0, m->size);
	if (hole < (off_t)op->off || (uint64_t)hole > m->size || (data < 0 && data != -ENXIO))
		return wrong("SEEK_HOLE", op->off, (uint64_t)hole, (uint64_t)data);
	if ((data == (off_t)op->off) == (hole == (off_t)op->off))
		return wrong("SEEK_DATA and SEEK_HOLE", op->off, (uint64_t)hole, (uint64_t)data);
	for (uint64_t at = op->off; at < end; at++)
		if (m->data[at])
			return wrong("SEEK_DATA", op->off, end, at);
	return 0;
}

static int do_write(struct union_fs *t, struct inode *i, const struct model_op *op)
{
	void *p = malloc(op->len);
	int r = -ENOMEM;

	if (p) {
		bytes_of(op, p);
		r = cow_write(t, i, p, op->len, (off_t)op->off);
	}
	free(p);
	return r;
}

int model_do(struct union_fs *t, struct inode *i, const struct model *m, const struct model_op *op)
{
	int r = 0;

	switch (op->kind) {
	case MODEL_WRITE:
		return do_write(t, i, op);
	case MODEL_TRUNCATE:
		return cow_truncate(t, i, (off_t)op->len);
	case MODEL_ALLOCATE:
		r = cow_fallocate(t, i, op->mode, (off_t)op->off, (off_t)op->len);
		return r == -EOPNOTSUPP ? 1 : r;
	case MODEL_READ:
		return do_read(t, i, m, op);
	case MODEL_SEEK:
		return do_seek(t, i, m, op);
	case MODEL_SYNC:
		return cow_fsync(t, i, op->off & 1);
	}
	return r;
}
