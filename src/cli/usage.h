/* SPDX-License-Identifier: Apache-2.0 */
/* Says what is wrong with a command line, in one sentence on standard error, and where the usage
 * is. */
#pragma once

/* Explain the ':' or '?' of getopt_long. argv as it is at that moment. */
void usage_wrong_option(char *const *argv, int c);
/* Something that has to be there is not: UPPER... */
void usage_missing(const char *what);
/* A word too many. */
void usage_unexpected(const char *word);
/* The line below that names the help of the command; the exit code of wrong usage, 2. */
int usage_hint(const char *command);
