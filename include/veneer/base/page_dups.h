/* SPDX-License-Identifier: Apache-2.0 */
/* Copies of lower file data in the page caches of mounts, and which copies are too many: pure
 * policy, without I/O, clock or lock of its own.
 *
 * HP-Mapper's cache manager (Guo, Li, Lv, Xu, Lui: "HP-Mapper: A High Performance Storage Driver
 * for Docker Containers", SoCC 2019, sections 3.3 and 3.4). An extent has one entry for each mount
 * that was sent it, the latest at the head. Each interval covers a slice of the table. Of each
 * extent at most `limit` copies stay; the cold ones go first, then the oldest. The limit starts at
 * half the mounts, doubles below 60 % memory use, halves above 80 %.
 *
 * A refault alone shows that a copy is hot: it was read again soon after it had been dropped. Each
 * one doubles the time for which it is left alone. Pages that the kernel took back by itself are
 * unknown, and counted until they are sent again. */
#pragma once

#include "veneer/base/types.h"

#include <stdbool.h>
#include <stddef.h>

#define PAGE_DUPS_AUTO	  0u /* wish of a mount: the limit that memory sets */
#define PAGE_DUPS_FOREVER UINT32_MAX

/* Part of a file as the layers have it: CHUNK_BYTES from index * CHUNK_BYTES on. */
struct page_dups_key {
	uint64_t dev, ino;
	uint32_t index;
};

/* One answer to a READ, or the part of it that is in one extent. */
struct page_dups_sent {
	struct page_dups_key key;
	uint32_t mount; /* number of the mount */
	uint32_t node; /* its node id there */
	uint32_t reader; /* process that asked; 0: not known */
	uint32_t nblk; /* blocks from the start of the extent to the end of the last one sent */
};

/* A copy that has to go. */
struct page_dups_victim {
	struct page_dups_key key;
	uint32_t mount, node, reader;
};

struct page_dups_rules {
	uint32_t scan; /* extents in one slice */
	uint32_t max; /* copies that are remembered; beyond that extents are forgotten */
	uint32_t rest_ms; /* a copy is left alone for so long after it was sent: it may not have
			     been used yet */
	uint32_t spare_ms,
		spare_max_ms; /* ... after its first refault, doubled with each, and at most */
	uint32_t refault_ms; /* a page that is read again later was dropped rightly */
	unsigned low_percent, high_percent;
};

/* The paper's figures where it has some. */
extern const struct page_dups_rules page_dups_rules_default;

struct page_dups_usage {
	uint32_t limit; /* copies of an extent, for mounts that wish PAGE_DUPS_AUTO */
	uint64_t mounts, extents, copies; /* copies: believed to be held */
	uint64_t extra_bytes; /* of copies beyond the first of each extent */
	uint64_t evictions, refaults, forgotten;
};

struct page_dups;

/* rules are copied. 0 or -ENOMEM. */
int page_dups_new(const struct page_dups_rules *rules, struct page_dups **ret);
void page_dups_free(struct page_dups *c);

/* A mount takes part: numbers ascend and are never used twice. wish: the limit of copies of its
 * extents, or PAGE_DUPS_AUTO. 0 or -ENOMEM. leave: it is gone, and its copies with it. */
int page_dups_join(struct page_dups *c, uint32_t mount, uint32_t wish);
void page_dups_leave(struct page_dups *c, uint32_t mount);
/* Numbers of the members, ascending; valid until the next join or leave. */
size_t page_dups_mounts(const struct page_dups *c, const uint32_t **ret);

/* now_ms: of a clock that never goes back; may wrap around. A mount that does not take part is no
 * news. 1: it was read again soon after it was dropped; 0; -ENOMEM: it is not remembered. */
int page_dups_note(struct page_dups *c, const struct page_dups_sent *s, uint32_t now_ms);
/* The rule of the limit, once. True: it is lower than before. */
bool page_dups_adjust(struct page_dups *c, unsigned used_percent);
/* The next slice: at most max victims, which count as dropped. Room for fewer than a mount each may
 * leave some to the next round. */
size_t page_dups_scan(struct page_dups *c, uint32_t now_ms, struct page_dups_victim *ret,
		      size_t max);
/* A copy could not be dropped: it is held, and not chosen again for for_ms. */
void page_dups_kept(struct page_dups *c, const struct page_dups_victim *v, uint32_t now_ms,
		    uint32_t for_ms);
/* How long scanning would find nothing: 0: it may find something now; PAGE_DUPS_FOREVER: until
 * there is news. */
uint32_t page_dups_pause_ms(const struct page_dups *c, uint32_t now_ms);
/* Some mount wishes PAGE_DUPS_AUTO, and there are copies that a lower limit would drop. */
bool page_dups_heeds_memory(const struct page_dups *c);
void page_dups_usage(const struct page_dups *c, struct page_dups_usage *ret);
/* Memory that the table takes. */
size_t page_dups_bytes(const struct page_dups *c);
/* invariants.h; key: the extent that changed, or NULL. */
const char *page_dups_check_invariants(const struct page_dups *c, const struct page_dups_key *key);
