/* SPDX-License-Identifier: Apache-2.0 */
/* Stands in front of clock_gettime (--wrap): the time of day can be later than it is, so that what
 * was changed just now is old. No call sets a change time back. */
#pragma once

#include <time.h>

extern _Atomic time_t clock_ahead_s;
