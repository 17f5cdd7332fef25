/* SPDX-License-Identifier: Apache-2.0 */
/* Prepares requests of a dead server before they come again. */
#pragma once

struct mount;

/* After a dead server's mount was opened again, and before any request: the names in the node table
 * become those on disk, so that a user of what was being renamed or removed finds it. */
void resend_state_settle(struct mount *m);
