/* SPDX-License-Identifier: Apache-2.0 */
/* The directory of profiles: named by the environment of the mount program, and handed on as a
 * descriptor, since the server sees neither. It may lie on a file system that does not answer. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

/* The path of the state directory, malloc'd: $VENEER_STATE_DIR, $XDG_STATE_HOME/veneer,
 * /var/lib/veneer (root), ~/.local/state/veneer. NULL: there is none, or no memory. */
char *state_dir_path(void);
/* False: VENEER_STATE_DIR is there and empty, so nothing is to be kept. */
bool state_dir_is_wanted(void);
/* Open it, and make it unless is_readonly. -EPERM where another user could write in it. Descriptor
 * or -errno. */
int state_dir_open(const char *path, int is_readonly);

/* Have another process open it, which is left behind if it never comes back: the result is a socket
 * on which the answer comes. Waits for nothing. -1: no process was asked. */
int state_dir_ask(void);
/* Read the answer on such a socket, which stays the caller's. The directory's descriptor; -EAGAIN:
 * not yet; other -errno: it cannot be had. */
int state_dir_answer(int fd);
