// SPDX-License-Identifier: Apache-2.0
/* An input is a command line: its words, each ended by a newline. */
#include "support.h"
#include "veneer/mount/options.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "veneer/base/cleanup.h"

#define MAX_WORDS 32

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_maps(const struct id_maps *m)
{
	for (size_t i = 0; i < m->n; i++) {
		const struct id_map *row = &m->rows[i];

		if (row->len == 0)
			continue;
		fuzz_require(row->outside + (row->len - 1) >= row->outside);
		fuzz_require(row->inside + (row->len - 1) >= row->inside);
	}
	if (m->n == 1 && m->rows[0].len > 0)
		fuzz_require(idmap_to_disk(m, m->rows[0].inside) == m->rows[0].outside);
}

static void check_result(const struct mount_opts *o)
{
	fuzz_require(o->kernel_opts != NULL);
	for (size_t i = 0; i < o->n_lower; i++)
		fuzz_require(o->lower[i][0] == '/');
	for (size_t i = 0; i < o->n_unknown; i++)
		fuzz_require(o->unknown[i][0] != '\0');
	fuzz_require(!o->upper || o->upper[0] == '/');
	fuzz_require(!o->work || o->work[0] == '/');
	fuzz_require(o->timeout_s >= 0);
	fuzz_require(o->xattr_permissions >= 0 && o->xattr_permissions <= 2);
	fuzz_require(o->squash_uid >= -1 && o->squash_uid < UINT32_MAX);
	fuzz_require(o->squash_gid >= -1 && o->squash_gid < UINT32_MAX);
	check_maps(&o->uids);
	check_maps(&o->gids);
	if (o->wants_help || o->wants_version)
		return;
	fuzz_require(o->n_lower > 0 && o->mountpoint && o->mountpoint[0] == '/');
	fuzz_require(!o->upper || o->work || o->is_readonly);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	_cleanup_(freep) char *text = malloc(size + 1);
	char program[] = "fuse-overlayfs", err[64] = "", *argv[MAX_WORDS] = { program };
	struct mount_opts o;
	int argc = 1, r;

	if (!text)
		return 0;
	memcpy(text, data, size);
	text[size] = '\0';
	for (char *s = text, *save; argc < MAX_WORDS; s = NULL) {
		argv[argc] = strtok_r(s, "\n", &save);
		if (!argv[argc])
			break;
		argc++;
	}
	r = options_parse(&(struct options_argv){ argc, argv, "/nowhere", size % 2, false }, &o,
			  err, sizeof(err));
	if (r < 0) {
		fuzz_require(r == -ENOMEM || (err[0] && memchr(err, 0, sizeof(err))));
		return 0;
	}
	check_result(&o);
	options_release(&o);
	return 0;
}
