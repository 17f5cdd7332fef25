/* SPDX-License-Identifier: Apache-2.0 */
/* The flat copies of the process (flat_copy.h): each is all bytes of a partial source in one
 * nameless file, and is found by any source whose chain is of the same files in the same layers,
 * all as they were. While a source refers to it its layers are open, so that no other file has
 * these numbers. */
#pragma once

#include "veneer/layer/source.h"

struct source_flat;

/* May the chain of s have one? Its files are not where change times may mean nothing, and where
 * asking for them may wait: on file systems that may be remote. */
bool source_flat_is_possible(const struct source *s);
/* What the files of the chain of s are like now. 0; -EAGAIN: one was changed just now, so that one
 * more change might not show; -EXDEV: it can have none; -errno. */
int source_flat_new(struct source *s, struct source_flat **ret);
/* 0; -ENOENT: a file of the chain is another one by now, or was changed; -errno. */
int source_flat_check(struct source *s, const struct source_flat *f);
/* The size of the topmost file, and so of all that is seen. */
off_t source_flat_size(const struct source_flat *f);
/* The copy that fd has (taken over) is that of s from now on, and of all that fit. */
void source_flat_publish(struct source *s, struct source_flat *f, int fd);
/* For one that was not published. NULL is ignored. */
void source_flat_free(struct source_flat *f);

/* The copy of s: its descriptor, borrowed as long as s is used; -ENOENT or another -errno. A system
 * call for each file of the chain, unless there are no copies at all. */
int source_flat_fd(struct source *s);
/* Has s one, perhaps of what its chain was before? */
bool source_flat_is_there(const struct source *s);
/* Copies of the process. */
size_t source_flat_count(void);
