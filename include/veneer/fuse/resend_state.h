/* SPDX-License-Identifier: Apache-2.0 */
/* Prepares for the requests of a dead server, which the kernel resends. */
#pragma once

struct mount;

/* After a dead server's mount was opened again, and before any request: bring the names in the node
 * table in line with the disk, so that programs find files that were being renamed or removed. */
void resend_state_settle(struct mount *m);
