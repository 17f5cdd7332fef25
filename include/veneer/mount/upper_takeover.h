/* SPDX-License-Identifier: Apache-2.0 */
/* A mount that was detached while in use is still served and keeps its upper locked, so a container
 * would not start again. A new mount of that upper asks the server, through a fifo in its work
 * directory, to make room. The server decides what to do. */
#pragma once

#include "veneer/base/types.h"

#include <stdbool.h>
#include <sys/types.h>

/* Make the fifo: from now on sig, which every thread blocks, is sent to this process when a mount
 * asks; with 0 the caller polls *ret_fd for reading. workfd is the private work directory. The
 * caller closes *ret_fd. 0 or -errno. */
int upper_takeover_listen(int workfd, int sig, int *ret_fd);
/* After sig: has a mount asked for the upper with this device and inode number? */
bool upper_takeover_is_asked(int fd, dev_t dev, ino_t ino);
/* Ask every server that has a directory in workdir, a descriptor of what the option names, for that
 * upper. */
void upper_takeover_ask(int workdir, dev_t dev, ino_t ino);
