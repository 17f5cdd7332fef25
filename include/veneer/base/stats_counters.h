/* SPDX-License-Identifier: Apache-2.0 */
/* The one list of counters, X(counter, line, group, key, help). A counter is `line` in the lines of
 * SIGUSR1, { group: { key: N } } in JSON, and veneer_group_key_total in Prometheus. help explains
 * it there, in one sentence without its full stop. The order is that of the output. A unit test
 * finds a counter that man/veneer.1.md lacks. */
#pragma once

/* clang-format off */
#define STATS_COUNTER_LIST(X) \
	X(STATS_COPYUPS, "COPY-UPS", "cow", "copy_ups", \
	  "Lower entries that got an entry in the upper") \
	X(STATS_COPYUP_BYTES, "COPY-UP BYTES", "cow", "copy_up_bytes", \
	  "File data copied by copy-ups") \
	X(STATS_MAP_RECORDS, "MAP RECORDS", "map", "records", \
	  "Records appended to the log of the block map") \
	X(STATS_FD_HITS, "DESCRIPTOR HITS", "descriptors", "hits", \
	  "A layer's file was wanted and was open") \
	X(STATS_FD_MISSES, "DESCRIPTOR MISSES", "descriptors", "misses", \
	  "A layer's file was wanted and was not open") \
	X(STATS_WHOLE_BYTES, "WHOLE BYTES", "cow", "whole_bytes", \
	  "What copying whole files up would have copied") \
	X(STATS_COW_WRITES, "COW WRITES", "cow", "writes", \
	  "Changes that made blocks of lower files own") \
	X(STATS_COW_BYTES, "COW BYTES", "cow", "own_bytes", "Blocks made own by them") \
	X(STATS_FILL_BYTES, "FILL BYTES", "cow", "filled_bytes", \
	  "Copied from lower files to complete such blocks") \
	X(STATS_READ_BYTES, "READ BYTES", "intercepted", "read_bytes", \
	  "Answered to READ requests; what the kernel reads by itself of files that are " \
	  "passed through is not seen") \
	X(STATS_WRITE_BYTES, "WRITE BYTES", "intercepted", "write_bytes", \
	  "Taken by WRITE requests") \
	X(STATS_WINDOW_HITS, "WINDOW HITS", "windows", "hits", \
	  "Blocks asked of the block cache that were there") \
	X(STATS_WINDOW_MISSES, "WINDOW MISSES", "windows", "misses", \
	  "Blocks asked of the block cache that were brought in") \
	X(STATS_WINDOW_EVICTIONS, "WINDOW EVICTIONS", "windows", "evictions", \
	  "Windows unmapped for want of room") \
	X(STATS_OPENS_PASSTHROUGH, "PASSTHROUGH OPENS", "opens", "passthrough", \
	  "Opens whose data the kernel serves") \
	X(STATS_OPENS_CACHED, "CACHED OPENS", "opens", "cached", \
	  "Opens by way of the page cache of the mount") \
	X(STATS_OPENS_DIRECT, "DIRECT OPENS", "opens", "direct", \
	  "Opens each of whose reads is a request") \
	X(STATS_OPENS_FILLED, "FILLED OPENS", "opens", "filled", \
	  "Opens of small lower files whose bytes went along") \
	X(STATS_PREDICTED_BYTES, "PREDICTED BYTES", "learning", "predicted_bytes", \
	  "Extents expected to be read at a start") \
	X(STATS_PREFETCH_BYTES, "PREFETCHED BYTES", "learning", "fetched_bytes", \
	  "Read ahead of a start, not cached before") \
	X(STATS_PREFETCH_HITS, "PREDICTION HITS", "learning", "hit_bytes", \
	  "Expected extents that were read") \
	X(STATS_NODE_SWITCHES, "NODE SWITCHES", "opens", "node_switches", \
	  "Files that got another node id to leave passthrough") \
	X(STATS_PROMOTED_CHUNKS, "PROMOTED CHUNKS", "promotion", "chunks", \
	  "Chunks of partial files completed from below") \
	X(STATS_PROMOTED_FILES, "PROMOTED FILES", "promotion", "files", \
	  "Partial files that became ordinary ones") \
	X(STATS_PROMOTED_BYTES, "PROMOTED BYTES", "promotion", "completed_bytes", \
	  "Brought in from lower files for that") \
	X(STATS_PROMOTED_CLONED, "PROMOTED CLONED", "promotion", "cloned_bytes", \
	  "Of those bytes, shared and not copied") \
	X(STATS_FLAT_FILES, "FLAT FILES", "flat_copies", "files", \
	  "Partial files of lower layers that were copied for their readers") \
	X(STATS_FLAT_BYTES, "FLAT BYTES", "flat_copies", "bytes", \
	  "Copied for that") \
	X(STATS_SQUASHED_SNAPSHOTS, "SQUASHED SNAPSHOTS", "squash", "snapshots", \
	  "Snapshots that became one with another") \
	X(STATS_SQUASHED_ENTRIES, "SQUASHED ENTRIES", "squash", "entries", \
	  "Entries that were gone through for that") \
	X(STATS_SQUASHED_BYTES, "SQUASHED BYTES", "squash", "bytes", \
	  "Copied for that") \
	X(STATS_COPIES_EVICTED, "COPIES EVICTED", "copies", "evictions", \
	  "Extents that the kernel was told to drop from its pages") \
	X(STATS_COPIES_REFAULTS, "COPIES REFAULTED", "copies", "refaults", \
	  "Extents that were read again soon after that") \
	X(STATS_CPU_LATENCY_RAISES, "CPU LATENCY RAISES", "cpu_latency", "raises", \
	  "Times that idle processors were kept awake for requests") \
	X(STATS_CPU_LATENCY_HELD_US, "CPU LATENCY HELD", "cpu_latency", "held_us", \
	  "Microseconds for which they were")

/* Memory of the process by purpose, X(memory, key), key in JSON; Prometheus has it without
 * "_bytes". Images and windows are counted by layer_registry.h and mmap_cache.h. */
#define STATS_MEMORY_LIST(X) \
	X(STATS_MEM_IMAGES, "images_bytes") /* merged trees of lower layers */ \
	X(STATS_MEM_INODES, "inodes_bytes") /* inode tables, and mirrors of upper directories */ \
	X(STATS_MEM_MAPS, "maps_bytes") /* block maps */ \
	X(STATS_MEM_BUFFERS, "buffers_bytes") /* of requests */ \
	X(STATS_MEM_COPIES, "copies_bytes") /* the account of the extents sent to each mount */ \
	X(STATS_MEM_WINDOWS, "windows_bytes") /* of the page cache, mapped by the block cache */
/* clang-format on */
