// SPDX-License-Identifier: Apache-2.0
/* State that a killed server leaves, and its meaning to the next one. The head counts the changes
 * that have taken effect.
 * 1. A record is free if its birth is 0, or a change that has not taken effect.
 * 2. A record whose death is a change that has taken effect is free; a death that has not means
 *    nothing.
 * 3. The birth of a record is written after its other fields, and set to 0 before any of them
 *    changes. */
#include "veneer/union/lock_table.h"

#include "veneer/base/cleanup.h"
#include "veneer/base/invariants.h"
#include "veneer/base/minmax.h"
#include "veneer/union/locks.h"

#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>

#define MAGIC 0x3162744b4c56ull /* VLKtb1 */
#define ROOM  (LOCK_TABLE_MAX + LOCK_TABLE_CHANGE)

struct head {
	uint64_t magic;
	uint32_t version, reserved;
	_Atomic uint64_t happened;
	uint8_t padding[40];
};

_Static_assert(sizeof(struct lock_record) == 64 && sizeof(struct head) == 64,
	       "as LOCKTAB_VERSION has it");

struct lock_table {
	int fd;
	struct head *head;
	struct lock_record *records;
	uint32_t *free, n_free;
	uint32_t *dead, n_dead; /* taken away by the next change */
	_Atomic uint32_t n;
};

#define BYTES (sizeof(struct head) + ROOM * sizeof(struct lock_record))

static int map(struct lock_table *t)
{
	void *mem = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, t->fd, 0);

	if (mem == MAP_FAILED)
		return -errno;
	t->head = mem;
	t->records = (struct lock_record *)(t->head + 1);
	t->free = calloc(ROOM, sizeof(*t->free));
	t->dead = calloc(ROOM, sizeof(*t->dead));
	return t->free && t->dead ? 0 : -ENOMEM;
}

/* Takes fd over, which may be negative. */
static int make(int fd, bool is_new, struct lock_table **ret)
{
	struct lock_table *t = calloc(1, sizeof(*t));
	struct stat st;
	int r;

	if (!t) {
		closep(&fd);
		return -ENOMEM;
	}
	t->fd = fd;
	r = fd < 0 || (is_new && ftruncate(fd, BYTES) < 0) || fstat(fd, &st) < 0 ? -errno : 0;
	if (r == 0)
		r = (uint64_t)st.st_size < BYTES ? -EPROTO : map(t);
	if (r == 0 && is_new) {
		t->head->version = LOCK_TABLE_VERSION;
		t->head->magic = MAGIC;
	}
	if (r == 0 && (t->head->magic != MAGIC || t->head->version != LOCK_TABLE_VERSION))
		r = -EPROTO;
	if (r < 0) {
		lock_table_free(t);
		return r;
	}
	*ret = t;
	return 0;
}

static bool is_sound(const struct lock_record *r)
{
	return (r->type == LOCKS_SHARED || r->type == LOCKS_EXCLUSIVE) && r->kind <= LOCKS_FLOCK &&
	       r->start <= r->end && r->end <= LOCKS_END;
}

static void set_birth(struct lock_record *r, uint64_t change)
{
	__atomic_store_n(&r->birth, change, __ATOMIC_SEQ_CST);
}

static void set_death(struct lock_record *r, uint64_t change)
{
	__atomic_store_n(&r->death, change, __ATOMIC_SEQ_CST);
}

/* Downwards, so that low indexes are given out first. */
static void settle(struct lock_table *t)
{
	for (uint32_t i = ROOM; i-- > 0;) {
		struct lock_record *r = &t->records[i];
		bool is_held = r->birth && r->birth <= t->head->happened &&
			       (!r->death || r->death > t->head->happened);

		if (is_held && is_sound(r)) {
			set_death(r, 0);
			t->n++;
			continue;
		}
		/* Only read, so that a page that was never used stays unallocated. */
		if (r->birth)
			set_birth(r, 0);
		t->free[t->n_free++] = i;
	}
}

int lock_table_new(struct lock_table **ret)
{
	int r = make(memfd_create("veneer-locks", MFD_CLOEXEC), true, ret);

	if (r == 0)
		settle(*ret);
	return r;
}

int lock_table_attach(int fd, struct lock_table **ret)
{
	int r = make(fd, false, ret);

	if (r == 0)
		settle(*ret);
	return r;
}

void lock_table_free(struct lock_table *t)
{
	if (!t)
		return;
	if (t->head)
		munmap(t->head, BYTES);
	closep(&t->fd);
	free(t->free);
	free(t->dead);
	free(t);
}

int lock_table_fd(const struct lock_table *t)
{
	return t->fd;
}

bool lock_table_has_room(const struct lock_table *t, unsigned n_dead, unsigned n_new)
{
	return n_new <= t->n_free && (n_new <= n_dead || t->n - n_dead + n_new <= LOCK_TABLE_MAX);
}

uint32_t lock_table_bring(struct lock_table *t, const struct lock_record *from)
{
	uint32_t i = t->free[--t->n_free];
	struct lock_record *r = &t->records[i];
	const size_t rest = offsetof(struct lock_record, node);

	set_death(r, 0);
	memcpy((char *)r + rest, (const char *)from + rest, sizeof(*r) - rest);
	set_birth(r, t->head->happened + 1);
	t->n++;
	INVARIANTS(lock_table_check_invariants(t));
	return i;
}

void lock_table_take_away(struct lock_table *t, uint32_t index)
{
	set_death(&t->records[index], t->head->happened + 1);
	t->dead[t->n_dead++] = index;
	t->n--;
	INVARIANTS(lock_table_check_invariants(t));
}

void lock_table_commit(struct lock_table *t)
{
	atomic_fetch_add(&t->head->happened, 1);
	while (t->n_dead) {
		uint32_t i = t->dead[--t->n_dead];

		set_birth(&t->records[i], 0);
		t->free[t->n_free++] = i;
	}
	INVARIANTS(lock_table_check_invariants(t));
}

const struct lock_record *lock_table_at(const struct lock_table *t, uint32_t index)
{
	return &t->records[index];
}

uint32_t lock_table_count(const struct lock_table *t)
{
	return t->n;
}

void lock_table_each(const struct lock_table *t,
		     void (*fn)(uint32_t index, const struct lock_record *r, void *arg), void *arg)
{
	for (uint32_t i = 0; i < ROOM; i++)
		if (t->records[i].birth)
			fn(i, &t->records[i], arg);
}

/* ---- invariants ---- */

#define LOOKS_FREE 16 /* each may be a page that no record was on yet */

const char *lock_table_check_invariants(const struct lock_table *t)
{
	if (t->n + t->n_dead + t->n_free != ROOM)
		return "lock_table: each record is held, dying or free";
	for (uint32_t k = 0; k < MIN(t->n_free, LOOKS_FREE); k++) {
		const uint32_t i = t->free[t->n_free - 1 - k];

		if (i >= ROOM || t->records[i].birth)
			return "lock_table: a free record has no birth";
	}
	for (uint32_t k = 0; k < MIN(t->n_dead, INVARIANTS_MAX); k++) {
		const uint32_t i = t->dead[k];

		if (i >= ROOM || t->records[i].death != t->head->happened + 1)
			return "lock_table: a dying record dies by the next change";
	}
	return NULL;
}
