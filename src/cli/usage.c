// SPDX-License-Identifier: Apache-2.0
#include "usage.h"

#include "veneer/base/log.h"

#include <getopt.h>
#include <stdio.h>
#include <string.h>

void usage_wrong_option(char *const *argv, int c)
{
	const char *word = argv[optind - 1];

	if (c == ':')
		log_error("missing argument after %s", word);
	else if (optopt && !strchr(word, '='))
		log_error("unknown option: -%c",
			  optopt); /* the word may hold further options, and may still be ahead */
	else
		log_error("unknown option: %s", word);
}

void usage_missing(const char *what)
{
	log_error("missing argument: %s", what);
}

void usage_unexpected(const char *word)
{
	log_error("unexpected argument: %s", word);
}

int usage_hint(const char *command)
{
	fprintf(stderr, "usage: veneer %s --help\n", command);
	return 2;
}
