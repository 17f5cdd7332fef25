/* SPDX-License-Identifier: Apache-2.0 */
/* Numbers as people read them. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct human_units {
	char text[64];
};

/* 1234567: "1,234,567". */
struct human_units human_units_count(uint64_t n);
/* 1 and "file": "1 file"; 1234 and "renamed directory": "1,234 renamed directories". The noun is
 * cut where there is no room. */
struct human_units human_units_of(uint64_t n, const char *noun);
/* 1536: "1.5 KiB". */
struct human_units human_units_bytes(uint64_t n);
/* 1536 microseconds: "1.5 ms". */
struct human_units human_units_time(uint64_t us);
/* How long something has been there: "3 h 12 min". */
struct human_units human_units_age(uint64_t s);
/* Per second: "0.3", "12", "1,234". */
struct human_units human_units_rate(double per_s);
/* part of whole: "97 %"; "-" of nothing. */
struct human_units human_units_share(uint64_t part, uint64_t whole);
/* Read a number above 0, which may have one of the units behind it, each `scale` times the one
 * before: "5M" with "KMG" and 1024. False: it is none, or too large. */
bool human_units_scan(const char *text, const char *units, uint64_t scale, uint64_t *ret);
