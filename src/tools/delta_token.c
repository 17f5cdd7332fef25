// SPDX-License-Identifier: Apache-2.0
#include "veneer/tools/delta.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define HEX_DIGITS 16

void delta_token_format(const struct delta_head *head, char *ret, size_t ret_size)
{
	snprintf(ret, ret_size,
		 "%016" PRIx64 "-%016" PRIx64 "-%016" PRIx64 "-%016" PRIx64 "-%016" PRIx64,
		 head->id, head->from, head->first, head->sum, head->names);
}

int delta_token_parse(const char *token, struct delta_head *ret)
{
	struct delta_head h = { 0 };
	char again[5 * (HEX_DIGITS + 1)];

	if (sscanf(token, "%16" SCNx64 "-%16" SCNx64 "-%16" SCNx64 "-%16" SCNx64 "-%16" SCNx64,
		   &h.id, &h.from, &h.first, &h.sum, &h.names) != 5)
		return -EINVAL;
	delta_token_format(&h, again, sizeof(again));
	if (strcmp(again, token) != 0 || !h.id)
		return -EINVAL;
	*ret = h;
	return 0;
}
