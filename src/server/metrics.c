// SPDX-License-Identifier: Apache-2.0
/* The library is loaded only when metrics are wanted, and not linked: with its dependencies each
 * mount would take twice as long to start. */
#include "veneer/server/metrics.h"

#include "veneer/base/cleanup.h"

#include "veneer/base/clock.h"
#include "veneer/base/log.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <microhttpd.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>

#define CONNECTIONS_MAX	 16u
#define SILENT_S	 5u /* a connection without traffic is closed then */
#define CONNECTION_BYTES 8192u
#define FRESH_MS	 250 /* age at which a page is made anew */
#define NICE		 10
#define CONTENT_TYPE	 "text/plain; version=0.0.4; charset=utf-8"

#define LIBRARY "libmicrohttpd.so.12"
/* clang-format off */
#define CALLS(CALL) \
	CALL(MHD_start_daemon) \
	CALL(MHD_quiesce_daemon) \
	CALL(MHD_stop_daemon) \
	CALL(MHD_set_panic_func) \
	CALL(MHD_create_response_from_buffer) \
	CALL(MHD_destroy_response) \
	CALL(MHD_add_response_header) \
	CALL(MHD_queue_response)
/* clang-format on */
#define DECLARE(name) __typeof__(name) *name;
#define FIND(name)    &&(lib.name = (__typeof__(lib.name))dlsym(handle, #name))

static struct {
	bool is_there;
	CALLS(DECLARE)
} lib;

static _Atomic bool is_broken; /* the library has called panic */

struct metrics {
	struct MHD_Daemon *daemon;
	int (*page)(void *arg, char **ret);
	void *arg;
	/* of the server's one thread */
	bool is_nice;
	struct MHD_Response *last;
	int64_t made_ms;
};

/* The page of a moment ago, or a new one; NULL: the page cannot be made. Borrowed. */
static struct MHD_Response *respond(struct metrics *m)
{
	struct MHD_Response *next;
	char *text = NULL;

	if (m->last && clock_ms() - m->made_ms < FRESH_MS)
		return m->last;
	if (m->page(m->arg, &text) < 0)
		return NULL;
	next = lib.MHD_create_response_from_buffer(strlen(text), text, MHD_RESPMEM_MUST_FREE);
	if (!next) {
		free(text);
		return NULL;
	}
	if (lib.MHD_add_response_header(next, MHD_HTTP_HEADER_CONTENT_TYPE, CONTENT_TYPE) ==
	    MHD_NO) {
		lib.MHD_destroy_response(next);
		return NULL;
	}
	if (m->last)
		lib.MHD_destroy_response(m->last);
	m->last = next;
	m->made_ms = clock_ms();
	return next;
}

static enum MHD_Result refuse(struct MHD_Connection *c, unsigned status, const char *text)
{
	struct MHD_Response *r = lib.MHD_create_response_from_buffer(strlen(text), (void *)text,
								     MHD_RESPMEM_PERSISTENT);
	enum MHD_Result result = r ? lib.MHD_queue_response(c, status, r) : MHD_NO;

	if (r)
		lib.MHD_destroy_response(r);
	return result;
}

static enum MHD_Result answer(void *arg, struct MHD_Connection *c, const char *url,
			      const char *method, const char *version, const char *upload,
			      size_t *upload_size, void **state)
{
	struct metrics *m = arg;
	struct MHD_Response *r;

	(void)version;
	(void)upload;
	(void)upload_size;
	(void)state;
	if (!m->is_nice) {
		setpriority(PRIO_PROCESS, (id_t)gettid(), NICE);
		m->is_nice = true;
	}
	if (strcmp(method, MHD_HTTP_METHOD_GET) && strcmp(method, MHD_HTTP_METHOD_HEAD))
		return refuse(c, MHD_HTTP_METHOD_NOT_ALLOWED, "only GET and HEAD\n");
	if (strcmp(url, "/metrics") && strcmp(url, "/"))
		return refuse(c, MHD_HTTP_NOT_FOUND, "only /metrics\n");
	r = respond(m);
	if (!r)
		return refuse(c, MHD_HTTP_SERVICE_UNAVAILABLE, "no memory\n");
	return lib.MHD_queue_response(c, MHD_HTTP_OK, r);
}

/* The library calls this before it ends the process. The calling thread stops here for ever
 * instead. */
static void panic(void *arg, const char *file, unsigned line, const char *reason)
{
	(void)arg;
	log_error("metrics are not answered any more: %s:%u: %s", file, line, reason ? reason : "");
	is_broken = true;
	for (;;)
		pause();
}

/* Drop the library's messages about connections. */
static void keep_quiet(void *arg, const char *format, va_list args)
{
	(void)arg;
	(void)format;
	(void)args;
}

bool metrics_is_built(void)
{
	return true;
}

int metrics_load(char *err, size_t err_size)
{
	void *handle = lib.is_there ? NULL : dlopen(LIBRARY, RTLD_NOW | RTLD_LOCAL);

	if (handle)
		lib.is_there = true CALLS(FIND);
	if (!lib.is_there)
		snprintf(err, err_size, "metrics need %s: %s", LIBRARY,
			 dlerror() ?: "this is another library");
	return lib.is_there ? 0 : -ENOENT;
}

int metrics_start(int fd, int (*page)(void *arg, char **ret), void *arg, struct metrics **ret)
{
	struct metrics *m = lib.is_there ? calloc(1, sizeof(*m)) : NULL;
	int own = fcntl(fd, F_DUPFD_CLOEXEC, 3);

	if (!m || own < 0) {
		free(m);
		return own < 0 ? -errno : (close(own), -ENOMEM);
	}
	m->page = page;
	m->arg = arg;
	lib.MHD_set_panic_func(panic, NULL);
	m->daemon = lib.MHD_start_daemon(MHD_USE_AUTO_INTERNAL_THREAD | MHD_USE_ITC, 0, NULL, NULL,
					 answer, m, MHD_OPTION_EXTERNAL_LOGGER, keep_quiet, NULL,
					 MHD_OPTION_LISTEN_SOCKET, own, MHD_OPTION_CONNECTION_LIMIT,
					 CONNECTIONS_MAX, MHD_OPTION_CONNECTION_TIMEOUT, SILENT_S,
					 MHD_OPTION_CONNECTION_MEMORY_LIMIT,
					 (size_t)CONNECTION_BYTES, MHD_OPTION_END);
	if (!m->daemon) {
		close(own);
		free(m);
		return -EAGAIN;
	}
	*ret = m;
	return 0;
}

void metrics_quiesce(struct metrics *m)
{
	int own = m && !is_broken ? lib.MHD_quiesce_daemon(m->daemon) : -1;

	if (own >= 0)
		close(own);
}

void metrics_stop(struct metrics *m)
{
	if (!m || is_broken)
		return;
	/* Closes the duplicate of fd, if the library still has it. */
	lib.MHD_stop_daemon(m->daemon);
	if (m->last)
		lib.MHD_destroy_response(m->last);
	free(m);
}
