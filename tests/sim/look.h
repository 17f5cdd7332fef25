/* SPDX-License-Identifier: Apache-2.0 */
/* Reads a whole mount, as a program would, and compares it with the model. */
#pragma once

#include "history.h"
#include "veneer/mount/mount.h"

/* Everything is as it may be, given that doubt; then it is certain. Ends the child otherwise. */
void look_at_all(struct union_fs *t, enum history_doubt doubt, uint64_t op);
/* `veneer check` of the upper, which no mount has, finds nothing. */
void look_check(void);
