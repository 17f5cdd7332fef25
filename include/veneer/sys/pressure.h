/* SPDX-License-Identifier: Apache-2.0 */
/* The kernel's pressure stall information (PSI): how much of the time some task waited for a
 * resource. */
#pragma once

#define PRESSURE_HIGH                                                                         \
	1000 /* programs wait that much of the time: what can do without a resource leaves it \
		alone */

/* "some" of the last ten seconds, in hundredths of a percent, of "memory" or "io". -1 where the
 * kernel does not tell. */
int pressure_some(const char *resource);
/* The same of a file with such text, which control groups have of their own. */
int pressure_read(const char *path);
