/* SPDX-License-Identifier: Apache-2.0 */
/* Gives the kernel the pages of a small lower file with its first open, so that reading it takes no
 * request more. Nor does fstat(2) afterwards, as a READ makes the kernel forget the access time.
 *
 * Those pages must not come over newer ones. So only an open that is the only one of its node fills
 * it. A thread that can change the bytes first counts its open (passthrough_table.h), or notes its
 * change (attr_change_begin). Then it waits here until a fill that began before is over. A READ of
 * an earlier open cannot hold a page meanwhile: its RELEASE comes after it. */
#pragma once

#include "op.h"

/* The open of a lower file for reading has been counted, and is not answered yet; its size then.
 * Whether the kernel took the pages does not matter. No lock may be held. */
void page_fill_send(struct mount *m, struct inode *i, fuse_ino_t node, off_t size);
/* Wait until no fill of the file is under way. No lock may be held. */
void page_fill_wait(const struct inode *i);
