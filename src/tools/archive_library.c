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
	log_error("an archive takes %s: %s", LIBRARY, dlerror() ?: "it is another one");
	return -ENOENT;
}
