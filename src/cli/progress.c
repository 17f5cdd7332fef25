// SPDX-License-Identifier: Apache-2.0
#include "progress.h"

#include "terminal.h"

#include "veneer/base/human_units.h"

#include "veneer/base/clock.h"

#include <inttypes.h>
#include <stdio.h>

#define REDRAW_MS 100
#define LINE_MS	  10000 /* not on a terminal */
#define SHORT_MS  500 /* a walk prints nothing before */

static uint64_t now_ms(void)
{
	return (uint64_t)clock_ms();
}

void progress_start(struct progress *p, bool is_quiet)
{
	*p = (struct progress){ .is_shown = !is_quiet,
				.is_terminal = terminal_can_draw(stderr),
				.start_ms = now_ms() };
}

bool progress_is_due(struct progress *p)
{
	uint64_t now = now_ms(), last = p->drawn_ms	 ? p->drawn_ms
					: p->is_terminal ? 0
							 : p->start_ms;

	if (!p->is_shown || now - last < (p->is_terminal ? REDRAW_MS : LINE_MS))
		return false;
	p->drawn_ms = now;
	return true;
}

static void show_walk(void *arg, size_t entries, size_t dirs)
{
	struct progress *p = arg;
	uint64_t taken;

	if (!p->is_shown)
		return;
	taken = now_ms() - p->start_ms;
	if (taken < SHORT_MS || !progress_is_due(p))
		return;
	fprintf(stderr, "%s%s, %s/s", p->is_terminal ? "\r" : "",
		human_units_of(entries, "entry").text,
		human_units_count(entries * 1000 / (taken + 1)).text);
	if (dirs)
		fprintf(stderr, ", %s left", human_units_of(dirs, "directory").text);
	fputs(p->is_terminal ? "\033[K" : "\n", stderr);
	fflush(stderr);
}

struct step progress_walk(struct progress *p)
{
	return (struct step){ .fn = show_walk, .arg = p };
}

void progress_show(struct progress *p, const char *noun, const struct progress_point *at,
		   const char *more)
{
	const uint64_t rate = at->bytes * 1000 / (now_ms() - p->start_ms + 1);

	fprintf(stderr, "%s%s of %s, %s", p->is_terminal ? "\r" : "",
		human_units_count(at->done).text, human_units_of(at->all, noun).text,
		human_units_bytes(at->bytes).text);
	if (at->nbytes)
		fprintf(stderr, " of %s", human_units_bytes(at->nbytes).text);
	fprintf(stderr, ", %s/s", human_units_bytes(rate).text);
	if (rate && at->nbytes > at->bytes)
		fprintf(stderr, ", %" PRIu64 " s left", (at->nbytes - at->bytes) / rate + 1);
	fprintf(stderr, "%s%s", more, p->is_terminal ? "\033[K" : "\n");
	fflush(stderr);
}

void progress_clear(const struct progress *p)
{
	if (p->is_terminal && p->drawn_ms) {
		fprintf(stderr, "\r\033[K");
		fflush(stderr);
	}
}
