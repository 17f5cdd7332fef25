/* SPDX-License-Identifier: Apache-2.0 */
/* The made-up disk: what of a file system is in memory, what is in its journal, and what is on the
 * platter; and what a power cut leaves of that. Owns inodes, their pages and blocks. Knows no
 * names: doc/internals/simulator.md says which file systems it stands for. */
#pragma once

#include "dice.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define DISK_BLK_BYTES	4096u
#define DISK_SECTOR	512u
#define DISK_FILE_BYTES (2u << 20)
#define DISK_BLKS	(DISK_FILE_BYTES / DISK_BLK_BYTES)
#define DISK_INODES	512u
#define DISK_ROOT	2u
#define DISK_VERSIONS	4u

/* Bytes on the platter. version[0] is there for certain, the others were written and not flushed
 * yet; the last one is the newest. */
struct disk_block {
	uint32_t refs;
	uint32_t n;
	uint8_t *version[DISK_VERSIONS];
};

enum disk_extent_state { DISK_HOLE, DISK_UNWRITTEN, DISK_WRITTEN };

struct disk_extent {
	enum disk_extent_state state;
	struct disk_block *block; /* of DISK_WRITTEN */
};

struct disk_xattr {
	char *name;
	void *value;
	size_t size;
};

struct disk_entry {
	char *name;
	uint32_t ino;
};

/* An inode as the journal has it. Whole and constant once its transaction has ended. */
struct disk_image {
	uint32_t refs;
	mode_t mode;
	uid_t uid;
	gid_t gid;
	uint32_t nlink, parent; /* of a directory: where it is */
	dev_t rdev;
	int64_t atime, mtime, ctime; /* ns */
	int64_t size;
	char *target;
	struct disk_xattr *xattrs;
	struct disk_entry *entries;
	struct disk_extent *extents;
	size_t nxattrs, nentries, nextents;
};

struct disk_inode {
	struct disk_image *now, *durable; /* NULL: it does not exist (there) */
	int64_t size; /* in memory */
	int64_t btime;
	uint32_t opens;
	int lock; /* descriptor that has the flock; 0: none */
	bool is_mapped; /* stores go past us */
	bool is_torn; /* a sector of a block may be new without the others */
	bool is_fixed; /* a change of it is an error of the program under test */
	uint64_t last_op, last_data_op; /* in the journal */
	uint8_t dirty[DISK_BLKS];
};

#define DISK_TX_INODES 6

struct disk_tx {
	unsigned n;
	uint32_t ino[DISK_TX_INODES];
	struct disk_image *image[DISK_TX_INODES]; /* NULL: it is gone */
	bool is_times_only; /* nothing that fdatasync(2) has to wait for; */
	uint32_t soft_ino; /* of this inode at least; 0: none */
	uint32_t ordered_ino,
		ordered_blk; /* data that is on the platter before this; ino 0: none */
};

struct disk;

struct disk_options {
	bool is_eager; /* sizes reach the journal with the allocation, as with ext4; else with
			* the data, as with XFS */
};

struct disk *disk_new(const struct disk_options *o);
struct disk_inode *disk_inode(struct disk *d, uint32_t ino);
/* All DISK_FILE_BYTES of the file. */
uint8_t *disk_pages(struct disk *d, uint32_t ino);
/* A descriptor of all of them, one inode's behind another's. */
int disk_pages_fd(void);
/* Bytes before end may be other than zeros from now on. */
void disk_use(struct disk *d, uint32_t ino, int64_t end);
/* Is p in a file's pages? */
bool disk_is_page(const struct disk *d, const void *p);
int64_t disk_now(struct disk *d);
void disk_pass_time(struct disk *d, int64_t ns);

void disk_begin(struct disk_tx *tx);
/* An image of it that may be changed until the transaction ends. */
struct disk_image *disk_edit(struct disk *d, struct disk_tx *tx, uint32_t ino);
/* A new inode, an empty image of which is in the transaction; 0: there is no room. */
uint32_t disk_create(struct disk *d, struct disk_tx *tx, mode_t mode);
void disk_end(struct disk *d, struct disk_tx *tx);
/* Give up an inode without a name that nobody has open. */
void disk_reap(struct disk *d, uint32_t ino);
/* Free everything behind nblk. */
void disk_cut_extents(struct disk_image *m, size_t nblk);
struct disk_extent *disk_extent(struct disk_image *m, size_t blk); /* makes room */
enum disk_extent_state disk_state(const struct disk_image *m, size_t blk);
void disk_extent_set(struct disk_extent *e, enum disk_extent_state state, struct disk_block *b);

/* Blocks that a mapping changed become dirty. */
void disk_find_stores(struct disk *d, uint32_t ino);
void disk_write_back(struct disk *d, uint32_t ino, size_t blk);
void disk_write_back_all(struct disk *d, uint32_t ino);
/* fsync(2), fdatasync(2); dice decide how much more goes out. */
void disk_sync(struct disk *d, uint32_t ino, bool data_only, struct dice *dice);
void disk_sync_all(struct disk *d);
/* What the kernel does by itself now and then. */
void disk_background(struct disk *d, struct dice *dice);
/* The machine goes down and comes back. */
void disk_cut_power(struct disk *d, struct dice *dice);
/* How many transactions there are, and how many of them are on the platter. */
uint64_t disk_head(const struct disk *d);
uint64_t disk_committed(const struct disk *d);
