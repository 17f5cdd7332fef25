/* SPDX-License-Identifier: Apache-2.0 */
/* Find the end of a map file's log, and whether the bytes behind it are damage. */
#pragma once

#include "veneer/map/journal_reader.h"
#include "veneer/map/table.h"

/* rd stands where the log of a map with this header seems to end. 0: it does; else, with the rule
 * broken, as journal_reader_rest: with 1 it does, and one byte behind it is damaged. -errno. */
int journal_end_check(struct journal_reader *rd, const struct table *t,
		      const struct format_map_header *h, const char **ret_why);
