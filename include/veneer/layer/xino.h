/* SPDX-License-Identifier: Apache-2.0 */
/* Several devices in one space of inode numbers: the index of a number's device goes into its top
 * byte, which no file system we know of uses. Indices are given in the order of asking and stay;
 * looking one up takes no lock. */
#pragma once

#include "veneer/base/lock.h"

#include <stdint.h>
#include <sys/types.h>

#define XINO_MAX 255 /* more share the last index */

struct xino {
	dev_t devs[XINO_MAX]; /* never changed below n */
	_Atomic unsigned n;
	mutex_t lock; /* taken to add one; innermost */
};

void xino_init(struct xino *d);
void xino_release(struct xino *d);
/* The device's index, given now if it has none; XINO_MAX when there are too many. */
unsigned xino_index(struct xino *d, dev_t dev);
/* ... only if it has one already, else -1. */
int xino_find(const struct xino *d, dev_t dev);
/* Index 0 leaves the number as it is. */
static inline uint64_t xino_fold(unsigned index, ino_t ino)
{
	return ino ^ (uint64_t)index << 56;
}
