/* SPDX-License-Identifier: Apache-2.0 */
/* Gives up for good the privileges and system calls that serving never needs, so that an attacker
 * who takes the process over by what a container or a layer feeds it does not get those of its
 * starter. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

/* Once, when nothing more is to be executed, and before the first thread: threads do not follow.
 * Where the kernel knows no part of it, the rest is done. `mounts`: this process attaches and
 * detaches its mount itself, for which it may need the help of another program if it has no
 * privileges; then it keeps the right to run it. */
void sandbox_enter(bool mounts);
/* The effective capabilities that this process was started with, or has, if it gave up none. */
uint64_t sandbox_started_with(void);
/* The capabilities that serving needs; sandbox_enter leaves these and CAP_LEASE. */
uint64_t sandbox_kept(void);
