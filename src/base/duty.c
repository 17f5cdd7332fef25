// SPDX-License-Identifier: Apache-2.0
#include "veneer/duty.h"

#include <errno.h>
#include <signal.h>
#include <stddef.h>
#include <unistd.h>

static const int crashes[] = { SIGSEGV, SIGBUS, SIGABRT, SIGFPE, SIGILL, SIGTRAP, SIGSYS };

#define STACK_BYTES (32u << 10)
#define N_CRASHES (sizeof(crashes) / sizeof(*crashes))

static struct sigaction before[N_CRASHES];
static _Atomic uint32_t *note;
static _Thread_local struct duty *current;

/* What would have happened without us. The default meets the same fault again on return, so that a core dump shows the
 * place. */
static void pass_on(int sig, siginfo_t *info, void *context)
{
	const struct sigaction *old = NULL;

	for (size_t i = 0; i < N_CRASHES; i++)
		if (crashes[i] == sig)
			old = &before[i];
	if (old && old->sa_flags & SA_SIGINFO) {
		old->sa_sigaction(sig, info, context);
		return;
	}
	signal(sig, SIG_DFL);
	if (info->si_code <= 0)
		raise(sig);
}

static void on_crash(int sig, siginfo_t *info, void *context)
{
	/* A fault, or abort(3). */
	const bool is_own = info->si_code > 0 || info->si_pid == getpid();
	const int saved = errno;

	if (note && *note == DUTY_NOTHING_KNOWN) {
		if (is_own && current)
			current->is_blamed = true;
		*note = is_own && current ? DUTY_BLAMED : DUTY_NOBODY;
	}
	pass_on(sig, info, context);
	errno = saved;
}

void duty_watch(void)
{
	struct sigaction sa = { .sa_sigaction = on_crash, .sa_flags = SA_SIGINFO | SA_ONSTACK };

	sigemptyset(&sa.sa_mask);
	for (size_t i = 0; i < N_CRASHES; i++)
		sigaction(crashes[i], &sa, &before[i]);
}

void duty_note_in(_Atomic uint32_t *crash)
{
	note = crash;
}

/* A stack that is full cannot take a signal. */
static void use_other_stack(void)
{
	static _Thread_local char stack[STACK_BYTES];
	static _Thread_local bool is_done;
	const stack_t other = { .ss_sp = stack, .ss_size = sizeof(stack) };

	if (!is_done)
		sigaltstack(&other, NULL);
	is_done = true;
}

struct duty *duty_begin(struct duty *d)
{
	struct duty *before_it = current;

	if (d) {
		use_other_stack();
		d->nthreads++;
	}
	current = d;
	return before_it;
}

void duty_end(struct duty *before_it)
{
	if (current)
		current->nthreads--;
	current = before_it;
}
