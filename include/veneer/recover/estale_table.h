/* SPDX-License-Identifier: Apache-2.0 */
/* The table of callers that were answered ESTALE, and so told to look a name up again, because they
 * are about to change its file; with that file. A fixed room: a note pushes out older ones, and is
 * forgotten after a while. Any thread. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

/* The caller looks again at once, but may be heard only when all threads are free again that wait
 * for a disk. A note that is kept too long costs a private copy of pages at most. */
#define ESTALE_TABLE_MS	     60000
#define ESTALE_TABLE_VERSION 2 /* of the memory file; another one is not attached */

struct estale_table;

/* 0 or -errno. */
int estale_table_new(struct estale_table **ret);
/* Take over the notes of a dead server: all of them count from now_ms on. The descriptor, a memory
 * file, is taken over, also on failure. 0 or -errno. */
int estale_table_attach(int fd, int64_t now_ms, struct estale_table **ret);
void estale_table_free(struct estale_table *r);
/* The memory file of the table; borrowed. */
int estale_table_fd(const struct estale_table *r);
/* The caller (a thread, as the kernel numbers it) was told so of the object, by a clock in
 * milliseconds. */
void estale_table_note(struct estale_table *r, uint32_t caller, uint64_t object, int64_t now_ms);
/* Was he, not longer ago than ESTALE_TABLE_MS? The note stays. */
bool estale_table_has(struct estale_table *r, uint32_t caller, uint64_t object, int64_t now_ms);
