/* SPDX-License-Identifier: Apache-2.0 */
/* Notes of page data sent to mounts, from the threads that send to the one that keeps account: each
 * sending thread has a ring, written without a lock or a system call. A note that finds its ring
 * full is lost, and counted: the account is a hint. */
#pragma once

#include "veneer/base/page_dups.h"

/* Any thread. Wakes the reader at most once each time it sleeps. */
void page_events_note(const struct page_dups_sent *s);
/* The thread notes nothing more for now: its ring is another one's. */
void page_events_thread_release(void);

/* The reader, one thread at a time: call take for each note, in order for each thread. */
void page_events_drain(void (*take)(void *arg, const struct page_dups_sent *s), void *arg);
/* Sleep until page_events_wake, until a ring is half full, with wants_any until anything is noted,
 * or until timeout_ms are over (-1: never). */
void page_events_wait(int timeout_ms, bool wants_any);
void page_events_wake(void);
/* How many notes were lost. */
uint64_t page_events_lost(void);
