// SPDX-License-Identifier: Apache-2.0
#include "wire_send.h"

#include "veneer/base/cleanup.h"
#include "veneer/sys/sock.h"

#define WAIT_MS 5000

int wire_send(int fd, const struct wire_message *m)
{
	_cleanup_(buf_release) struct buf b = { 0 };
	int r = wire_encode(m, &b);

	return r < 0 ? r : sock_send(fd, b.data, b.len, NULL, 0, WAIT_MS);
}

int wire_send_text(int fd, enum wire_type type, const char *text, size_t len)
{
	return wire_send(fd, &(struct wire_message){
				     .type = type, .count = 1, .text = text, .text_len = len });
}
