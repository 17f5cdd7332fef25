// SPDX-License-Identifier: Apache-2.0
#include "sigusr1_stats.h"

#include "veneer/base/log.h"
#include "veneer/base/stats.h"
#include "veneer/layer/fd_cache.h"
#include "veneer/layer/layer_registry.h"
#include "veneer/passthrough/passthrough_table.h"
#include "veneer/sys/mmap_cache.h"

#include <inttypes.h>
#include <stdio.h>

static void print(void *arg, const char *name, uint64_t value)
{
	const bool *to_log = arg;

	if (*to_log)
		log_info("# %s: %" PRIu64, name, value);
	else
		fprintf(stderr, "# %s: %" PRIu64 "\n", name, value);
}

void sigusr1_stats_add(struct sigusr1_stats *c, struct mount *m)
{
	c->nodes += inode_count(&m->tree);
	if (m->tree.backing) {
		c->has_backing = true;
		c->backing_files += passthrough_table_count(m->tree.backing);
	}
	if (m->tree.map) {
		c->has_upper = true;
		c->map_files += mapfile_count(m->tree.map);
		c->map_log_bytes += mapfile_log_bytes(m->tree.map);
	}
}

static void print_images(bool *to_log)
{
	struct layer_registry_stats s;

	layer_registry_stats(&s);
	print(to_log, "IMAGES", s.images);
	print(to_log, "IMAGES KEPT", s.kept);
	print(to_log, "IMAGE BYTES", s.bytes);
	print(to_log, "IMAGES MADE", s.made);
	print(to_log, "IMAGES SHARED", s.shared);
	print(to_log, "IMAGES RESUMED", s.resumed);
	print(to_log, "LAYERS", s.layers);
	print(to_log, "WATCHES", s.watches);
}

void sigusr1_stats_print(const struct sigusr1_stats *c, bool is_shared, bool to_log)
{
	struct mmap_cache_usage windows;

	mmap_cache_usage(&windows);
	if (is_shared)
		print(&to_log, "MOUNTS", c->mounts);
	print(&to_log, "INODES", c->nodes);
	print(&to_log, "NODES", c->nodes);
	print(&to_log, "DESCRIPTORS", fd_cache_count());
	print(&to_log, "WINDOWS", windows.count);
	print(&to_log, "WINDOW BYTES", windows.bytes);
	if (c->has_backing)
		print(&to_log, "BACKING FILES", c->backing_files);
	if (c->has_upper || is_shared) {
		print(&to_log, "MAP FILES", c->map_files);
		print(&to_log, "MAP LOG BYTES", c->map_log_bytes);
	}
	if (is_shared)
		print_images(&to_log);
	stats_each(print, &to_log);
	fflush(stderr);
}
