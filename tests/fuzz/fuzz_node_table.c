// SPDX-License-Identifier: Apache-2.0
/* An input is the table of nodes that a dead server left: how many slots, the slots, and then what
 * is in the arena of names. The rest of both files is zeroes, as it is in real ones. Whatever is
 * attached can be used, and what was used is attached again without a loss. */
#include "support.h"

#include "union/node_table-internal.h"
#include "veneer/base/cleanup.h"
#include "veneer/sys/file.h"

#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define SLOTS_TRIED 64u

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void see(int fd, void *arg)
{
	(void)arg;
	fuzz_require(fd >= 0);
}

static int table_file(const void *head, size_t head_size, const void *data, size_t size)
{
	int fd = fuzz_memfd(head, head_size);

	if (fd >= 0 && (ftruncate(fd, NODE_TABLE_STEP) < 0 ||
			(size && file_pwrite(fd, data, size, (off_t)head_size) < 0))) {
		close(fd);
		return -1;
	}
	return fd;
}

static void check_node(struct node_table *t, uint32_t id)
{
	struct node_slot *s = node_table_slot(t, id);
	uint32_t parent;
	const char *name;
	size_t len;

	if (!s)
		return;
	fuzz_require(s->state != NODE_FREE && s->generation);
	fuzz_require(s->state != NODE_FORMER || node_table_slot(t, s->successor));
	len = node_table_name(t, id, &parent, &name);
	fuzz_require(len < PATH_MAX && (!len || !memchr(name, '\0', len)));
	fuzz_require(!len || !parent || node_table_slot(t, parent)->type == DT_DIR);
}

/* Paths end: up from any node by its names. */
static void check_way_up(struct node_table *t, uint32_t id)
{
	const char *name;
	size_t n = 0;

	for (uint32_t parent;
	     node_table_slot(t, id) && node_table_name(t, id, &parent, &name) && parent;
	     id = parent)
		fuzz_require(n++ <= node_table_count(t));
}

static void use(struct node_table *t)
{
	static const char name[] = "a name that takes more room than most of those there are";
	uint32_t ids[8], n = 0;

	for (uint32_t id = 0; id < node_table_end(t); id++) {
		check_node(t, id);
		check_way_up(t, id);
	}
	while (n < 8 && node_table_alloc(t, &ids[n]) == 0) {
		fuzz_require(node_table_set_name(t, ids[n], NODE_TABLE_ROOT, name) == 0);
		n++;
	}
	for (uint32_t id = NODE_TABLE_ROOT + 1; id < node_table_end(t); id += 3)
		if (node_table_slot(t, id) && node_table_slot(t, id)->state != NODE_FORMER)
			node_table_set_name(t, id, NODE_TABLE_ROOT, name + id % 16);
	for (uint32_t k = 0; k < n; k += 2)
		node_table_release(t, ids[k]);
	for (uint32_t k = 1; k < n; k += 2) {
		const char *got;
		uint32_t parent;

		fuzz_require(node_table_name(t, ids[k], &parent, &got) &&
			     parent == NODE_TABLE_ROOT);
	}
}

static void check_again(int slots, int names)
{
	struct node_table *t;

	if (slots < 0 || names < 0)
		return;
	fuzz_require(node_table_attach(slots, names, &t) == 0);
	for (uint32_t id = 0; id < node_table_end(t); id++)
		check_node(t, id);
	node_table_free(t);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	const struct node_table_head head = { .magic = NODE_TABLE_MAGIC,
					      .version = NODE_TABLE_VERSION };
	size_t nslots = size ? data[0] % SLOTS_TRIED : 0, slot_bytes;
	int slots, names, slots_copy, names_copy;
	struct node_table *t;

	fuzz_be_quiet();
	if (size < 1)
		return 0;
	data++;
	size--;
	slot_bytes = nslots * sizeof(struct node_slot) < size ? nslots * sizeof(struct node_slot)
							      : size;
	slots = table_file(&head, sizeof(head), data, slot_bytes);
	/* Of the devices only how many there are: the names come behind them. */
	names = table_file(NULL, 0, NULL, 0);
	if (names >= 0)
		(void)!pwrite(names, data + slot_bytes, size - slot_bytes, NAMES_BEGIN);
	if (slots >= 0)
		node_table_held_fds(slots, see, NULL);
	slots_copy = slots >= 0 ? fcntl(slots, F_DUPFD_CLOEXEC, 3) : -1;
	names_copy = names >= 0 ? fcntl(names, F_DUPFD_CLOEXEC, 3) : -1;
	if (slots >= 0 && names >= 0 && node_table_attach(slots, names, &t) == 0) {
		use(t);
		node_table_free(t);
		check_again(slots_copy, names_copy);
		return 0;
	}
	closep(&slots);
	closep(&names);
	closep(&slots_copy);
	closep(&names_copy);
	return 0;
}
