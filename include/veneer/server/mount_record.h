/* SPDX-License-Identifier: Apache-2.0 */
/* The record of one mount from which the next server opens it again and goes on answering: the
 * arguments of its helper, and the descriptors by their numbers. The record is in a memfd, which
 * outlives the server (supervisor_state.h). */
#pragma once

#include "veneer/base/buf.h"
#include "veneer/mount/mount_dirs.h"

/* The version of its bytes, and of what the arguments come to: the next server parses them anew, so
 * another default of an option that shows while it is mounted is another version, too. */
#define MOUNT_RECORD_VERSION 4

struct mount_record {
	uint64_t key; /* of the mount, as long as it lives */
	/* the helper's request */
	struct buf args; /* the strings of wire_split_args */
	uint32_t argc, flags; /* of WIRE_MOUNT */
	struct mount_dirs dirs; /* duplicates, which stay open with the record */
	/* the place of the mount, and what its kernel knows of it */
	uint32_t dev_major, dev_minor;
	uint64_t mount_ns;
	int fuse_fd; /* a duplicate */
	struct buf init; /* the kernel's first request */
	uint32_t io; /* enum io_mode, as it was settled */
	/* The node table's, and the locks' (-1: the kernel keeps them). A record that was read owns
	 * them until the tables have been opened by them again; a record that is written only names
	 * them. */
	int slots_fd, names_fd, locks_fd;
	/* For a member of a shared superblock (shared_sb.h): the key of the common mount, which has
	 * a record of its own and alone holds the file system's descriptor and ESTALE table (-1:
	 * none). 0: not a member. */
	uint64_t group;
	uint32_t secret;
	int estale_table_fd;

	int fd; /* the memfd; -1: not written */
};

/* Empty. */
void mount_record_init(struct mount_record *d);
/* The record is of the common mount of a shared superblock; its arguments are those of one
 * member. */
static inline bool mount_record_is_common(const struct mount_record *d)
{
	return d->group && d->group == d->key;
}
/* Parse the arguments: the one grammar that the helper has parsed them by, too; dirs must fit them.
 * -errno and a sentence. */
int mount_record_options(const struct mount_record *d, const struct mount_dirs *dirs,
			 struct mount_opts *ret, char *err, size_t err_size);
/* Take duplicates of the directories. 0 or -errno. */
int mount_record_keep_dirs(struct mount_record *d, const struct mount_dirs *dirs);
/* Duplicates of the record's directories; the caller owns them. 0 or -errno. */
int mount_record_copy_dirs(const struct mount_record *d, struct mount_dirs *ret);
/* Write it into a memfd of its own. 0 or -errno. */
int mount_record_write(struct mount_record *d);
/* Read one that another process wrote; the memfd and the descriptors in it are ret's. -EPROTO: of
 * another version; -EBADMSG; -ENOMEM. */
int mount_record_read(int fd, struct mount_record *ret);
/* Call fn for each descriptor that a memfd names, the memfd among them. */
void mount_record_each_fd(const struct mount_record *d, void (*fn)(int fd, void *arg), void *arg);
/* Close what the record holds; for a record that was read, also what nobody has taken. */
void mount_record_release(struct mount_record *d);
/* Free the record; the descriptors that it names stay open. */
void mount_record_forget(struct mount_record *d);
