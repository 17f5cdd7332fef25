// SPDX-License-Identifier: Apache-2.0
#include "veneer/server/upgrade.h"

#include "veneer/base/cleanup.h"
#include "veneer/base/human_units.h"
#include "veneer/base/log.h"
#include "veneer/server/client.h"
#include "veneer/server/sandbox_setup.h"

#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#define ERR_SIZE (PATH_MAX * 2)

/* The new server connects itself, as the old one checks the process that connected. It keeps no
 * other descriptors, since those it receives need their own numbers. */
static void become_recovery(const struct rundir *at, int word_fd, unsigned idle_s)
{
	char from[16], idle[16];
	const char *const argv[] = { "veneer", "server",   "--from-fd", from, "--idle",
				     idle,     "--socket", at->path,	NULL };
	const char *const *env = sandbox_setup_environment();
	int null = open("/dev/null", O_RDWR | O_CLOEXEC), from_fd = -1;
	char err[ERR_SIZE] = "";
	sigset_t none;
	int r = client_connect(at, false, &from_fd, err, sizeof(err));

	if (r == -ENOENT)
		snprintf(err, sizeof(err), "there is no server at %s", at->path);
	if (r < 0) {
		(void)!write(word_fd, err, strlen(err));
		_exit(1);
	}
	snprintf(from, sizeof(from), "%d", UPGRADE_FROM_FD);
	snprintf(idle, sizeof(idle), "%u", idle_s);
	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
	sandbox_setup_lift_limits();
	setsid();
	/* Move both above the final numbers, so that neither dup2 closes the other. */
	from_fd = fcntl(from_fd, F_DUPFD_CLOEXEC, UPGRADE_WORD_FD + 1);
	word_fd = fcntl(word_fd, F_DUPFD_CLOEXEC, UPGRADE_WORD_FD + 1);
	if (null < 0 || from_fd < 0 || word_fd < 0)
		_exit(1);
	for (int fd = 0; fd <= 2; fd++)
		dup2(null, fd);
	if (dup2(from_fd, UPGRADE_FROM_FD) < 0 || dup2(word_fd, UPGRADE_WORD_FD) < 0)
		_exit(1);
	close_range(UPGRADE_WORD_FD + 1, ~0u, 0);
	execve("/proc/self/exe", (char *const *)argv, (char *const *)env);
	_exit(1);
}

static int start(int *ret_word, const struct rundir *at, unsigned idle_s)
{
	int ends[2];
	pid_t pid;

	if (pipe2(ends, O_CLOEXEC) < 0)
		return -errno;
	pid = fork();
	if (pid == 0)
		become_recovery(at, ends[1], idle_s);
	closep(&ends[1]);
	if (pid < 0) {
		int r = -errno;

		close(ends[0]);
		return r;
	}
	*ret_word = ends[0];
	return 0;
}

/* Read until the end of the pipe. */
static void hear_word(int fd, char *text, size_t size)
{
	size_t have = 0;
	ssize_t n;

	do {
		n = read(fd, text + have, size - 1 - have);
		have += n > 0 ? (size_t)n : 0;
	} while (have < size - 1 && (n > 0 || (n < 0 && errno == EINTR)));
	text[have] = '\0';
}

static int tell(const char *word)
{
	size_t n_moved, n_lost, n_waiting = 0;

	/* A program of another version may omit the last number. */
	if (sscanf(word, "moved %zu %zu %zu", &n_moved, &n_lost, &n_waiting) < 2) {
		log_error("%s", *word ? word : "the new server died");
		return -EREMOTEIO;
	}
	printf("moved %s to version %s\n", human_units_of(n_moved, "mount").text, VENEER_VERSION);
	if (n_waiting)
		log_warn("%s %s the new server's, but not open again yet: a layer may not answer",
			 human_units_of(n_waiting, "mount").text, n_waiting == 1 ? "is" : "are");
	if (n_lost)
		log_error("lost %s: the system log says why", human_units_of(n_lost, "mount").text);
	return n_lost ? -EIO : 0;
}

int upgrade_run(const struct rundir *at, unsigned idle_s)
{
	_cleanup_(closep) int word = -1;
	char text[ERR_SIZE];
	int r = start(&word, at, idle_s);

	if (r < 0) {
		log_error("cannot start a server: %s", strerror(-r));
		return r;
	}
	hear_word(word, text, sizeof(text));
	return tell(text);
}
