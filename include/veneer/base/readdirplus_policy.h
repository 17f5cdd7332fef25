/* SPDX-License-Identifier: Apache-2.0 */
/* Predicts whether a program that lists names asks for their attributes. Most programs do, and get
 * them with the listing; find only wants names, and attributes are most of the cost of a listing.
 * The kernel does not tell. So in the first listing of a caller one name comes without attributes,
 * as a probe. If the caller lists another directory before it asks for the probe, it gets names
 * alone until it asks. Names that are looked up all the same, by any process (find | cpio), count
 * against it: beyond a quarter every caller gets all. Policy only. */
#pragma once

#include "veneer/base/lock.h"

#include <stddef.h>
#include <stdint.h>

#define READDIRPLUS_POLICY_CALLERS 64u /* remembered; a forgotten caller starts anew */
#define READDIRPLUS_POLICY_SLACK   64u /* look-ups that prove nothing yet */

enum readdirplus_policy_listing {
	READDIRPLUS_POLICY_LIST_ALL, /* with all attributes */
	READDIRPLUS_POLICY_LIST_PROBE, /* but for one name */
	READDIRPLUS_POLICY_LIST_NAMES, /* those of directories only, which a walk needs in any
					* case */
};

struct readdirplus_policy {
	mutex_t lock;
	GUARDED_BY(lock) struct {
		uint32_t caller;
		uint8_t state;
	} callers[READDIRPLUS_POLICY_CALLERS];
	GUARDED_BY(lock) uint64_t n_names_only; /* names that were listed without attributes */
	GUARDED_BY(lock) uint64_t nwanted; /* look-ups of such */
};

void readdirplus_policy_init(struct readdirplus_policy *h);
void readdirplus_policy_release(struct readdirplus_policy *h);
/* A caller begins to list a directory. */
enum readdirplus_policy_listing readdirplus_policy_begins(struct readdirplus_policy *h,
							  uint32_t caller);
/* The caller continues a listing. */
enum readdirplus_policy_listing readdirplus_policy_goes_on(struct readdirplus_policy *h,
							   uint32_t caller);
/* Count names that went out without attributes; also those of a listing that was to have a
 * probe. */
void readdirplus_policy_listed(struct readdirplus_policy *h, uint32_t caller,
			       enum readdirplus_policy_listing listing, size_t n_names_only);
/* The caller looks a file up in a directory that was listed without all attributes. */
void readdirplus_policy_wants(struct readdirplus_policy *h, uint32_t caller);
