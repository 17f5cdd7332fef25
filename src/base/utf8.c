// SPDX-License-Identifier: Apache-2.0
#include "veneer/base/utf8.h"

size_t utf8_len(const unsigned char *p)
{
	size_t n = *p < 0x80		     ? 1
		   : *p >= 0xc2 && *p < 0xe0 ? 2
		   : *p >= 0xe0 && *p < 0xf0 ? 3
		   : *p >= 0xf0 && *p < 0xf5 ? 4
					     : 0;

	for (size_t i = 1; i < n; i++)
		if ((p[i] & 0xc0) != 0x80)
			return 0;
	/* Forms that are too long, halves of pairs, and numbers past the last character. */
	if ((p[0] == 0xe0 && p[1] < 0xa0) || (p[0] == 0xed && p[1] >= 0xa0) ||
	    (p[0] == 0xf0 && p[1] < 0x90) || (p[0] == 0xf4 && p[1] >= 0x90))
		return 0;
	return n;
}

bool utf8_is_control(const unsigned char *p, size_t n)
{
	/* U+061C */
	if (n == 2)
		return (p[0] == 0xc2 && p[1] < 0xa0) || (p[0] == 0xd8 && p[1] == 0x9c);
	/* U+200E, U+200F, U+2028 to U+202E; U+2066 to U+2069 */
	if (n == 3)
		return p[0] == 0xe2 && ((p[1] == 0x80 && (p[2] == 0x8e || p[2] == 0x8f ||
							  (p[2] >= 0xa8 && p[2] <= 0xae))) ||
					(p[1] == 0x81 && p[2] >= 0xa6 && p[2] <= 0xa9));
	return n == 1 ? *p < ' ' || *p == 0x7f : n == 0 && *p >= 0x80 && *p < 0xa0;
}
