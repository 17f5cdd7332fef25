// SPDX-License-Identifier: Apache-2.0
/* The notes are in a memory file, since a caller that was told to look again does so whether the
 * server lives on or not. A note that a dead server had not written to its end was told to no
 * caller, and leads to nothing. */
#include "veneer/recover/estale_table.h"

#include "veneer/base/cleanup.h"
#include "veneer/base/hash.h"
#include "veneer/base/lock.h"

#include <sys/mman.h>
#include <sys/stat.h>

/* A container may have 2000 threads that are answered so between the two look-ups of another one's:
 * that pushes out one in 100,000 (ESTALE_TABLE_VERSION goes with these). */
#define SETS 4096u
#define WAYS 8u

struct note {
	uint64_t object;
	int64_t when_ms;
	uint32_t caller;
	bool is_used;
};

struct estale_table {
	int fd;
	int64_t since_ms; /* another server's notes count from then on; 0 */
	mutex_t lock;
	PT_GUARDED_BY(lock) struct note (*notes)[WAYS];
};

#define BYTES (SETS * sizeof(struct note[WAYS]))

/* fd is taken over. */
static int open_notes(int fd, struct estale_table **ret)
{
	struct estale_table *r = calloc(1, sizeof(*r));
	void *mem = r ? mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0) : MAP_FAILED;
	int e = mem == MAP_FAILED ? -ENOMEM : 0;

	if (e < 0) {
		close(fd);
		free(r);
		return e;
	}
	r->fd = fd;
	r->notes = mem;
	mutex_init(&r->lock);
	*ret = r;
	return 0;
}

int estale_table_new(struct estale_table **ret)
{
	_cleanup_(closep) int fd = memfd_create("veneer-recall", MFD_CLOEXEC);

	if (fd < 0 || ftruncate(fd, BYTES) < 0)
		return -errno;
	return open_notes(steal_fd(&fd), ret);
}

int estale_table_attach(int fd, int64_t now_ms, struct estale_table **ret)
{
	struct stat st;
	int e = fstat(fd, &st) < 0 ? -errno : (uint64_t)st.st_size == BYTES ? 0 : -EPROTO;

	if (e < 0) {
		closep(&fd);
		return e;
	}
	e = open_notes(fd, ret);
	if (e == 0)
		(*ret)->since_ms = now_ms;
	return e;
}

void estale_table_free(struct estale_table *r)
{
	if (!r)
		return;
	munmap(r->notes, BYTES);
	close(r->fd);
	mutex_destroy(&r->lock);
	free(r);
}

int estale_table_fd(const struct estale_table *r)
{
	return r->fd;
}

static struct note *set_of(struct estale_table *r, uint32_t caller, uint64_t object)
	REQUIRES(r->lock)
{
	return r->notes[hash_key(&object, sizeof(object), caller) % SETS];
}

static bool is_of(const struct note *n, uint32_t caller, uint64_t object)
{
	return n->is_used && n->caller == caller && n->object == object;
}

void estale_table_note(struct estale_table *r, uint32_t caller, uint64_t object, int64_t now_ms)
{
	LOCK_SCOPE(&r->lock);
	struct note *set = set_of(r, caller, object), *to = set;

	for (unsigned i = 0; i < WAYS; i++) {
		if (is_of(&set[i], caller, object)) {
			to = &set[i];
			break;
		}
		if (to->is_used && (!set[i].is_used || set[i].when_ms < to->when_ms))
			to = &set[i];
	}
	*to = (struct note){ object, now_ms, caller, true };
}

bool estale_table_has(struct estale_table *r, uint32_t caller, uint64_t object, int64_t now_ms)
{
	LOCK_SCOPE(&r->lock);
	const struct note *set = set_of(r, caller, object);

	for (unsigned i = 0; i < WAYS; i++)
		if (is_of(&set[i], caller, object))
			return now_ms - (set[i].when_ms > r->since_ms ? set[i].when_ms
								      : r->since_ms) <=
			       ESTALE_TABLE_MS;
	return false;
}
