/* SPDX-License-Identifier: Apache-2.0 */
/* Scalar units of the whole program. Nothing here has behaviour. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* A block is the unit of copy-on-write, a chunk the unit of the map's first level
 * (HP-Mapper, section 3.1: 4 KiB small blocks under 512 KiB large ones). */
#define BLK_SHIFT   12
#define BLK_BYTES   (1u << BLK_SHIFT)
#define CHUNK_SHIFT 19
#define CHUNK_BYTES (1u << CHUNK_SHIFT)
#define CHUNK_BLKS  (CHUNK_BYTES / BLK_BYTES)

typedef uint64_t blk_t; /* index of a block in a file: byte offset >> BLK_SHIFT */
typedef uint64_t file_id_t; /* a partial file's number in its layer's map; 0 is none */
