// SPDX-License-Identifier: Apache-2.0
#include "veneer/map/journal_end.h"

#include "snapshot-internal.h"
#include "veneer/map/session_epoch.h"

/* When the layer was closed its log was longer. A copy that was made of a live layer may have
 * less. */
static int is_cut(const struct journal_reader *rd, const struct format_map_header *h)
{
	struct format_map_header copy;
	uint64_t end, end_sum;
	int r = snapshot_is_copy(rd->fd, h);

	if (r)
		return r < 0 ? r : 0;
	return snapshot_copy_get(rd->fd, &copy, &end, &end_sum) == 0 &&
	       copy.checksum == h->checksum &&
	       (rd->off < end || (rd->off == end && rd->sum != end_sum));
}

int journal_end_check(struct journal_reader *rd, const struct table *t,
		      const struct format_map_header *h, const char **ret_why)
{
	const uint64_t off = rd->off, sum = rd->sum;
	struct record rec;
	int r = journal_reader_mend(rd, &rec);

	if (r == 1) {
		rd->off = off;
		rd->sum = sum;
		rd->win_len = 0;
		*ret_why = "a record with one damaged byte";
		return 2;
	}
	r = r ?: is_cut(rd, h);
	*ret_why = "shorter than when the layer was closed";
	if (r)
		return r < 0 ? r : 2;
	r = t->in_session ? session_epoch_is_of(t) : 1;
	return r <= 0 ? r : journal_reader_rest(rd, ret_why);
}
