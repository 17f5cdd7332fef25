/* SPDX-License-Identifier: Apache-2.0 */
/* Names are bytes, and what prints them wants characters. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

/* How many bytes of a character in UTF-8 begin at p, which ends with a zero; 0: none does. */
size_t utf8_len(const unsigned char *p);
/* Does that character (n bytes, or 0: the one byte that begins none) steer what shows it, or end a
 * line: controls of ASCII and U+0080 to U+009F, those bytes alone, what turns the direction of the
 * text around, U+2028 and U+2029? */
bool utf8_is_control(const unsigned char *p, size_t n);
