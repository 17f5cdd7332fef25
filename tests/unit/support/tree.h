/* SPDX-License-Identifier: Apache-2.0 */
/* A mount without FUSE: layer directories in a scratch directory and the tree that mount_open
 * makes of them. Everything but tree_try_mount asserts, so it belongs to the test's own thread
 * and process. */
#pragma once

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "support/scratch.h"
#include "veneer/mount/mount.h"
#include "veneer/union/inode_struct.h"

#include <sys/stat.h>

struct tree_dirs {
	struct scratch s;
	char names[1024]; /* lower layers, top first, as "b:a" */
	unsigned nfrozen;
	struct mount m;
	struct union_fs *t; /* NULL while not mounted */
	char err[512];
};

/* cmocka fixtures: directories lower, upper and work; nothing mounted. */
int tree_setup(void **state);
int tree_teardown(void **state);

/* Other lower layers than "lower", made if need be. */
void tree_layers(struct tree_dirs *d, const char *names);
/* extra: more -o options, or NULL. "volatile" spares the machine the syncs. */
int tree_try_mount(struct tree_dirs *d, const char *extra);
void tree_mount(struct tree_dirs *d, const char *extra);
void tree_unmount(struct tree_dirs *d);
/* The upper becomes the topmost lower layer, and the next mount has a new one. */
void tree_freeze(struct tree_dirs *d);

/* Make entries in layers by hand: rel starts with the layer's name; its directories are made. */
void tree_put_dir(struct tree_dirs *d, const char *rel);
void tree_put(struct tree_dirs *d, const char *rel, const void *data, size_t len);
void tree_put_text(struct tree_dirs *d, const char *rel, const char *text);
void tree_put_whiteout(struct tree_dirs *d, const char *rel);
void tree_put_opaque(struct tree_dirs *d, const char *rel);
/* The bytes that seed stands for, of which no block is like another. */
void tree_pattern(void *p, size_t len, uint64_t seed);
/* As tree_put; returns the content, to be freed. */
char *tree_put_pattern(struct tree_dirs *d, const char *rel, size_t len, uint64_t seed);
void tree_put_redirect(struct tree_dirs *d, const char *rel, const char *target);
/* Of a layer or of what is in it, to be freed. */
char *tree_path(struct tree_dirs *d, const char *rel);
bool tree_is_there(struct tree_dirs *d, const char *rel);
bool tree_is_partial(struct tree_dirs *d, const char *rel);

/* Layers by their names, top first. */
void tree_open_layers(struct tree_dirs *d, const char *const *names, size_t n, struct layer **ret);
void tree_close_layers(struct layer **layers, size_t n);

/* The inode at a path of the mount ("" is the root), referenced but for the root; NULL:
 * nothing. */
struct inode *tree_look(struct tree_dirs *d, const char *path);
struct inode *tree_get(struct tree_dirs *d, const char *path);
void tree_forget(struct tree_dirs *d, struct inode *i);
/* As the kernel has it once it knows it: its id. The second looks it up. */
uint32_t tree_grant(struct tree_dirs *d, struct inode *i);
struct inode *tree_get_granted(struct tree_dirs *d, const char *path, uint32_t *ret_id);
uint64_t tree_lookups(struct tree_dirs *d, uint32_t id);
struct stat tree_stat(struct tree_dirs *d, const char *path);
/* A new entry of a directory, referenced. */
struct inode *tree_make(struct tree_dirs *d, const char *dir, const char *name, mode_t mode);
/* The inode shows exactly these bytes, also when read in pieces. */
void tree_expect_inode(struct tree_dirs *d, struct inode *i, const void *data, size_t len);
void tree_expect(struct tree_dirs *d, const char *path, const void *data, size_t len);
void tree_expect_text(struct tree_dirs *d, const char *path, const char *text);
/* The names of a directory, sorted, as "a b c". */
void tree_expect_names(struct tree_dirs *d, const char *dir, const char *names);

/* A small generator, so that a seed says all. */
static inline uint64_t tree_random(uint64_t *state)
{
	uint64_t x = *state;

	x ^= x << 13;
	x ^= x >> 7;
	x ^= x << 17;
	return *state = x;
}

/* From the environment's TEST_SEED, or new; printed. */
uint64_t tree_seed(const char *test);
