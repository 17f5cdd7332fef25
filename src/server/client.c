// SPDX-License-Identifier: Apache-2.0
#include "veneer/server/client.h"

#include "sandbox.h"
#include "veneer/base/cleanup.h"
#include "veneer/base/log.h"
#include "veneer/server/sandbox_setup.h"
#include "veneer/sys/peer.h"
#include "veneer/sys/sock.h"
#include "wire.h"

#include "client-internal.h"

#include <ctype.h>
#include <dirent.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#define CONNECT_WAIT_MS 10000
#define TOOL_WAIT_MS	5000
#define STATS_WAIT_MS	10000
#define ATTEMPTS	20 /* a server that is exiting or overloaded hangs up */
#define RETRY_MS	10
#define LISTEN_FD	3
#define TEXT_MAX	(64u << 20)
#define FLATTEN_WAIT_MS 60000 /* between two messages; the server sends several a second */

int client_say(int fd, const struct wire_message *m, const int *fds, size_t n_fds)
{
	_cleanup_(buf_release) struct buf b = { 0 };
	int r = wire_encode(m, &b);

	return r < 0 ? r : sock_send(fd, b.data, b.len, fds, n_fds, CLIENT_WAIT_MS);
}

/* Is the process a server of this user that a signal has stopped? */
static bool is_stopped_server(const char *pid)
{
	char path[64], text[64] = "", state = '?';
	struct stat st;
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%.20s/stat", pid);
	f = fopen(path, "re");
	if (!f || fstat(fileno(f), &st) < 0 || st.st_uid != geteuid() ||
	    fscanf(f, "%*d (%63[^)]) %c", text, &state) != 2)
		state = '?';
	if (f)
		fclose(f);
	return !strcmp(text, "veneer") && (state == 'T' || state == 't');
}

/* The process id of a stopped server, or 0. */
static long find_stopped_server(void)
{
	DIR *d = opendir("/proc");
	long found = 0;

	for (struct dirent *e = d ? readdir(d) : NULL; e && !found; e = readdir(d))
		if (isdigit((unsigned char)e->d_name[0]) && is_stopped_server(e->d_name))
			found = atol(e->d_name);
	if (d)
		closedir(d);
	return found;
}

static void say_silence(int r, char *err, size_t err_size)
{
	const long pid = r == -ETIMEDOUT ? find_stopped_server() : 0;

	if (pid)
		snprintf(err, err_size,
			 "the server does not answer: process %ld is stopped, `kill -CONT %ld` "
			 "lets it go on",
			 pid, pid);
	else
		snprintf(err, err_size, "the server does not answer: %s", strerror(-r));
}

int client_hear_with(int fd, int timeout_ms, enum wire_type type, struct client_packet *p,
		     char *err, size_t err_size)
{
	int fds[SOCK_FDS_MAX], r = sock_wait(fd, timeout_ms);
	size_t n;

	p->fd = -1;
	p->sender = (struct sock_sender){ .pidfd = -1 };
	if (r == 0)
		r = sock_recv_from(fd, p->bytes, sizeof(p->bytes), fds, &n, &p->sender);
	if (r < 0) {
		say_silence(r, err, err_size);
		return r;
	}
	if (n == 1)
		p->fd = steal_fd(&fds[0]);
	sock_close_fds(fds, n);
	if (r == 0) {
		snprintf(err, err_size, "the server is gone");
		return -EPIPE;
	}
	r = wire_decode(p->bytes, (size_t)r, &p->m);
	if (r == -EPROTO) {
		snprintf(err, err_size, "the server speaks version %u of the protocol, not %u",
			 p->m.version, WIRE_VERSION);
		return r;
	}
	if (r == 0 && p->m.type == WIRE_ERROR) {
		snprintf(err, err_size, "%.*s", (int)p->m.text_len, p->m.text);
		return -EREMOTEIO;
	}
	if (r < 0 || (p->m.type != type && type != CLIENT_ANY)) {
		snprintf(err, err_size, "the server's answer cannot be understood");
		return -EBADMSG;
	}
	return 0;
}

int client_hear(int fd, int timeout_ms, enum wire_type type, struct client_packet *p, char *err,
		size_t err_size)
{
	int r = client_hear_with(fd, timeout_ms, type, p, err, err_size);

	closep(&p->fd);
	return r;
}

/* Turn the process into a server that outlives its starter, without the starter's limits. */
static void become_server(int listen_fd, const char *path)
{
	char fd_text[16];
	const char *const argv[] = { "veneer",	 "server", "--listen-fd", fd_text,
				     "--socket", path,	   NULL };
	const char *const *env = sandbox_setup_environment();
	int null = open("/dev/null", O_RDWR | O_CLOEXEC);
	sigset_t none;

	snprintf(fd_text, sizeof(fd_text), "%d", LISTEN_FD);
	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
	sandbox_setup_lift_limits();
	setsid();
	if (null < 0)
		_exit(1);
	for (int fd = 0; fd <= 2; fd++)
		dup2(null, fd);
	/* dup2 onto itself would leave close-on-exec set */
	if (listen_fd == LISTEN_FD ? fcntl(listen_fd, F_SETFD, 0) < 0
				   : dup2(listen_fd, LISTEN_FD) < 0)
		_exit(1);
	close_range(LISTEN_FD + 1, ~0u, 0);
	execve("/proc/self/exe", (char *const *)argv, (char *const *)env);
	_exit(1);
}

/* The socket listens before the server runs. A client that connects meanwhile waits in its queue,
 * and gets a hang-up if the server fails to start. */
static int start_server(const struct rundir *at, char *err, size_t err_size)
{
	_cleanup_(closep) int fd = -1;
	const char *log = getenv("VENEER_LOG");
	int r = rundir_listen(at, &fd);
	pid_t pid;

	if (r < 0) {
		snprintf(err, err_size, "cannot listen at %s: %s", at->path, strerror(-r));
		return r;
	}
	pid = fork();
	if (pid == 0)
		become_server(fd, at->path);
	if (pid < 0) {
		r = -errno;
		rundir_remove(at);
		snprintf(err, err_size, "cannot start a server: %s", strerror(-r));
		return r;
	}
	if (!log || strncmp(log, "file:", strlen("file:")) != 0)
		log_say_if_lost("VENEER_LOG=file:PATH keeps it");
	return 0;
}

static int say_gone(char *err, size_t err_size)
{
	snprintf(err, err_size, "the server is gone");
	return -EPIPE;
}

/* Say why the process that answers gets no descriptors. */
static int say_unseen(const struct rundir *at, int r, char *err, size_t err_size)
{
	if (r == -ENODATA)
		snprintf(err, err_size,
			 "the process that answers at %s is of another process namespace, and is "
			 "given nothing: remove "
			 "that socket",
			 at->path);
	else
		snprintf(err, err_size,
			 "cannot see the process that answers at %s, which is given nothing: %s",
			 at->path, strerror(-r));
	return -EPERM;
}

/* NULL: the server has all privileges that the descriptors would give it. A server has dropped the
 * capabilities that serving does not need. With CAP_SYS_ADMIN it has a root directory of its own;
 * without, it has ours. */
static const char *judge_host(const struct peer_standing *theirs, const struct peer_standing *ours)
{
	if (theirs->uids[1] != geteuid())
		return "is another user's";
	if (!peer_id_is(&theirs->user_ns, &ours->user_ns))
		return "is of another user namespace";
	if (!peer_id_is(&theirs->pid_ns, &ours->pid_ns))
		return "is of another process namespace";
	if (~theirs->effective & ours->effective & sandbox_kept())
		return "has not the privileges of this one";
	if (!(theirs->effective & (uint64_t)1 << CAP_SYS_ADMIN) &&
	    !peer_id_is(&theirs->root, &ours->root))
		return "has another root directory";
	return NULL;
}

static int trust_host(const struct rundir *at, const struct peer *host, char *err, size_t err_size)
{
	struct peer_standing theirs, ours;
	const char *why;
	int r = peer_standing(host, &theirs);

	/* In a process that is being killed, the first thread may end before the others. */
	if (r == -ESRCH || (r == -ENOENT && peer_standing_self(&ours) == 0))
		return say_gone(err, err_size);
	if (r == 0)
		r = peer_standing_self(&ours);
	if (r < 0) {
		snprintf(err, err_size,
			 "/proc does not show the privileges of process %d, which answers at %s "
			 "and is given nothing: %s",
			 (int)host->pid, at->path, strerror(-r));
		return -EPERM;
	}
	why = judge_host(&theirs, &ours);
	if (!why)
		return 0;
	snprintf(err, err_size,
		 "process %d, which answers at %s, %s, and is given nothing: end it, and remove "
		 "that socket",
		 (int)host->pid, at->path, why);
	return -EPERM;
}

/* -ECONNREFUSED and -ENOENT: no process listens. */
static int greet_once(const struct rundir *at, int wait_ms, int *ret_fd, struct peer *ret,
		      char *err, size_t err_size)
{
	const struct wire_message hello = { .type = WIRE_HELLO,
					    .text = VENEER_VERSION,
					    .text_len = strlen(VENEER_VERSION) };
	struct client_packet p;
	_cleanup_(closep) int fd = -1;
	struct ucred peer;
	int r = sock_connect(at->fd, at->name, wait_ms, &fd);

	if (r < 0) {
		snprintf(err, err_size, "cannot reach the server at %s: %s", at->path,
			 strerror(-r));
		return r;
	}
	if (sock_peer(fd, &peer) < 0 || peer.uid != geteuid()) {
		snprintf(err, err_size, "the server at %s is another user's", at->path);
		return -EPERM;
	}
	r = peer_name_senders(fd);
	if (r < 0)
		return say_unseen(at, r, err, err_size);
	p.sender.pidfd = -1;
	r = client_say(fd, &hello, NULL, 0);
	/* A server that hung up may have sent the reason before. */
	if (r == 0 || r == -EPIPE)
		r = client_hear(fd, wait_ms, WIRE_HELLO, &p, err, err_size);
	if (r == 0) {
		r = peer_hold_sender(&p.sender, ret);
		if (r < 0)
			r = r == -ESRCH ? say_gone(err, err_size)
					: say_unseen(at, r, err, err_size);
	}
	closep(&p.sender.pidfd);
	sock_forget_senders(fd);
	if (r == 0)
		*ret_fd = steal_fd(&fd);
	return r;
}

/* Find the process that answers, since it would get our directories. The process that listens is
 * not the one: it started the server and is gone. Some kernels tell only the sender's process id,
 * which another process may have by the time we hold it. There a second connection, made after
 * that, has to be answered by the process that we hold. */
static int greet(const struct rundir *at, int wait_ms, int *ret_fd, char *err, size_t err_size)
{
	_cleanup_(peer_release) struct peer host = { .pidfd = -1 };
	_cleanup_(closep) int fd = -1;
	int r = greet_once(at, wait_ms, &fd, &host, err, err_size);

	if (r == 0 && !host.is_sender) {
		_cleanup_(peer_release) struct peer again = { .pidfd = -1 };

		closep(&fd);
		r = greet_once(at, wait_ms, &fd, &again, err, err_size);
		if (r == 0 && again.pid != host.pid)
			r = say_gone(err, err_size);
	}
	if (r == 0)
		r = trust_host(at, &host, err, err_size);
	if (r == 0)
		*ret_fd = steal_fd(&fd);
	return r;
}

static int greet_or_start(const struct rundir *at, bool may_start, int *ret_fd, char *err,
			  size_t err_size)
{
	_cleanup_(closep) int lock = -1;
	int r = greet(at, may_start ? CONNECT_WAIT_MS : TOOL_WAIT_MS, ret_fd, err, err_size);

	if (!may_start || (r != -ENOENT && r != -ECONNREFUSED))
		return r;
	r = rundir_lock_or_say(at, &lock, err, err_size);
	if (r < 0)
		return r;
	/* Another process may have started a server meanwhile. */
	r = greet(at, CONNECT_WAIT_MS, ret_fd, err, err_size);
	if (r != -ENOENT && r != -ECONNREFUSED)
		return r;
	r = start_server(at, err, err_size);
	closep(&lock);
	return r < 0 ? r : greet(at, CONNECT_WAIT_MS, ret_fd, err, err_size);
}

int client_connect(const struct rundir *at, bool may_start, int *ret_fd, char *err, size_t err_size)
{
	int r = -EPIPE;

	for (int k = 0; k < ATTEMPTS && r == -EPIPE; k++) {
		if (k)
			usleep(RETRY_MS * 1000 * (unsigned)k);
		r = greet_or_start(at, may_start, ret_fd, err, err_size);
		if (!may_start && r == -ECONNREFUSED)
			r = -ENOENT;
	}
	return r;
}

int client_stats(int fd, char **ret_json, char *err, size_t err_size)
{
	_cleanup_(buf_release) struct buf text = { 0 };
	struct client_packet p = { .m.type = WIRE_TEXT };
	int r = client_say(fd, &(struct wire_message){ .type = WIRE_STATS }, NULL, 0);

	*err = '\0';
	while (r == 0 && p.m.type != WIRE_OK) {
		r = client_hear(fd, STATS_WAIT_MS, CLIENT_ANY, &p, err, err_size);
		if (r == 0 && p.m.type == WIRE_TEXT)
			r = text.len + p.m.text_len > TEXT_MAX
				    ? -EMSGSIZE
				    : buf_put(&text, p.m.text, p.m.text_len);
		else if (r == 0 && p.m.type != WIRE_OK)
			r = -EBADMSG;
	}
	if (r == 0)
		r = buf_put_u8(&text, 0);
	if (r < 0) {
		if (!*err)
			snprintf(err, err_size, "the server's answer cannot be used: %s",
				 strerror(-r));
		return r;
	}
	*ret_json = (char *)steal_ptr(&text.data);
	return 0;
}

static bool read_progress(const struct wire_message *m, struct promote_worker_progress *ret)
{
	char text[128];

	if (m->text_len >= sizeof(text))
		return false;
	memcpy(text, m->text, m->text_len);
	text[m->text_len] = '\0';
	ret->nbytes = 0;
	return sscanf(text, "%zu %zu %zu %" SCNu64 " %" SCNu64 " %" SCNu64, &ret->files,
		      &ret->nfiles, &ret->left, &ret->bytes, &ret->cloned, &ret->nbytes) >= 5;
}

/* Receiver of the progress of a long request. */
struct follower {
	bool (*take)(void *arg, const struct wire_message *m); /* false: a bad message */
	void *arg;
};

static int follow(int fd, const struct wire_message *ask, const struct follower *f, char *err,
		  size_t err_size)
{
	struct client_packet p = { .m.type = WIRE_TEXT };
	int r = client_say(fd, ask, NULL, 0);

	snprintf(err, err_size, "the server is gone");
	while (r == 0 && p.m.type != WIRE_OK) {
		r = client_hear(fd, FLATTEN_WAIT_MS, CLIENT_ANY, &p, err, err_size);
		if (r == 0 && p.m.type != WIRE_OK &&
		    (p.m.type != WIRE_TEXT || !f->take(f->arg, &p.m)))
			r = -EBADMSG;
	}
	if (r == -EBADMSG)
		snprintf(err, err_size, "the server's answer cannot be understood");
	return r == -EREMOTEIO && p.m.count == WIRE_EXIT_ELSEWHERE ? -ENOENT : r;
}

struct flattening {
	void (*step)(void *arg, const struct promote_worker_progress *s);
	void *arg;
};

static bool take_flattened(void *arg, const struct wire_message *m)
{
	const struct flattening *f = arg;
	struct promote_worker_progress s;
	const bool is_ours = read_progress(m, &s);

	if (is_ours)
		f->step(f->arg, &s);
	return is_ours;
}

int client_flatten(int fd, const struct client_target *at,
		   void (*step)(void *arg, const struct promote_worker_progress *s), void *arg,
		   char *err, size_t err_size)
{
	const struct wire_message ask = { .type = WIRE_FLATTEN,
					  .dev_major = at->dev_major,
					  .dev_minor = at->dev_minor,
					  .size = at->ino,
					  .count = at->number };
	struct flattening f = { step, arg };

	return follow(fd, &ask, &(struct follower){ take_flattened, &f }, err, err_size);
}

struct squashing {
	void (*step)(void *arg, const struct client_squashed *s);
	void *arg;
};

static bool take_squashed(void *arg, const struct wire_message *m)
{
	const struct squashing *q = arg;
	struct client_squashed s;
	char text[128];

	if (m->text_len >= sizeof(text))
		return false;
	memcpy(text, m->text, m->text_len);
	text[m->text_len] = '\0';
	if (sscanf(text, "%zu %" SCNu64 " %" SCNu64, &s.n, &s.entries, &s.bytes) != 3)
		return false;
	q->step(q->arg, &s);
	return true;
}

int client_squash(int fd, const struct client_squash_ask *ask, char *err, size_t err_size)
{
	const struct wire_message m = { .type = WIRE_SQUASH,
					.dev_major = ask->at->dev_major,
					.dev_minor = ask->at->dev_minor,
					.size = ask->at->ino,
					.count = ask->at->number,
					.text = ask->names,
					.text_len = strlen(ask->names) };
	struct squashing q = { ask->step, ask->arg };

	return follow(fd, &m, &(struct follower){ take_squashed, &q }, err, err_size);
}

/* Send SNAPSHOT or ROLLBACK, and take the name from the answer. */
static int ask_for_name(int fd, const struct wire_message *ask, char **ret_name, char *err,
			size_t err_size)
{
	struct client_packet p = { .m.type = WIRE_TEXT };
	_cleanup_(freep) char *taken = NULL;
	int r = client_say(fd, ask, NULL, 0);

	snprintf(err, err_size, "the server is gone");
	while (r == 0 && p.m.type != WIRE_OK) {
		r = client_hear(fd, FLATTEN_WAIT_MS, CLIENT_ANY, &p, err, err_size);
		if (r == 0 && p.m.type == WIRE_TEXT && !taken)
			r = (taken = strndup(p.m.text, p.m.text_len)) ? 0 : -ENOMEM;
		else if (r == 0 && p.m.type != WIRE_OK)
			r = -EBADMSG;
	}
	if (r == 0 && !taken)
		r = -EBADMSG;
	if (r == -EBADMSG)
		snprintf(err, err_size, "the server's answer cannot be understood");
	if (r == 0)
		*ret_name = steal_ptr(&taken);
	return r == -EREMOTEIO && p.m.count == WIRE_EXIT_ELSEWHERE ? -ENOENT : r;
}

int client_snapshot(int fd, const struct client_target *at, const char *name, char **ret_name,
		    char *err, size_t err_size)
{
	const struct wire_message ask = { .type = WIRE_SNAPSHOT,
					  .dev_major = at->dev_major,
					  .dev_minor = at->dev_minor,
					  .size = at->ino,
					  .count = at->number,
					  .text = name,
					  .text_len = strlen(name) };

	return ask_for_name(fd, &ask, ret_name, err, err_size);
}

int client_rollback(int fd, const struct client_target *at, const char *names, char **ret_name,
		    char *err, size_t err_size)
{
	const struct wire_message ask = { .type = WIRE_ROLLBACK,
					  .dev_major = at->dev_major,
					  .dev_minor = at->dev_minor,
					  .size = at->ino,
					  .count = at->number,
					  .text = names,
					  .text_len = strlen(names) };

	return ask_for_name(fd, &ask, ret_name, err, err_size);
}
