// SPDX-License-Identifier: Apache-2.0
#include "request_text.h"

#include "veneer/base/stats.h"

#include <inttypes.h>
#include <linux/fuse.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

/* The unread rest of a request. */
struct rest {
	const char *at;
	size_t size;
};

/* NULL: it is shorter. */
static const void *take(struct rest *r, size_t size)
{
	const void *at = r->at;

	if (r->size < size)
		return NULL;
	r->at += size;
	r->size -= size;
	return at;
}

/* NULL: no string ends in it. */
static const char *take_name(struct rest *r)
{
	return take(r, strnlen(r->at, r->size) + 1);
}

/* Bytes between the head and the first name. -1: the request has no name. */
static int head_size(uint32_t opcode, bool has_setxattr_ext)
{
	switch (opcode) {
	case FUSE_LOOKUP:
	case FUSE_UNLINK:
	case FUSE_RMDIR:
	case FUSE_SYMLINK:
	case FUSE_REMOVEXATTR:
		return 0;
	case FUSE_MKNOD:
		return sizeof(struct fuse_mknod_in);
	case FUSE_MKDIR:
		return sizeof(struct fuse_mkdir_in);
	case FUSE_CREATE:
		return sizeof(struct fuse_create_in);
	case FUSE_LINK:
		return sizeof(struct fuse_link_in);
	case FUSE_RENAME:
		return sizeof(struct fuse_rename_in);
	case FUSE_RENAME2:
		return sizeof(struct fuse_rename2_in);
	case FUSE_GETXATTR:
		return sizeof(struct fuse_getxattr_in);
	case FUSE_SETXATTR:
		return has_setxattr_ext ? sizeof(struct fuse_setxattr_in)
					: FUSE_COMPAT_SETXATTR_IN_SIZE;
	default:
		return -1;
	}
}

/* Both begin with the new directory. */
static bool is_rename(uint32_t opcode)
{
	return opcode == FUSE_RENAME || opcode == FUSE_RENAME2;
}

static int print_names(struct rest *r, uint32_t opcode, bool has_setxattr_ext, char *to,
		       size_t room)
{
	const int size = head_size(opcode, has_setxattr_ext);
	const char *head = size < 0 ? NULL : take(r, (size_t)size);
	const char *name = head ? take_name(r) : NULL, *second;
	uint64_t newdir;

	if (!name)
		return 0;
	second = is_rename(opcode) || opcode == FUSE_SYMLINK ? take_name(r) : NULL;
	if (!second)
		return snprintf(to, room, " \"%s\"", name);
	if (opcode == FUSE_SYMLINK)
		return snprintf(to, room, " \"%s\" to \"%s\"", name, second);
	memcpy(&newdir, head, sizeof(newdir));
	return snprintf(to, room, " \"%s\" to node %" PRIu64 " \"%s\"", name, newdir, second);
}

static int print_range(struct rest *r, uint32_t opcode, char *to, size_t room)
{
	struct fuse_write_in w;
	struct fuse_read_in rd;
	const void *in = take(r, opcode == FUSE_WRITE ? sizeof(w) : sizeof(rd));

	if (!in)
		return 0;
	if (opcode != FUSE_WRITE) {
		memcpy(&rd, in, sizeof(rd));
		return snprintf(to, room, ", %" PRIu32 " bytes at %" PRIu64, rd.size, rd.offset);
	}
	memcpy(&w, in, sizeof(w));
	return snprintf(to, room, ", %" PRIu32 " bytes at %" PRIu64, w.size, w.offset);
}

void request_text_describe(const void *request, size_t size, bool has_setxattr_ext, char *to,
			   size_t room)
{
	struct rest r = { request, size };
	const void *head = take(&r, sizeof(struct fuse_in_header));
	struct fuse_in_header in;
	const char *name;
	int n;

	if (!head) {
		snprintf(to, room, "a request of %zu bytes", size);
		return;
	}
	memcpy(&in, head, sizeof(in));
	name = stats_op_name(in.opcode);
	n = name ? snprintf(to, room, "%s", name)
		 : snprintf(to, room, "request %" PRIu32, in.opcode);
	if (n >= 0 && (size_t)n < room)
		n += snprintf(to + n, room - (size_t)n, " node %" PRIu64, in.nodeid);
	if (n < 0 || (size_t)n >= room)
		return;
	if (in.opcode == FUSE_READ || in.opcode == FUSE_WRITE || in.opcode == FUSE_READDIR ||
	    in.opcode == FUSE_READDIRPLUS)
		print_range(&r, in.opcode, to + n, room - (size_t)n);
	else
		print_names(&r, in.opcode, has_setxattr_ext, to + n, room - (size_t)n);
}
