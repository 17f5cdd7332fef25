/* SPDX-License-Identifier: Apache-2.0 */
/* Messages to service managers that follow systemd's conventions. */
#pragma once

/* A way to the manager that the environment names, which leads there wherever this process goes, or
 * -1. */
int service_notify_open(void);
void service_notify_send(int fd, const char *state);
/* The socket that the manager made for this process, close-on-exec, or -1. */
int service_notify_listen_fd(void);
