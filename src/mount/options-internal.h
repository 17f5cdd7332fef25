/* SPDX-License-Identifier: Apache-2.0 */
/* Parsers of option values that need more than one line of code. */
#pragma once

#include "veneer/base/buf.h"
#include "veneer/mount/options.h"

/* Make path absolute, relative to cwd; malloc'd. NULL: out of memory. */
char *options_path_absolute(const char *cwd, const char *path);
/* Parse one path of an option, from s up to `end`: make it absolute, and remove its escapes.
 * -ENOMEM. */
int options_path_parse(const char *cwd, const char *s, const char *end, char **ret);

/* Parse A:B:N triplets; the caller frees the rows. -EINVAL, -ENOMEM. */
int idmap_parse(const char *text, struct id_maps *ret);

#define OPTIONS_DEFAULT_TIMEOUT_S 1e9

/* The result of the arguments so far. */
struct options_parser {
	struct mount_opts o;
	struct buf kernel; /* options of -o for the kernel, separated by commas */
	bool allows_root, allows_other;
	bool is_helper; /* called by mount(8), as mount.veneer */
	bool is_saved; /* as in options_argv */
	const char *source;
	const char *stray; /* an argument that seems to belong to -o */
	const char *cwd;
	char *err;
	size_t err_size;
};

/* Set an option, and remove the quotes of its value; an empty option is ignored. -ENOENT: there is
 * no such option; -EINVAL and a sentence; -ENOMEM. */
int options_set(struct options_parser *p, char *opt);
/* Append an option for the kernel. -ENOMEM. */
int options_put_word(struct options_parser *p, const char *word);
/* Format the sentence, and return -EINVAL. */
__attribute__((format(printf, 2, 3))) int options_fail(struct options_parser *p, const char *fmt,
						       ...);
/* Append s to a vector of n strings that ends with NULL. Takes s over, also on failure. -ENOMEM,
 * also if s is NULL. */
int options_strv_push(char ***v, size_t *n, char *s);
void options_strv_freep(char ***v);
