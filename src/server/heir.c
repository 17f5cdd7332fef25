// SPDX-License-Identifier: Apache-2.0
#include "veneer/heir.h"

#include "veneer/cleanup.h"
#include "veneer/log.h"

#include <dirent.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#define ERR_SIZE (PATH_MAX * 2)

/* Descriptors, a bit each. */
struct fd_set_of {
	uint8_t *bits;
	size_t n;
	bool is_short;		/* of memory: nothing is known */
};

static void remember(int fd, void *arg)
{
	struct fd_set_of *s = arg;
	size_t want = (size_t)fd / 8 + 1;

	if (fd < 0 || s->is_short)
		return;
	if (want > s->n) {
		uint8_t *bits = realloc(s->bits, want * 2);

		if (!bits) {
			s->is_short = true;
			return;
		}
		memset(bits + s->n, 0, want * 2 - s->n);
		s->bits = bits;
		s->n = want * 2;
	}
	s->bits[fd / 8] |= (uint8_t)(1u << fd % 8);
}

static bool is_remembered(const struct fd_set_of *s, int fd)
{
	return (size_t)fd / 8 < s->n && s->bits[fd / 8] & 1u << fd % 8;
}

/* What belongs to the descriptors stays open when the dossier goes from memory. */
static void forget_dossier(struct dossier *d)
{
	d->fd = d->fuse_fd = d->dirs.upper = d->dirs.work = -1;
	for (size_t i = 0; i < d->dirs.n_lower; i++)
		d->dirs.lower[i] = -1;
	for (size_t i = 0; i < d->dirs.n_clones; i++)
		d->dirs.clones[i] = -1;
	dossier_release(d);
}

struct each_fd {
	void (*fn)(int fd, void *arg);
	void *arg;
};

static void each_of_mount(int fd, uint32_t place, void *arg)
{
	const struct each_fd *e = arg;
	struct dossier d;

	(void)place;
	if (dossier_read(fd, &d) < 0) {
		e->fn(fd, e->arg);
		return;
	}
	dossier_each_fd(&d, e->fn, e->arg);
	nodetab_held_fds(d.slots_fd, e->fn, e->arg);
	forget_dossier(&d);
}

void heir_each_fd(struct ledger *l, void (*fn)(int fd, void *arg), void *arg)
{
	ledger_each(l, each_of_mount, &(struct each_fd){ fn, arg });
}

static void close_unknown(const struct fd_set_of *known)
{
	DIR *dir = opendir("/proc/self/fd");
	struct dirent *de;

	if (!dir) {
		log_warn("cannot close what the server before had open: %s", strerror(errno));
		return;
	}
	while ((de = readdir(dir))) {
		int fd = atoi(de->d_name);

		if (*de->d_name != '.' && fd > 2 && fd != dirfd(dir) && !is_remembered(known, fd))
			close(fd);
	}
	closedir(dir);
}

void heir_close_others(struct ledger *l, const int *fds, size_t n)
{
	struct fd_set_of known = { .bits = NULL };

	for (size_t i = 0; i < n; i++)
		remember(fds[i], &known);
	remember(ledger_word(l), &known);
	heir_each_fd(l, remember, &known);
	if (known.is_short)
		log_warn("no memory to tell what the server before had open: it stays so");
	else
		close_unknown(&known);
	free(known.bits);
}

struct resuming {
	struct ledger *ledger;
	struct roster *roster;
	size_t n_resumed, n_lost;
};

static void resume_one(int fd, uint32_t place, void *arg)
{
	struct resuming *v = arg;
	char err[ERR_SIZE] = "";
	struct dossier d;
	int r = dossier_read(fd, &d);

	if (r < 0) {
		snprintf(err, sizeof(err), "what was kept of it cannot be read: %s", strerror(-r));
		ledger_drop(v->ledger, place);
	} else {
		r = roster_resume(v->roster, &d, place, err, sizeof(err));
	}
	if (r < 0)
		log_error("a mount is lost with the server that had it: %s", err);
	v->n_resumed += r == 0;
	v->n_lost += r < 0;
}

/* A death in between is no harm: it is said twice, or the descriptor is nobody's then. */
static void send_word(struct ledger *l, const struct resuming *v)
{
	char text[64];
	int fd = ledger_word(l);

	if (fd < 0)
		return;
	snprintf(text, sizeof(text), "moved %zu %zu", v->n_resumed, v->n_lost);
	(void)!write(fd, text, strlen(text));
	ledger_set_word(l, -1);
	close(fd);
}

void heir_resume(struct ledger *l, struct roster *r)
{
	struct resuming v = { .ledger = l, .roster = r };
	struct timespec from, to;

	clock_gettime(CLOCK_MONOTONIC, &from);
	ledger_each(l, resume_one, &v);
	clock_gettime(CLOCK_MONOTONIC, &to);
	log_info("going on with %zu mounts of the server before, %zu are lost; it took %lld ms", v.n_resumed, v.n_lost,
		 (long long)(to.tv_sec - from.tv_sec) * 1000 + (to.tv_nsec - from.tv_nsec) / 1000000);
	send_word(l, &v);
}
