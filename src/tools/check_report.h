/* SPDX-License-Identifier: Apache-2.0 */
/* Reports of the parts of `check`. */
#pragma once

#include "veneer/tools/check.h"

struct check_report_place {
	const struct check_hooks *hooks;
	const char *layer;
	struct check_result *s; /* counts the reports */
};

/* Report a fault at path; fmt describes it in one line. Without memory only its code is
 * reported. */
__attribute__((format(printf, 4, 5))) void check_report_say(const struct check_report_place *p,
							    const char *code, const char *path,
							    const char *fmt, ...);
/* Report the repair of a fault with that code. */
__attribute__((format(printf, 4, 5))) void check_report_repaired(const struct check_report_place *p,
								 const char *code, const char *path,
								 const char *fmt, ...);
