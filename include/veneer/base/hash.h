/* SPDX-License-Identifier: Apache-2.0 */
/* The only user of xxHash: checksums of the bytes on disk, and keys of hash tables. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* XXH64 with seed 0, the checksum doc/SPEC.md names. */
uint64_t hash_checksum(const void *p, size_t len);
/* *sum was the checksum of the len bytes at p. One byte behind the first `from`, or one of *sum
 * itself, has changed since: find it and restore it. false: more than one byte differs, and nothing
 * is changed. */
bool hash_mend(void *p, size_t from, size_t len, uint64_t *sum);
/* A fast in-memory key (XXH3), different in each process, so that nobody can choose names that
 * fall into one bucket; never written to disk. */
uint64_t hash_key(const void *p, size_t len, uint64_t seed);
/* The secret of the hash function, for a process that must agree with this one; to be set before
 * the first key. */
uint64_t hash_secret(void);
void hash_use_secret(uint64_t of_another);

/* XXH3 (64 bits, seed 0) of bytes that come piece by piece: the sums of a delta (doc/SPEC.md). */
struct hash_stream;
/* NULL: no memory. */
struct hash_stream *hash_stream_new(void);
void hash_stream_add(struct hash_stream *s, const void *p, size_t len);
/* Of all since the last call. */
uint64_t hash_stream_take(struct hash_stream *s);
void hash_stream_free(struct hash_stream *s);
