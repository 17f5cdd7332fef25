/* SPDX-License-Identifier: Apache-2.0 */
/* May the upper of a mount that is in use become a lower layer? Not while bytes of it change that
 * nobody asks us to change, and not while something of it is in use that no name leads to. */
#pragma once

#include "veneer/mount/mount.h"

/* Look up the other names of files whose known name was removed, and make partial files without a
 * name whole: the map by which they are read stays with what becomes a lower layer. While requests
 * are answered, so that little of it is left to mount_freeze_check. 0 or -errno. */
int mount_freeze_prepare(struct mount *m);
/* No request of the mount is being answered, and none comes. What is open on files of the upper
 * past us alone for reading stays so. 0; -ETXTBSY: the kernel itself may write a file of it;
 * -ENOLCK: whether it may cannot be told here; -EUSERS: a file that was removed, or whose name
 * another file took, is in use; -ENOTEMPTY: a copy of a file with several names is half done; -EIO
 * or the like: a sync failed, of which a program is yet to be told; -errno. The mount may go on in
 * any case. */
int mount_freeze_check(struct mount *m);
