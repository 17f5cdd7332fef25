// SPDX-License-Identifier: Apache-2.0
#include "kernel.h"

#include "sim.h"
#include "veneer/union/inode_struct.h"
#include "veneer/union/lookup.h"

#include <string.h>

static struct kernel_name *find(const char *path)
{
	struct kernel *k = &sim->known;

	for (size_t n = 0; n < k->n; n++)
		if (!strcmp(k->names[n].path, path))
			return &k->names[n];
	return NULL;
}

static bool is_at_or_in(const char *path, const char *dir)
{
	const size_t len = strlen(dir);

	return !strncmp(path, dir, len) && (!path[len] || path[len] == '/');
}

static void drop(struct union_fs *t, size_t n)
{
	struct kernel *k = &sim->known;
	const uint32_t id = k->names[n].id;

	k->names[n] = k->names[--k->n];
	inode_forget(t, id, 1);
}

uint64_t kernel_ino(const char *path)
{
	const struct kernel_name *n = find(path);

	return n ? n->ino : 0;
}

void kernel_enter(struct union_fs *t, const char *path, struct inode *i)
{
	struct kernel *k = &sim->known;
	struct kernel_name *n = &k->names[k->n];
	struct stat st;

	if (find(path) || k->n == KERNEL_NAMES)
		sim_give_up("the kernel cannot note %s", path);
	*n = (struct kernel_name){ .ino = lookup_stat(t, i, &st) == 0 ? st.st_ino : 0 };
	history_path(n->path, path, "");
	inode_grant(t, i, &n->id, &n->generation);
	k->n++;
}

static struct inode *known(struct union_fs *t, const struct kernel_name *n)
{
	struct inode *i = inode_get(t, n->id);
	int r = i ? lookup_restore(t, i) : -ESTALE;

	if (r < 0 && !sim->fate.error)
		sim_violation("%s is lost to the kernel: node %u, error %d", n->path, n->id, -r);
	return r < 0 ? NULL : i;
}

struct inode *kernel_get(struct union_fs *t, const char *path)
{
	const char *slash = strrchr(path, '/');
	const struct kernel_name *n = find(path);
	char parent[HISTORY_PATH] = "";
	struct inode *dir, *i;
	struct stat st;

	if (!*path)
		return t->root;
	if (n)
		return known(t, n);
	if (*path == '@')
		return NULL;
	if (slash)
		memcpy(parent, path, (size_t)(slash - path));
	dir = kernel_get(t, parent);
	if (!dir || lookup_name(t, dir, slash ? slash + 1 : path, &i, &st) < 0)
		return NULL;
	kernel_enter(t, path, i);
	return i;
}

void kernel_forget(struct union_fs *t, const char *path)
{
	for (size_t n = sim->known.n; n-- > 0;)
		if (is_at_or_in(sim->known.names[n].path, path))
			drop(t, n);
}

void kernel_keep(const char *path, const char *open)
{
	struct kernel_name *n = find(path);

	if (n)
		history_path(n->path, open, "");
}

const char *kernel_open(size_t k)
{
	for (size_t n = 0; n < sim->known.n; n++)
		if (*sim->known.names[n].path == '@' && k-- == 0)
			return sim->known.names[n].path;
	return NULL;
}

void kernel_move(struct union_fs *t, const char *from, const char *to)
{
	struct kernel *k = &sim->known;
	uint32_t gone[KERNEL_NAMES];
	size_t ngone = 0;

	for (size_t n = k->n; n-- > 0;)
		if (is_at_or_in(k->names[n].path, to)) {
			gone[ngone++] = k->names[n].id;
			k->names[n] = k->names[--k->n];
		}
	for (size_t n = 0; n < k->n; n++) {
		char moved[HISTORY_PATH];

		if (!is_at_or_in(k->names[n].path, from))
			continue;
		history_path(moved, to, k->names[n].path + strlen(from));
		memcpy(k->names[n].path, moved, sizeof(moved));
	}
	/* A server may die over these. */
	while (ngone)
		inode_forget(t, gone[--ngone], 1);
}

static bool has_below(const char *path)
{
	for (size_t n = 0; n < sim->known.n; n++)
		if (strcmp(sim->known.names[n].path, path) != 0 &&
		    is_at_or_in(sim->known.names[n].path, path))
			return true;
	return false;
}

void kernel_shrink(struct union_fs *t, struct dice *dice)
{
	for (int k = 0; k < 4 && sim->known.n; k++) {
		const size_t n = dice_below(dice, sim->known.n);

		if (*sim->known.names[n].path != '@' && !has_below(sim->known.names[n].path))
			drop(t, n);
	}
}

void kernel_forget_all(void)
{
	sim->known.n = 0;
}
