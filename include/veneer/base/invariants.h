/* SPDX-License-Identifier: Apache-2.0 */
/* Checks of our own structures after each change, in debug and sanitizer builds (the option
 * invariants). x_check_invariants() returns the first rule that its structure breaks, or NULL. Its
 * rules are guarantees of our own code, whatever the input, the memory and the disk say. It expects
 * the lock of the structure, and looks at INVARIANTS_MAX entries at most. */
#pragma once

#include "veneer/base/log.h"

#include <assert.h>

#define INVARIANTS_MAX 64u

static inline void invariants_assert(const char *broken)
{
	if (broken)
		log_error("broken invariant: %s", broken);
	assert(!broken);
}

/* The process ends if the rule is broken. Other builds do not evaluate the check. */
#ifdef VENEER_INVARIANTS
#define INVARIANTS(check) invariants_assert(check)
#else
#define INVARIANTS(check)                         \
	do {                                      \
		if (0)                            \
			invariants_assert(check); \
	} while (0)
#endif
