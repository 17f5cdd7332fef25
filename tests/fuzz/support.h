/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by several fuzzers. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A rule that holds for every input. */
void fuzz_require(bool is_kept);
/* No lines about damage: there is nothing else. */
void fuzz_be_quiet(void);
/* A memory file with these bytes, at its beginning; -1 without one. */
int fuzz_memfd(const void *data, size_t size);
/* An empty directory of this process, made once, open for reading; its name in path. Aborts without
 * one. */
int fuzz_directory(const char **ret_path);

/* Make checksums right, so that what is behind them is reached. Records that follow one whose
 * checksum is sum, up to the first that is none; the checksum of the last. */
uint64_t fuzz_mend_records(uint8_t *p, size_t len, uint64_t sum);
/* A whole map file, if it has a header at all. */
void fuzz_mend_map(uint8_t *p, size_t len);
