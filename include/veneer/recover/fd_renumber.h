/* SPDX-License-Identifier: Apache-2.0 */
/* Descriptors that came from another process get the numbers they had there: what is written down
 * there, in shared memory too, holds here as it stands. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

/* The caller's own that are open: each is moved to a number above what n wanted ones use. -EMFILE,
 * or -errno. */
int fd_renumber_make_room(const int *wanted, size_t n, int *const *own, size_t n_own);
/* got[i] becomes wanted[i], close-on-exec. got is all -1 afterwards: what is in place is its
 * number, and on failure all is closed. -EBUSY: a number is in use by something else; -ENOMEM;
 * -errno. */
int fd_renumber_place(int *got, const int *wanted, size_t n);
