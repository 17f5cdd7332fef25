/* SPDX-License-Identifier: Apache-2.0 */
/* How the parts of `check` say what they found. */
#pragma once

#include "veneer/tools/check.h"

struct check_report_place {
	const struct check_hooks *hooks;
	const char *layer;
	struct check_result *s; /* counts it */
};

/* Something is wrong with what is at path; fmt says what, in one line. Without memory only its code
 * is told. */
__attribute__((format(printf, 4, 5))) void check_report_say(const struct check_report_place *p,
							    const char *code, const char *path,
							    const char *fmt, ...);
/* Report a repair of what was found by that code. */
__attribute__((format(printf, 4, 5))) void check_report_repaired(const struct check_report_place *p,
								 const char *code, const char *path,
								 const char *fmt, ...);
