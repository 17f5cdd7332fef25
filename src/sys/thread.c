// SPDX-License-Identifier: Apache-2.0
#include "veneer/sys/thread.h"

#include <pthread.h>
#include <signal.h>

int thread_start(void *(*run)(void *arg), void *arg, size_t stack)
{
	pthread_attr_t attr;
	pthread_t thread;
	int r;

	pthread_attr_init(&attr);
	pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
	if (stack)
		pthread_attr_setstacksize(&attr, stack);
	r = -pthread_create(&thread, &attr, run, arg);
	pthread_attr_destroy(&attr);
	return r;
}

int thread_start_without_signals(void *(*run)(void *arg), void *arg, size_t stack)
{
	sigset_t all, before;
	int r;

	sigfillset(&all);
	/* A thread inherits the mask of the thread that starts it. */
	pthread_sigmask(SIG_SETMASK, &all, &before);
	r = thread_start(run, arg, stack);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	return r;
}
