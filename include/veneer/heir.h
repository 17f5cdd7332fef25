/* SPDX-License-Identifier: Apache-2.0 */
/* A server that comes after one that died: what it does before it serves. */
#pragma once

#include "veneer/roster.h"

/* Close what the one before had open, but for what the ledger's mounts need, the standard descriptors and n of the
 * caller's. Of this process nothing else is open yet, and there is one thread that opens anything. */
void heir_close_others(struct ledger *l, const int *fds, size_t n);
/* Call fn for each descriptor that the ledger's mounts need; borrowed. */
void heir_each_fd(struct ledger *l, void (*fn)(int fd, void *arg), void *arg);
/* Go on with its mounts, and tell who waits for that (ledger_word). One that cannot be gone on with is said and let go
 * of: its users get ENOTCONN. */
void heir_resume(struct ledger *l, struct roster *r);
