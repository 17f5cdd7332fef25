/* SPDX-License-Identifier: Apache-2.0 */
/* An upgrade must not come between a change of a mount's snapshots and the answer to its client:
 * the client would hear that the server is gone, and not what was done. */
#pragma once

/* Before such a change. Waits as long as the gate is closed. */
void answer_gate_enter(void);
/* After the answer. */
void answer_gate_leave(void);
/* No change enters any more. 0 when all have left; -EBUSY: not within limit_ms, and it is open. */
int answer_gate_close(int limit_ms);
void answer_gate_open(void);
