/* SPDX-License-Identifier: Apache-2.0 */
/* The destination of an archive: a new file, or standard output. */
#pragma once

#include <stdbool.h>

struct output_file {
	const char *path; /* NULL: standard output */
	int fd;
	bool is_nameless; /* until it is complete, so that a killed tool leaves nothing */
};

/* Open the file; path must be set. 0, or -errno after a sentence on standard error. */
int output_file_open(struct output_file *to);
/* Close the file. r: the result of writing; an incomplete file is removed. Returns r, or -errno
 * after a sentence. */
int output_file_close(struct output_file *to, int r);
