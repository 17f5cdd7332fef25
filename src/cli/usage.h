/* SPDX-License-Identifier: Apache-2.0 */
/* Prints one sentence about a wrong command line on standard error, and a hint to the usage. */
#pragma once

/* Explain the ':' or '?' of getopt_long. argv must be as getopt_long left it. */
void usage_wrong_option(char *const *argv, int c);
/* Print that a required argument is missing, such as UPPER. */
void usage_missing(const char *what);
/* Print that an argument is unexpected. */
void usage_unexpected(const char *word);
/* Print the line that names the help of the command. Returns 2, the exit code of wrong usage. */
int usage_hint(const char *command);
