// SPDX-License-Identifier: Apache-2.0
#include "look.h"

#include "arena.h"
#include "kernel.h"
#include "sim.h"
#include "veneer/data/attr.h"
#include "veneer/data/read.h"
#include "veneer/layer/branch_dir.h"
#include "veneer/layer/image.h"
#include "veneer/layer/layer.h"
#include "veneer/tools/check.h"
#include "veneer/union/inode_struct.h"
#include "veneer/union/lookup.h"
#include "veneer/union/upper.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define PIECE (20000u)

/* To be given back; NULL: nothing is there. */
static struct inode *look_up(struct union_fs *t, const char *path)
{
	struct inode *dir = t->root, *i;

	if (*path == '@')
		return kernel_get(t, path);
	while (*path) {
		char name[NAME_MAX + 1] = "";
		const size_t len = strcspn(path, "/");
		struct stat st;
		int r;

		memcpy(name, path, len);
		r = lookup_name(t, dir, name, &i, &st);
		if (dir != t->root)
			inode_unref(t, dir);
		if (r < 0)
			return NULL;
		dir = i;
		path += len + (path[len] == '/');
	}
	return dir;
}

static void give_back(struct union_fs *t, const char *path, struct inode *i)
{
	if (i && i != t->root && *path != '@')
		inode_unref(t, i);
}

struct looking {
	struct union_fs *t;
	struct history_found found[HISTORY_NAMES * 2];
	size_t n;
};

static void read_bytes(struct looking *l, struct inode *i, struct history_found *f)
{
	if (f->size > HISTORY_BYTES) {
		f->is_unreadable = true;
		return;
	}
	f->bytes = arena_alloc(f->size);
	for (uint64_t at = 0; at < f->size;) {
		const ssize_t n = read_file(l->t, i, f->bytes + at,
					    f->size - at < PIECE ? f->size - at : PIECE, (off_t)at);

		if (n <= 0) {
			sim_trace(1, "   read of %s at %" PRIu64 ": %zd", f->path, at, n);
			f->is_unreadable = true;
			return;
		}
		at += (uint64_t)n;
	}
}

static void read_target(struct looking *l, struct inode *i, struct history_found *f)
{
	ssize_t n = -1;
	int fd;

	if (inode_has_upper(i)) {
		fd = upper_pin(l->t, i);
		if (fd >= 0) {
			n = readlinkat(fd, "", f->target, sizeof(f->target) - 1);
			upper_unpin(i);
		}
	} else {
		n = image_readlink(l->t->image, inode_lower(i), f->target, sizeof(f->target) - 1);
	}
	f->is_unreadable = n < 0;
}

static void examine(struct looking *l, const char *path)
{
	struct inode *i = look_up(l->t, path);
	struct history_found *f = &l->found[l->n++];
	struct stat st;
	ssize_t n;

	history_path(f->path, path, "");
	if (!i || lookup_stat(l->t, i, &st) < 0) {
		f->is_unreadable = true;
		give_back(l->t, path, i);
		return;
	}
	f->kind = S_ISREG(st.st_mode)	? HISTORY_FILE
		  : S_ISDIR(st.st_mode) ? HISTORY_DIR
					: HISTORY_SYMLINK;
	f->mode = st.st_mode & 07777;
	f->ino = st.st_ino;
	f->size = (uint64_t)st.st_size;
	n = f->kind == HISTORY_SYMLINK
		    ? 0
		    : attr_getxattr(l->t, i, HISTORY_XATTR, f->xattr, sizeof(f->xattr) - 1);
	f->xattr[n < 0 ? 0 : n] = '\0';
	if (f->kind == HISTORY_FILE)
		read_bytes(l, i, f);
	else if (f->kind == HISTORY_SYMLINK)
		read_target(l, i, f);
	give_back(l->t, path, i);
}

static void list(struct looking *l, const char *path)
{
	struct inode *dir = look_up(l->t, path);
	struct lookup_entry e;
	uint64_t pos = 0;
	int r;

	if (!dir)
		return;
	while ((r = lookup_next(l->t, dir, &pos, &e)) == 1) {
		char below[HISTORY_PATH];

		if (l->n == HISTORY_NAMES * 2)
			sim_violation("there are too many names");
		history_path(below, path, *path ? "/" : "");
		history_path(below, below, e.name);
		examine(l, below);
	}
	if (r < 0)
		sim_violation("the listing of '%s' fails: %d", path, r);
	give_back(l->t, path, dir);
}

static void say(const char *line)
{
	fprintf(stderr, "sim: %s\n", line);
}

void look_at_all(struct union_fs *t, enum history_doubt doubt, uint64_t op)
{
	static struct looking l;
	unsigned n;

	memset(&l, 0, sizeof(l));
	l.t = t;
	sim->fate.is_away = true;
	examine(&l, "");
	for (size_t k = 0; k < l.n; k++)
		if (l.found[k].kind == HISTORY_DIR && !l.found[k].is_unreadable)
			list(&l, l.found[k].path);
	for (size_t k = 0; kernel_open(k); k++)
		examine(&l, kernel_open(k));
	for (size_t k = 0; k < l.n; k++)
		if (kernel_ino(l.found[k].path) && kernel_ino(l.found[k].path) != l.found[k].ino &&
		    doubt == HISTORY_NONE)
			sim_violation("%s has another number now", l.found[k].path);
	n = history_check(
		sim->history,
		&(struct history_look){
			.found = l.found, .n = l.n, .doubt = doubt, .op = op, .say = say });
	for (size_t k = 0; k < l.n; k++)
		arena_free(l.found[k].bytes);
	sim->fate.is_away = false;
	if (n)
		sim_violation("%u differences %s", n,
			      doubt == HISTORY_NONE	 ? "while the server lives"
			      : doubt == HISTORY_LAST_OP ? "after a death or an error"
							 : "after a power cut");
}

/* What deaths and power cuts leave, and nothing is wrong with: entries of the map without a file;
 * own blocks behind the end of a file; a torn record, behind which the next one writes; a complete
 * file with its mark and without its guard, whose bytes are right for every reader. */
static bool is_harmless(const struct check_finding *f)
{
	return !strcmp(f->code, "entry-unused") || !strcmp(f->code, "behind-end") ||
	       !strcmp(f->code, "unguarded") || strstr(f->text, "torn record at the end");
}

static void note_finding(void *arg, const struct check_finding *f)
{
	unsigned *n = arg;

	if (is_harmless(f))
		return;
	++*n;
	fprintf(stderr, "sim: check: %s: %s: %s\n", f->path, f->code, f->text);
}

void look_check(void)
{
	unsigned n = 0;
	const struct check_hooks hooks = { .found = note_finding, .arg = &n };
	struct check_result result = { 0 };
	struct layer *upper, *lower;
	struct image *below;
	int r;

	sim->fate.is_away = true;
	/* Snapshots are layers of their own. */
	if (faccessat(AT_FDCWD, "/upper/" BRANCH_DIR_NAME, F_OK, AT_SYMLINK_NOFOLLOW) == 0) {
		sim->fate.is_away = false;
		return;
	}
	r = layer_open("/upper", &upper);
	r = r < 0 ? r : layer_open("/lower", &lower);
	if (r == 0)
		r = image_new(&lower, 1, &below);
	if (r == 0)
		r = check_layer(upper, below, CHECK_LOOKS, &hooks, &result);
	if (r < 0 || n)
		sim_violation("check finds %u faults (%d)", n, r);
	image_unref(below);
	layer_unref(lower);
	layer_unref(upper);
	sim->fate.is_away = false;
}
