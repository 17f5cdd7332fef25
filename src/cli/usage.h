/* SPDX-License-Identifier: Apache-2.0 */
/* What is wrong with a command line, in one sentence on standard error; the caller prints its usage below and returns 2. */
#pragma once

/* What getopt_long answered with c, ':' or '?'. argv as it is at that moment. */
void usage_wrong_option(char *const *argv, int c);
/* Something that has to be there is not: UPPER... */
void usage_missing(const char *what);
/* A word too many. */
void usage_unexpected(const char *word);
