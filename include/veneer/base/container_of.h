/* SPDX-License-Identifier: Apache-2.0 */
/* The struct whose member ptr points to, as of the links of list.h and htab.h. */
#pragma once

#include <stddef.h>

#define container_of(ptr, type, member) ((type *)((char *)(ptr) - offsetof(type, member)))
