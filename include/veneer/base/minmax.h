/* SPDX-License-Identifier: Apache-2.0 */
/* The smaller and the larger of two numbers of one type, and their order, for qsort(3). Arguments
 * are evaluated twice. */
#pragma once

#define MIN(a, b)     ((a) < (b) ? (a) : (b))
#define MAX(a, b)     ((a) > (b) ? (a) : (b))
#define COMPARE(a, b) (((a) > (b)) - ((a) < (b)))
