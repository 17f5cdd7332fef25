// SPDX-License-Identifier: Apache-2.0
#include "arena.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define BYTES	   ((size_t)1 << 30)
#define CLASSES	   26
#define CLASS_MIN  5 /* log2 of the smallest piece */
#define HEAD_BYTES 16

/* In front of each piece. */
struct head {
	uint32_t class;
	struct head *next; /* while it is free */
};

struct arena {
	size_t used;
	struct head *free[CLASSES];
	uint64_t align; /* what follows is aligned to 16 bytes */
};

static struct arena *arena;

void arena_init(void)
{
	arena = mmap(NULL, BYTES, PROT_READ | PROT_WRITE,
		     MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (arena == MAP_FAILED) {
		perror("sim: mmap");
		exit(2);
	}
	arena_reset();
}

void arena_reset(void)
{
	*arena = (struct arena){ .used = (sizeof(*arena) + HEAD_BYTES - 1) / HEAD_BYTES *
					 HEAD_BYTES };
}

static uint32_t class_of(size_t size)
{
	uint32_t class = CLASS_MIN;

	while (((size_t)1 << class) < size + HEAD_BYTES)
		class ++;
	return class;
}

void *arena_alloc(size_t size)
{
	const uint32_t class = class_of(size);
	const size_t all = (size_t)1 << class;
	struct head *h = class < CLASSES ? arena->free[class] : NULL;

	if (h) {
		arena->free[class] = h->next;
	} else {
		if (class >= CLASSES || arena->used + all > BYTES) {
			fprintf(stderr, "sim: the arena is full\n");
			exit(2);
		}
		h = (struct head *)((char *)arena + arena->used);
		arena->used += all;
	}
	memset(h, 0, all);
	h->class = class;
	return (char *)h + HEAD_BYTES;
}

void arena_free(void *p)
{
	struct head *h;

	if (!p)
		return;
	h = (struct head *)((char *)p - HEAD_BYTES);
	h->next = arena->free[h->class];
	arena->free[h->class] = h;
}

void *arena_copy(const void *p, size_t size)
{
	void *copy = arena_alloc(size);

	if (size)
		memcpy(copy, p, size);
	return copy;
}

char *arena_text(const char *text)
{
	return arena_copy(text, strlen(text) + 1);
}

void *arena_grow(void *p, size_t used, size_t size)
{
	void *grown;

	if (p) {
		const struct head *h = (const struct head *)((char *)p - HEAD_BYTES);

		if (((size_t)1 << h->class) - HEAD_BYTES >= size)
			return p;
	}
	grown = arena_alloc(size * 2);
	if (used)
		memcpy(grown, p, used);
	arena_free(p);
	return grown;
}
