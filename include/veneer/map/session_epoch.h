/* SPDX-License-Identifier: Apache-2.0 */
/* The boot in which a map file's session was opened, as the number that its OPEN record has. */
#pragma once

#include "veneer/map/table.h"

/* For tests: not 0 stands for this boot's epoch. */
extern uint64_t session_epoch_for_tests;
/* This boot's, from boot_id.h; 0 where the kernel names none: such a boot is never the same as
 * another. -errno: not known now, and nothing may be concluded. */
int session_epoch_read(uint64_t *ret);
/* 1 if the table's session was opened in this boot, 0 or -errno. */
int session_epoch_is_of(const struct table *t);
