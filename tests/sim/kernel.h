/* SPDX-License-Identifier: Apache-2.0 */
/* The names that the made-up kernel knows of the mount, each with the node id that it was told.
 * They outlive a server whose mount the next one takes over. */
#pragma once

#include "dice.h"
#include "history.h"
#include "veneer/union/inode.h"

#define KERNEL_NAMES 64u

struct kernel_name {
	char path[HISTORY_PATH];
	uint32_t id, generation;
	uint64_t ino;
};

struct kernel {
	struct kernel_name names[KERNEL_NAMES];
	size_t n;
};

/* The inode of a path ("" is the root), which the kernel holds; NULL: nothing is there. */
struct inode *kernel_get(struct union_fs *t, const char *path);
/* The path has this inode, the reference of which is given up. */
void kernel_enter(struct union_fs *t, const char *path, struct inode *i);
/* It has lost the name, and all below it. */
void kernel_forget(struct union_fs *t, const char *path);
/* The object goes on, by another name. */
void kernel_keep(const char *path, const char *open);
void kernel_move(struct union_fs *t, const char *from, const char *to);
/* It wants its memory back: some names go. */
void kernel_shrink(struct union_fs *t, struct dice *dice);
/* The names of those that are open, without a name of the mount: "@N"; NULL: there are no more. */
const char *kernel_open(size_t k);
/* The mount is no more. */
void kernel_forget_all(void);
/* The number that it was told of this path; 0: none. */
uint64_t kernel_ino(const char *path);
