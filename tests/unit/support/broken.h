/* SPDX-License-Identifier: Apache-2.0 */
/* A checker (veneer/base/invariants.h) and a structure that is broken by one store. */
#pragma once

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

/* check names this rule while field has this value, and none before and afterwards. */
#define EXPECT_BROKEN(check, rule, field, value)                   \
	do {                                                       \
		const __typeof__(field) kept_ = (field);           \
		const char *broken_;                               \
		assert_null(check);                                \
		(field) = (value);                                 \
		broken_ = (check);                                 \
		(field) = kept_;                                   \
		assert_string_equal(broken_ ? broken_ : "", rule); \
		assert_null(check);                                \
	} while (0)
