/* SPDX-License-Identifier: Apache-2.0 */
/* A server that is killed, and the one after it: a child that shares this process's descriptors,
 * and nothing else, has a mount and dies of SIGKILL; then this process opens the mount again from
 * the node table that it left. */
#pragma once

#include "support/tree.h"

/* Data that the child leaves to be looked at, besides the node table. */
struct will {
	int slots_fd, names_fd;
	uint32_t id[32];
	uint64_t ino[32];
	unsigned generation[32];
	uint64_t pos; /* of a listing that is under way */
	unsigned seen[512];
	file_id_t file;
};

struct recovery {
	struct tree_dirs *d;
	struct mount_dirs dirs; /* whose descriptors both servers have */
	struct will *will;
	int slots_fd, names_fd;
	char options[256];
};

/* Fixtures in place of those of tree.h: they see to it that a child which fails ends. *state is a
 * struct recovery. */
int recovery_setup(void **state);
int recovery_teardown(void **state);
#define RECOVERY_TEST(f) cmocka_unit_test_setup_teardown(f, recovery_setup, recovery_teardown)

/* Mount in a child, let `live` do what it wants there, and kill it. Layers have been made
 * before. */
void recovery_die(struct recovery *h, const char *options,
		  void (*live)(struct tree_dirs *d, struct will *w));
/* The same with the next server, which is killed too. */
void recovery_die_again(struct recovery *h, void (*live)(struct tree_dirs *d, struct will *w));
/* The next server, in this process; takes memory files over. 0 or -errno, as mount_reopen_at. */
int recovery_take(struct recovery *h, int slots, int names);
/* With those that the dead server left. */
void recovery_inherit(struct recovery *h);
/* New memory files with the bytes of those that the child left, which are not changed. */
void recovery_copy(struct recovery *h, int *ret_slots, int *ret_names);

/* In the child: the kernel gets to know an inode, whose reference is used up; what it is is noted
 * in the will. */
void recovery_grant(struct tree_dirs *d, struct will *w, unsigned n, struct inode *i);
/* In the next server: the inode of a node id that the will has; it is filled, with the number that
 * it had. */
struct inode *recovery_get(struct recovery *h, unsigned n);
