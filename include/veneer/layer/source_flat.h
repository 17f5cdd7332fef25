/* SPDX-License-Identifier: Apache-2.0 */
/* The flat copies of the process (flat_copy.h). Each is all bytes of a partial source in one
 * nameless file. A source finds it if its chain is of the same files in the same layers, all
 * unchanged. While a source refers to it its layers are open, so that no other file has these
 * numbers. */
#pragma once

#include "veneer/layer/source.h"

struct source_flat;

/* May the chain of s have one? Its files are not where change times may mean nothing, and where
 * asking for them may wait: on file systems that may be remote. */
bool source_flat_is_possible(const struct source *s);
/* Read the state of the files of the chain of s. 0; -EAGAIN: one was changed just now, so that one
 * more change might not show; -EXDEV: it can have none; -errno. */
int source_flat_new(struct source *s, struct source_flat **ret);
/* 0; -ENOENT: a file of the chain is another one by now, or was changed; -errno. */
int source_flat_check(struct source *s, const struct source_flat *f);
/* The size of the topmost file, and so of the copy. */
off_t source_flat_size(const struct source_flat *f);
/* The copy in fd (taken over) serves s from now on, and all sources that fit. */
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
