// SPDX-License-Identifier: Apache-2.0
#include "parse.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

#define MAX_WORDS 16

char parse_error[256];

int parse_words(const char *cwd, bool is_root, struct mount_opts *ret, const char *const *words)
{
	const char *argv[MAX_WORDS] = { "fuse-overlayfs" };
	int argc = 1;

	while (*words)
		argv[argc++] = *words++;
	parse_error[0] = '\0';
	return options_parse(
		&(struct options_argv){ argc, (char *const *)argv, cwd, is_root, false }, ret,
		parse_error, sizeof(parse_error));
}

struct mount_opts good(const char *list)
{
	const char *words[] = { "-o", list, "/mnt", NULL };
	struct mount_opts o;
	int r = parse_words("/cwd", true, &o, words);

	if (r < 0)
		fail_msg("%s: %s", list, parse_error);
	return o;
}

struct mount_opts good_with_lower(const char *more)
{
	char list[1024];

	snprintf(list, sizeof(list), "lowerdir=/l,%s", more);
	return good(list);
}

void assert_bad(const char *list, const char *sentence)
{
	const char *words[] = { "-o", list, "/mnt", NULL };
	struct mount_opts o;

	assert_int_equal(parse_words("/cwd", true, &o, words), -EINVAL);
	assert_string_equal(parse_error, sentence);
}

void assert_bad_with_lower(const char *more, const char *sentence)
{
	char list[1024];

	snprintf(list, sizeof(list), "lowerdir=/l,%s", more);
	assert_bad(list, sentence);
}

void assert_lowers(const struct mount_opts *o, const char *expected)
{
	char joined[4096] = "";
	size_t len = 0;

	for (size_t i = 0; i < o->n_lower; i++)
		len += (size_t)snprintf(joined + len, sizeof(joined) - len, "%s%s", i ? "|" : "",
					o->lower[i]);
	assert_string_equal(joined, expected);
}
