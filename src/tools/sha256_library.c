// SPDX-License-Identifier: Apache-2.0
#include "sha256_library.h"

#include "archive_library.h"

#include "veneer/base/cleanup.h"
#include "veneer/base/log.h"
#include "veneer/sys/file.h"

#include <nettle/sha2.h>
#include <nettle/version.h>
#include <stdbool.h>
#include <stdio.h>

#define LIBRARY	   "libnettle.so.8"
#define STEP_BYTES ((size_t)1 << 20)

#if NETTLE_VERSION_MAJOR != 3
#error "another library than this one has other functions"
#endif

static struct {
	bool is_there;
	ARCHIVE_LIBRARY_DECLARE(nettle_sha256_init)
	ARCHIVE_LIBRARY_DECLARE(nettle_sha256_update)
	ARCHIVE_LIBRARY_DECLARE(nettle_sha256_digest)
} lib;

static int load(void)
{
	void *handle = lib.is_there ? NULL : dlopen(LIBRARY, RTLD_NOW | RTLD_LOCAL);

	if (handle)
		lib.is_there = true ARCHIVE_LIBRARY_FIND(nettle_sha256_init)
			ARCHIVE_LIBRARY_FIND(nettle_sha256_update)
				ARCHIVE_LIBRARY_FIND(nettle_sha256_digest);
	if (lib.is_there)
		return 0;
	log_error("digests need %s: %s", LIBRARY, dlerror() ?: "this is another library");
	return -ENOENT;
}

int sha256_library_file(int fd, char ret[SHA256_LIBRARY_HEX + 1])
{
	uint8_t digest[SHA256_DIGEST_SIZE];
	_cleanup_(freep) uint8_t *buf = malloc(STEP_BYTES);
	struct sha256_ctx c;
	off_t off = 0;
	ssize_t n;
	int r = buf ? load() : -ENOMEM;

	if (r < 0)
		return r;
	lib.nettle_sha256_init(&c);
	while ((n = file_pread(fd, buf, STEP_BYTES, off)) > 0) {
		lib.nettle_sha256_update(&c, (size_t)n, buf);
		off += n;
	}
	lib.nettle_sha256_digest(&c, sizeof(digest), digest);
	for (size_t k = 0; k < sizeof(digest); k++)
		snprintf(ret + 2 * k, 3, "%02x", digest[k]);
	return n < 0 ? (int)n : 0;
}
