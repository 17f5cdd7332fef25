/* SPDX-License-Identifier: Apache-2.0 */
/* The format on disk: structs, magics and flags. Mirrors doc/SPEC.md, which is the text; a test
 * holds the SPEC's worked example as golden bytes. Everything is little-endian and packed. */
#pragma once

#include <stdint.h>

/* The partial mark: extended attribute of a partial file in the upper. At most 56 bytes without a
 * path, so that ext4 keeps it inside a 256-byte inode. */
#define FORMAT_PARTIAL_ATTR	"user.veneer.partial"
#define FORMAT_PARTIAL_VERSION	1
#define FORMAT_PARTIAL_HAS_PATH 1u
#define FORMAT_PARTIAL_IS_COPY	2u /* with HAS_PATH: the file at that path is another one */

struct format_partial {
	uint8_t version; /* FORMAT_PARTIAL_VERSION */
	uint8_t flags; /* FORMAT_PARTIAL_* ; an unknown bit is damage */
	uint16_t path_len; /* bytes of path behind the checksum, without NUL; 0 unless HAS_PATH */
	uint32_t uuid_low; /* low half of the map's uuid: a file copied elsewhere does not fit */
	uint64_t file_id; /* in the map of the layer the file is in; never 0 */
	uint64_t lower_size; /* of the lower file when the mark was made, bytes */
	int64_t lower_mtime_s; /* likewise, seconds and nanoseconds */
	uint32_t lower_mtime_ns;
	uint32_t reserved; /* 0 */
	uint64_t checksum; /* XXH64 of the 40 bytes before, then of the path */
	/* char path[path_len]: relative path of the lower file in the stack below the layer;
	 * without it the lower file is at the partial file's own path */
} __attribute__((packed));
_Static_assert(sizeof(struct format_partial) == 48, "partial mark");

/* The map file (doc/SPEC.md, section 3): header, snapshot of snapshot_len bytes, log. */
#define FORMAT_MAP_MAGIC   "\x89VNRMAP\n"
#define FORMAT_MAP_VERSION 1u
/* Compatible: the file system is one on which a block that reads as anything but zeros after a
 * power cut was written whole. */
#define FORMAT_MAP_ORDERED 1ull
/* Compatible: files may be from a copy of a layer, in which a hole may have become written
 * zeros. */
#define FORMAT_MAP_COPIED 2ull
/* Incompatible: every own block that may read as zeros is recorded as such. */
#define FORMAT_MAP_ZEROS 1ull
#define FORMAT_MAP_COMPAT_KNOWN \
	(FORMAT_MAP_ORDERED |   \
	 FORMAT_MAP_COPIED) /* bits a reader that does not know them may ignore */
#define FORMAT_MAP_INCOMPAT_KNOWN \
	FORMAT_MAP_ZEROS /* bits a reader that does not know them must refuse */

#define FORMAT_SIZE_MAX ((uint64_t)INT64_MAX) /* of a file, bytes */
#define FORMAT_BLK_END	(1ull << 51) /* first block index no file can have */
#define FORMAT_ID_END	(1ull << 63) /* file ids stay below */
#define FORMAT_LOST_IDS (1ull << 32) /* ids passed over after an unclean boot */

struct format_map_header {
	uint8_t magic[8]; /* FORMAT_MAP_MAGIC without its NUL */
	uint32_t version; /* FORMAT_MAP_VERSION */
	uint32_t header_len; /* bytes: 128 */
	uint64_t compat; /* feature flags */
	uint64_t incompat;
	uint64_t uuid; /* of the layer, random, never 0 */
	uint64_t generation; /* 1, and one more with each checkpoint */
	uint64_t next_id; /* every id in the snapshot is below */
	uint64_t lost_first; /* ids [lost_first, lost_end) may have been lost in an unclean boot */
	uint64_t lost_end;
	uint64_t self_ino; /* inode and birth time (ns) of this file: a copied layer differs */
	uint64_t self_btime_ns;
	uint64_t snapshot_len; /* bytes, a multiple of 8 */
	uint64_t snapshot_files; /* NEW records in it */
	uint64_t snapshot_sum; /* checksum of its last record, or its seed when it is empty */
	uint64_t reserved; /* 0 */
	uint64_t checksum; /* XXH64 of the 120 bytes before; seed of the log's first record */
} __attribute__((packed));
_Static_assert(sizeof(struct format_map_header) == 128, "map header");
/* A second copy of the header: extended attribute of the map file, which tools that copy layers
 * copy with it. */
#define FORMAT_MAP_COPY_ATTR "user.veneer.map"

struct format_map_copy {
	struct format_map_header head; /* as in the file */
	uint64_t end; /* of the log when the layer was last closed, bytes; 0: never since this file
			 was made */
	uint64_t end_sum; /* checksum of the record before; 0 likewise */
	uint64_t checksum; /* XXH64 of the 144 bytes before */
} __attribute__((packed));
_Static_assert(sizeof(struct format_map_copy) == 152, "copy of a map header");
/* The seed of the snapshot's first record: XXH64 of this many first bytes of the header. */
#define FORMAT_MAP_SEED_BYTES 48u

/* A record, in snapshot and log alike: head, payload of whole 64-bit words, checksum, which is the
 * XXH64 of the previous record's checksum (the seed at first) and all of the record before it. */
enum format_record_type {
	FORMAT_REC_END = 0, /* zeros: nothing was written here yet */
	FORMAT_REC_OPEN = 1, /* boot epoch, session nonce */
	FORMAT_REC_NEW = 2, /* file id, clip */
	FORMAT_REC_OWN_RUN = 3, /* file id, first block, number of blocks */
	FORMAT_REC_OWN_BITS = 4, /* file id, chunk, 128 bits in two words */
	FORMAT_REC_TRUNCATE = 5, /* file id, size */
	FORMAT_REC_GONE = 6, /* file id */
	FORMAT_REC_COMMIT = 7, /* file id */
	FORMAT_REC_CLEAN = 8, /* nothing */
	FORMAT_REC_ZERO_RUN = 9, /* as OWN_RUN, and the blocks are zeros */
	FORMAT_REC_ZERO_BITS = 10, /* as OWN_BITS, likewise */
};

struct format_record_head {
	uint8_t type; /* enum format_record_type */
	uint8_t words; /* of the whole record, head and checksum included: 2 to 6 */
	uint16_t reserved0; /* 0 */
	uint32_t reserved1; /* 0 */
	/* uint64_t payload[words - 2]; uint64_t checksum; */
} __attribute__((packed));
_Static_assert(sizeof(struct format_record_head) == 8, "record head");
#define FORMAT_REC_WORDS_MAX 6u
#define FORMAT_REC_BYTES_MAX (FORMAT_REC_WORDS_MAX * 8u)
