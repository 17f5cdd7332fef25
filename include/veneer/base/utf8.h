/* SPDX-License-Identifier: Apache-2.0 */
/* Names are bytes, and the code that prints them wants characters. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

/* How many bytes of a character in UTF-8 begin at p, which ends with a zero; 0: none does. */
size_t utf8_len(const unsigned char *p);
/* Does that character (n bytes, or 0: the one byte that begins none) steer a terminal, or end a
 * line? These are: controls of ASCII and U+0080 to U+009F, the same bytes alone, the marks that
 * turn the direction of the text, U+2028 and U+2029. */
bool utf8_is_control(const unsigned char *p, size_t n);
