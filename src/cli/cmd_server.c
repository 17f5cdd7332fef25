// SPDX-License-Identifier: Apache-2.0
/* The server of a user's mounts: in the foreground for a service manager, or started by the first mount program that
 * finds none. */
#include "veneer/commands.h"

#include "fetch.h"

#include "veneer/cleanup.h"
#include "veneer/log.h"
#include "veneer/notify.h"
#include "veneer/server.h"
#include "veneer/shelter.h"
#include "veneer/sock.h"
#include "veneer/upgrade.h"

#include <fcntl.h>
#include <getopt.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

#define ERR_SIZE (PATH_MAX * 2)
#define IDLE_S 30u
#define IDLE_MAX_S 31536000u

struct choice {
	const char *socket;
	unsigned idle_s;
	int listen_fd;	/* of whoever started this, or -1 */
	bool is_activated;	/* by a service manager, whose socket it stays */
	bool is_debug;
	bool is_alone;
	bool is_upgrade;
	int from_fd;	/* of whoever started this to take over, or -1: the word goes to the next one */
};

static int print_usage(FILE *out)
{
	fprintf(out, "usage: veneer server [--socket PATH] [--idle SECONDS] [--alone|--upgrade] [--debug]\n"
		     "\n"
		     "  --socket PATH   where mount programs find it (default: where they look)\n"
		     "  --idle SECONDS  leave when nothing has been mounted for so long (default: %u; 0: at once)\n"
		     "  --alone         in one process: nobody starts another server if this one dies\n"
		     "  --upgrade       have this program take over the mounts of the server that is there\n"
		     "  --debug         say what happens\n",
		IDLE_S);
	return out == stdout ? 0 : 2;
}

static bool parse_number(const char *s, unsigned max, unsigned *ret)
{
	char *end;
	unsigned long v;

	errno = 0;
	v = strtoul(s, &end, 10);
	if (*s < '0' || *s > '9' || *end || errno || v > max)
		return false;
	*ret = (unsigned)v;
	return true;
}

/* 0; -1: help was asked for; 1: wrong usage, and it has been said. */
static int parse(int argc, char **argv, struct choice *c)
{
	static const struct option options[] = {
		{ "socket", required_argument, NULL, 's' },
		{ "idle", required_argument, NULL, 'i' },
		{ "listen-fd", required_argument, NULL, 'l' },
		{ "alone", no_argument, NULL, 'a' },
		{ "upgrade", no_argument, NULL, 'u' },
		{ "from-fd", required_argument, NULL, 'f' },
		{ "debug", no_argument, NULL, 'd' },
		{ "help", no_argument, NULL, 'h' },
		{ NULL, 0, NULL, 0 },
	};
	unsigned fd;
	int o, at = 1;

	opterr = 0;
	for (; (o = getopt_long(argc, argv, "+hd", options, NULL)) != -1; at = optind) {
		if (o == 'h')
			return -1;
		if (o == 'd')
			c->is_debug = true;
		else if (o == 'a')
			c->is_alone = true;
		else if (o == 'u')
			c->is_upgrade = true;
		else if (o == 's' && *optarg)
			c->socket = optarg;
		else if (o == 'l' && parse_number(optarg, INT_MAX, &fd))
			c->listen_fd = (int)fd;
		else if (o == 'f' && parse_number(optarg, INT_MAX - 1, &fd))
			c->from_fd = (int)fd;
		else if (o != 'i' || !parse_number(optarg, IDLE_MAX_S, &c->idle_s))
			break;
	}
	if (at == argc && !(c->is_upgrade && c->is_alone))
		return 0;
	if (at == argc)
		at = argc - 1;
	log_error("wrong argument: %s", argv[at]);
	return 1;
}

/* The socket that was made for us, or one of our own. */
static int listen_there(const struct choice *choice, struct server_config *c, char *err, size_t err_size)
{
	_cleanup_(closep) int lock = -1;
	int r;

	c->listen_fd = choice->listen_fd;
	c->owns_socket = !choice->is_activated;
	if (c->listen_fd >= 0) {
		if (fcntl(c->listen_fd, F_SETFD, FD_CLOEXEC) == 0 && sock_is_listening(c->listen_fd))
			return 0;
		snprintf(err, err_size, "descriptor %d is not a listening socket of the kind SOCK_SEQPACKET", c->listen_fd);
		return -EINVAL;
	}
	r = rundir_lock(c->place, false, &lock);
	if (r == 0)
		r = rundir_listen(c->place, &c->listen_fd);
	if (r == -EADDRINUSE)
		snprintf(err, err_size, "a server is there already: %s", c->place->path);
	else if (r < 0)
		snprintf(err, err_size, "cannot listen at %s: %s", c->place->path, strerror(-r));
	return r;
}

/* Nothing that the starter left open may stay open as long as there are mounts. */
static void close_foreign_fds(struct choice *c)
{
	unsigned keep;

	if (c->listen_fd < 0 && (c->listen_fd = notify_listen_fd()) >= 0)
		c->is_activated = true;
	if (c->from_fd == UPGRADE_FROM_FD) {
		close_range(UPGRADE_WORD_FD + 1, ~0u, 0);
		return;
	}
	keep = c->listen_fd > 2 ? (unsigned)c->listen_fd : 2;
	if (keep > 3)
		close_range(3, keep - 1, 0);
	close_range(keep + 1, ~0u, 0);
}

int cmd_server(int argc, char **argv)
{
	struct choice choice = { .idle_s = IDLE_S, .listen_fd = -1, .from_fd = -1 };
	_cleanup_(rundir_release) struct rundir place = { .fd = -1 };
	char err[ERR_SIZE] = "";
	int r = parse(argc, argv, &choice);
	struct server_config c = { .place = &place, .stats = fetch_own };

	c.keeps_output = choice.listen_fd < 0 && choice.from_fd < 0;
	c.idle_s = choice.idle_s;
	c.is_alone = choice.is_alone;
	c.takes_over = choice.from_fd >= 0;
	c.from_fd = choice.from_fd;
	c.word_fd = UPGRADE_WORD_FD;
	shelter_hold_standard_fds();
	if (r != 0)
		return print_usage(r < 0 ? stdout : stderr);
	if (choice.is_debug)
		log_set_level(LOG_LVL_DEBUG);
	close_foreign_fds(&choice);
	r = choice.socket ? rundir_open_path(&place, choice.socket, err, sizeof(err)) :
			    rundir_open(&place, err, sizeof(err));
	if (r == 0 && choice.is_upgrade)
		return upgrade_run(&place, choice.idle_s) < 0;
	if (r == 0 && !c.takes_over)
		r = listen_there(&choice, &c, err, sizeof(err));
	if (r < 0) {
		log_error("%s", err);
		return 1;
	}
	return server_run(&c);
}
