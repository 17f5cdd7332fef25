// SPDX-License-Identifier: Apache-2.0
/* An input is a packet; and the text of one, the strings of a command line. */
#include "server/wire.h"
#include "support.h"

#include <stdlib.h>
#include <string.h>

#include "veneer/base/cleanup.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* A message that was understood says the same when it is encoded again. */
static void check_message(const struct wire_message *m, const uint8_t *data, size_t size)
{
	_cleanup_(buf_release) struct buf again = { 0 };
	int r;

	fuzz_require(m->type > 0 && m->type < WIRE_TYPES);
	fuzz_require(m->n_fds <= WIRE_FDS_MAX);
	fuzz_require(m->text_len == 0 || (m->text >= (const char *)data &&
					  m->text + m->text_len <= (const char *)data + size));
	if (m->version != WIRE_VERSION)
		return;
	r = wire_encode(m, &again);
	fuzz_require(r != 0 || (again.len == size && !memcmp(again.data, data, size)));
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
		fuzz_require(argc > 0 && strlen(cwd) < m->text_len);
		for (uint32_t i = 0; i < argc; i++)
			fuzz_require(argv[i] > text &&
				     argv[i] + strlen(argv[i]) < text + m->text_len);
		fuzz_require(!argv[argc]);
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
