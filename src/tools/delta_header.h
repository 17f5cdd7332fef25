/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <archive_entry.h>
#include <stdbool.h>
#include <stdint.h>

/* The sum of all that the header of an entry says, the same of the one that is written as of the
 * one that is read. path: plain, or ".". 0 or -errno, after a line in the log. */
int delta_header_sum(struct archive_entry *e, const char *path, bool is_written, uint64_t *ret);
/* An attribute's name as it was, in place: in what is read the library has put %XX for what no
 * keyword of PAX may have. */
void delta_header_decode_name(char *name);
