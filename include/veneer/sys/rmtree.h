/* SPDX-License-Identifier: Apache-2.0 */
/* Removing a directory and what is in it, beneath one directory, following no link. */
#pragma once

/* However deep. What resists stays, silently: this is for leftovers in a work directory. */
void rmtree(int parent_fd, const char *name);
