// SPDX-License-Identifier: Apache-2.0
#include "veneer/data/run.h"

#include <errno.h>

int run_find(struct source *top, uint64_t off, uint64_t len, struct run *ret)
{
	struct source *s = top;

	while (s && !source_is_plain(s)) {
		blk_t blk = off >> BLK_SHIFT;
		blk_t max = ((off + len - 1) >> BLK_SHIFT) - blk + 1, n;
		uint64_t clip, end;
		bool is_own;
		int r;

		if (s->is_hollow) {
			s = s->below;
			continue;
		}
		r = mapfile_run(s->map, s->id, blk, max, &is_own, &n);

		if (r == 0)
			r = mapfile_clip(s->map, s->id, &clip);
		if (r == -ENOENT) {
			r = source_settle(s);
			if (r == 0)
				continue;
		}
		if (r < 0)
			return r;
		end = (blk + n) << BLK_SHIFT;
		if (len > end - off)
			len = end - off;
		if (is_own)
			break;
		if (off >= clip) {
			/* The tail of the block that clip cuts. */
			*ret = (struct run){ .src = NULL, .off = off, .len = len };
			return 0;
		}
		if (len > clip - off)
			len = clip - off;
		s = s->below;
	}
	/* A partial file without a lower file must show nothing below. */
	if (!s)
		return -EUCLEAN;
	*ret = (struct run){ .src = s, .off = off, .len = len };
	return 0;
}
