// SPDX-License-Identifier: Apache-2.0
/* An input is the text of a chain of snapshots; it is read as it is, and as a line that lacks its
 * checksum. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "veneer/base/hash.h"
#include "veneer/layer/branch_chain.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(const char *text, size_t len)
{
	struct branch_chain c, again;
	char *out;
	size_t n;

	if (branch_chain_parse(text, len, &c) < 0)
		return;
	for (size_t k = 0; k < c.n; k++)
		if (!branch_chain_is_name(c.entries[k].name) ||
		    branch_chain_below(&c, c.entries[k].id, NULL) > c.n)
			abort();
	if (branch_chain_format(&c, &out, &n) < 0 || branch_chain_parse(out, n, &again) < 0 ||
	    again.n != c.n || again.head != c.head)
		abort();
	free(out);
	branch_chain_release(&again);
	branch_chain_release(&c);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static char summed[65536];
	int n;

	check((const char *)data, size);
	if (size > sizeof(summed) - 32)
		return 0;
	memcpy(summed, data, size);
	summed[size++] = '\n';
	n = snprintf(summed + size, 32, "%016llx\n",
		     (unsigned long long)hash_checksum(summed, size));
	check(summed, size + (size_t)n);
	return 0;
}
