// SPDX-License-Identifier: Apache-2.0
/* The terminal belongs to this program between take_terminal and give_terminal, and is given back
 * on every exit. Signals only set a flag for the loop. */
#include "commands.h"

#include "stats_fetch.h"
#include "terminal.h"
#include "usage.h"

#include "veneer/base/cleanup.h"
#include "veneer/base/clock.h"
#include "veneer/base/log.h"
#include "veneer/tools/stats_text.h"
#include "veneer/tools/top_screen.h"

#include <getopt.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <time.h>

#define INTERVAL_MIN_S	 0.1
#define INTERVAL_MAX_S	 3600.0
#define FRAME_BYTES	 (64u << 10)
#define FIRST_INTERVAL_S 0.3 /* on a terminal, to show something soon */

static volatile sig_atomic_t is_stopped;

struct top {
	double interval_s;
	long count; /* number of frames; 0: until stopped */
	bool is_json;
	bool has_terminal, has_keys; /* the terminal can draw; it has a keyboard */
	struct top_screen screen; /* if has_terminal */
	struct termios keys; /* the original settings */
	sigset_t blocked, waiting; /* signals are delivered only while waiting */
};

enum wait { WAIT_OVER, WAIT_STOPPED, WAIT_REDRAW };

struct picture {
	struct report report;
	double at_s;
};

static int print_usage(void)
{
	printf("usage: veneer top [--interval SECONDS] [-n COUNT] [--json]\n\n"
	       "Show the requests to the mounts of the server per second, the busiest mount\n"
	       "first: on a terminal until q or Ctrl-C, elsewhere one frame after the other. On\n"
	       "a terminal these keys sort: r requests, e errors, b bytes read, w bytes written,\n"
	       "c bytes copied on write, t time (99 %%), m mount point. NO_COLOR in the\n"
	       "environment: plain text.\n\n"
	       "  -i, --interval SECONDS  between frames, 0.1 to 3600 (default: 2)\n"
	       "  -n, --count COUNT       number of frames (default: 1 if not on a terminal)\n"
	       "  --json                  each frame as a line of JSON, until Ctrl-C or -n\n\n"
	       "Exit code: 0; 1 when there is no server, or no longer; 2 for wrong usage.\n");
	return 0;
}

static double now_s(void)
{
	return (double)clock_ns() / 1e9;
}

static void stop(int sig)
{
	(void)sig;
	is_stopped = 1;
}

static void redraw(int sig)
{
	(void)sig;
}

static void catch_signals(struct top *t)
{
	static const int stopping[] = { SIGINT, SIGTERM, SIGHUP, SIGQUIT };
	const struct sigaction stops = { .sa_handler = stop }, redraws = { .sa_handler = redraw };

	sigemptyset(&t->blocked);
	for (size_t i = 0; i < sizeof(stopping) / sizeof(*stopping); i++) {
		sigaddset(&t->blocked, stopping[i]);
		sigaction(stopping[i], &stops, NULL);
	}
	sigaddset(&t->blocked, SIGWINCH);
	sigaction(SIGWINCH, &redraws, NULL);
	sigprocmask(SIG_BLOCK, &t->blocked, &t->waiting);
}

static void take_terminal(struct top *t)
{
	struct termios raw;

	t->has_terminal = !t->is_json && terminal_can_draw(stdout);
	/* If these signals ended or stopped the process, the terminal would not be given back. */
	if (t->has_terminal) {
		signal(SIGTSTP, SIG_IGN);
		signal(SIGPIPE, SIG_IGN);
	}
	t->screen.has_style = terminal_has_colours(stdout);
	t->has_keys = t->has_terminal && tcgetattr(STDIN_FILENO, &t->keys) == 0;
	if (t->has_keys) {
		raw = t->keys;
		raw.c_lflag &= ~(tcflag_t)(ICANON | ECHO);
		tcsetattr(STDIN_FILENO, TCSANOW, &raw);
	}
	/* Write a frame at once, so that no half frame is seen. */
	if (t->has_terminal)
		setvbuf(stdout, NULL, _IOFBF, FRAME_BYTES);
	/* Alternate screen, no cursor, cut long lines. */
	if (t->has_terminal)
		fputs("\033[?1049h\033[?25l\033[?7l", stdout);
}

static void give_terminal(struct top *t)
{
	if (t->has_terminal) {
		fputs("\033[?7h\033[?25h\033[?1049l", stdout);
		fflush(stdout);
	}
	if (t->has_keys)
		tcsetattr(STDIN_FILENO, TCSANOW, &t->keys);
	t->has_terminal = t->has_keys = false;
}

/* Draw at most nlines lines, and clear the rest of an older frame. */
static void draw_lines(const char *text, size_t nlines)
{
	fputs("\033[H", stdout);
	for (size_t i = 0; i < nlines && *text; i++) {
		size_t len = strcspn(text, "\n");

		if (i)
			fputs("\r\n", stdout);
		/* Clear before the line: after a line that fills the row, it would take the last
		 * character. */
		fputs("\033[K", stdout);
		fwrite(text, 1, len, stdout);
		text += len + (text[len] == '\n');
	}
	fputs("\033[J", stdout);
}

static void measure_terminal(struct top_screen *s)
{
	struct winsize size = { .ws_row = 0 };

	ioctl(STDOUT_FILENO, TIOCGWINSZ, &size);
	s->rows = size.ws_row ?: 24;
	s->columns = size.ws_col ?: 80;
}

static int draw(struct top *t, const struct picture *begun, const struct picture *ended)
{
	const double seconds = ended->at_s - begun->at_s;
	_cleanup_(freep) char *text = NULL;
	size_t len;
	FILE *f = open_memstream(&text, &len);
	int r = f ? 0 : -ENOMEM;

	if (t->has_terminal)
		measure_terminal(&t->screen);
	if (r == 0)
		r = t->is_json ? stats_text_print_json(&begun->report, &ended->report, seconds, f)
		    : t->has_terminal
			    ? top_screen_print(&t->screen, &begun->report, &ended->report, seconds,
					       f)
			    : stats_text_print_rates(&begun->report, &ended->report, seconds, f);
	if (f && fclose(f) != 0)
		r = -ENOMEM;
	if (r < 0)
		return r;
	if (t->has_terminal) {
		draw_lines(text, t->screen.rows);
	} else {
		fputs(text, stdout);
	}
	return fflush(stdout) == 0 ? 0 : -EIO;
}

/* Returns the action of the key. */
static enum wait take_key(struct top *t, struct pollfd *keys)
{
	char c;

	if (!keys->revents)
		return WAIT_OVER;
	if (read(STDIN_FILENO, &c, 1) <= 0) {
		keys->fd = -1; /* there is no keyboard */
		return WAIT_OVER;
	}
	if (c == 'q' || c == 'Q')
		return WAIT_STOPPED;
	return top_screen_key(c, &t->screen.order) ? WAIT_REDRAW : WAIT_OVER;
}

/* Wait until end_s. WAIT_REDRAW: draw earlier, for example because the size of the terminal
 * changed. */
static enum wait wait_until(struct top *t, struct pollfd *keys, double end_s)
{
	double left_s = end_s - now_s();

	while (left_s > 0 && !is_stopped) {
		struct timespec ts = { .tv_sec = (time_t)left_s,
				       .tv_nsec = (long)((left_s - (double)(time_t)left_s) * 1e9) };
		int n = ppoll(keys, 1, &ts, &t->waiting);
		enum wait what = n > 0 ? take_key(t, keys) : WAIT_OVER;

		if (n < 0)
			return is_stopped ? WAIT_STOPPED : WAIT_REDRAW;
		if (what != WAIT_OVER)
			return what;
		left_s = end_s - now_s();
	}
	return is_stopped ? WAIT_STOPPED : WAIT_OVER;
}

static int take_picture(struct picture *ret, char err[STATS_FETCH_ERR_SIZE])
{
	_cleanup_(freep) char *json = NULL;
	int r = stats_fetch_report(&json, &ret->report, err);

	ret->at_s = now_s();
	return r;
}

/* The two reports of a frame. */
struct pair {
	struct picture begun, ended;
	bool has_frame; /* ended is valid */
};

static int show(struct top *t, struct pair *p, char err[STATS_FETCH_ERR_SIZE])
{
	int r = p->has_frame ? draw(t, &p->begun, &p->ended) : 0;

	if (r < 0)
		snprintf(err, STATS_FETCH_ERR_SIZE, "cannot print: %s", strerror(-r));
	return r;
}

/* Take a report; the previous end becomes the beginning. */
static int take_next(struct pair *p, char err[STATS_FETCH_ERR_SIZE])
{
	struct picture next;
	int r = take_picture(&next, err);

	if (r < 0)
		return r;
	if (p->has_frame) {
		report_release(&p->begun.report);
		p->begun = p->ended;
	}
	p->ended = next;
	p->has_frame = true;
	return 0;
}

/* 0, also if stopped; -errno and a sentence in err. */
static int show_frames(struct top *t, struct pair *p, char err[STATS_FETCH_ERR_SIZE])
{
	struct pollfd keys = { .fd = t->has_keys ? STDIN_FILENO : -1, .events = POLLIN };
	double interval_s = t->has_terminal && t->interval_s > FIRST_INTERVAL_S ? FIRST_INTERVAL_S
										: t->interval_s;
	int r = 0;

	for (long n = 0; r == 0 && (!t->count || n < t->count);) {
		const double since_s = p->has_frame ? p->ended.at_s : p->begun.at_s;
		enum wait what = wait_until(t, &keys, since_s + interval_s);

		if (what == WAIT_STOPPED)
			break;
		if (what == WAIT_OVER) {
			if (n++ && !t->has_terminal && !t->is_json)
				putchar('\n');
			r = take_next(p, err);
			interval_s = t->interval_s;
		}
		r = r ?: show(t, p, err);
	}
	return r;
}

static int run(struct top *t)
{
	struct pair pair = { .has_frame = false };
	char err[STATS_FETCH_ERR_SIZE] = "";
	int r;

	if (take_picture(&pair.begun, err) < 0) {
		log_error("%s", err);
		return 1;
	}
	catch_signals(t);
	take_terminal(t);
	if (!t->has_terminal && !t->is_json && !t->count)
		t->count = 1;
	r = show_frames(t, &pair, err);
	give_terminal(t);
	report_release(&pair.begun.report);
	if (pair.has_frame)
		report_release(&pair.ended.report);
	if (r < 0)
		log_error("%s", err);
	return r < 0;
}

static bool parse_interval(const char *text, double *ret)
{
	char *end;

	*ret = strtod(text, &end);
	return end != text && !*end && *ret >= INTERVAL_MIN_S && *ret <= INTERVAL_MAX_S;
}

static bool parse_count(const char *text, long *ret)
{
	char *end;

	errno = 0;
	*ret = strtol(text, &end, 10);
	return end != text && !*end && errno == 0 && *ret > 0;
}

int cmd_top(int argc, char **argv)
{
	static const struct option options[] = {
		{ "interval", required_argument, NULL, 'i' },
		{ "count", required_argument, NULL, 'n' },
		{ "json", no_argument, NULL, 'j' },
		{ "help", no_argument, NULL, 'h' },
		{ NULL, 0, NULL, 0 },
	};
	struct top t = { .interval_s = 2 };
	int c;

	opterr = 0;
	while ((c = getopt_long(argc, argv, ":hi:n:", options, NULL)) != -1) {
		if (c == 'h')
			return print_usage();
		t.is_json |= c == 'j';
		if (c == ':' || c == '?')
			usage_wrong_option(argv, c);
		else if (c == 'i' && !parse_interval(optarg, &t.interval_s))
			log_error("not an interval of 0.1 to 3600 seconds: %s", optarg);
		else if (c == 'n' && !parse_count(optarg, &t.count))
			log_error("not a number of frames: %s", optarg);
		else
			continue;
		return usage_hint("top");
	}
	if (optind == argc)
		return run(&t);
	usage_unexpected(argv[optind]);
	return usage_hint("top");
}
