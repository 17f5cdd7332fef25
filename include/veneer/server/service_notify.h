/* SPDX-License-Identifier: Apache-2.0 */
/* Messages to service managers that follow systemd's conventions. */
#pragma once

/* Open a socket to the manager that the environment names. It stays connected when this process
 * changes its root or namespaces. -1: none. */
int service_notify_open(void);
void service_notify_send(int fd, const char *state);
/* The listening socket that the manager passed to this process, set to close-on-exec, or -1. */
int service_notify_listen_fd(void);
