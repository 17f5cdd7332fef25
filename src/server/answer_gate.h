/* SPDX-License-Identifier: Apache-2.0 */
/* Keeps an upgrade from coming between a change of a mount's snapshots and the answer to its
 * client. Otherwise the client would only hear that the server is gone, and not the result. */
#pragma once

/* Call before such a change. Waits while the gate is closed. */
void answer_gate_enter(void);
/* Call after the answer. */
void answer_gate_leave(void);
/* Let no more changes enter, and wait until all have left. 0; -EBUSY: they have not left within
 * limit_ms, and the gate is open again. */
int answer_gate_close(int limit_ms);
void answer_gate_open(void);
