/* SPDX-License-Identifier: Apache-2.0 */
/* A server that is killed, and the one after it: a child that shares this process's descriptors, and nothing else, has
 * a mount and dies of SIGKILL; then this process opens the mount again from the node table that it left. */
#pragma once

#include "support/tree.h"

/* What the child leaves to be looked at, besides the node table. */
struct will {
	int slots_fd, names_fd;
	uint32_t id[32];
	uint64_t ino[32];
	unsigned generation[32];
	uint64_t pos;		/* of a listing that is under way */
	unsigned seen[512];
	file_id_t file;
};

struct heir {
	struct tree_dirs *d;
	struct mount_dirs dirs;	/* whose descriptors both servers have */
	struct will *will;
	int slots_fd, names_fd;
	char options[256];
};

/* Fixtures in place of those of tree.h: they see to it that a child which fails ends. *state is a struct heir. */
int heir_setup(void **state);
int heir_teardown(void **state);
#define HEIR_TEST(f) cmocka_unit_test_setup_teardown(f, heir_setup, heir_teardown)

/* Mount in a child, let `live` do what it wants there, and kill it. Layers have been made before. */
void heir_die(struct heir *h, const char *options, void (*live)(struct tree_dirs *d, struct will *w));
/* The same with the next server, which is killed too. */
void heir_die_again(struct heir *h, void (*live)(struct tree_dirs *d, struct will *w));
/* The next server, in this process; takes memory files over. 0 or -errno, as mount_reopen_at. */
int heir_take(struct heir *h, int slots, int names);
/* With those that the dead server left. */
void heir_inherit(struct heir *h);
/* New memory files with the bytes of those that the child left, which are not changed. */
void heir_copy(struct heir *h, int *ret_slots, int *ret_names);

/* In the child: the kernel gets to know an inode, whose reference is used up; what it is is noted in the will. */
void heir_grant(struct tree_dirs *d, struct will *w, unsigned n, struct inode *i);
/* In the next server: the inode of a node id that the will has; it is filled, with the number that it had. */
struct inode *heir_get(struct heir *h, unsigned n);
