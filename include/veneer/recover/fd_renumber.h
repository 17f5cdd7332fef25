/* SPDX-License-Identifier: Apache-2.0 */
/* Descriptors that came from another process get the numbers they had there: notes of that process,
 * in shared memory too, hold here as they stand. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

/* The caller's own open descriptors: each is moved to a number above the n wanted ones. -EMFILE, or
 * -errno. */
int fd_renumber_make_room(const int *wanted, size_t n, int *const *own, size_t n_own);
/* got[i] becomes wanted[i], close-on-exec. got is all -1 afterwards: descriptors in place have
 * their number, and on failure all are closed. -EBUSY: a number is in use by something else;
 * -ENOMEM; -errno. */
int fd_renumber_place(int *got, const int *wanted, size_t n);
