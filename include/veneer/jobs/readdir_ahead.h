/* SPDX-License-Identifier: Apache-2.0 */
/* A program that walks a tree (find, du, tar, rm -r) lists a directory, then the directories in it.
 * Once that is seen, a thread reads the next directories of the image and their entries' attributes
 * before they are asked for, so that the disk, or another processor, works while the program does.
 * One thread serves all mounts of the process. */
#pragma once

#include "veneer/layer/image.h"

struct readdir_ahead;

/* For one mount; the first one starts the thread: after the last fork. 0 or -errno. The image
 * outlives it. */
int readdir_ahead_start(struct image *img, struct readdir_ahead **ret);
/* Drop the directories that this mount queued, and wait until the thread does not use it. NULL is
 * ignored. */
void readdir_ahead_stop(struct readdir_ahead *w);
/* A program begins to list dir, and wants attributes or only names. Waits for no I/O. NULL is
 * ignored. */
void readdir_ahead_listed(struct readdir_ahead *w, struct image_entry *dir, bool wants_attributes);
