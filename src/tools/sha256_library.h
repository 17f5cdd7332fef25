/* SPDX-License-Identifier: Apache-2.0 */
/* SHA-256 by nettle, which libarchive brings along, loaded like that one. */
#pragma once

#define SHA256_LIBRARY_HEX 64

/* Of all that is in the file, in lower-case hexadecimal digits. 0; -ENOENT: the library is not
 * there, after a line in the log; -errno. */
int sha256_library_file(int fd, char ret[SHA256_LIBRARY_HEX + 1]);
