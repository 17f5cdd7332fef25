// SPDX-License-Identifier: Apache-2.0
#include "support/tree.h"

#include "veneer/jobs/inode_shrinker.h"
#include "veneer/sys/mem_usage.h"

#include <linux/fuse.h>
#include <poll.h>
#include <sched.h>
#include <stdatomic.h>
#include <sys/socket.h>

#define WAIT_MS	     60000
#define NOTIFY_PRUNE 9
#define FILES	     4u

/* A host whose memory is as full as the test says, and a tree that seems to be so large. */
static _Atomic unsigned percent;
static _Atomic size_t extra_inodes;
static _Atomic unsigned n_looks;

int __wrap_mem_usage_read(struct mem_usage *ret);
unsigned __wrap_mem_usage_percent(const struct mem_usage *m, uint64_t counted_cache);
size_t __real_inode_count(struct union_fs *t);
size_t __wrap_inode_count(struct union_fs *t);

int __wrap_mem_usage_read(struct mem_usage *ret)
{
	*ret = (struct mem_usage){ .limit = 1 << 20 };
	atomic_fetch_add(&n_looks, 1);
	return 0;
}

unsigned __wrap_mem_usage_percent(const struct mem_usage *m, uint64_t counted_cache)
{
	(void)m, (void)counted_cache;
	return atomic_load(&percent);
}

size_t __wrap_inode_count(struct union_fs *t)
{
	return __real_inode_count(t) + atomic_load(&extra_inodes);
}

struct shrinking {
	struct tree_dirs *d;
	int kernel, fd;
	uint32_t number;
	uint32_t node[FILES];
};

static int setup(void **state)
{
	struct shrinking *s = calloc(1, sizeof(*s));
	int ends[2];

	if (!s || tree_setup((void **)&s->d) < 0 ||
	    socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) < 0)
		return -1;
	s->kernel = ends[0];
	s->fd = ends[1];
	for (unsigned i = 0; i < FILES; i++) {
		char path[32];

		snprintf(path, sizeof(path), "lower/file%u", i);
		tree_put_text(s->d, path, "text");
	}
	tree_mount(s->d, "volatile");
	for (unsigned i = 0; i < FILES; i++) {
		char path[32];
		uint32_t generation;

		snprintf(path, sizeof(path), "file%u", i);
		inode_grant(s->d->t, tree_get(s->d, path), &s->node[i], &generation);
	}
	atomic_store(&percent, 10);
	atomic_store(&extra_inodes, 0);
	*state = s;
	return 0;
}

static int teardown(void **state)
{
	struct shrinking *s = *state;

	inode_shrinker_leave(s->number);
	close(s->kernel);
	close(s->fd);
	tree_teardown((void **)&s->d);
	free(s);
	return 0;
}

static void await_look(unsigned after)
{
	while (atomic_load(&n_looks) <= after)
		sched_yield();
}

/* The number of nodes that the kernel is asked to forget; 0: it is not asked. */
static uint32_t asked(struct shrinking *s, uint64_t *ret_nodes, int wait_ms)
{
	static struct {
		struct fuse_out_header head;
		uint32_t count, padding;
		uint64_t spare;
		uint64_t nodes[4096];
	} m;
	struct pollfd p = { .fd = s->kernel, .events = POLLIN };
	ssize_t n;

	if (poll(&p, 1, wait_ms) != 1)
		return 0;
	n = recv(s->kernel, &m, sizeof(m), 0);
	assert_int_equal(m.head.error, NOTIFY_PRUNE);
	assert_int_equal(m.head.len, n);
	assert_int_equal((size_t)n, sizeof(m) - sizeof(m.nodes) + m.count * sizeof(*m.nodes));
	for (uint32_t i = 0; i < m.count && i < FILES; i++)
		ret_nodes[i] = m.nodes[i];
	return m.count;
}

static void test_inode_shrinker__nothing_is_asked_while_there_is_memory(void **state)
{
	struct shrinking *s = *state;
	uint64_t nodes[FILES];
	const unsigned before = atomic_load(&n_looks);

	atomic_store(&extra_inodes, 1000000);
	assert_int_equal(inode_shrinker_enter(s->d->t, s->fd, &s->number), 0);
	assert_non_null(s->d->t->on_grown);
	/* It looks when a mount comes, and when one has grown. */
	await_look(before);
	s->d->t->on_grown();
	await_look(before + 1);
	assert_int_equal(asked(s, nodes, 0), 0);
}

static void test_inode_shrinker__few_inodes_are_not_the_cause(void **state)
{
	struct shrinking *s = *state;
	uint64_t nodes[FILES];
	const unsigned before = atomic_load(&n_looks);

	atomic_store(&percent, 99);
	assert_int_equal(inode_shrinker_enter(s->d->t, s->fd, &s->number), 0);
	await_look(before);
	s->d->t->on_grown();
	await_look(before + 1);
	assert_int_equal(asked(s, nodes, 0), 0);
}

static void test_inode_shrinker__kernel_is_asked_to_forget_what_it_holds(void **state)
{
	struct shrinking *s = *state;
	uint64_t nodes[FILES] = { 0 };

	atomic_store(&percent, 75);
	atomic_store(&extra_inodes, 1000000);
	assert_int_equal(inode_shrinker_enter(s->d->t, s->fd, &s->number), 0);
	assert_int_equal(asked(s, nodes, WAIT_MS), FILES);
	for (unsigned i = 0; i < FILES; i++)
		assert_int_equal(nodes[i], s->node[i]);
}

static void test_inode_shrinker__mount_that_left_is_left_alone(void **state)
{
	struct shrinking *s = *state;
	uint64_t nodes[FILES];
	unsigned before = atomic_load(&n_looks);

	inode_shrinker_leave(0);
	assert_int_equal(inode_shrinker_enter(s->d->t, s->fd, &s->number), 0);
	await_look(before);
	inode_shrinker_leave(s->number);
	inode_shrinker_leave(s->number);
	s->number = 0;
	atomic_store(&percent, 99);
	atomic_store(&extra_inodes, 1000000);
	before = atomic_load(&n_looks);
	s->d->t->on_grown();
	await_look(before);
	assert_int_equal(asked(s, nodes, 0), 0);
}

#define row(test) cmocka_unit_test_setup_teardown(test, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		row(test_inode_shrinker__nothing_is_asked_while_there_is_memory),
		row(test_inode_shrinker__few_inodes_are_not_the_cause),
		row(test_inode_shrinker__kernel_is_asked_to_forget_what_it_holds),
		row(test_inode_shrinker__mount_that_left_is_left_alone),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
