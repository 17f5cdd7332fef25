/* SPDX-License-Identifier: Apache-2.0 */
/* libarchive, loaded when an archive is wanted, and not linked: with what it brings along each
 * mount would take twice as long to start. */
#pragma once

#include <dlfcn.h>

/* For CALLS(CALL), a list of the functions that a file wants: members of a structure `lib`, and
 * whether each was found. */
#define ARCHIVE_LIBRARY_DECLARE(name) __typeof__(name) *name;
#define ARCHIVE_LIBRARY_FIND(name)    &&(lib.name = (__typeof__(lib.name))dlsym(handle, #name))

/* For dlsym. NULL: it is not there. */
void *archive_library_open(void);
/* After a sentence on standard error: -ENOENT. */
int archive_library_lacks(void);
