/* SPDX-License-Identifier: Apache-2.0 */
/* The subcommands. argv[0] is the name of the subcommand, its arguments follow; the result is an
 * exit code. */
#pragma once

int cmd_apply(int argc, char **argv);
int cmd_branch(int argc, char **argv);
int cmd_check(int argc, char **argv);
int cmd_clone(int argc, char **argv);
int cmd_clones(int argc, char **argv);
int cmd_diff(int argc, char **argv);
int cmd_discard(int argc, char **argv);
int cmd_du(int argc, char **argv);
int cmd_flatten(int argc, char **argv);
int cmd_helper(int argc, char **argv);
int cmd_info(int argc, char **argv);
int cmd_inspect(int argc, char **argv);
int cmd_mount(int argc, char **argv);
int cmd_profile(int argc, char **argv);
int cmd_receive(int argc, char **argv);
int cmd_rollback(int argc, char **argv);
int cmd_send(int argc, char **argv);
int cmd_snapshot(int argc, char **argv);
int cmd_snapshots(int argc, char **argv);
int cmd_squash(int argc, char **argv);
int cmd_stats(int argc, char **argv);
int cmd_top(int argc, char **argv);
int cmd_server(int argc, char **argv);
int cmd_umount(int argc, char **argv);
/* Called as umount.veneer, umount.fuse.fuse-overlayfs or umount.fuse, which umount(8) runs. */
int cmd_umount_helper(int argc, char **argv);
