// SPDX-License-Identifier: Apache-2.0
#include "support/tree.h"
#include "support/wait.h"

#include "server/handoff.h"
#include "server/wire.h"
#include "veneer/base/cleanup.h"
#include "veneer/base/hash.h"
#include "veneer/recover/intent_log.h"
#include "veneer/server/mount_record.h"
#include "veneer/sys/sock.h"
#include "veneer/union/node_table.h"

#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>

#define BASE   200 /* the numbers of what is handed over */
#define SECRET 0x1234567890ull

/* Exit codes of the two. */
enum { FINE = 0, REFUSED = 1, WRONG = 2 };

static int at(int fd, int number)
{
	int r = fcntl(fd, F_DUPFD_CLOEXEC, BASE + number);

	close(fd);
	return r;
}

static int tagged(int size, int number)
{
	int fd = memfd_create("tagged", MFD_CLOEXEC);

	return ftruncate(fd, size) < 0 ? -1 : at(fd, number);
}

static int size_of(int fd)
{
	struct stat st;

	return fstat(fd, &st) < 0 ? -1 : (int)st.st_size;
}

static int listener(void)
{
	int fd, dir = open("/var/tmp", O_PATH | O_DIRECTORY | O_CLOEXEC);
	char name[64];

	snprintf(name, sizeof(name), "veneer-handoff-%d", (int)getpid());
	if (sock_listen(dir, name, &fd) < 0)
		return -1;
	unlinkat(dir, name, 0);
	close(dir);
	return at(fd, 0);
}

/* A mount with a node that is held by a descriptor, and one whose descriptor is closed. */
static int make_mount(struct supervisor_state *l)
{
	struct mount_record d;
	struct node_table *t;
	uint32_t id, place;

	mount_record_init(&d);
	d.dirs.upper = tagged(11, 10);
	d.fuse_fd = tagged(12, 20);
	if (mount_dirs_add_lower(&d.dirs, tagged(13, 130)) < 0 || node_table_new(&t) < 0 ||
	    node_table_alloc(t, &id) < 0)
		return -1;
	node_table_slot(t, id)->held_fd = tagged(14, 40) + 1;
	if (node_table_alloc(t, &id) < 0)
		return -1;
	node_table_slot(t, id)->held_fd = BASE + 99 + 1;
	node_table_fds(t, &d.slots_fd, &d.names_fd);
	d.slots_fd = at(d.slots_fd, 50);
	d.names_fd = at(d.names_fd, 51);
	if (mount_record_write(&d) < 0)
		return -1;
	return supervisor_state_put(l, at(d.fd, 60), &place);
}

static int be_old(int fd)
{
	struct handoff e = { .listen_fd = listener(), .notify_fd = -1, .owns_socket = true };

	hash_use_secret(SECRET);
	if (supervisor_state_new(intent_log_area_bytes(), &e.supervisor_state) < 0 ||
	    e.listen_fd < 0 || make_mount(e.supervisor_state) < 0)
		return WRONG;
	supervisor_state_set_last_key(e.supervisor_state, 55);
	memset(supervisor_state_extra(e.supervisor_state), 'j',
	       supervisor_state_extra_bytes(e.supervisor_state));
	return handoff_offer(fd, &e) < 0		   ? REFUSED
	       : size_of(BASE + 10) < 0 && size_of(fd) < 0 ? FINE
							   : WRONG;
}

static void see_mount(int fd, uint32_t place, void *arg)
{
	struct mount_record d;
	bool *is_right = arg;

	(void)place;
	*is_right = fd == BASE + 60 && mount_record_read(fd, &d) == 0 &&
		    size_of(d.dirs.upper) == 11 && size_of(d.fuse_fd) == 12 &&
		    d.dirs.n_lower == 1 && size_of(d.dirs.lower[0]) == 13 &&
		    d.slots_fd == BASE + 50;
}

static void see_held(int fd, void *arg)
{
	bool *is_right = arg;

	*is_right = fd == BASE + 99 || (*is_right && size_of(fd) == 14);
}

static bool is_right(const struct handoff *e)
{
	bool mount = false, held = true;

	supervisor_state_each(e->supervisor_state, see_mount, &mount);
	node_table_held_fds(BASE + 50, see_held, &held);
	return mount && held && e->owns_socket && e->notify_fd == -1 &&
	       sock_is_listening(e->listen_fd) && hash_secret() == SECRET &&
	       supervisor_state_last_key(e->supervisor_state) == 55 &&
	       supervisor_state_deaths(e->supervisor_state) == 1 &&
	       ((char *)supervisor_state_extra(
		       e->supervisor_state))[supervisor_state_extra_bytes(e->supervisor_state) -
					     1] == 'j';
}

static int be_new(int fd)
{
	int own = memfd_create("own", MFD_CLOEXEC), *const owns[] = { &own };
	struct handoff e;
	char err[300];

	/* The place for what is to come. */
	if (ftruncate(own, 77) < 0 || (own = at(own, 10)) < 0)
		return WRONG;
	if (handoff_take(&fd, owns, 1, &e, err, sizeof(err)) < 0)
		return strlen(err) ? REFUSED : WRONG;
	return is_right(&e) && size_of(own) == 77 && fd == -1 ? FINE : WRONG;
}

static int be_nobody(int fd)
{
	close(fd);
	return FINE;
}

/* Hears all, and answers with something else. */
static int be_wrong(int fd)
{
	static uint8_t bytes[WIRE_MESSAGE_MAX];
	int fds[SOCK_FDS_MAX];
	size_t n;
	int len = sock_recv(fd, bytes, sizeof(bytes), fds, &n);

	if (len < 0 || sock_send(fd, bytes, (size_t)len, NULL, 0, 1000) < 0)
		return WRONG;
	while (sock_recv(fd, bytes, sizeof(bytes), fds, &n) > 0)
		sock_close_fds(fds, n);
	return FINE;
}

static int be_told(int fd)
{
	sigset_t set;

	sigemptyset(&set);
	sigaddset(&set, SIGTERM);
	sigprocmask(SIG_BLOCK, &set, NULL);
	raise(SIGTERM);
	return be_old(fd);
}

static int refuse(int fd)
{
	const struct wire_message m = {
		.type = WIRE_ERROR, .count = 1, .text = "no", .text_len = 2
	};
	_cleanup_(buf_release) struct buf b = { 0 };

	return wire_encode(&m, &b) < 0 || sock_send(fd, b.data, b.len, NULL, 0, 1000) < 0 ? WRONG
											  : FINE;
}

static pid_t run(int (*fn)(int fd), int fd)
{
	pid_t pid = fork();

	if (pid == 0) {
		fd = dup2(fd, 100);
		close_range(3, 99, 0);
		close_range(101, ~0u, 0);
		_exit(fn(fd));
	}
	close(fd);
	return pid;
}

static void assert_ends(int (*old)(int fd), int want_old, int (*new)(int fd), int want_new)
{
	int ends[2], status;
	pid_t pids[2];

	assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends), 0);
	pids[0] = run(old, ends[0]);
	pids[1] = run(new, ends[1]);
	assert_int_equal(waitpid(pids[0], &status, 0), pids[0]);
	assert_int_equal(status, want_old << 8);
	assert_int_equal(waitpid(pids[1], &status, 0), pids[1]);
	assert_int_equal(status, want_new << 8);
}

/* The question that a server would have taken. */
static int be_asked(int fd)
{
	static uint8_t bytes[WIRE_MESSAGE_MAX];
	int fds[SOCK_FDS_MAX];
	size_t n;

	return sock_recv(fd, bytes, sizeof(bytes), fds, &n) < 0 ? WRONG : be_old(fd);
}

static int be_asked_and_told(int fd)
{
	static uint8_t bytes[WIRE_MESSAGE_MAX];
	int fds[SOCK_FDS_MAX];
	size_t n;

	return sock_recv(fd, bytes, sizeof(bytes), fds, &n) < 0 ? WRONG : be_told(fd);
}

static struct {
	_Atomic pid_t new;
	_Atomic bool has_ended;
} *both;

/* A process keeps the connection open longer than the old supervisor: until the new one waits. */
static int be_slow(int fd)
{
	int status;
	pid_t pid = fork();

	if (pid == 0)
		_exit(be_asked(fd));
	if (waitpid(pid, &status, 0) != pid || !WIFEXITED(status))
		return WRONG;
	wait_until(both->new && wait_is_at_rest(both->new));
	both->has_ended = true;
	return WEXITSTATUS(status);
}

static int be_new_after(int fd)
{
	int r;

	both->new = getpid();
	r = be_new(fd);
	return r == FINE && !both->has_ended ? WRONG : r;
}

static void test_handoff__the_new_one_begins_when_the_old_one_is_gone(void **state)
{
	(void)state;
	both = mmap(NULL, sizeof(*both), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	assert_ptr_not_equal(both, MAP_FAILED);
	assert_ends(be_slow, FINE, be_new_after, FINE);
}

static void test_handoff__all_comes_with_the_numbers_it_had(void **state)
{
	(void)state;
	assert_ends(be_asked, FINE, be_new, FINE);
}

static void test_handoff__without_an_answer_the_old_one_stays(void **state)
{
	(void)state;
	assert_ends(be_old, REFUSED, be_nobody, FINE);
	assert_ends(be_old, REFUSED, be_wrong, FINE);
}

static void test_handoff__a_signal_on_its_way_is_not_lost(void **state)
{
	(void)state;
	assert_ends(be_asked_and_told, REFUSED, be_new, REFUSED);
}

static void test_handoff__a_refusal_is_said(void **state)
{
	(void)state;
	assert_ends(refuse, FINE, be_new, REFUSED);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_handoff__all_comes_with_the_numbers_it_had),
		cmocka_unit_test(test_handoff__the_new_one_begins_when_the_old_one_is_gone),
		cmocka_unit_test(test_handoff__without_an_answer_the_old_one_stays),
		cmocka_unit_test(test_handoff__a_signal_on_its_way_is_not_lost),
		cmocka_unit_test(test_handoff__a_refusal_is_said),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
