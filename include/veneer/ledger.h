/* SPDX-License-Identifier: Apache-2.0 */
/* What a server that dies leaves to the next: a mapping that the supervisor made, and that every server it starts
 * inherits. Descriptors are numbers here, since all of them share one table (supervisor.h). One process writes at a
 * time, and may die between any two instructions: an entry is published and withdrawn by one store. */
#pragma once

#include "veneer/duty.h"
#include "veneer/types.h"

#define LEDGER_MOUNTS_MAX 16384u	/* more are served, and not kept over a death */

struct ledger;

/* extra_bytes: of memory, zero at first, that goes with it. 0 or -ENOMEM. Never freed: it goes with its processes. */
int ledger_new(size_t extra_bytes, struct ledger **ret);
void *ledger_extra(struct ledger *l);
size_t ledger_extra_bytes(const struct ledger *l);

/* A number that no other mount of this ledger has or had; never 0. */
uint64_t ledger_key(struct ledger *l);
/* The last one given out, for another ledger that goes on after it. */
uint64_t ledger_last_key(const struct ledger *l);
void ledger_set_last_key(struct ledger *l, uint64_t key);
/* Keep a descriptor, which stays the caller's. *ret_place stands for it. 0 or -ENOSPC. Any thread. */
int ledger_put(struct ledger *l, int fd, uint32_t *ret_place);
void ledger_drop(struct ledger *l, uint32_t place);
/* Call fn for each; it may drop the one it is called for. */
void ledger_each(struct ledger *l, void (*fn)(int fd, uint32_t place, void *arg), void *arg);
/* What it took to go on with it after the last death, milliseconds; LEDGER_UNANSWERED: it had not come to its end; 0:
 * not known. */
#define LEDGER_UNANSWERED UINT32_MAX
void ledger_note_cost(struct ledger *l, uint32_t place, uint32_t ms);
uint32_t ledger_cost(const struct ledger *l, uint32_t place);

/* To be at while a request of it is answered, or it is opened. */
struct duty *ledger_duty(struct ledger *l, uint32_t place);
/* To be at while a client is answered, as long as it is no mount that is worked for. Who asked for what crashes a
 * server asks a few times more at most, so that this alone brings no end. */
struct duty *ledger_asked(struct ledger *l);
struct duty_board *ledger_board(struct ledger *l);
/* A server died: is_crash, and not because somebody killed it. A mount that it crashed over LEDGER_STRIKES times, no
 * minute between any two of them, is given up. True: it is known what it crashed over, a mount or what was asked for. */
#define LEDGER_STRIKES 3u
bool ledger_judge(struct ledger *l, bool is_crash);
bool ledger_is_given_up(const struct ledger *l, uint32_t place);

/* The server is about to leave on its own: whatever its end looks like, no other is to follow. */
void ledger_leave(struct ledger *l);
bool ledger_is_left(const struct ledger *l);
/* It was told to go, and goes when its mounts do; and then, that nobody finds it any more: its listening socket is, or
 * is about to be, closed. So do those that come after it. */
enum ledger_going { LEDGER_STAYS, LEDGER_GOES, LEDGER_IS_WITHDRAWN };
void ledger_note_going(struct ledger *l, enum ledger_going how);
enum ledger_going ledger_going(const struct ledger *l);
/* How many servers there were before this one. */
unsigned ledger_deaths(const struct ledger *l);
void ledger_note_death(struct ledger *l);

/* Whoever is at the other end of this connection is to go on with the mounts, once this server is dead. -EBUSY:
 * somebody else is. Taken by the supervisor: -1, nobody. */
int ledger_hand_over(struct ledger *l, int fd);
int ledger_take_hand_over(struct ledger *l);
/* Who waits for the word that the mounts are gone on with; -1: nobody. */
void ledger_set_word(struct ledger *l, int fd);
int ledger_word(const struct ledger *l);
