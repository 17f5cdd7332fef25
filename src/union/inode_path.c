// SPDX-License-Identifier: Apache-2.0
#include "inode-internal.h"

#include "veneer/base/cleanup.h"
#include "veneer/base/lock.h"

#include <string.h>

#define name_of_link(l) container_of(l, struct name, of_inode)

char *inode_name_path(struct union_fs *t, struct inode *parent, const char *name)
{
	size_t len = strlen(name);
	struct inode *i;
	char *path, *p;

	LOCK_SCOPE(&t->lock);
	for (i = parent; !list_is_empty(&i->names); i = name_of_link(i->names.next)->parent)
		len += strlen(name_of_link(i->names.next)->name) + 1;
	path = malloc(len + 1);
	if (!path)
		return NULL;
	p = path + len - strlen(name);
	strcpy(p, name);
	for (i = parent; !list_is_empty(&i->names); i = name_of_link(i->names.next)->parent) {
		const char *part = name_of_link(i->names.next)->name;
		size_t n = strlen(part);

		*--p = '/';
		p -= n;
		memcpy(p, part, n);
	}
	return path;
}

char *inode_path(struct union_fs *t, struct inode *i)
{
	char name[NAME_MAX + 1];
	struct inode *parent;
	char *path;

	if (i == t->root)
		return strdup("/");
	if (inode_any_name(t, i, &parent, name) < 0)
		return strdup("(a removed file)");
	path = inode_name_path(t, parent, name);
	inode_unref(t, parent);
	return path;
}
