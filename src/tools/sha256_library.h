/* SPDX-License-Identifier: Apache-2.0 */
/* SHA-256 by nettle, which libarchive depends on; loaded like libarchive. */
#pragma once

#define SHA256_LIBRARY_HEX 64

/* The digest of the file's contents in lower-case hexadecimal digits. 0; -ENOENT: the library is
 * not installed, after a line in the log; -errno. */
int sha256_library_file(int fd, char ret[SHA256_LIBRARY_HEX + 1]);
