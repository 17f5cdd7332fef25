/* SPDX-License-Identifier: Apache-2.0 */
/* Mutexes and rwlocks of pthread, with attributes that clang checks (contrib/lint: thread-safety).
 * A field and a function name their lock:
 *
 *	mutex_t lock;
 *	GUARDED_BY(lock) size_t n;
 *
 *	void drop_all(struct table *t) REQUIRES(t->lock);
 *
 * Includes nothing of ours but cleanup.h. */
#pragma once

#include "veneer/base/cleanup.h"

#include <pthread.h>
#include <stdbool.h>

/* From this version on clang knows the attributes in C, where a field may name a later one. */
#if defined(__clang__) && __clang_major__ >= 22
#define THREAD_SAFETY_(x) __attribute__((x))
#else
#define THREAD_SAFETY_(x)
#endif

#define GUARDED_BY(lock)	 THREAD_SAFETY_(guarded_by(lock))
#define PT_GUARDED_BY(lock)	 THREAD_SAFETY_(pt_guarded_by(lock)) /* the target of a pointer */
#define REQUIRES(...)		 THREAD_SAFETY_(requires_capability(__VA_ARGS__))
#define REQUIRES_SHARED(...)	 THREAD_SAFETY_(requires_shared_capability(__VA_ARGS__))
#define ACQUIRES(...)		 THREAD_SAFETY_(acquire_capability(__VA_ARGS__))
#define ACQUIRES_SHARED(...)	 THREAD_SAFETY_(acquire_shared_capability(__VA_ARGS__))
#define TRY_ACQUIRES(...)	 THREAD_SAFETY_(try_acquire_capability(true, __VA_ARGS__))
#define TRY_ACQUIRES_SHARED(...) THREAD_SAFETY_(try_acquire_shared_capability(true, __VA_ARGS__))
#define RELEASES(...)		 THREAD_SAFETY_(release_generic_capability(__VA_ARGS__))
#define ASSERTS(lock)		 THREAD_SAFETY_(assert_capability(lock))
/* Which lock such a function takes, or whether, is known only when it runs. */
#define UNCHECKED_LOCKS THREAD_SAFETY_(no_thread_safety_analysis)

typedef pthread_mutex_t THREAD_SAFETY_(capability("mutex")) mutex_t;
typedef pthread_rwlock_t THREAD_SAFETY_(capability("rwlock")) rwlock_t;

static inline void mutex_init(mutex_t *m)
{
	pthread_mutex_init(m, NULL);
}

/* No other thread knows the guarded fields yet, or any more. */
static inline void lock_is_private(mutex_t *m) ASSERTS(*m)
{
	(void)m;
}

static inline void mutex_destroy(mutex_t *m)
{
	pthread_mutex_destroy(m);
}

static inline void mutex_lock(mutex_t *m) ACQUIRES(*m) UNCHECKED_LOCKS
{
	pthread_mutex_lock(m);
}

static inline bool mutex_trylock(mutex_t *m) TRY_ACQUIRES(*m) UNCHECKED_LOCKS
{
	return pthread_mutex_trylock(m) == 0;
}

static inline void mutex_unlock(mutex_t *m) RELEASES(*m) UNCHECKED_LOCKS
{
	pthread_mutex_unlock(m);
}

static inline void rwlock_rdlock(rwlock_t *l) ACQUIRES_SHARED(*l) UNCHECKED_LOCKS
{
	pthread_rwlock_rdlock(l);
}

static inline bool rwlock_tryrdlock(rwlock_t *l) TRY_ACQUIRES_SHARED(*l) UNCHECKED_LOCKS
{
	return pthread_rwlock_tryrdlock(l) == 0;
}

static inline void rwlock_wrlock(rwlock_t *l) ACQUIRES(*l) UNCHECKED_LOCKS
{
	pthread_rwlock_wrlock(l);
}

static inline void rwlock_unlock(rwlock_t *l) RELEASES(*l) UNCHECKED_LOCKS
{
	pthread_rwlock_unlock(l);
}

static inline void mutex_unlockp(mutex_t **m) RELEASES(**m) UNCHECKED_LOCKS
{
	mutex_unlock(*m);
}

static inline void rwlock_unlockp(rwlock_t **l) RELEASES(**l) UNCHECKED_LOCKS
{
	rwlock_unlock(*l);
}

/* Hold a mutex or rwlock until the end of the enclosing block. */
#define LOCK_SCOPE_(type, lock, unlockp, m)                         \
	_cleanup_(unlockp) type *VENEER_CAT(lock_, __LINE__) = (m); \
	lock(VENEER_CAT(lock_, __LINE__))
#define LOCK_SCOPE(m)	LOCK_SCOPE_(mutex_t, mutex_lock, mutex_unlockp, m)
#define RDLOCK_SCOPE(m) LOCK_SCOPE_(rwlock_t, rwlock_rdlock, rwlock_unlockp, m)
#define WRLOCK_SCOPE(m) LOCK_SCOPE_(rwlock_t, rwlock_wrlock, rwlock_unlockp, m)
