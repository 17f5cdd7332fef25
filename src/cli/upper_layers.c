// SPDX-License-Identifier: Apache-2.0
#include "upper_layers.h"

#include "mount_find.h"

#include "veneer/base/cleanup.h"
#include "veneer/base/log.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>

int upper_layers_parse(char *list, struct mount_opts *ret)
{
	char self[] = "veneer", flag[] = "-o", readonly[] = "ro", point[] = "/";
	char *argv[] = { self, flag, list, flag, readonly, point };
	char cwd[PATH_MAX], err[PATH_MAX] = "out of memory";

	if (!getcwd(cwd, sizeof(cwd)))
		strcpy(cwd, "/");
	if (options_parse(&(struct options_argv){ 6, argv, cwd, geteuid() == 0, false }, ret, err,
			  sizeof(err)) == 0)
		return 0;
	log_error("%s", err);
	return -EINVAL;
}

static int take_mount(const char *given, struct upper_layers *l)
{
	const struct report_mount *m = &l->report.mounts[0];

	l->is_mounted = true;
	if (!m->upper || !m->lowers) {
		log_error("%s has no upper directory", given);
		return -EROFS;
	}
	l->upper = strdup(m->upper);
	l->lower = m->lowers;
	l->n_lower = m->nlower;
	return l->upper ? 0 : -ENOMEM;
}

int upper_layers_find(const char *given, char *list, const char *command, struct upper_layers *ret)
{
	int r;

	*ret = (struct upper_layers){ .is_mounted = false };
	r = mount_find_look(given, command, &ret->report);
	if (r < 0)
		return r;
	if (r > 0)
		return take_mount(given, ret);
	ret->upper = strdup(given);
	if (!list) {
		log_error("%s is no mount of veneer: name its lower layers, -o lowerdir=A[:B...]",
			  given);
		return -EINVAL;
	}
	r = ret->upper ? upper_layers_parse(list, &ret->opts) : -ENOMEM;
	ret->lower = ret->opts.lower;
	ret->n_lower = ret->opts.n_lower;
	return r;
}

void upper_layers_release(struct upper_layers *l)
{
	free(l->upper);
	options_release(&l->opts);
	report_release(&l->report);
	*l = (struct upper_layers){ .is_mounted = false };
}
