/* SPDX-License-Identifier: Apache-2.0 */
/* One life of a server: a mount, operations, an end. Owns the world that the lives of a seed
 * share. */
#pragma once

#include "sim.h"

/* A new world for a seed: its disk, the lower layer, the model. */
void life_make_world(uint64_t seed);
/* Life number n, in a child of this process; then what its end leaves. False: something was wrong,
 * and has been said. */
bool life_play(unsigned n);
/* How many lives the seed has. */
unsigned life_count(void);
