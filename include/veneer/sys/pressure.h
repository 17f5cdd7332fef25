/* SPDX-License-Identifier: Apache-2.0 */
/* The kernel's pressure stall information (PSI): the share of time in which some task waited for a
 * resource. */
#pragma once

/* programs wait this much of the time: optional users of the resource leave it alone */
#define PRESSURE_HIGH 1000

/* "some" of the last ten seconds, in hundredths of a percent, of "memory" or "io". -1 if the kernel
 * does not report it. */
int pressure_some(const char *resource);
/* The same from a file of such text; control groups have their own. */
int pressure_read(const char *path);
