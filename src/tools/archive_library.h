/* SPDX-License-Identifier: Apache-2.0 */
/* libarchive, loaded only when an archive is wanted, and not linked: with its dependencies each
 * mount would take twice as long to start. */
#pragma once

#include <dlfcn.h>
#include <stdbool.h>

#define ARCHIVE_LIBRARY_DECLARE(name) __typeof__(name) *name;
#define ARCHIVE_LIBRARY_FIND(name)    &&(lib.name = (__typeof__(lib.name))dlsym(handle, #name))

/* For CALLS(CALL), a list of functions: defines a structure `lib` with them, and load(), which
 * fills it. load() returns 0, or -ENOENT after a sentence on standard error. */
#define ARCHIVE_LIBRARY_LOADER(CALLS)                                        \
	static struct {                                                      \
		bool is_there;                                               \
		CALLS(ARCHIVE_LIBRARY_DECLARE)                               \
	} lib;                                                               \
                                                                             \
	static int load(void)                                                \
	{                                                                    \
		void *handle = lib.is_there ? NULL : archive_library_open(); \
                                                                             \
		if (handle)                                                  \
			lib.is_there = true CALLS(ARCHIVE_LIBRARY_FIND);     \
		return lib.is_there ? 0 : archive_library_lacks();           \
	}

/* A handle for dlsym. NULL: the library is not installed. */
void *archive_library_open(void);
/* Print a sentence on standard error, and return -ENOENT. */
int archive_library_lacks(void);
