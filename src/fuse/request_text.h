/* SPDX-License-Identifier: Apache-2.0 */
/* A request of the kernel in words, for -d. Pure. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

/* LOOKUP node 1 "name"; READ node 7, 4096 bytes at 0; RENAME node 1 "a" to node 2 "b". Reads
 * nothing beyond the size bytes at request, with any content; a text that does not fit into `to` is
 * cut. has_setxattr_ext: how long the head of a SETXATTR is. */
void request_text_describe(const void *request, size_t size, bool has_setxattr_ext, char *to,
			   size_t room);
