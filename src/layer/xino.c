// SPDX-License-Identifier: Apache-2.0
#include "veneer/layer/xino.h"

#include "veneer/base/cleanup.h"
#include "veneer/base/lock.h"

#include <stdatomic.h>

void xino_init(struct xino *d)
{
	d->n = 0;
	mutex_init(&d->lock);
}

void xino_release(struct xino *d)
{
	mutex_destroy(&d->lock);
}

int xino_find(const struct xino *d, dev_t dev)
{
	unsigned n = atomic_load_explicit(&d->n, memory_order_acquire);

	for (unsigned i = 0; i < n; i++)
		if (d->devs[i] == dev)
			return (int)i;
	return -1;
}

unsigned xino_index(struct xino *d, dev_t dev)
{
	int found = xino_find(d, dev);

	if (found >= 0)
		return (unsigned)found;
	LOCK_SCOPE(&d->lock);
	found = xino_find(d, dev);
	if (found >= 0)
		return (unsigned)found;
	if (d->n == XINO_MAX)
		return XINO_MAX;
	d->devs[d->n] = dev;
	return atomic_fetch_add_explicit(&d->n, 1, memory_order_release);
}
