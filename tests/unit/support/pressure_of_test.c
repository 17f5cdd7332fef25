// SPDX-License-Identifier: Apache-2.0
#include "support/pressure_of_test.h"

_Atomic int pressure_of_test;
_Atomic unsigned pressure_questions;

int __wrap_pressure_some(const char *resource);
int __wrap_pressure_some(const char *resource)
{
	(void)resource;
	pressure_questions++;
	return pressure_of_test;
}
