/* SPDX-License-Identifier: Apache-2.0 */
/* Turns a trace of an image's entries into the form that the profile keeps. */
#pragma once

#include "veneer/layer/image.h"
#include "veneer/prefetch/profile.h"
#include "veneer/prefetch/trace.h"

/* Owns its pointers' targets. */
struct trace_collect {
	struct profile_start start;
	struct profile_file *files;
	struct profile_item *items;
	bool has_unseen; /* some files were read where nobody sees it */
};

/* The keys of the image's layers, top first, malloc'd; NULL on no memory. */
uint64_t *trace_collect_layers(struct image *img, size_t *ret_n);
/* Of a trace that has ended; its files are entries of the image. A file that was opened and is read
 * unseen counts as read as far as it is cached now. 0 or -ENOMEM. */
int trace_collect_take(struct image *img, struct trace *t, struct trace_collect *ret);
void trace_collect_release(struct trace_collect *h);
