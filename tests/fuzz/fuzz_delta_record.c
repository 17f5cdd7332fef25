// SPDX-License-Identifier: Apache-2.0
/* An input is one of the texts of a delta: its head, the record of an entry, its end, or the token
 * that resumes it. What is read is in range, and its own text gives it back. */
#include "support.h"

#include "tools/delta_record.h"
#include "veneer/layer/branch_receive.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_head(const char *text, size_t len)
{
	struct delta_head h, again;
	char *out;

	if (delta_record_parse_head(text, len, &h) < 0)
		return;
	fuzz_require(h.id ? branch_chain_is_name(h.name) && h.id != h.from
			  : !*h.name && !h.from && !h.first);
	out = delta_record_format_head(&h);
	fuzz_require(out && delta_record_parse_head(out, strlen(out), &again) == 0);
	fuzz_require(again.id == h.id && again.from == h.from && again.time_ns == h.time_ns &&
		     again.first == h.first && again.sum == h.sum && again.names == h.names &&
		     !strcmp(again.name, h.name));
	free(out);
}

static void require_ranges(const struct delta_record *r)
{
	uint64_t end = 0;

	fuzz_require(r->nzeros <= DELTA_ZEROS_MAX && r->at <= r->end && r->end <= INT64_MAX &&
		     r->base_size <= INT64_MAX);
	for (size_t k = 0; k < r->nzeros; k++) {
		fuzz_require(r->zeros[k].off >= end && r->zeros[k].len > 0);
		end = r->zeros[k].off + r->zeros[k].len;
		fuzz_require(end <= INT64_MAX);
	}
}

static void check_record(const char *text, size_t len)
{
	struct delta_record r, again;
	char *out;

	if (delta_record_parse(text, len, &r) < 0)
		return;
	require_ranges(&r);
	out = delta_record_format(&r);
	fuzz_require(out && delta_record_parse(out, strlen(out), &again) == 0);
	fuzz_require(again.sum == r.sum && again.has_base_sum == r.has_base_sum &&
		     again.base_sum == r.base_sum && again.is_partial == r.is_partial &&
		     again.base_size == r.base_size && again.mtime_ns == r.mtime_ns &&
		     again.end == r.end);
	fuzz_require(!r.is_partial || again.nzeros == r.nzeros);
	free(out);
	delta_record_release(&again);
	delta_record_release(&r);
}

static void check_end(const char *text, size_t len)
{
	struct delta_end e, again;
	char *out;

	if (delta_record_parse_end(text, len, &e) < 0)
		return;
	out = delta_record_format_end(&e);
	fuzz_require(out && delta_record_parse_end(out, strlen(out), &again) == 0);
	fuzz_require(again.entries == e.entries && again.sum == e.sum &&
		     again.has_base_sum == e.has_base_sum && again.base_sum == e.base_sum);
	free(out);
}

static void check_token(const char *text)
{
	char out[BRANCH_RECEIVE_TOKEN_MAX];
	struct delta_head h;

	if (delta_token_parse(text, &h) < 0)
		return;
	delta_token_format(&h, out, sizeof(out));
	fuzz_require(!strcmp(out, text));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char *text = malloc(size + 1);

	fuzz_require(text);
	memcpy(text, data, size);
	text[size] = '\0';
	check_head(text, size);
	check_record(text, size);
	check_end(text, size);
	check_token(text);
	free(text);
	return 0;
}
