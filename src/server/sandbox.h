/* SPDX-License-Identifier: Apache-2.0 */
/* Gives up for good the privileges and system calls that serving never needs. An attacker who takes
 * over the process through data of a container or a layer does not get the starter's privileges. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

/* Call it once, before the first thread, as other threads are not affected, and after the last
 * exec. Where the kernel lacks a part of it, the rest is done. `mounts`: this process attaches and
 * detaches its mount itself. Without privileges it needs a helper program for that, and keeps the
 * right to run it. */
void sandbox_enter(bool mounts);
/* The effective capabilities at the start of this process, or the present ones if it gave up
 * none. */
uint64_t sandbox_started_with(void);
/* The capabilities for serving; sandbox_enter leaves these and CAP_LEASE. */
uint64_t sandbox_kept(void);
