/* SPDX-License-Identifier: Apache-2.0 */
/* Mounting and unmounting by a command that does more than that. */
#pragma once

/* As `veneer mount -o OPTIONS DEST` and `veneer umount DEST`: the exit code. */
int mount_call_mount(char *options, char *dest);
int mount_call_umount(char *dest);
