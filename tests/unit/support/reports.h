/* SPDX-License-Identifier: Apache-2.0 */
/* A report with something in every place, for the tests of what reads one. */
#pragma once

#include "veneer/tools/report.h"

/* Two mounts of one image; the second at the place of that name, without an upper. Every counter
 * and bucket of the first has another value. report_release. Fails the test without memory. */
struct report reports_make(const char *second_place);
