// SPDX-License-Identifier: Apache-2.0
/* A slot's state is a code and the generation (how often the area was taken into use) that wrote
 * it. FREE: any thread may take the slot. CLAIMED: a thread fills it; if the generation is older,
 * the server died before any change, and the slot is free. STANDS: the slot is whole.
 *
 * A slot that stands is never asked for again if its request was answered just before the death.
 * There are a few for each death at most; when all slots are taken the oldest of them are used
 * again. */
#include "veneer/recover/intent_log.h"

#include "veneer/base/cleanup.h"
#include "veneer/base/lock.h"

#include <string.h>
#include <sys/mman.h>

#define SLOTS		  1024u /* threads: 64 and one a mount */
#define CODE_BITS	  2
#define CODE(state)	  ((state) & ((1u << CODE_BITS) - 1))
#define GENERATION(state) ((state) >> CODE_BITS)

enum code { FREE, CLAIMED, STANDS };

struct area {
	uint64_t layout; /* of another version: nothing in it is understood */
	_Atomic uint64_t generation;
	_Atomic uint32_t end; /* slots from here on were never used: nobody need look at them */
	struct intent slots[SLOTS];
};

#define LAYOUT ((uint64_t)1 << 32 | sizeof(struct intent))

static struct area *area;
static mutex_t area_lock = PTHREAD_MUTEX_INITIALIZER;

/* How many slots stand that are INTENT_SETID. Deaths leave more than have anything to be put
 * back. */
static _Atomic uint32_t standing_setids;

static _Thread_local struct intent *current;
static _Thread_local uint32_t last_slot;

size_t intent_log_area_bytes(void)
{
	return sizeof(struct area);
}

/* Mend an area whose writer is dead: nothing in it may lead outside of it. */
static void mend(struct area *a)
{
	if (a->end > SLOTS)
		a->end = SLOTS;
	for (uint32_t k = 0; k < a->end; k++) {
		struct intent *n = &a->slots[k];

		n->from.name[NAME_MAX] = n->to.name[NAME_MAX] = '\0';
		if (n->capability_len > sizeof(n->capability))
			n->capability_len = 0;
	}
}

static void use_locked(struct area *a)
{
	if (a->layout != LAYOUT) {
		memset(a, 0, sizeof(*a));
		a->layout = LAYOUT;
	}
	mend(a);
	standing_setids = 0;
	for (uint32_t k = 0; k < a->end; k++)
		standing_setids += CODE(a->slots[k].state) == STANDS &&
				   a->slots[k].kind == INTENT_SETID;
	a->generation++;
	__atomic_store_n(&area, a, __ATOMIC_RELEASE);
}

void intent_log_use_area(void *mem)
{
	LOCK_SCOPE(&area_lock);
	current = NULL;
	use_locked(mem);
}

static struct area *get_area(void)
{
	struct area *a = __atomic_load_n(&area, __ATOMIC_ACQUIRE);

	if (a)
		return a;
	LOCK_SCOPE(&area_lock);
	if (!area) {
		a = mmap(NULL, sizeof(*a), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1,
			 0);
		if (a != MAP_FAILED)
			use_locked(a);
	}
	return area;
}

static uint64_t state_of(const struct area *a, enum code code)
{
	return a->generation << CODE_BITS | code;
}

static bool change_state(struct intent *n, uint64_t from, uint64_t to)
{
	const bool is_setid = CODE(from) == STANDS && n->kind == INTENT_SETID;

	if (!atomic_compare_exchange_strong(&n->state, &from, to))
		return false;
	if (is_setid)
		standing_setids--;
	return true;
}

static bool claim(struct area *a, struct intent *n, bool takes_old)
{
	uint64_t state = n->state;
	bool is_old = CODE(state) != FREE && GENERATION(state) != a->generation;

	if (CODE(state) != FREE && !(is_old && (takes_old || CODE(state) == CLAIMED)))
		return false;
	return change_state(n, state, state_of(a, CLAIMED));
}

/* Of the standing slots of another generation. */
static struct intent *claim_oldest(struct area *a)
{
	struct intent *oldest = NULL;

	for (uint32_t k = 0; k < a->end; k++) {
		struct intent *n = &a->slots[k];

		if (CODE(n->state) == STANDS && GENERATION(n->state) != a->generation &&
		    (!oldest || GENERATION(n->state) < GENERATION(oldest->state)))
			oldest = n;
	}
	return oldest && claim(a, oldest, true) ? oldest : NULL;
}

static struct intent *claim_any(struct area *a)
{
	uint32_t end;

	if (last_slot < a->end && claim(a, &a->slots[last_slot], false))
		return &a->slots[last_slot];
	for (uint32_t k = 0; k < SLOTS; k++) {
		if (!claim(a, &a->slots[k], false))
			continue;
		last_slot = k;
		end = a->end;
		/* Before the slot stands: a thread that looks for standing ones must see it. */
		while (end <= k && !atomic_compare_exchange_weak(&a->end, &end, k + 1))
			;
		return &a->slots[k];
	}
	return claim_oldest(a);
}

/* Of this generation from then on: it is under way, and not to be given out again. */
static struct intent *take_up(struct area *a, uint64_t key, uint64_t unique)
{
	for (uint32_t k = 0; k < a->end; k++) {
		struct intent *n = &a->slots[k];
		uint64_t state = n->state;

		/* Meanwhile it may be dropped, or be another's. */
		if (CODE(state) == STANDS && n->key == key && n->unique == unique &&
		    atomic_compare_exchange_strong(&n->state, &state, state_of(a, STANDS)))
			return n;
	}
	return NULL;
}

static void set_end(struct intent_end *e, uint64_t parent, const char *name)
{
	e->parent = parent;
	e->node = e->ino = e->upper_ino = 0;
	e->name[0] = '\0';
	if (name && strlen(name) <= NAME_MAX)
		strcpy(e->name, name);
}

static void fill(struct intent *n, const struct intent_request *request)
{
	atomic_store_explicit(&n->key, request->key, memory_order_relaxed);
	atomic_store_explicit(&n->unique, request->unique, memory_order_relaxed);
	atomic_store_explicit(&n->kind, request->kind, memory_order_relaxed);
	atomic_store_explicit(&n->is_begun, 0, memory_order_relaxed);
	n->mode = n->capability_len = n->had_value = 0;
	set_end(&n->from, request->from_parent, request->from_name);
	set_end(&n->to, request->to_parent, request->to_name);
}

struct intent *intent_log_begin(const struct intent_request *request)
{
	struct area *a = request->key ? get_area() : NULL;
	struct intent *n = NULL;

	if (!a)
		return NULL;
	if (current && current->key == request->key && current->unique == request->unique &&
	    current->kind == request->kind)
		return current; /* another attempt of this thread */
	current = NULL;
	if (request->is_resent)
		n = take_up(a, request->key, request->unique);
	if (!n) {
		n = claim_any(a);
		if (!n)
			return NULL;
		fill(n, request);
		/* Before the attributes to keep are read: see attr_change_begin. */
		standing_setids += request->kind == INTENT_SETID;
		atomic_store(&n->state, state_of(a, STANDS));
	}
	current = n;
	return n;
}

struct intent *intent_log_note(const struct intent_request *request)
{
	struct area *a = request->key ? get_area() : NULL;
	struct intent *n = a ? claim_any(a) : NULL;

	if (!n)
		return NULL;
	fill(n, request);
	n->from.node = request->node;
	n->is_begun = 1;
	atomic_store(&n->state, state_of(a, STANDS));
	return n;
}

void intent_log_drop_note(struct intent *n)
{
	if (n)
		atomic_store(&n->state, FREE);
}

struct intent *intent_log_current(void)
{
	return current;
}

void intent_log_end(struct intent *n)
{
	if (!n)
		return;
	current = NULL;
	change_state(n, n->state, FREE);
}

static void describe(struct intent_end *e, struct intent_object o)
{
	e->node = o.node;
	e->ino = o.ino;
	e->upper_ino = o.upper_ino;
}

void intent_log_about(struct intent_object from, struct intent_object to)
{
	if (!current)
		return;
	/* This is another attempt of the same request, whose first came to nothing. */
	atomic_store(&current->is_begun, 0);
	describe(&current->from, from);
	describe(&current->to, to);
	atomic_store(&current->is_begun, 1);
}

void intent_log_mark(struct intent *n)
{
	if (n)
		atomic_store(&n->is_begun, 1);
}

void intent_log_unmark(struct intent *n)
{
	if (n)
		atomic_store(&n->is_begun, 0);
}

bool intent_log_has_setid(void)
{
	return standing_setids != 0;
}

/* Before its copy-up a file had no number in the upper, and since it may have another node. */
static bool is_about(const struct intent *n, struct intent_object o)
{
	return n->from.node == o.node || !n->from.upper_ino || n->from.upper_ino == o.upper_ino;
}

void intent_log_forget_setid(uint64_t key, uint64_t unique, struct intent_object file)
{
	struct area *a = key ? get_area() : NULL;

	for (uint32_t k = 0; a && k < a->end; k++) {
		struct intent *n = &a->slots[k];

		if (CODE(n->state) == STANDS && n->kind == INTENT_SETID && n->key == key &&
		    n->unique != unique && n->is_begun && is_about(n, file))
			n->mode = n->capability_len = 0;
	}
}

void intent_log_each(uint64_t key, void (*fn)(struct intent *n, void *arg), void *arg)
{
	struct area *a = get_area();

	for (uint32_t k = 0; a && k < a->end; k++)
		if (CODE(a->slots[k].state) == STANDS && a->slots[k].key == key &&
		    a->slots[k].is_begun)
			fn(&a->slots[k], arg);
}

void intent_log_came_again(uint64_t key, uint64_t unique)
{
	struct area *a = key ? get_area() : NULL;

	if (a)
		take_up(a, key, unique);
}

bool intent_log_is_left(const struct intent *n)
{
	const struct area *a = get_area();

	return a && GENERATION(n->state) != a->generation;
}

/* kind: 0, any. */
static void drop(uint64_t key, bool only_old, uint32_t kind)
{
	struct area *a = key ? get_area() : NULL;

	for (uint32_t k = 0; a && k < a->end; k++) {
		struct intent *n = &a->slots[k];
		uint64_t state = n->state;

		if (CODE(state) == STANDS && n->key == key &&
		    !(only_old && GENERATION(state) == a->generation) && (!kind || n->kind == kind))
			change_state(n, state, FREE);
	}
}

void intent_log_drop(uint64_t key)
{
	drop(key, false, 0);
}

void intent_log_drop_old(uint64_t key)
{
	drop(key, true, 0);
}

void intent_log_drop_left(uint64_t key)
{
	drop(key, true, INTENT_CREATE);
}
