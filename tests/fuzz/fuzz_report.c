// SPDX-License-Identifier: Apache-2.0
/* An input is what a server answers to `veneer stats`: it is printed in each form, and written
 * again. */
#include "support.h"

#include "veneer/base/cleanup.h"
#include "veneer/tools/prometheus.h"
#include "veneer/tools/report.h"
#include "veneer/tools/stats_text.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static bool fits(void *arg, const char *mountpoint)
{
	(void)arg;
	return mountpoint[0] == '/';
}

static void print_all(const struct report *r, FILE *out)
{
	stats_text_print(r, true, out);
	for (size_t i = 0; i < r->nmounts; i++)
		stats_text_print_mount(&r->mounts[i], out);
	stats_text_print_rates(r, r, 0.5, out);
	stats_text_print_json(r, r, 0.5, out);
	prometheus_print(r, out);
}

/* A report that was understood is understood again. */
static void check_again(const struct report *r)
{
	_cleanup_(freep) char *text = NULL;
	struct report again;

	if (report_json(r, &text) < 0)
		return;
	fuzz_require(report_parse(text, &again) == 0);
	fuzz_require(again.nmounts == r->nmounts && again.nimages == r->nimages &&
		     again.pid == r->pid);
	report_release(&again);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static FILE *out;
	_cleanup_(freep) char *text = malloc(size + 1), *some = NULL;
	struct report r;

	if (!out)
		out = fopen("/dev/null", "we");
	if (!text || !out)
		return 0;
	memcpy(text, data, size);
	text[size] = '\0';
	if (report_only(text, fits, NULL, &some) == 0)
		fuzz_require(some && some[0]);
	if (report_parse(text, &r) < 0)
		return 0;
	print_all(&r, out);
	check_again(&r);
	report_release(&r);
	return 0;
}
