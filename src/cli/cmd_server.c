// SPDX-License-Identifier: Apache-2.0
/* The server of a user's mounts. It runs in the foreground for a service manager, or is started by
 * the first mount program that finds none. */
#include "commands.h"

#include "stats_fetch.h"
#include "usage.h"

#include "veneer/base/cleanup.h"
#include "veneer/base/log.h"
#include "veneer/server/metrics.h"
#include "veneer/server/sandbox_setup.h"
#include "veneer/server/server.h"
#include "veneer/server/service_notify.h"
#include "veneer/server/upgrade.h"
#include "veneer/sys/cpu_latency.h"
#include "veneer/sys/sock.h"

#include <fcntl.h>
#include <getopt.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>

#define ERR_SIZE   (PATH_MAX * 2)
#define IDLE_S	   30u
#define IDLE_MAX_S 31536000u

struct choice {
	const char *socket, *metrics;
	unsigned idle_s;
	int cpu_latency; /* if has_cpu_latency: value for mounts with cpu-latency=auto */
	bool has_cpu_latency;
	int listen_fd; /* from the process that started this, or -1 */
	bool is_activated; /* listen_fd is the socket of a service manager, and stays its own */
	bool is_debug, has_log;
	enum log_sink log; /* if has_log */
	char *log_file; /* if has_log: standard error becomes this file, and log is its format; or
			   NULL */
	bool is_alone;
	bool is_upgrade;
	int from_fd; /* from the old server, for a takeover, or -1; the next descriptor gets the
			result */
};

static int print_usage(void)
{
	printf("usage: veneer server [--socket PATH] [--idle SECONDS] [--alone|--upgrade]\n"
	       "                     [--metrics WHERE] [--log HOW] [--debug]\n\n"
	       "Serve all mounts of this user, in the foreground. The first mount starts such a\n"
	       "server by itself; see veneer-server(8).\n\n"
	       "  --socket PATH   place of the socket (default: where mount programs look)\n"
	       "  --idle SECONDS  exit this time after the last mount (default: %u; 0: at once)\n"
	       "  --alone         one process: no other server follows if this one dies\n"
	       "  --upgrade       take over the mounts of the running server\n"
	       "  --metrics WHERE serve Prometheus at unix:PATH or ADDRESS:PORT (default: off)\n"
	       "  --log HOW       stderr, json (to standard error), journal, syslog, file:PATH\n"
	       "                  (in json; default: journal if standard error is it, else\n"
	       "                  stderr)\n"
	       "  --cpu-latency X for mounts with cpu-latency=auto: auto, off or microseconds\n"
	       "  --debug         log debug messages\n\n"
	       "Exit code: 0 when it was told to exit, was idle, or has taken the mounts over; 1\n"
	       "on failure; 2 for wrong usage.\n",
	       IDLE_S);
	return 0;
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

static void choice_release(struct choice *c)
{
	free(c->log_file);
}

/* "stderr" and so on, or "file:" and an absolute path. */
static bool choose_log_by(const char *text, size_t len, struct choice *c)
{
	_cleanup_(freep) char *word = strndup(text, len);
	enum log_sink log = LOG_JSON;
	const bool is_file = word && !strncmp(word, "file:/", 6);

	if (!word || (!is_file && !log_choose(word, &log)))
		return false;
	free(c->log_file);
	c->log_file = is_file ? strdup(word + 5) : NULL;
	c->log = log;
	c->has_log = !is_file || c->log_file;
	return c->has_log;
}

/* 0; -1: help was asked for; 1: wrong usage, after a sentence. */
static int parse(int argc, char **argv, struct choice *c)
{
	static const struct option options[] = {
		{ "socket", required_argument, NULL, 's' },
		{ "idle", required_argument, NULL, 'i' },
		{ "listen-fd", required_argument, NULL, 'l' },
		{ "alone", no_argument, NULL, 'a' },
		{ "upgrade", no_argument, NULL, 'u' },
		{ "from-fd", required_argument, NULL, 'f' },
		{ "metrics", required_argument, NULL, 'm' },
		{ "log", required_argument, NULL, 'L' },
		{ "cpu-latency", required_argument, NULL, 'c' },
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
		else if (o == 'm' && *optarg)
			c->metrics = optarg;
		else if (o == 'L' && choose_log_by(optarg, strlen(optarg), c))
			continue;
		else if (o == 'L') {
			log_error("wrong argument of --log: %s; it takes stderr, json, journal, "
				  "syslog or file:/PATH",
				  optarg);
			return 1;
		} else if (o == 'c' && cpu_latency_parse(optarg, &c->cpu_latency))
			c->has_cpu_latency = true;
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

/* Use the socket that was passed in, or make one. */
static int listen_there(const struct choice *choice, struct server_config *c, char *err,
			size_t err_size)
{
	_cleanup_(closep) int lock = -1;
	int r;

	c->listen_fd = choice->listen_fd;
	c->owns_socket = !choice->is_activated;
	if (c->listen_fd >= 0) {
		if (fcntl(c->listen_fd, F_SETFD, FD_CLOEXEC) == 0 &&
		    sock_is_listening(c->listen_fd))
			return 0;
		snprintf(err, err_size,
			 "descriptor %d is not a listening socket of the kind SOCK_SEQPACKET",
			 c->listen_fd);
		return -EINVAL;
	}
	r = rundir_lock_or_say(c->place, &lock, err, err_size);
	if (r < 0)
		return r;
	r = rundir_listen(c->place, &c->listen_fd);
	if (r == -EADDRINUSE)
		snprintf(err, err_size, "a server is there already: %s", c->place->path);
	else if (r < 0)
		snprintf(err, err_size, "cannot listen at %s: %s", c->place->path, strerror(-r));
	return r;
}

/* Descriptors of the starter must not stay open as long as there are mounts. */
static void close_foreign_fds(struct choice *c)
{
	unsigned keep;

	if (c->listen_fd < 0 && (c->listen_fd = service_notify_listen_fd()) >= 0)
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

/* Parse "journal" or "journal,debug". */
static bool choose_log_of(const char *text, struct choice *c)
{
	const char *comma = strrchr(text, ',');
	const bool is_debug = comma && !strcmp(comma, ",debug");

	c->is_debug |= is_debug;
	return choose_log_by(text, is_debug ? (size_t)(comma - text) : strlen(text), c);
}

static void set_latency(int us)
{
	char text[16];

	snprintf(text, sizeof(text), "%d", us);
	setenv("VENEER_CPU_LATENCY",
	       us == CPU_LATENCY_AUTO  ? "auto"
	       : us == CPU_LATENCY_OFF ? "off"
				       : text,
	       1);
}

/* Read the environment that a mount sets when it starts a server. For --upgrade, pass options on in
 * it as well. */
static void read_environment(struct choice *c)
{
	const char *log = getenv("VENEER_LOG"), *metrics = getenv("VENEER_METRICS"),
		   *latency = getenv("VENEER_CPU_LATENCY");
	_cleanup_(freep) char *said = NULL;

	if (!c->has_log && log && *log && !choose_log_of(log, c))
		log_warn("VENEER_LOG is none of stderr, json, journal, syslog and file:/PATH: %s",
			 log);
	if (!c->has_cpu_latency && latency && *latency &&
	    !(c->has_cpu_latency = cpu_latency_parse(latency, &c->cpu_latency)))
		log_warn("VENEER_CPU_LATENCY is none of auto, off and microseconds: %s", latency);
	if (c->is_upgrade && c->has_cpu_latency)
		set_latency(c->cpu_latency);
	if (c->is_upgrade && c->metrics)
		setenv("VENEER_METRICS", c->metrics, 1);
	if (c->is_upgrade && c->has_log &&
	    asprintf(&said, "%s%s", c->log_file ? "file:" : "",
		     c->log_file ?: log_sink_name(c->log)) > 0)
		setenv("VENEER_LOG", said, 1);
	if (!c->metrics && metrics && *metrics)
		c->metrics = metrics;
}

/* As standard error the file outlives a server that dies, and stays reachable where the path does
 * not resolve. */
static int open_log_file(const char *path)
{
	_cleanup_(closep) int fd =
		open(path, O_WRONLY | O_APPEND | O_CREAT | O_NOCTTY | O_NONBLOCK | O_CLOEXEC, 0600);

	return fd < 0 || dup2(fd, STDERR_FILENO) < 0 ? -errno : 0;
}

/* A server keeps no output of its starter, so only a file or a log of the system remains then. */
static int choose_log(const struct choice *c, bool keeps_output, char *err, size_t err_size)
{
	int r = c->log_file ? open_log_file(c->log_file) : 0;

	if (r < 0)
		snprintf(err, err_size, "cannot open the log %s: %s", c->log_file, strerror(-r));
	else if (c->log_file)
		log_to(LOG_JSON);
	else if (c->has_log && (keeps_output || c->log == LOG_JOURNAL || c->log == LOG_SYSLOG))
		log_to(c->log);
	else if (keeps_output ? log_is_journal(STDERR_FILENO) : log_has_journal())
		log_to(LOG_JOURNAL);
	if (r == 0 || keeps_output)
		return r;
	/* A mount must not fail because of its log. */
	if (log_has_journal())
		log_to(LOG_JOURNAL);
	else
		log_to_syslog();
	log_warn("%s", err);
	return 0;
}

/* Listen for Prometheus. A failure is an error if a user started the server; a mount must not fail
 * because of it. */
static int watch_there(const struct choice *choice, struct server_config *c, char *err,
		       size_t err_size)
{
	int r;

	c->endpoint = LISTEN_SOCKET_NONE;
	if (!choice->metrics)
		return 0;
	r = metrics_load(err, err_size);
	if (r == 0)
		r = listen_socket_find(choice->metrics, &c->endpoint, err, err_size);
	if (r == 0 && !c->takes_over) {
		r = listen_socket_listen(&c->endpoint);
		if (r < 0)
			snprintf(err, err_size, "cannot listen at %s: %s", choice->metrics,
				 strerror(-r));
	}
	if (r < 0 && !c->keeps_output) {
		log_warn("metrics are not answered: %s", err);
		listen_socket_close(&c->endpoint);
		return 0;
	}
	return r;
}

int cmd_server(int argc, char **argv)
{
	_cleanup_(choice_release) struct choice choice = { .idle_s = IDLE_S,
							   .listen_fd = -1,
							   .from_fd = -1 };
	_cleanup_(rundir_release) struct rundir place = { .fd = -1 };
	char err[ERR_SIZE] = "";
	int r = parse(argc, argv, &choice);
	struct server_config c = { .place = &place,
				   .stats = stats_fetch_own,
				   .metrics = stats_fetch_metrics };

	/* The kernel names a process executed through /proc/self/exe "exe". */
	prctl(PR_SET_NAME, "veneer");
	c.keeps_output = choice.listen_fd < 0 && choice.from_fd < 0;
	c.idle_s = choice.idle_s;
	c.cpu_latency = CPU_LATENCY_AUTO;
	c.is_alone = choice.is_alone;
	c.takes_over = choice.from_fd >= 0;
	c.from_fd = choice.from_fd;
	c.word_fd = UPGRADE_WORD_FD;
	sandbox_setup_hold_standard_fds();
	if (r != 0)
		return r < 0 ? print_usage() : usage_hint("server");
	read_environment(&choice);
	if (choice.has_cpu_latency)
		c.cpu_latency = choice.cpu_latency;
	if (choice.is_debug)
		log_set_level(LOG_LVL_DEBUG);
	if (choose_log(&choice, c.keeps_output, err, sizeof(err)) < 0) {
		log_error("%s", err);
		return 1;
	}
	c.has_log_file = choice.log_file && !log_is_of_system();
	/* A server that a mount or an upgrade started; a user who starts one chose its place. */
	if (!c.keeps_output)
		sandbox_setup_leave_groups();
	close_foreign_fds(&choice);
	r = choice.socket ? rundir_open_path(&place, choice.socket, err, sizeof(err))
			  : rundir_open(&place, err, sizeof(err));
	if (r == 0 && choice.is_upgrade)
		return upgrade_run(&place, choice.idle_s) < 0;
	if (r == 0 && !c.takes_over)
		r = listen_there(&choice, &c, err, sizeof(err));
	if (r == 0)
		r = watch_there(&choice, &c, err, sizeof(err));
	if (r < 0) {
		log_error("%s", err);
		return 1;
	}
	return server_run(&c);
}
