/* SPDX-License-Identifier: Apache-2.0 */
/* Memory that outlives a simulated process: shared by the simulator and the children that play one
 * server each. Owns everything of the made-up disk and of the model. */
#pragma once

#include <stddef.h>
#include <stdint.h>

/* Reserve the memory, once; ends the program where there is none. */
void arena_init(void);
/* Forget all of it, for the next seed. */
void arena_reset(void);
/* Zeroed. Ends the program when all is used. */
void *arena_alloc(size_t size);
void arena_free(void *p);
void *arena_copy(const void *p, size_t size);
char *arena_text(const char *text);
/* p, of `used` bytes, with room for at least size bytes; the rest is zeroed. */
void *arena_grow(void *p, size_t used, size_t size);
