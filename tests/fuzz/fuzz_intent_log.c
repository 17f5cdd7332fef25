// SPDX-License-Identifier: Apache-2.0
/* An input is what servers left in the memory of intents: slots of a few bytes each, put where the
 * fields are, so that the fuzzer need not find them. The next server must be able to use all of
 * it. */
#include "support.h"

#include "veneer/recover/intent_log.h"

#include <stdlib.h>
#include <string.h>

#define KEY 7u

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_slot(struct intent *n, void *arg)
{
	size_t *count = arg;

	fuzz_require(n->key == KEY && n->is_begun);
	fuzz_require(memchr(n->from.name, 0, sizeof(n->from.name)) &&
		     memchr(n->to.name, 0, sizeof(n->to.name)));
	fuzz_require(n->capability_len <= sizeof(n->capability));
	++*count;
}

static void use(void)
{
	static const char name[] = "a name";
	struct intent *begun[64];
	size_t n = 0, standing = 0;

	intent_log_each(KEY, check_slot, &standing);
	for (uint64_t unique = 0; unique < 64; unique++) {
		struct intent_request r = { .key = KEY,
					    .unique = unique,
					    .kind = INTENT_RENAME,
					    .is_resent = unique % 2,
					    .from_parent = 1,
					    .to_parent = 2,
					    .from_name = name,
					    .to_name = name };

		begun[n] = intent_log_begin(&r);
		if (!begun[n])
			continue;
		intent_log_about(INTENT_NOTHING, INTENT_NOTHING);
		intent_log_mark(begun[n]);
		n++;
	}
	for (size_t i = 0; i < n; i++)
		intent_log_end(begun[i]);
	intent_log_drop(KEY);
	standing = 0;
	intent_log_each(KEY, check_slot, &standing);
	fuzz_require(standing == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static uint8_t *area;
	const size_t slot = sizeof(struct intent);
	size_t bytes = intent_log_area_bytes(), head = bytes % slot ? bytes % slot : slot;
	size_t n;

	if (!area)
		area = malloc(bytes);
	if (!area)
		return 0;
	memset(area, 0, bytes);
	/* The module's own first write says which layout it is. */
	intent_log_use_area(area);
	n = size < head - 8 ? size : head - 8;
	memcpy(area + 8, data, n);
	for (size_t at = head, from = n; from < size && at + slot <= bytes; at += slot) {
		n = size - from < slot ? size - from : slot;
		memcpy(area + at, data + from, n);
		from += n;
	}
	intent_log_use_area(area);
	use();
	return 0;
}
