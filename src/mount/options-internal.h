/* SPDX-License-Identifier: Apache-2.0 */
/* The values of options that need more than a line to understand. */
#pragma once

#include "veneer/base/buf.h"
#include "veneer/mount/options.h"

/* A path relative to cwd made absolute; NULL when out of memory. */
char *options_path_absolute(const char *cwd, const char *path);
/* Parse one path of an option, from s up to `end`: absolute, and rid of its escapes. -ENOMEM. */
int options_path_parse(const char *cwd, const char *s, const char *end, char **ret);

/* A:B:N triplets; the rows go to the caller, who frees them. -EINVAL, -ENOMEM. */
int idmap_parse(const char *text, struct id_maps *ret);

#define OPTIONS_DEFAULT_TIMEOUT_S 1e9

/* What is known so far. */
struct options_parser {
	struct mount_opts o;
	struct buf kernel; /* of -o, for the kernel, with commas between them */
	bool allows_root, allows_other;
	bool is_helper; /* for mount(8), as mount.veneer */
	const char *source;
	const char *stray; /* an argument that looks as if it belonged to -o */
	const char *cwd;
	char *err;
	size_t err_size;
};

/* Set an option, which loses its quotes; an empty one is ignored. -ENOENT: there is no such option;
 * -EINVAL and a sentence; -ENOMEM. */
int options_set(struct options_parser *p, char *opt);
/* Append an option for the kernel. -ENOMEM. */
int options_put_word(struct options_parser *p, const char *word);
/* Write the sentence and return -EINVAL. */
__attribute__((format(printf, 2, 3))) int options_fail(struct options_parser *p, const char *fmt,
						       ...);
/* Append to a vector of n strings that ends with NULL. Takes over s, also on failure. -ENOMEM, also
 * if s is NULL. */
int options_strv_push(char ***v, size_t *n, char *s);
void options_strv_freep(char ***v);
