/* SPDX-License-Identifier: Apache-2.0 */
/* A program in the mount: one random operation at a time, done to the model and to the union. */
#pragma once

#include "veneer/mount/mount.h"

struct request;

/* Operation number sim->ops, drawn from it. */
void player_do(struct mount *m);
/* An fsync was answered by 0. */
void player_synced(const struct request *r);
