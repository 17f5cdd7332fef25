// SPDX-License-Identifier: Apache-2.0
/* A request for a mount is collected without waiting: HELLO, then DIRS and ARGS in any number
 * within bounds, then MOUNT, which completes it. Then one thread has the connection. It opens
 * everything and sends READY; the client mounts and hands over the descriptor; the thread answers
 * INIT and sends OK. A client that breaks the order gets an error and is hung up on. */
#include "client_conn.h"

#include "answer_gate.h"
#include "handoff_message.h"
#include "mount_request.h"
#include "sandbox.h"
#include "veneer/base/cleanup.h"
#include "veneer/base/clock.h"
#include "veneer/base/human_units.h"
#include "veneer/base/log.h"
#include "veneer/base/tsan_order.h"
#include "veneer/jobs/promote_worker.h"
#include "veneer/recover/activity.h"
#include "veneer/server/mount_record.h"
#include "veneer/sys/file.h"
#include "veneer/sys/mountinfo.h"
#include "veneer/sys/peer.h"
#include "veneer/sys/sock.h"
#include "wire.h"
#include "wire_send.h"

#include <limits.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#define ERR_SIZE       (PATH_MAX * 2)
#define SEND_WAIT_MS   5000
#define CHANGE_WAIT_MS 5000 /* a change that takes longer counts as hanging */
#define MOUNT_WAIT_MS  60000 /* from READY until the client has mounted */
#define TEXT_PIECE     (WIRE_PAYLOAD_MAX / 2)
#define SHARE_TRIES    3
#define FUSE_MAJOR     10
#define FUSE_MINOR     229

struct client_conn {
	int fd;
	struct peer peer;
	const char *bars_upgrade; /* why this client may not upgrade the server; NULL: it may */
	bool is_greeted;
	bool fits; /* WIRE_UPGRADE: its versions fit ours */
	enum wire_type asked;
	struct mount_request request; /* if asked is a type of mount_request */
	struct mount_dirs dirs;
	struct mount_record mount_record; /* arguments and flags of a WIRE_MOUNT */
};

/* One message with its descriptors. */
struct packet {
	uint8_t bytes[WIRE_MESSAGE_MAX];
	int fds[SOCK_FDS_MAX];
	size_t n_fds;
};

static int say(struct client_conn *c, const struct wire_message *m)
{
	return wire_send(c->fd, m);
}

static int say_type(struct client_conn *c, enum wire_type type)
{
	return say(c, &(struct wire_message){ .type = type });
}

static int say_text(struct client_conn *c, enum wire_type type, const char *text, size_t len)
{
	return wire_send_text(c->fd, type, text, len);
}

static void refuse(struct client_conn *c, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));

static void refuse(struct client_conn *c, const char *fmt, ...)
{
	static struct log_limit limit = { .lock = PTHREAD_MUTEX_INITIALIZER };
	unsigned n_left_out;
	char text[512];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	if (log_allows(&limit, clock_ms(), &n_left_out)) {
		if (n_left_out)
			log_warn("%s more of clients that were refused: left out",
				 human_units_of(n_left_out, "line").text);
		log_warn("process %d of user %u: %s", (int)c->peer.pid, (unsigned)c->peer.uid,
			 text);
	}
	say_text(c, WIRE_ERROR, text, strlen(text));
}

static struct {
	bool is_known, is_unit;
	struct peer_standing standing;
	struct peer_id first_mount_ns; /* of process 1; zeros: it cannot be read */
} starter;

void client_conn_note_starter(void)
{
	int r = peer_standing_self(&starter.standing);

	if (r < 0)
		log_warn("/proc does not show this process: clients are refused: %s", strerror(-r));
	if (peer_first_mount_ns(&starter.first_mount_ns) < 0)
		starter.first_mount_ns = (struct peer_id){ 0 };
	starter.is_known = r == 0;
}

void client_conn_note_unit(void)
{
	starter.is_unit = true;
}

static bool has_all(uint64_t caps, uint64_t wanted)
{
	return (caps & wanted) == wanted;
}

/* NULL: the same user in the same namespaces, with the same capabilities. Capabilities alone prove
 * nothing, as any user may have all of them in a user namespace of his own. */
static const char *judge_privileges(const struct peer_standing *theirs)
{
	const struct peer_standing *ours = &starter.standing;

	if (theirs->uids[1] != geteuid())
		return "this server is another user's";
	if (!peer_id_is(&theirs->user_ns, &ours->user_ns))
		return "this server is of another user namespace";
	if (!peer_id_is(&theirs->pid_ns, &ours->pid_ns))
		return "this server is of another process namespace";
	/* A unit may have given the server only the capabilities that it keeps; its clients may
	 * have more. */
	if (!has_all(theirs->effective, sandbox_started_with()) ||
	    !has_all(sandbox_started_with(), theirs->effective & sandbox_kept()))
		return "this server has other privileges";
	return NULL;
}

/* Mount namespaces may differ, as engines mount from their own. */
static const char *judge_place(const struct peer_standing *theirs)
{
	return peer_id_is(&theirs->root, &starter.standing.root)
		       ? NULL
		       : "this server was started below another root directory";
}

/* An upgrade gets every open descriptor of the server. Its client may lack access to those files
 * only because its mount namespace hides them, so that must match, too. */
static const char *judge_successor(const struct peer_standing *theirs)
{
	const struct peer_standing *ours = &starter.standing;

	if (memcmp(theirs->uids, ours->uids, sizeof(ours->uids)) ||
	    !has_all(theirs->permitted, ours->permitted) ||
	    !has_all(theirs->bounding, ours->bounding))
		return "this server has other privileges";
	/* systemd gives each command of a unit a mount namespace of its own, but one control group
	 * to all. */
	if (starter.is_unit && *ours->cgroup && !strcmp(theirs->cgroup, ours->cgroup))
		return NULL;
	if (!peer_id_is(&theirs->mount_ns, &ours->mount_ns) &&
	    !peer_id_is(&theirs->mount_ns, &starter.first_mount_ns))
		return "an upgrade is taken from the mount namespace of the host, or of the "
		       "program that started this server: "
		       "nsenter --mount --target PID veneer server --upgrade";
	return NULL;
}

/* NULL: the peer may be a client. A peer whose privileges cannot be read is refused. */
static const char *look_at_peer(struct client_conn *c, struct peer_standing *ret)
{
	int r = starter.is_known ? peer_standing(&c->peer, ret) : -ENODATA;

	if (r == -ESRCH)
		return "the process that connected has ended";
	return r < 0 ? "this server cannot see the privileges of its client in /proc"
		     : judge_privileges(ret);
}

/* Where the kernel does not tell the process that connected, each message has to be sent by the
 * process that we hold. No message counts that may have been sent before we held it. */
static int take_peer(struct client_conn *c)
{
	struct peer_standing theirs;
	int r = peer_hold(c->fd, &c->peer);
	const char *why = NULL;

	if (r == 0 && !c->peer.is_connector)
		r = sock_name_senders(c->fd);
	if (r == 0 && c->peer.uid != geteuid())
		why = "this server is another user's";
	else
		why = r == 0 ? look_at_peer(c, &theirs) : "this server cannot see its client";
	if (!why)
		why = judge_place(&theirs);
	if (why) {
		refuse(c, "%s", why);
		return -EPERM;
	}
	c->bars_upgrade = judge_successor(&theirs);
	return 0;
}

/* Check again with each message that has an effect: a mount is served with our privileges, so its
 * client must have them at that time. A successor has by then moved to a root of its own, as
 * servers do, so its place when it connected counts. */
static bool is_welcome(struct client_conn *c, enum wire_type type)
{
	struct peer_standing theirs;
	const char *why = look_at_peer(c, &theirs);

	if (!why)
		why = type == WIRE_UPGRADE ? c->bars_upgrade : judge_place(&theirs);
	if (why)
		refuse(c, "%s", why);
	return !why;
}

int client_conn_new(int fd, struct client_conn **ret)
{
	struct client_conn *c = calloc(1, sizeof(*c));

	if (!c) {
		close(fd);
		return -ENOMEM;
	}
	c->fd = fd;
	c->peer.pidfd = -1;
	mount_dirs_init(&c->dirs);
	mount_record_init(&c->mount_record);
	if (take_peer(c) < 0) {
		client_conn_free(c);
		return -EPERM;
	}
	c->dirs.opener = c->peer.pid;
	*ret = c;
	return 0;
}

void client_conn_free(struct client_conn *c)
{
	if (!c)
		return;
	closep(&c->fd);
	peer_release(&c->peer);
	mount_dirs_release(&c->dirs);
	mount_record_release(&c->mount_record);
	free(c);
}

int client_conn_fd(const struct client_conn *c)
{
	return c->fd;
}

/* The descriptors in fds are closed or taken over in every case. */
static bool take_dirs(struct client_conn *c, const struct wire_message *m, int *fds, size_t n)
{
	int *single = m->role == WIRE_UPPER  ? &c->dirs.upper
		      : m->role == WIRE_WORK ? &c->dirs.work
					     : &c->dirs.state;
	int (*add)(struct mount_dirs *d, int fd) = m->role == WIRE_CLONE ? mount_dirs_add_clone
									 : mount_dirs_add_lower;
	size_t known = m->role == WIRE_CLONE ? c->dirs.n_clones : c->dirs.n_lower;
	bool is_taken = n == m->n_fds && known + n <= WIRE_DIRS_MAX;

	if (is_taken && m->role != WIRE_LOWER && m->role != WIRE_CLONE) {
		is_taken = *single < 0;
		if (is_taken)
			*single = steal_fd(&fds[0]);
	} else {
		for (size_t i = 0; is_taken && i < n; i++)
			is_taken = add(&c->dirs, steal_fd(&fds[i])) == 0;
	}
	sock_close_fds(fds, n);
	return is_taken;
}

static enum client_conn_state ask(struct client_conn *c, const struct wire_message *m)
{
	if (!is_welcome(c, m->type))
		return CLIENT_CONN_OVER;
	c->mount_record.argc = m->count;
	c->mount_record.flags = m->flags;
	if (mount_request_is_one(m->type))
		mount_request_read(&c->request, m);
	if (m->type == WIRE_UPGRADE)
		c->fits = handoff_message_fits(m->text, m->text_len);
	return CLIENT_CONN_ASKED;
}

static enum client_conn_state greet(struct client_conn *c)
{
	c->is_greeted = true;
	/* A message that is already waiting may come from a process that is gone, and another
	 * process may have its id now. */
	if (!c->peer.is_connector && sock_wait(c->fd, 0) == 0) {
		refuse(c, "a message came before its turn");
		return CLIENT_CONN_OVER;
	}
	return say_text(c, WIRE_HELLO, VENEER_VERSION, strlen(VENEER_VERSION)) < 0
		       ? CLIENT_CONN_OVER
		       : CLIENT_CONN_LISTENING;
}

static enum client_conn_state take(struct client_conn *c, const struct wire_message *m,
				   struct packet *p)
{
	bool is_good = c->is_greeted != (m->type == WIRE_HELLO);

	if (is_good && m->type == WIRE_DIRS) {
		if (take_dirs(c, m, p->fds, p->n_fds))
			return CLIENT_CONN_LISTENING;
		is_good = false;
	}
	is_good = is_good && p->n_fds == 0;
	sock_close_fds(p->fds, p->n_fds);
	if (is_good && m->type == WIRE_HELLO)
		return greet(c);
	if (is_good && m->type == WIRE_ARGS &&
	    c->mount_record.args.len + m->text_len <= WIRE_ARGS_MAX &&
	    buf_put(&c->mount_record.args, m->text, m->text_len) == 0)
		return CLIENT_CONN_LISTENING;
	c->asked = m->type;
	if (is_good && (m->type != WIRE_MOUNT || m->size == c->mount_record.args.len) &&
	    (client_conn_takes_long(c) || m->type == WIRE_PING || m->type == WIRE_STATS ||
	     m->type == WIRE_UPGRADE))
		return ask(c, m);
	refuse(c, "message %d is out of place", (int)m->type);
	return CLIENT_CONN_OVER;
}

/* 1: a message, which points into p; 0: none yet; -EPIPE: the end, and the client has been told
 * why. */
static int receive(struct client_conn *c, struct wire_message *m, struct packet *p)
{
	struct sock_sender sender;
	int r = sock_recv_from(c->fd, p->bytes, sizeof(p->bytes), p->fds, &p->n_fds, &sender);

	if (r == -EAGAIN)
		return 0;
	if (r == -EMSGSIZE) {
		refuse(c, "a message is too long, or there are too many open files");
		return -EPIPE;
	}
	if (r <= 0)
		return -EPIPE;
	if (c->is_greeted && !c->peer.is_connector && sender.pid != c->peer.pid) {
		sock_close_fds(p->fds, p->n_fds);
		refuse(c,
		       "a message is of process %d: this kernel does not tell whether that may "
		       "speak for its client",
		       (int)sender.pid);
		return -EPIPE;
	}
	r = wire_decode(p->bytes, (size_t)r, m);
	if (r == 0)
		return 1;
	sock_close_fds(p->fds, p->n_fds);
	if (r == -EPROTO)
		refuse(c, "version %u of the protocol is spoken here, not %u", WIRE_VERSION,
		       m->version);
	else
		refuse(c, "a message cannot be understood");
	return -EPIPE;
}

enum client_conn_state client_conn_receive(struct client_conn *c)
{
	enum client_conn_state state = CLIENT_CONN_LISTENING;

	while (state == CLIENT_CONN_LISTENING) {
		struct wire_message m;
		struct packet p;
		int r = receive(c, &m, &p);

		if (r == 0)
			return CLIENT_CONN_LISTENING;
		state = r < 0 ? CLIENT_CONN_OVER : take(c, &m, &p);
	}
	return state;
}

bool client_conn_takes_long(const struct client_conn *c)
{
	return c->asked == WIRE_MOUNT || mount_request_is_one(c->asked);
}

void client_conn_refuse_stalled(struct client_conn *c, unsigned n)
{
	refuse(c,
	       "this server is busy: %u requests to mount or to flatten do not come to an end, as "
	       "where a layer does not answer",
	       n);
}

static void say_error(struct client_conn *c, const char *text)
{
	log_debug("told process %d: %s", (int)c->peer.pid, text);
	say_text(c, WIRE_ERROR, text, strnlen(text, ERR_SIZE));
}

/* A descriptor of another file might never become readable. */
static bool is_fuse(int fd)
{
	struct stat st;

	return fstat(fd, &st) == 0 && S_ISCHR(st.st_mode) &&
	       st.st_rdev == makedev(FUSE_MAJOR, FUSE_MINOR);
}

/* Wait until the client has mounted. *ret_fd is the caller's. */
static int await_fuse(struct client_conn *c, int *ret_fd, struct served_place *ret)
{
	struct wire_message m;
	struct packet p;
	int r = sock_wait(c->fd, MOUNT_WAIT_MS);

	if (r == 0)
		r = receive(c, &m, &p);
	if (r <= 0)
		return r < 0 ? r : -EPIPE;
	if (!is_welcome(c, WIRE_FUSE)) {
		sock_close_fds(p.fds, p.n_fds);
		return -EPIPE;
	}
	if (m.type != WIRE_FUSE || p.n_fds != 1 || !is_fuse(p.fds[0])) {
		sock_close_fds(p.fds, p.n_fds);
		refuse(c, "message %d is out of place", (int)m.type);
		return -EPIPE;
	}
	*ret_fd = p.fds[0];
	*ret = (struct served_place){ m.dev_major, m.dev_minor, mountinfo_namespace(c->peer.pid),
				      0 };
	return 0;
}

static int start(struct client_conn *c, struct mount_table *mount_table, struct served_mount *s,
		 char *err, size_t err_size)
{
	const bool is_readonly = !mount_table_mount(s)->tree.upper;
	const struct wire_message ready = { .type = WIRE_READY,
					    .flags = is_readonly ? WIRE_READY_READONLY : 0 };
	_cleanup_(closep) int fuse_fd = -1;
	struct served_place at;
	int r = say(c, &ready);

	*err = '\0';
	if (r == 0)
		r = await_fuse(c, &fuse_fd, &at);
	return r < 0 ? r : mount_table_start(mount_table, s, fuse_fd, &at, err, err_size);
}

static int say_shared(struct client_conn *c, uint32_t number, int fuse_fd)
{
	_cleanup_(buf_release) struct buf b = { 0 };
	int r = wire_encode(&(struct wire_message){ .type = WIRE_SHARED, .count = number }, &b);

	return r < 0 ? r : sock_send(c->fd, b.data, b.len, &fuse_fd, fuse_fd >= 0, SEND_WAIT_MS);
}

/* Wait until the client has bound the root, or is gone. */
static void await_bound(struct client_conn *c)
{
	struct wire_message m;
	struct packet p;

	if (sock_wait(c->fd, MOUNT_WAIT_MS) == 0 && receive(c, &m, &p) > 0)
		sock_close_fds(p.fds, p.n_fds);
}

/* Have the client make the file system of the superblock. */
static int found(struct client_conn *c, struct hosted_sb *common, char *err, size_t err_size)
{
	_cleanup_(closep) int fuse_fd = -1;
	struct served_place at = { 0 };
	int r = say_shared(c, 0, -1);

	if (r == 0)
		r = await_fuse(c, &fuse_fd, &at);
	return r < 0 ? r
		     : sb_registry_found(common, fuse_fd, at.dev_major, at.dev_minor, err,
					 err_size);
}

/* 0: the mount is served, or another thread ends it. -EOPNOTSUPP: the mount cannot be shared.
 * -ENOTCONN: the superblock has just gone. Other -errno, perhaps with a sentence: the mount
 * failed. */
static int share_once(struct client_conn *c, struct mount_table *mount_table,
		      struct served_mount *s, char *err, size_t err_size)
{
	_cleanup_(closep) int fuse_fd = -1;
	struct hosted_sb *common;
	uint32_t number;
	int r = mount_table_seek(mount_table, s, c->peer.pid, &common, &fuse_fd);

	if (r < 0)
		return r == -ENOMEM || r == -EMFILE ? r : -EOPNOTSUPP;
	if (fuse_fd < 0)
		r = found(c, common, err, err_size);
	if (r == 0)
		/* Read the namespace now: the client exits as soon as it has bound the root. */
		r = mount_table_enter(s, common, mountinfo_namespace(c->peer.pid), &number, err,
				      err_size);
	sb_registry_leave(common);
	if (r < 0)
		return r == -EOPNOTSUPP ? -EIO : r;
	tsan_order_answer();
	r = say_shared(c, number, fuse_fd);
	if (r == 0)
		await_bound(c);
	/* A client that got the number may have bound the root before it was killed. */
	mount_table_bound(s, r == 0);
	return 0;
}

static int share(struct client_conn *c, struct mount_table *mount_table, struct served_mount *s,
		 char *err, size_t err_size)
{
	int r = -ENOTCONN;

	*err = '\0';
	for (int k = 0; k < SHARE_TRIES && r == -ENOTCONN; k++)
		r = share_once(c, mount_table, s, err, err_size);
	return r;
}

/* Log the unknown options: engines drop the standard error of a mount program that succeeds. */
static void log_unknown(const struct mount_opts *o)
{
	_cleanup_(freep) char *unknown = options_unknown(o);
	const char *about = log_about(o->mountpoint);

	if (unknown)
		log_warn("%s: unknown argument ignored: %s", o->mountpoint, unknown);
	log_about(about);
}

/* The upper that a request waits for. */
struct waiting {
	struct client_conn *conn;
	struct mount_table *mount_table;
	dev_t dev; /* of the upper, and its inode number */
	ino_t ino;
	char *path, *place; /* of the upper; of the mount that uses it, NULL: it is not ours */
};

static void waiting_release(struct waiting *w)
{
	free(w->path);
	free(w->place);
}

static void note_holder(struct mount *m, const struct served_place *at, void *arg)
{
	const struct layer *upper = m->tree.upper;
	struct waiting *w = arg;

	(void)at;
	if (!w->place && upper && upper->dev == w->dev && upper->ino == w->ino)
		w->place = strdup(m->opts.mountpoint);
}

/* Send the holder of the upper to the client, which prints it and goes on waiting. */
static void say_waits(void *arg, const char *path, int fd)
{
	struct waiting *w = arg;
	_cleanup_(freep) char *text = NULL;
	const pid_t holder = file_flock_holder(fd);
	char of[32] = "";
	struct stat st;
	int n;

	if (fstat(fd, &st) < 0)
		return;
	w->dev = st.st_dev;
	w->ino = st.st_ino;
	w->path = strdup(path);
	if (holder)
		snprintf(of, sizeof(of), ", of process %d", (int)holder);
	mount_table_each(w->mount_table, note_holder, w);
	if (w->place)
		n = asprintf(&text,
			     "upperdir %s is in use by the mount at %s, of this server (%d): "
			     "waiting for its end",
			     path, w->place, (int)getpid());
	else
		n = asprintf(&text, "upperdir %s is in use by another mount%s: waiting for its end",
			     path, of);
	if (n > 0)
		say_text(w->conn, WIRE_TEXT, text, (size_t)n < TEXT_PIECE ? (size_t)n : TEXT_PIECE);
}

static int open_mount(struct client_conn *c, struct mount_table *mount_table,
		      struct served_mount **ret, char *err, size_t err_size)
{
	_cleanup_(waiting_release) struct waiting w = { .conn = c, .mount_table = mount_table };
	int r;

	c->dirs.waits = say_waits;
	c->dirs.waits_arg = &w;
	r = mount_table_open(mount_table, &c->dirs, &c->mount_record, ret, err, err_size);
	c->dirs.waits = NULL;
	if (r == -EBUSY && w.path && w.place)
		snprintf(err, err_size,
			 "upperdir %s is in use by the mount at %s, of this server (%d): unmount "
			 "that first",
			 w.path, w.place, (int)getpid());
	return r;
}

static void answer_mount(struct client_conn *c, struct mount_table *mount_table)
{
	char err[ERR_SIZE];
	struct served_mount *s;
	const bool can_share = c->mount_record.flags & WIRE_MOUNT_CAN_SHARE;
	int r;

	mount_table_check(mount_table);
	r = open_mount(c, mount_table, &s, err, sizeof(err));
	if (r < 0) {
		say_error(c, err);
		return;
	}
	log_unknown(&mount_table_mount(s)->opts);
	r = can_share ? share(c, mount_table, s, err, sizeof(err)) : -EOPNOTSUPP;
	if (r == 0)
		return;
	if (r == -EOPNOTSUPP)
		r = start(c, mount_table, s, err, sizeof(err));
	if (r < 0) {
		if (*err)
			say_error(c, err);
		/* Close the connection first: the client need not wait until the mount is
		 * closed. */
		closep(&c->fd);
		mount_table_drop(mount_table, s);
		return;
	}
	say_type(c, WIRE_OK);
}

static void answer_stats(struct client_conn *c, const struct client_conn_host *host)
{
	_cleanup_(freep) char *text = NULL;
	int r = host->stats(host->arg, &text);

	if (r < 0)
		say_error(c, strerror(-r));
	for (size_t at = 0, len = r < 0 ? 0 : strlen(text); r == 0 && at < len; at += TEXT_PIECE)
		r = say_text(c, WIRE_TEXT, text + at,
			     len - at < TEXT_PIECE ? len - at : TEXT_PIECE);
	if (r == 0)
		say_type(c, WIRE_OK);
}

/* Without a live supervisor nothing hands the mounts over, and no server follows this one. */
static bool has_supervisor(struct supervisor_state *l)
{
	return l && supervisor_state_board(l)->supervisor == getppid();
}

/* False: the hand-over was refused, and this server goes on. */
static bool leave_to(struct client_conn *c, struct supervisor_state *l)
{
	if (answer_gate_close(CHANGE_WAIT_MS) < 0) {
		refuse(c,
		       "this server is changing the snapshots of a mount for more than %d seconds, "
		       "and goes on",
		       CHANGE_WAIT_MS / 1000);
		return false;
	}
	if (is_welcome(c, WIRE_UPGRADE)) {
		if (!supervisor_state_is_left(l) &&
		    supervisor_state_going(l) == SUPERVISOR_STATE_STAYS &&
		    supervisor_state_hand_over(l, c->fd) == 0)
			return true;
		refuse(c, "this server is about to leave, or being upgraded");
	}
	answer_gate_open();
	return false;
}

/* A new server takes over the state that a crash leaves, so this one kills itself; the supervisor
 * keeps the connection open. Refused while a change hangs: the mounts would be without a server
 * until it ends. */
static void answer_upgrade(struct client_conn *c, struct supervisor_state *l,
			   struct mount_table *mount_table)
{
	int r;

	if (!has_supervisor(l))
		refuse(c, "this server runs alone, and cannot be upgraded while it serves");
	else if (!c->fits)
		refuse(c,
		       "this server, version %s, cannot hand its mounts to that version: it knows "
		       "%s",
		       VENEER_VERSION, handoff_message_versions());
	else if ((r = activity_await_changes(CHANGE_WAIT_MS)) == -EBUSY)
		refuse(c,
		       "this server is changing a file in a layer that has not answered for %d "
		       "seconds, and goes on",
		       CHANGE_WAIT_MS / 1000);
	else if (r < 0)
		refuse(c, "cannot look whether a change hangs: %s", strerror(-r));
	else if (mount_table_count_unkept(mount_table))
		refuse(c, "this server has mounts that cannot be handed over: with share=pages "
			  "before Linux 6.9, or as "
			  "its log has it");
	else if (leave_to(c, l))
		kill(getpid(), SIGKILL);
}

void client_conn_answer(struct client_conn *c, const struct client_conn_host *host)
{
	if (c->asked == WIRE_MOUNT)
		answer_mount(c, host->mount_table);
	else if (c->asked == WIRE_STATS)
		answer_stats(c, host);
	else if (mount_request_is_one(c->asked))
		mount_request_answer(&c->request, c->fd, host->mount_table);
	else if (c->asked == WIRE_UPGRADE)
		answer_upgrade(c, host->supervisor_state, host->mount_table);
	else
		say(c, &(struct wire_message){
			       .type = WIRE_PONG,
			       .size = (uint64_t)getpid(),
			       .count = (uint32_t)mount_table_count(host->mount_table) });
}
