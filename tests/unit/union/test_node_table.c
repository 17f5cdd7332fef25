// SPDX-License-Identifier: Apache-2.0
#include "support/nodes.h"
#include "support/tree.h"

#include "veneer/union/node_table.h"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/wait.h>

static void expect_name(struct node_table *t, uint32_t id, const char *name)
{
	const char *got = NULL;
	uint32_t parent;

	assert_int_equal(node_table_name(t, id, &parent, &got), strlen(name));
	assert_memory_equal(got, name, strlen(name));
}

static void test_node_table__first_slot_is_the_root(void **state)
{
	struct node_table *t = nodes_new();

	(void)state;
	assert_int_equal(nodes_alloc(t), NODE_TABLE_ROOT);
	assert_int_equal(node_table_slot(t, NODE_TABLE_ROOT)->state, NODE_LOWER);
	assert_int_equal(node_table_slot(t, NODE_TABLE_ROOT)->nlookup, 0);
	assert_int_equal(node_table_count(t), 1);
	node_table_free(t);
}

static void test_node_table__id_not_in_use_has_no_slot_and_no_object(void **state)
{
	static const uint64_t bad[] = { 0,	   2,	       3,
					1000000,   UINT32_MAX, (uint64_t)UINT32_MAX + 2,
					UINT64_MAX };
	struct node_table *t = nodes_new();

	(void)state;
	nodes_alloc(t);
	for (size_t k = 0; k < sizeof(bad) / sizeof(*bad); k++) {
		assert_null(node_table_slot(t, bad[k]));
		assert_null(node_table_object(t, bad[k]));
	}
	node_table_free(t);
}

static void test_node_table__id_used_again_has_another_generation(void **state)
{
	struct node_table *t = nodes_new();
	uint32_t id, again, generation;

	(void)state;
	nodes_alloc(t);
	id = nodes_alloc(t);
	generation = node_table_slot(t, id)->generation;
	node_table_set_object(t, id, t);
	node_table_release(t, id);
	assert_null(node_table_slot(t, id));
	assert_null(node_table_object(t, id));
	for (unsigned k = 0; k < 100; k++) {
		again = nodes_alloc(t);
		if (again == id) {
			assert_int_not_equal(node_table_slot(t, again)->generation, generation);
			assert_null(node_table_object(t, again));
		}
	}
	node_table_free(t);
}

static void test_node_table__name_is_replaced_and_cleared(void **state)
{
	struct node_table *t = nodes_new();
	const char *name;
	uint32_t id, parent;

	(void)state;
	nodes_alloc(t);
	id = nodes_alloc(t);
	assert_int_equal(node_table_set_name(t, id, 1, "short"), 0);
	expect_name(t, id, "short");
	assert_int_equal(node_table_set_name(t, id, 1, "a name that is longer than the first"), 0);
	expect_name(t, id, "a name that is longer than the first");
	assert_int_equal(node_table_name(t, id, &parent, &name), 36);
	assert_int_equal(parent, 1);
	node_table_clear_name(t, id);
	assert_int_equal(node_table_name(t, id, &parent, &name), 0);
	node_table_free(t);
}

static void test_node_table__slots_never_move(void **state)
{
	struct node_table *t = nodes_new();
	struct node_slot *first;

	(void)state;
	first = node_table_slot(t, nodes_alloc(t));
	for (unsigned k = 0; k < 20000; k++)
		nodes_alloc(t);
	assert_ptr_equal(node_table_slot(t, NODE_TABLE_ROOT), first);
	assert_int_equal(node_table_count(t), 20001);
	assert_int_equal(node_table_end(t), 20002);
	node_table_free(t);
}

/* Renaming for ever must not fill the arena: it is bounded by what is in use. */
static void test_node_table__names_that_come_and_go_stay_right(void **state)
{
	struct node_table *t = nodes_new();
	uint64_t seed = tree_seed("nodetab");
	char names[50][NAME_MAX + 1];
	uint32_t ids[50];

	(void)state;
	nodes_alloc(t);
	for (unsigned k = 0; k < 50; k++) {
		ids[k] = nodes_alloc(t);
		*names[k] = '\0';
	}
	for (unsigned step = 0; step < 200000; step++) {
		unsigned k = tree_random(&seed) % 50;
		size_t len = 1 + tree_random(&seed) % NAME_MAX;

		if (step % 1000 < 20) {
			node_table_release(t, ids[k]);
			ids[k] = nodes_alloc(t);
		}
		memset(names[k], 'a' + (int)(step % 26), len);
		names[k][len] = '\0';
		assert_int_equal(node_table_set_name(t, ids[k], 1, names[k]), 0);
	}
	for (unsigned k = 0; k < 50; k++)
		if (*names[k])
			expect_name(t, ids[k], names[k]);
	node_table_free(t);
}

/* ---- another server's table ---- */

static int copy_of(int from, size_t len)
{
	int fd = memfd_create("copy", MFD_CLOEXEC);
	void *bytes = mmap(NULL, len, PROT_READ, MAP_SHARED, from, 0);
	struct stat st;

	assert_true(fd >= 0 && bytes != MAP_FAILED && fstat(from, &st) == 0);
	assert_int_equal(pwrite(fd, bytes, len, 0), len);
	assert_int_equal(ftruncate(fd, st.st_size), 0);
	munmap(bytes, len);
	return fd;
}

static int copy_all(int from)
{
	struct stat st;

	assert_int_equal(fstat(from, &st), 0);
	return copy_of(from, (size_t)st.st_size);
}

static int attach_copy(const struct node_table *t, struct node_table **ret)
{
	int slots, names, r;

	node_table_fds(t, &slots, &names);
	slots = copy_of(slots, 65536);
	names = copy_of(names, 65536);
	r = node_table_attach(slots, names, ret);
	if (r < 0) {
		close(slots);
		close(names);
	}
	return r;
}

/* Three quarters of the first step, in pieces of 256 bytes. */
#define NCROWD 3000

static void crowd(struct node_table *t, unsigned n)
{
	char name[NAME_MAX + 1] = { 0 };

	memset(name, 'n', 200);
	while (n--)
		assert_int_equal(node_table_set_name(t, nodes_alloc(t), NODE_TABLE_ROOT, name), 0);
}

static void test_node_table__room_of_names_that_went_is_used_by_the_next_server(void **state)
{
	struct node_table *t = nodes_new(), *u;
	int slots, names;
	struct stat st;

	(void)state;
	nodes_alloc(t);
	node_table_slot(t, NODE_TABLE_ROOT)->type = DT_DIR;
	crowd(t, NCROWD);
	for (uint32_t id = NODE_TABLE_ROOT + 1; id < NCROWD; id += 2)
		node_table_release(t, id);
	node_table_fds(t, &slots, &names);
	assert_int_equal(node_table_attach(copy_all(slots), copy_all(names), &u), 0);
	crowd(u, NCROWD / 2);
	node_table_fds(u, &slots, &names);
	assert_int_equal(fstat(names, &st), 0);
	assert_int_equal(st.st_size, 1 << 20);
	node_table_free(u);
	node_table_free(t);
}

static struct node_table *attached(const struct node_table *t)
{
	struct node_table *copy;

	assert_int_equal(attach_copy(t, &copy), 0);
	return copy;
}

static void test_node_table__attached_table_has_what_the_other_had(void **state)
{
	struct node_table *t = nodes_new(), *u;
	uint32_t a, b, c, free, parent;
	const char *name;

	(void)state;
	nodes_alloc(t);
	node_table_slot(t, NODE_TABLE_ROOT)->type = DT_DIR;
	a = nodes_alloc(t);
	free = nodes_alloc(t);
	b = nodes_alloc(t);
	c = nodes_alloc(t);
	node_table_slot(t, a)->type = DT_DIR;
	assert_int_equal(node_table_set_name(t, a, NODE_TABLE_ROOT, "dir"), 0);
	assert_int_equal(node_table_set_name(t, free, a, "free"), 0);
	assert_int_equal(node_table_set_name(t, b, a, "file"), 0);
	assert_int_equal(node_table_set_name(t, c, 0, "path/in/image"), 0);
	node_table_slot(t, b)->held_fd = 77;
	node_table_release(t, free);
	node_table_note_dev(t, NODE_TABLE_OF_IMAGE, 1234);
	u = attached(t);
	assert_int_equal(node_table_count(u), 4);
	assert_int_equal(node_table_end(u), c + 1);
	expect_name(u, a, "dir");
	expect_name(u, b, "file");
	assert_int_equal(node_table_name(u, b, &parent, &name), 4);
	assert_int_equal(parent, a);
	assert_int_equal(node_table_name(u, c, &parent, &name), 13);
	assert_int_equal(parent, 0);
	assert_int_equal(node_table_slot(u, b)->held_fd, 77);
	assert_int_equal(node_table_devs(u, NODE_TABLE_OF_IMAGE)->n, 1);
	assert_int_equal(node_table_devs(u, NODE_TABLE_OF_IMAGE)->dev[0], 1234);
	assert_int_equal(node_table_devs(u, NODE_TABLE_OF_TREE)->n, 0);
	assert_null(node_table_slot(u, free));
	assert_int_equal(nodes_alloc(u), free);
	assert_int_equal(node_table_slot(u, free)->generation, 2);
	node_table_free(u);
	node_table_free(t);
}

/* Gaps between names are given out again, and never the place of a name. */
static void test_node_table__gaps_between_names_are_free_pieces(void **state)
{
	struct node_table *t = nodes_new(), *u;
	char name[NAME_MAX + 1];
	uint32_t ids[100];
	int slots, names;
	struct stat st;

	(void)state;
	nodes_alloc(t);
	node_table_slot(t, NODE_TABLE_ROOT)->type = DT_DIR;
	for (unsigned k = 0; k < 100; k++) {
		ids[k] = nodes_alloc(t);
		memset(name, 'a' + (int)(k % 26), 3 + k * 2);
		name[3 + k * 2] = '\0';
		assert_int_equal(node_table_set_name(t, ids[k], NODE_TABLE_ROOT, name), 0);
	}
	for (unsigned k = 0; k < 100; k += 2)
		node_table_release(t, ids[k]);
	u = attached(t);
	for (unsigned n = 0; n < 20000; n++) {
		unsigned k = n % 50 * 2;

		if (n < 50)
			ids[k] = nodes_alloc(u);
		memset(name, 'z', 1 + n % 200);
		name[1 + n % 200] = '\0';
		assert_int_equal(node_table_set_name(u, ids[k], NODE_TABLE_ROOT, name), 0);
	}
	for (unsigned k = 1; k < 100; k += 2) {
		memset(name, 'a' + (int)(k % 26), 3 + k * 2);
		name[3 + k * 2] = '\0';
		expect_name(u, ids[k], name);
	}
	node_table_fds(u, &slots, &names);
	assert_int_equal(fstat(names, &st), 0);
	assert_int_equal(st.st_size, 1 << 20);
	node_table_free(u);
	node_table_free(t);
}

static void test_node_table__what_is_no_table_is_refused(void **state)
{
	struct node_table *t = nodes_new(), *u;
	int slots, names, short_fd = memfd_create("short", MFD_CLOEXEC);
	uint64_t word = 1;

	(void)state;
	node_table_fds(t, &slots, &names);
	assert_int_equal(attach_copy(t, &u), -EPROTO); /* without a root */
	nodes_alloc(t);
	assert_int_equal(attach_copy(t, &u), -EPROTO); /* that is no directory */
	node_table_slot(t, NODE_TABLE_ROOT)->type = DT_DIR;
	node_table_free(attached(t));
	assert_int_equal(node_table_attach(short_fd, copy_of(names, 65536), &u), -EPROTO);
	assert_int_equal(pwrite(slots, &word, sizeof(word), 0), sizeof(word));
	assert_int_equal(attach_copy(t, &u), -EPROTO);
	node_table_free(t);
}

static void test_node_table__circles_and_blind_ends_are_cut(void **state)
{
	struct node_table *t = nodes_new(), *u;
	uint32_t a, b, c, d, e, parent;
	const char *name;

	(void)state;
	nodes_alloc(t);
	node_table_slot(t, NODE_TABLE_ROOT)->type = DT_DIR;
	a = nodes_alloc(t);
	b = nodes_alloc(t);
	c = nodes_alloc(t);
	d = nodes_alloc(t);
	e = nodes_alloc(t);
	node_table_slot(t, a)->type = node_table_slot(t, b)->type = DT_DIR;
	node_table_slot(t, c)->type = DT_REG;
	assert_int_equal(node_table_set_name(t, a, b, "a"), 0);
	assert_int_equal(node_table_set_name(t, b, a, "b"), 0);
	assert_int_equal(node_table_set_name(t, c, 1000, "c"), 0);
	node_table_slot(t, d)->successor = e;
	node_table_slot(t, e)->successor = d;
	node_table_set_state(node_table_slot(t, d), NODE_FORMER);
	node_table_set_state(node_table_slot(t, e), NODE_FORMER);
	u = attached(t);
	assert_true(!node_table_name(u, a, &parent, &name) !=
		    !node_table_name(u, b, &parent, &name));
	assert_int_equal(node_table_name(u, c, &parent, &name), 0);
	assert_int_equal(node_table_slot(u, d)->state, NODE_ORPHAN);
	assert_int_not_equal(node_table_slot(u, e)->state, NODE_FREE);
	node_table_free(u);
	assert_int_equal(node_table_set_name(t, c, NODE_TABLE_ROOT, ".."), 0);
	assert_int_equal(node_table_set_name(t, a, NODE_TABLE_ROOT, "a/b"), 0);
	u = attached(t);
	assert_int_equal(node_table_name(u, c, &parent, &name), 0);
	assert_int_equal(node_table_name(u, a, &parent, &name), 0);
	expect_name(u, b, "b");
	node_table_free(u);
	node_table_free(t);
}

/* ---- killed between two instructions ---- */

#define LONG_NAME "a name that is a good deal longer than the one before, and stands elsewhere"

/* The name of the slot after each step: "" is no name, NULL no slot. */
static const char *const steps[] = { "",   "first", LONG_NAME, "third", "", "path/in/the/image",
				     NULL, "",	    "last" };
#define NSTEPS (sizeof(steps) / sizeof(*steps))

static void walk_steps(struct node_table *t, uint32_t id, _Atomic unsigned *step)
{
	node_table_set_name(t, id, NODE_TABLE_ROOT, steps[1]);
	*step = 1;
	node_table_set_name(t, id, NODE_TABLE_ROOT, steps[2]);
	*step = 2;
	node_table_set_name(t, id, NODE_TABLE_ROOT, steps[3]);
	*step = 3;
	node_table_clear_name(t, id);
	*step = 4;
	node_table_set_name(t, id, 0, steps[5]);
	*step = 5;
	node_table_slot(t, id)->held_fd = 5;
	node_table_release(t, id);
	*step = 6;
	node_table_alloc(t, &id);
	*step = 7;
	node_table_set_name(t, id, NODE_TABLE_ROOT, steps[8]);
	*step = 8;
}

static bool is_at(struct node_table *t, uint32_t id, unsigned step)
{
	const char *name = NULL;
	uint32_t parent;
	size_t len;

	if (!node_table_slot(t, id) || !steps[step])
		return !node_table_slot(t, id) && !steps[step];
	len = node_table_name(t, id, &parent, &name);
	return len == strlen(steps[step]) && (!len || !memcmp(name, steps[step], len));
}

/* Names given out afterwards stand nowhere near those that were there. */
static void use(struct node_table *t)
{
	for (unsigned k = 0; k < 12; k++) {
		char name[NAME_MAX + 1] = { 0 };
		uint32_t id = nodes_alloc(t);

		memset(name, 'x', 1 + k * 20);
		assert_int_equal(node_table_slot(t, id)->held_fd, 0);
		assert_int_equal(node_table_slot(t, id)->nlookup, 0);
		assert_int_equal(node_table_set_name(t, id, NODE_TABLE_ROOT, name), 0);
	}
}

static void expect_whole(const struct node_table *t, uint32_t id, uint32_t other, unsigned step)
{
	struct node_table *u = attached(t);
	bool before = is_at(u, id, step), after = step + 1 < NSTEPS && is_at(u, id, step + 1);

	if (!before && !after)
		fail_msg("the slot is neither as after step %u nor as after step %u", step,
			 step + 1);
	use(u);
	expect_name(u, other, "another name");
	if (before && steps[step])
		assert_true(is_at(u, id, step));
	node_table_free(u);
}

static void test_node_table__killed_at_any_instruction_it_is_as_before_or_as_after(void **state)
{
	struct node_table *t = nodes_new();
	_Atomic unsigned *step =
		mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	uint32_t id, other;
	unsigned n = 0;
	int status;
	pid_t pid;

	(void)state;
	nodes_alloc(t);
	node_table_slot(t, NODE_TABLE_ROOT)->type = DT_DIR;
	id = nodes_alloc(t);
	other = nodes_alloc(t);
	assert_int_equal(node_table_set_name(t, other, NODE_TABLE_ROOT, "another name"), 0);
	/* All that is done for the first time has been done. */
	node_table_set_name(t, id, NODE_TABLE_ROOT, "x");
	node_table_clear_name(t, id);
	pid = fork();
	if (pid == 0) {
		if (ptrace(PTRACE_TRACEME, 0, NULL, NULL) < 0)
			_exit(77);
		raise(SIGSTOP);
		walk_steps(t, id, step);
		_exit(0);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	if (WIFEXITED(status) && WEXITSTATUS(status) == 77)
		skip(); /* no ptrace here */
	while (WIFSTOPPED(status)) {
		expect_whole(t, id, other, *step);
		n++;
		assert_int_equal(ptrace(PTRACE_SINGLESTEP, pid, NULL, NULL), 0);
		assert_int_equal(waitpid(pid, &status, 0), pid);
	}
	assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
	assert_int_equal(*step, NSTEPS - 1);
	print_message("# %u instructions\n", n);
	munmap((void *)step, 4096);
	node_table_free(t);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_node_table__first_slot_is_the_root),
		cmocka_unit_test(test_node_table__id_not_in_use_has_no_slot_and_no_object),
		cmocka_unit_test(test_node_table__id_used_again_has_another_generation),
		cmocka_unit_test(test_node_table__name_is_replaced_and_cleared),
		cmocka_unit_test(test_node_table__slots_never_move),
		cmocka_unit_test(test_node_table__names_that_come_and_go_stay_right),
		cmocka_unit_test(test_node_table__attached_table_has_what_the_other_had),
		cmocka_unit_test(
			test_node_table__room_of_names_that_went_is_used_by_the_next_server),
		cmocka_unit_test(test_node_table__gaps_between_names_are_free_pieces),
		cmocka_unit_test(test_node_table__what_is_no_table_is_refused),
		cmocka_unit_test(test_node_table__circles_and_blind_ends_are_cut),
		cmocka_unit_test(
			test_node_table__killed_at_any_instruction_it_is_as_before_or_as_after),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
