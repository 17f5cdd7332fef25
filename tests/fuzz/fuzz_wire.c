// SPDX-License-Identifier: Apache-2.0
/* An input is a packet; and the text of one, the strings of a command line. */
#include "server/wire.h"

#include <stdlib.h>
#include <string.h>

#include "veneer/base/cleanup.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool is_kept)
{
	if (!is_kept)
		abort();
}

/* A message that was understood says the same when it is encoded again. */
static void check_message(const struct wire_message *m, const uint8_t *data, size_t size)
{
	_cleanup_(buf_release) struct buf again = { 0 };
	int r;

	require(m->type > 0 && m->type < WIRE_TYPES);
	require(m->n_fds <= WIRE_FDS_MAX);
	require(m->text_len == 0 || (m->text >= (const char *)data &&
				     m->text + m->text_len <= (const char *)data + size));
	if (m->version != WIRE_VERSION)
		return;
	r = wire_encode(m, &again);
	require(r != 0 || (again.len == size && !memcmp(again.data, data, size)));
}

static void check_args(const struct wire_message *m)
{
	_cleanup_(freep) char *text = malloc(m->text_len ? m->text_len : 1);
	_cleanup_(freep) char **argv = NULL;
	const char *cwd;

	if (!text)
		return;
	memcpy(text, m->text_len ? m->text : "", m->text_len);
	for (uint32_t argc = 0; argc < 8; argc++) {
		if (wire_split_args(text, m->text_len, argc, &cwd, &argv) < 0)
			continue;
		require(argc > 0 && strlen(cwd) < m->text_len);
		for (uint32_t i = 0; i < argc; i++)
			require(argv[i] > text && argv[i] + strlen(argv[i]) < text + m->text_len);
		require(!argv[argc]);
		freep(&argv);
		argv = NULL;
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct wire_message m;

	if (wire_decode(data, size, &m) < 0)
		return 0;
	check_message(&m, data, size);
	if (m.type == WIRE_ARGS)
		check_args(&m);
	return 0;
}
