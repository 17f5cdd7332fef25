// SPDX-License-Identifier: Apache-2.0
#include "archive_library.h"

#include "veneer/base/log.h"

#include <errno.h>
#include <stddef.h>

#define LIBRARY "libarchive.so.13"

void *archive_library_open(void)
{
	return dlopen(LIBRARY, RTLD_NOW | RTLD_LOCAL);
}

int archive_library_lacks(void)
{
	log_error("archives need %s: %s", LIBRARY, dlerror() ?: "this is another library");
	return -ENOENT;
}
