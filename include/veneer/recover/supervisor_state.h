/* SPDX-License-Identifier: Apache-2.0 */
/* State that a dying server leaves to the next: a mapping that the supervisor made and that every
 * server it starts inherits. Descriptors are numbers here, since all of them share one table
 * (supervisor.h). One process writes at a time, and may die between any two instructions: an entry
 * is published and withdrawn by one store. */
#pragma once

#include "veneer/base/types.h"
#include "veneer/recover/activity.h"

#define SUPERVISOR_STATE_MOUNTS_MAX 16384u /* more are served, and not kept over a death */

struct supervisor_state;

/* extra_bytes: of memory, zero at first, that goes with it. 0 or -ENOMEM. Never freed: it goes with
 * its processes. */
int supervisor_state_new(size_t extra_bytes, struct supervisor_state **ret);
void *supervisor_state_extra(struct supervisor_state *l);
size_t supervisor_state_extra_bytes(const struct supervisor_state *l);

/* A number that no other mount of this state has or had; never 0. */
uint64_t supervisor_state_key(struct supervisor_state *l);
/* The last number given out, for another supervisor that continues the count. */
uint64_t supervisor_state_last_key(const struct supervisor_state *l);
void supervisor_state_set_last_key(struct supervisor_state *l, uint64_t key);
/* Keep a descriptor, which stays the caller's. *ret_place stands for it. 0 or -ENOSPC. Any
 * thread. */
int supervisor_state_put(struct supervisor_state *l, int fd, uint32_t *ret_place);
void supervisor_state_drop(struct supervisor_state *l, uint32_t place);
/* Call fn for each; it may drop the one it is called for. */
void supervisor_state_each(struct supervisor_state *l,
			   void (*fn)(int fd, uint32_t place, void *arg), void *arg);
/* The time it took to resume the mount after the last death, milliseconds;
 * SUPERVISOR_STATE_UNANSWERED: it had not come to its end; 0: not known. */
#define SUPERVISOR_STATE_UNANSWERED UINT32_MAX
void supervisor_state_note_cost(struct supervisor_state *l, uint32_t place, uint32_t ms);
uint32_t supervisor_state_cost(const struct supervisor_state *l, uint32_t place);

/* To be at while a request of it is answered, or it is opened. */
struct activity *supervisor_state_activity(struct supervisor_state *l, uint32_t place);
/* The activity while a client is answered, as long as the work is for no mount. A client whose
 * request crashes a server repeats it a few times at most, so this alone brings no end. */
struct activity *supervisor_state_asked(struct supervisor_state *l);
struct crash_board *supervisor_state_board(struct supervisor_state *l);
/* A server died; is_crash: it was not killed. A mount that it crashed over SUPERVISOR_STATE_STRIKES
 * times, no minute between any two of them, is given up. True: the cause of the crash is known, a
 * mount or a client's request. */
#define SUPERVISOR_STATE_STRIKES 3u
bool supervisor_state_judge(struct supervisor_state *l, bool is_crash);
bool supervisor_state_is_given_up(const struct supervisor_state *l, uint32_t place);

/* The server is about to leave on its own: after any kind of end no other is to follow. */
void supervisor_state_leave(struct supervisor_state *l);
bool supervisor_state_is_left(const struct supervisor_state *l);
/* The stages of a server that was told to go: it goes when its mounts do; then its listening socket
 * is, or is about to be, closed, so that no client finds it. Servers that follow it do the same. */
enum supervisor_state_going {
	SUPERVISOR_STATE_STAYS,
	SUPERVISOR_STATE_GOES,
	SUPERVISOR_STATE_IS_WITHDRAWN
};
void supervisor_state_note_going(struct supervisor_state *l, enum supervisor_state_going how);
enum supervisor_state_going supervisor_state_going(const struct supervisor_state *l);
/* How many servers there were before this one. */
unsigned supervisor_state_deaths(const struct supervisor_state *l);
void supervisor_state_note_death(struct supervisor_state *l);

/* Name the other end of this connection to resume the mounts once this server is dead. -EBUSY:
 * another one is named. Taken by the supervisor: -1, none. */
int supervisor_state_hand_over(struct supervisor_state *l, int fd);
int supervisor_state_take_hand_over(struct supervisor_state *l);
/* The descriptor by which a process waits for the word that the mounts are resumed; -1: none. */
void supervisor_state_set_word(struct supervisor_state *l, int fd);
int supervisor_state_word(const struct supervisor_state *l);
/* invariants.h; place: one that was put or judged just now. */
const char *supervisor_state_check_invariants(const struct supervisor_state *l, uint32_t place);
