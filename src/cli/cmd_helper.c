// SPDX-License-Identifier: Apache-2.0
/* The helper that mount(8) runs for the type veneer: mount.veneer SPEC DIR [-fnsv] [-N NAMESPACE]
 * [-t TYPE] [-o OPTIONS]. Its flags differ from those of the mount program: -f mounts nothing. */
#include "commands.h"

#include "veneer/base/cleanup.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* Exit codes of mount(8). */
enum { EXIT_USAGE = 1, EXIT_SYSTEM = 2, EXIT_MOUNT = 32 };

static int complain(int code, const char *what)
{
	fprintf(stderr, "mount.veneer: %s\n", what);
	return code;
}

static int print_usage(void)
{
	printf("usage: mount -t veneer SPEC DIR -o lowerdir=A[:B...][,upperdir=U,workdir=W]\n"
	       "       mount.veneer SPEC DIR [-fnsv] [-o OPTIONS]\n\n"
	       "mount(8) runs this helper. SPEC is any word; the options are in veneer(1).\n\n"
	       "  -f              mount nothing\n"
	       "  -n, -s, -v      ignored, as is -t TYPE\n"
	       "  -N NAMESPACE    not supported\n"
	       "  -o OPTIONS      as for veneer mount\n"
	       "  -h, --help      this text\n\n"
	       "Exit code: 0; 1 for wrong usage; 2 no memory; 32 when it cannot be mounted.\n");
	return 0;
}

static int wrong_usage(const char *what)
{
	complain(EXIT_USAGE, what);
	fprintf(stderr, "usage: mount -t veneer SPEC DIR -o OPTIONS; mount.veneer --help\n");
	return EXIT_USAGE;
}

/* Find a word between commas. A word within quotes counts, too; no usual name contains one. */
static bool has_word(const char *options, const char *word)
{
	const size_t len = strlen(word);

	for (const char *s = options; s; s = strchr(s, ',') ? strchr(s, ',') + 1 : NULL)
		if (!strncmp(s, word, len) && (!s[len] || s[len] == ','))
			return true;
	return false;
}

/* Fill args, which has room for twice argc, with the command line of the mount program. 0, or an
 * exit code with *ret_done. */
static int translate(int argc, char **argv, char **args, int *ret_n, bool *ret_done)
{
	static char name[] = "mount.veneer", dash_o[] = "-o";
	char *words[2];
	bool is_fake = false;
	int n = 0, n_words = 0, c;

	*ret_done = true;
	args[n++] = name;
	opterr = 0;
	/* SPEC and DIR come first, and not every getopt looks for options after them. */
	while ((c = getopt(argc, argv, "-fhnsvo:t:N:")) != -1) {
		if (c == 1 && n_words < 2)
			words[n_words++] = optarg;
		else if (c == 1)
			return wrong_usage("SPEC and DIR are needed, and nothing besides");
		if (c == 'h')
			return print_usage();
		if (c == '?')
			return wrong_usage("an option is unknown, or lacks its value");
		if (c == 'N')
			return complain(EXIT_USAGE,
					"-N, another mount namespace, is not supported");
		if (c == 'o' && has_word(optarg, "remount"))
			return complain(
				EXIT_MOUNT,
				"options cannot be changed while it is mounted: unmount it first");
		is_fake |= c == 'f';
		if (c == 'o') {
			args[n++] = dash_o;
			args[n++] = optarg;
		}
	}
	/* The words after "--". */
	for (; optind < argc && n_words < 2; optind++)
		words[n_words++] = argv[optind];
	if (n_words != 2 || optind != argc)
		return wrong_usage("SPEC and DIR are needed, and nothing besides");
	args[n++] = words[0];
	args[n++] = words[1];
	args[n] = NULL;
	*ret_n = n;
	*ret_done = is_fake;
	return 0;
}

int cmd_helper(int argc, char **argv)
{
	_cleanup_(freep) char **args = NULL;
	bool is_done;
	int code, n;

	if (argc == 2 && !strcmp(argv[1], "--help"))
		return print_usage();
	args = calloc(2 * (size_t)argc + 1, sizeof(*args));
	if (!args)
		return complain(EXIT_SYSTEM, "out of memory");
	code = translate(argc, argv, args, &n, &is_done);
	if (is_done)
		return code;
	return cmd_mount(n, args) == 0 ? 0 : EXIT_MOUNT;
}
