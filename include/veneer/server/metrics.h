/* SPDX-License-Identifier: Apache-2.0 */
/* Serves the server's counters to Prometheus over HTTP. One thread of low priority answers. No
 * thread that serves a mount waits for it, and it takes only the locks that collecting the counters
 * takes. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

struct metrics;

/* Is the metrics server part of this build? */
bool metrics_is_built(void);
/* Load the library, before the process gives up its paths and before the first thread. -EOPNOTSUPP:
 * this build has no metrics; -ENOENT: the library is not installed. On failure a sentence. */
int metrics_load(char *err, size_t err_size);
/* Answer at fd, a listening stream socket that stays the caller's. page makes the answer, malloc'd.
 * One thread calls it, at most about four times a second, however many clients ask. Call
 * metrics_load first. 0 or -errno. */
int metrics_start(int fd, int (*page)(void *arg, char **ret), void *arg, struct metrics **ret);
/* Stop accepting connections, without waiting. Call it once; NULL does nothing. */
void metrics_quiesce(struct metrics *m);
/* Stop answering. Waits until a running call of page returns, so page must not block for ever; page
 * is not called afterwards. NULL does nothing. */
void metrics_stop(struct metrics *m);
