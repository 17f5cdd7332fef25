/* SPDX-License-Identifier: Apache-2.0 */
/* Stands in front of pressure_some (tests/unit/meson.build): the test sets the pressure, 0 at
 * first, whatever the disk of the machine does. */
#pragma once

extern _Atomic int pressure_of_test; /* hundredths of a percent, of each resource */
extern _Atomic unsigned pressure_questions; /* so often somebody asked */
