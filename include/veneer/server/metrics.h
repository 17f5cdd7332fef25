/* SPDX-License-Identifier: Apache-2.0 */
/* Serves the server's counters to Prometheus over HTTP. One thread of low priority answers: no
 * thread that serves a mount waits for it, and it takes nothing but what a picture of the counters
 * takes. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

struct metrics;

/* Is it in this program? */
bool metrics_is_built(void);
/* Have what it takes, before paths lead nowhere and before the first thread. -EOPNOTSUPP: this
 * program cannot do it; -ENOENT: the library is not installed; and a sentence. */
int metrics_load(char *err, size_t err_size);
/* Answer at fd, a listening stream socket that stays the caller's. page makes what is answered,
 * malloc'd; it is asked at most some four times a second, however many ask, by one thread. After
 * metrics_load. 0 or -errno. */
int metrics_start(int fd, int (*page)(void *arg, char **ret), void *arg, struct metrics **ret);
/* Stop answering new connections. Waits for nothing. Once; NULL does nothing. */
void metrics_quiesce(struct metrics *m);
/* page is not called any more, after it has come back: it must not wait for what has no end. NULL
 * does nothing. */
void metrics_stop(struct metrics *m);
