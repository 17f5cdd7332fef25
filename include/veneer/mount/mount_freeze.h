/* SPDX-License-Identifier: Apache-2.0 */
/* Can the upper of a mount in use become a lower layer? Not while the kernel may change its data
 * without a request, and not while files are in use that no name leads to. */
#pragma once

#include "veneer/mount/mount.h"

/* Look up the other names of files whose known name was removed, and materialize partial files
 * without a name, because their map stays with the new lower layer. Call it while requests are
 * answered, so that mount_freeze_check has little to do. 0 or -errno. */
int mount_freeze_prepare(struct mount *m);
/* Call it when no request of the mount is being answered, and none comes. Descriptors that programs
 * have open on files of the upper directly, and only for reading, stay. The mount may go on in any
 * case. 0, or -errno:
 *
 * - -ETXTBSY: the kernel itself may write a file of the upper.
 * - -ENOLCK: it cannot be found out here whether the kernel may.
 * - -EUSERS: a file in use was removed, or another file took its name.
 * - -ENOTEMPTY: a copy of a file with several names is half done.
 * - -EIO and others: a sync failed, and a program has yet to be told. */
int mount_freeze_check(struct mount *m);
