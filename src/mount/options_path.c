// SPDX-License-Identifier: Apache-2.0
#include "options-internal.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "veneer/base/cleanup.h"

char *options_path_absolute(const char *cwd, const char *path)
{
	size_t cwd_len = strlen(cwd);
	char *r;

	if (path[0] == '/')
		return strdup(path);
	while (cwd_len > 0 && cwd[cwd_len - 1] == '/')
		cwd_len--;
	if (asprintf(&r, "%.*s/%s", (int)cwd_len, cwd, path) < 0)
		return NULL;
	return r;
}

/* Copy s, which ends at `end`, without its escapes. keeps_lone: keep a backslash before a character
 * that needs none, instead of dropping it. Returns whether there was one. */
static bool unescape(const char *s, const char *end, bool keeps_lone, char *ret)
{
	bool has_lone = false;

	while (s < end) {
		size_t n = 0;

		while (s + n < end && s[n] == '\\')
			n++;
		if (s + n < end && s[n] == ':') {
			/* Callers disagree whether one or two backslashes make a colon literal, so
			 * accept both. */
			size_t rest = n < 2 ? 0 : (n - 1) / 2;

			memset(ret, '\\', rest);
			ret += rest;
		} else if (n > 0) {
			memset(ret, '\\', n / 2);
			ret += n / 2;
			if (n % 2 && (s + n == end || s[n] != ',')) {
				bool is_last = s + n == end;

				has_lone |= !is_last;
				if (is_last || keeps_lone)
					*ret++ = '\\';
			}
		}
		s += n;
		if (s < end)
			*ret++ = *s++;
	}
	*ret = '\0';
	return has_lone;
}

int options_path_parse(const char *cwd, const char *s, const char *end, char **ret)
{
	_cleanup_(freep) char *raw = malloc((size_t)(end - s) + 1);
	_cleanup_(freep) char *path = NULL;
	bool is_ambiguous;

	if (!raw)
		return -ENOMEM;
	is_ambiguous = unescape(s, end, true, raw);
	path = options_path_absolute(cwd, raw);
	if (!path)
		return -ENOMEM;
	if (is_ambiguous && faccessat(AT_FDCWD, path, F_OK, AT_SYMLINK_NOFOLLOW) != 0) {
		unescape(s, end, false, raw);
		free(path);
		path = options_path_absolute(cwd, raw);
		if (!path)
			return -ENOMEM;
	}
	*ret = steal_ptr(&path);
	return 0;
}
