/* SPDX-License-Identifier: Apache-2.0 */
/* Lets a new mount take the upper of a detached one. A mount that was detached while in use is
 * still served and keeps its upper locked, so a container could not start again. The new mount asks
 * the server through a fifo in the old mount's work directory. The server decides. */
#pragma once

#include "veneer/base/types.h"

#include <stdbool.h>
#include <sys/types.h>

/* Make the fifo in workfd, the private work directory. When a mount asks, this process gets sig,
 * which every thread blocks; if sig is 0, the caller polls *ret_fd for reading. The caller closes
 * *ret_fd. 0 or -errno. */
int upper_takeover_listen(int workfd, int sig, int *ret_fd);
/* After sig: has a mount asked for the upper with this device and inode number? */
bool upper_takeover_is_asked(int fd, dev_t dev, ino_t ino);
/* Ask every server with a directory in workdir for that upper. workdir: a descriptor of the
 * option's directory. */
void upper_takeover_ask(int workdir, dev_t dev, ino_t ino);
