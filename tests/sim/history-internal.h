/* SPDX-License-Identifier: Apache-2.0 */
/* Between the model and its comparison. */
#pragma once

#include "history.h"

/* Sets of names that there may be, the newest last. */
size_t history_candidates(const struct history *h);
struct history_names *history_candidate(struct history *h, size_t k);
/* That one it is. */
void history_choose(struct history *h, const struct history_look *look, size_t k);
/* Index of the first event that may be the state; all that follow may be it, too. */
size_t history_first(const struct history_list *l, enum history_doubt doubt, uint64_t op);
/* What was found is the state from now on; after a power cut it is on the disk. */
void history_take(struct history_thing *t, const struct history_found *f,
		  const struct history_look *look);
