/* SPDX-License-Identifier: Apache-2.0 */
/* The record of one mount, from which the next server opens the mount again and goes on answering:
 * the arguments of its helper, and the descriptors by their numbers. The record is in a memfd,
 * which outlives the server (supervisor_state.h). */
#pragma once

#include "veneer/base/buf.h"
#include "veneer/mount/mount_dirs.h"

/* The version of the bytes and of the meaning of the arguments. The next server parses the
 * arguments anew, so a changed default of a visible option needs a new version, too. */
#define MOUNT_RECORD_VERSION 4

struct mount_record {
	uint64_t key; /* identifies the mount as long as it lives */
	/* the helper's request */
	struct buf args; /* the strings of wire_split_args */
	uint32_t argc, flags; /* of WIRE_MOUNT */
	struct mount_dirs dirs; /* duplicates, which stay open with the record */
	/* where the file system is mounted, and the state of its FUSE connection */
	uint32_t dev_major, dev_minor;
	uint64_t mount_ns;
	int fuse_fd; /* a duplicate */
	struct buf init; /* the kernel's first request */
	uint32_t io; /* enum io_mode, as negotiated */
	/* Descriptors of the node table and of the locks (locks_fd -1: the kernel keeps them). A
	 * record that was read owns them until the tables have been opened from them; a record that
	 * is written only names them. */
	int slots_fd, names_fd, locks_fd;
	/* For a member of a shared superblock (shared_sb.h): the key of the common mount. 0: not a
	 * member. The common mount has a record of its own, which alone holds the file system's
	 * descriptor and ESTALE table (-1: none). */
	uint64_t group;
	uint32_t secret;
	int estale_table_fd;

	int fd; /* the memfd; -1: not written */
};

/* An empty record. */
void mount_record_init(struct mount_record *d);
/* Is the record of the common mount of a shared superblock? Its arguments are those of one
 * member. */
static inline bool mount_record_is_common(const struct mount_record *d)
{
	return d->group && d->group == d->key;
}
/* Parse the arguments, with the same grammar as the helper; dirs must fit them. A record with a
 * memfd may also have options that have been removed (options_argv.is_saved). -errno and a
 * sentence. */
int mount_record_options(const struct mount_record *d, const struct mount_dirs *dirs,
			 struct mount_opts *ret, char *err, size_t err_size);
/* Take duplicates of the directories. 0 or -errno. */
int mount_record_keep_dirs(struct mount_record *d, const struct mount_dirs *dirs);
/* Duplicate the record's directories; the caller owns the duplicates. 0 or -errno. */
int mount_record_copy_dirs(const struct mount_record *d, struct mount_dirs *ret);
/* Write the record into a memfd of its own. 0 or -errno. */
int mount_record_write(struct mount_record *d);
/* Read a record that another process wrote; ret owns the memfd and the descriptors in it. -EPROTO:
 * another version; -EBADMSG; -ENOMEM. */
int mount_record_read(int fd, struct mount_record *ret);
/* Call fn for each descriptor that a record names, its memfd among them. */
void mount_record_each_fd(const struct mount_record *d, void (*fn)(int fd, void *arg), void *arg);
/* Close the descriptors of the record. For a record that was read, these include descriptors that
 * were not taken out of it. */
void mount_record_release(struct mount_record *d);
/* Free the record; its descriptors stay open. */
void mount_record_forget(struct mount_record *d);
