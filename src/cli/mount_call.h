/* SPDX-License-Identifier: Apache-2.0 */
/* Mounts and unmounts for other commands. */
#pragma once

/* Run `veneer mount -o OPTIONS DEST` or `veneer umount DEST`; returns the exit code. */
int mount_call_mount(char *options, char *dest);
int mount_call_umount(char *dest);
