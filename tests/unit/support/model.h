/* SPDX-License-Identifier: Apache-2.0 */
/* A regular file as a plain array of bytes, and random changes that are made to it and to a file
 * of a tree alike. Asserts nothing, so that a child process can use it. */
#pragma once

#include "support/tree.h"

#define MODEL_MAX ((size_t)5 << 19) /* five chunks */

enum model_kind { MODEL_WRITE, MODEL_TRUNCATE, MODEL_ALLOCATE, MODEL_READ, MODEL_SEEK, MODEL_SYNC };

struct model_op {
	enum model_kind kind;
	int mode; /* of fallocate */
	uint64_t off, len; /* len: the new size of a truncation */
	uint64_t seed; /* of the bytes written */
};

struct model {
	uint8_t *data; /* MODEL_MAX bytes, zeros from size on */
	size_t size;
};

bool model_new(struct model *m, const void *data, size_t size);
void model_free(struct model *m);
void model_copy(struct model *to, const struct model *from);

/* The next change, chosen for a file of that size. */
struct model_op model_next(uint64_t *state, size_t size);
void model_apply(struct model *m, const struct model_op *op);
/* Do it to the file; reads are compared with the model as it is before. 0, 1 when this file
 * system knows no such operation and nothing was done, -errno, or -EBADMSG and one line on
 * standard error for wrong bytes. */
int model_do(struct union_fs *t, struct inode *i, const struct model *m, const struct model_op *op);
