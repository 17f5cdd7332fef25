/* SPDX-License-Identifier: Apache-2.0 */
/* Names are bytes, and what prints them wants characters. */
#pragma once

#include <stddef.h>

/* How many bytes of a character in UTF-8 begin at p, which ends with a zero; 0: none does. */
size_t utf8_len(const unsigned char *p);
