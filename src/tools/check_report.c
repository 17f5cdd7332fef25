// SPDX-License-Identifier: Apache-2.0
#include "check_report.h"

#include "veneer/base/cleanup.h"

#include <stdarg.h>
#include <stdio.h>

static void tell(const struct check_report_place *p, struct check_finding *f, const char *fmt,
		 va_list ap)
{
	_cleanup_(freep) char *text = NULL;

	if (vasprintf(&text, fmt, ap) < 0)
		text = NULL;
	f->layer = p->layer;
	f->text = text ? text : f->code;
	p->hooks->found(p->hooks->arg, f);
}

void check_report_say(const struct check_report_place *p, const char *code, const char *path,
		      const char *fmt, ...)
{
	struct check_finding f = { .code = code, .path = path };
	va_list ap;

	va_start(ap, fmt);
	tell(p, &f, fmt, ap);
	va_end(ap);
	p->s->found++;
}

void check_report_repaired(const struct check_report_place *p, const char *code, const char *path,
			   const char *fmt, ...)
{
	struct check_finding f = { .is_repair = true, .code = code, .path = path };
	va_list ap;

	va_start(ap, fmt);
	tell(p, &f, fmt, ap);
	va_end(ap);
	p->s->repaired++;
}
