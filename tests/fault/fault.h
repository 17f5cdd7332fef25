// SPDX-License-Identifier: Apache-2.0
/* Decides which calls fail. Callers stand in for functions of libc and call the real ones where
 * these say so. */
#pragma once

#include "control.h"

#include <stdbool.h>
#include <stddef.h>

#define FAULT_SHORT (-1)

/* The next definition of a function after ours; slot remembers it. */
void *fault_find(void **slot, const char *name);

/* Count a call; true if it is to fail, with errno set. */
bool fault_hits(enum fault_class which);

/* The same of one that moves bytes, which may also be made to move fewer. */
bool fault_hits_io(enum fault_class which, int fd, size_t *len);

/* The real function of this name. */
#define FAULT_REAL(name)                                      \
	({                                                    \
		static void *slot_;                           \
		(__typeof__(&name))fault_find(&slot_, #name); \
	})

/* A function that is passed on as it is, or fails with `failed`. */
#define FAULT_WRAP_AS(which, failed, type, name, params, args)             \
	type name params                                                   \
	{                                                                  \
		return fault_hits(which) ? failed : FAULT_REAL(name) args; \
	}
#define FAULT_WRAP(which, type, name, params, args) \
	FAULT_WRAP_AS(which, -1, type, name, params, args)
