/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <archive_entry.h>
#include <stdbool.h>
#include <stdint.h>

/* Sum up the header of an entry; the written and the read header give the same sum. path: plain, or
 * ".". 0, or -errno after a line in the log. */
int delta_header_sum(struct archive_entry *e, const char *path, bool is_written, uint64_t *ret);
/* Decode the name of an attribute in place. In read archives the library has encoded bytes that a
 * PAX keyword may not have as %XX. */
void delta_header_decode_name(char *name);
