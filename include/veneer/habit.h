/* SPDX-License-Identifier: Apache-2.0 */
/* What programs do with the names that they list. Most ask for the attributes of each, and get them with the listing;
 * find only wants names, and attributes are most of what a listing costs. The kernel does not tell. So in the first
 * listing of a caller one name comes without, a probe: if the caller lists another directory and has not asked for it,
 * it gets names alone from then on, until it asks. Names that are looked up all the same, by whomever (find | cpio),
 * count against it: beyond a quarter everybody gets all. Policy only. */
#pragma once

#include <pthread.h>
#include <stddef.h>
#include <stdint.h>

#define HABIT_CALLERS 64u	/* remembered; who is forgotten starts anew */
#define HABIT_SLACK 64u		/* look-ups that prove nothing yet */

enum habit_listing {
	HABIT_LIST_ALL,		/* with all attributes */
	HABIT_LIST_PROBE,	/* but for one name */
	HABIT_LIST_NAMES,	/* those of directories only, which a walk needs in any case */
};

struct habits {
	pthread_mutex_t lock;
	/* guarded by lock */
	struct {
		uint32_t caller;
		uint8_t state;
	} callers[HABIT_CALLERS];
	uint64_t nbare;		/* names that were listed without attributes */
	uint64_t nwanted;	/* look-ups of such */
};

void habit_init(struct habits *h);
void habit_release(struct habits *h);
/* A caller begins to list a directory. */
enum habit_listing habit_begins(struct habits *h, uint32_t caller);
/* It goes on with one. */
enum habit_listing habit_goes_on(struct habits *h, uint32_t caller);
/* So many names went out bare; of a listing that was to have a probe, too. */
void habit_listed(struct habits *h, uint32_t caller, enum habit_listing listing, size_t nbare);
/* It looks a file up in a directory that was listed without all attributes. */
void habit_wants(struct habits *h, uint32_t caller);
