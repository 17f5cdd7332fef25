/* SPDX-License-Identifier: Apache-2.0 */
/* The destination of an archive: a new file, or standard output. */
#pragma once

#include <stdbool.h>

struct output_file {
	const char *path; /* NULL: standard output */
	int fd;
	bool is_nameless; /* until it is whole, so that a killed tool leaves nothing */
};

/* path is set. 0, or -errno after a sentence on standard error. */
int output_file_open(struct output_file *to);
/* r: how the writing went. What is not whole does not stay. r, or -errno after a sentence. */
int output_file_close(struct output_file *to, int r);
