// SPDX-License-Identifier: Apache-2.0
#include "veneer/base/hash.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/random.h>
#include <xxhash.h>

static pthread_once_t secret_once = PTHREAD_ONCE_INIT;
static uint64_t secret;

static void secret_draw(void)
{
	const void *start_bytes = (const void *)getauxval(AT_RANDOM);

	if (getrandom(&secret, sizeof(secret), GRND_NONBLOCK) != sizeof(secret) && start_bytes)
		memcpy(&secret, start_bytes, sizeof(secret));
}

uint64_t hash_checksum(const void *p, size_t len)
{
	return XXH64(p, len, 0);
}

bool hash_mend(void *p, size_t from, size_t len, uint64_t *sum)
{
	const uint64_t is = hash_checksum(p, len);
	uint8_t *c = p;

	for (unsigned shift = 0; shift < 64; shift += 8)
		if (((*sum ^ is) & ~((uint64_t)0xff << shift)) == 0) {
			*sum = is;
			return true;
		}
	for (size_t i = from; i < len; i++) {
		const uint8_t was = c[i];

		for (unsigned v = 0; v < 256; v++) {
			c[i] = (uint8_t)v;
			if (hash_checksum(p, len) == *sum)
				return true;
		}
		c[i] = was;
	}
	return false;
}

uint64_t hash_key(const void *p, size_t len, uint64_t seed)
{
	pthread_once(&secret_once, secret_draw);
	return XXH3_64bits_withSeed(p, len, seed ^ secret);
}

uint64_t hash_secret(void)
{
	pthread_once(&secret_once, secret_draw);
	return secret;
}

void hash_use_secret(uint64_t of_another)
{
	pthread_once(&secret_once, secret_draw);
	secret = of_another;
}

struct hash_stream {
	XXH3_state_t *state;
};

struct hash_stream *hash_stream_new(void)
{
	struct hash_stream *s = malloc(sizeof(*s));

	if (!s)
		return NULL;
	s->state = XXH3_createState();
	if (s->state) {
		XXH3_64bits_reset(s->state);
		return s;
	}
	free(s);
	return NULL;
}

void hash_stream_add(struct hash_stream *s, const void *p, size_t len)
{
	if (len)
		XXH3_64bits_update(s->state, p, len);
}

uint64_t hash_stream_take(struct hash_stream *s)
{
	const uint64_t sum = XXH3_64bits_digest(s->state);

	XXH3_64bits_reset(s->state);
	return sum;
}

void hash_stream_free(struct hash_stream *s)
{
	if (!s)
		return;
	XXH3_freeState(s->state);
	free(s);
}
