// SPDX-License-Identifier: Apache-2.0
#include "veneer/recover/fd_renumber.h"

#include "veneer/base/cleanup.h"
#include "veneer/base/minmax.h"

#include <fcntl.h>

static int highest(const int *fds, size_t n)
{
	int max = 2;

	for (size_t i = 0; i < n; i++)
		max = MAX(fds[i], max);
	return max;
}

static int move_up(int *fd, int least)
{
	int moved = fcntl(*fd, F_DUPFD_CLOEXEC, least);

	if (moved < 0)
		return errno == EINVAL ? -EMFILE : -errno;
	close(*fd);
	*fd = moved;
	return 0;
}

int fd_renumber_make_room(const int *wanted, size_t n, int *const *own, size_t n_own)
{
	const int max = highest(wanted, n);
	int r = 0;

	for (size_t i = 0; r == 0 && i < n_own; i++)
		if (*own[i] >= 0)
			r = move_up(own[i], max + 1);
	return r;
}

/* sits[number]: which of got has it, and one. */
struct fd_renumber {
	int *got;
	const int *wanted;
	size_t *sits;
	int n_numbers;
};

static void sit(struct fd_renumber *s, size_t i)
{
	if (s->got[i] < s->n_numbers)
		s->sits[s->got[i]] = i + 1;
}

/* Move away a descriptor of the caller that has this number, so that none is lost. */
static int clear(struct fd_renumber *s, int number)
{
	size_t other = s->sits[number];

	if (other == 0)
		return fcntl(number, F_GETFD) < 0 ? 0 : -EBUSY;
	int moved = fcntl(number, F_DUPFD_CLOEXEC, 3);

	if (moved < 0)
		return -errno;
	s->got[other - 1] = moved;
	s->sits[number] = 0;
	sit(s, other - 1);
	return 0;
}

static int publish_one(struct fd_renumber *s, size_t i)
{
	const int to = s->wanted[i], from = s->got[i];
	size_t there = s->sits[to];
	int r = 0;

	if (from == to)
		return 0;
	/* Twice the same. */
	if (there && s->wanted[there - 1] == to) {
		if (from < s->n_numbers)
			s->sits[from] = 0;
		closep(&s->got[i]);
		s->got[i] = -1;
		return 0;
	}
	r = clear(s, to);
	if (r < 0)
		return r;
	if (dup3(from, to, O_CLOEXEC) < 0)
		return -errno;
	close(from);
	if (from < s->n_numbers)
		s->sits[from] = 0;
	s->got[i] = to;
	sit(s, i);
	return 0;
}

int fd_renumber_place(int *got, const int *wanted, size_t n)
{
	struct fd_renumber s = { .got = got,
				 .wanted = wanted,
				 .n_numbers = highest(wanted, n) + 1 };
	int r = 0;

	s.sits = calloc((size_t)s.n_numbers, sizeof(*s.sits));
	if (!s.sits)
		r = -ENOMEM;
	for (size_t i = 0; r == 0 && i < n; i++)
		r = wanted[i] > 2 ? (sit(&s, i), 0) : -EINVAL;
	for (size_t i = 0; r == 0 && i < n; i++)
		r = publish_one(&s, i);
	for (size_t i = 0; i < n; i++) {
		if (r < 0)
			closep(&got[i]);
		got[i] = -1;
	}
	free(s.sits);
	return r;
}
