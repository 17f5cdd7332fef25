/* SPDX-License-Identifier: Apache-2.0 */
/* A server's messages to its client. */
#pragma once

#include "wire.h"

/* Send a message without descriptors. Waits some time for a client that does not read. 0 or
 * -errno. */
int wire_send(int fd, const struct wire_message *m);
/* Send TEXT, or ERROR with exit code 1. */
int wire_send_text(int fd, enum wire_type type, const char *text, size_t len);
