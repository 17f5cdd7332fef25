// SPDX-License-Identifier: Apache-2.0
#include "support/served.h"
#include "support/wait.h"

#include "server/snapshot_squash.h"
#include "server/snapshot_take.h"
#include "veneer/layer/branch_dir.h"

#include <stdatomic.h>
#include <sys/syscall.h>

#define KEPT  "io=cached,copies=all,volatile"
#define MINOR 7u

/* The text in memory of just its length: a byte behind it is not read. */
static bool read_names(const char *text, size_t len, struct snapshot_squash *ret)
{
	char *copy = malloc(len);
	bool is_good;

	assert_non_null(copy);
	memcpy(copy, text, len);
	is_good =
		snapshot_squash_names(&(struct wire_message){ .text = copy, .text_len = len }, ret);
	free(copy);
	return is_good;
}

#define READ(text, ret) read_names(text, sizeof(text) - 1, ret)

static void test_snapshot_squash__names_and_the_rate_are_read(void **state)
{
	struct snapshot_squash q = { .rate = 9 };

	(void)state;
	assert_true(READ("a\nb", &q));
	assert_string_equal(q.from, "a");
	assert_string_equal(q.to, "b");
	assert_int_equal(q.rate, 0);
	assert_true(READ("\n", &q));
	assert_string_equal(q.from, "");
	assert_string_equal(q.to, "");
	assert_true(READ("a\n\n1048576", &q));
	assert_int_equal(q.rate, 1048576);
	assert_true(READ("\n\n18446744073709551615", &q));
	assert_int_equal(q.rate, UINT64_MAX);
}

static void test_snapshot_squash__text_that_is_no_names_is_refused(void **state)
{
	char longer[2 * BRANCH_CHAIN_NAME_MAX + 8];
	struct snapshot_squash q;

	(void)state;
	assert_false(READ("a", &q));
	assert_false(READ("a/b\nc", &q));
	assert_false(READ("a\n../b", &q));
	assert_false(READ("a\nb\n", &q));
	assert_false(READ("a\nb\n1 ", &q));
	assert_false(READ("a\nb\n-1", &q));
	assert_false(READ("a\nb\n+1", &q));
	assert_false(READ("a\nb\n0x10", &q));
	assert_false(READ("a\nb\n18446744073709551616", &q));
	assert_false(READ("a\nb\n111111111111111111111111111111", &q));
	assert_false(READ("a\nb\n1\n2", &q));
	memset(longer, 'n', sizeof(longer));
	longer[BRANCH_CHAIN_NAME_MAX + 1] = '\n';
	assert_false(read_names(longer, BRANCH_CHAIN_NAME_MAX + 3, &q));
	longer[BRANCH_CHAIN_NAME_MAX] = '\n';
	longer[BRANCH_CHAIN_NAME_MAX + 1] = 'n';
	assert_true(read_names(longer, BRANCH_CHAIN_NAME_MAX + 2, &q));
	assert_int_equal(strlen(q.from), BRANCH_CHAIN_NAME_MAX);
}

static unsigned n_steps;
static int step_result;

static int step(void *arg, const struct snapshot_merge_progress *p)
{
	(void)arg, (void)p;
	n_steps++;
	return step_result;
}

static struct snapshot_squash make_ask(struct served *s, const struct mount_table_target *t)
{
	n_steps = 0;
	step_result = 0;
	return (struct snapshot_squash){ .mount_table = s->table, .target = t, .step = step };
}

static void take(struct served *s, const struct mount_table_target *t, const char *name)
{
	char taken[BRANCH_CHAIN_NAME_MAX + 1], err[1024];

	snprintf(taken, sizeof(taken), "%s", name);
	if (snapshot_take(s->table, t, "", taken, err, sizeof(err)) < 0)
		fail_msg("%s", err);
}

static void test_snapshot_squash__neighbours_become_one_while_they_are_used(void **state)
{
	const struct mount_table_target t = { .dev_minor = MINOR };
	struct served *s = *state;
	struct snapshot_squash q = make_ask(s, &t);
	struct fuse_kernel k;
	char err[1024], got[8];
	uint64_t node;

	tree_put_text(s->d, "lower/file", "text");
	served_start(s, "", KEPT, MINOR, &k);
	node = fuse_kernel_node(&k, "file");
	for (int i = 1; i <= 3; i++) {
		char digit[] = { (char)('0' + i), '\0' }, name[8];

		assert_int_equal(fuse_kernel_write(&k, node, (uint64_t)i - 1, digit, 1), 1);
		snprintf(name, sizeof(name), "s%d", i);
		take(s, &t, name);
	}
	strcpy(q.from, "s1");
	strcpy(q.to, "s2");
	if (snapshot_squash(&q, err, sizeof(err)) < 0) {
		snapshot_squash_leave(&q);
		fail_msg("%s", err);
	}
	assert_true(q.is_in_gate);
	snapshot_squash_leave(&q);
	assert_int_equal(q.n, 2);
	assert_true(q.progress.entries > 0);
	assert_int_equal(fuse_kernel_read(&k, node, 0, got, sizeof(got)), 4);
	assert_memory_equal(got, "123t", 4);
	/* One of them is no more. */
	q = make_ask(s, &t);
	strcpy(q.from, "s1");
	strcpy(q.to, "s3");
	(void)snapshot_squash(&q, err, sizeof(err));
	snapshot_squash_leave(&q);
	assert_true(q.n <= 2);
	assert_int_equal(fuse_kernel_read(&k, node, 0, got, sizeof(got)), 4);
	assert_memory_equal(got, "123t", 4);
	served_unmount(s, &k, 1);
}

struct squash_thread {
	struct snapshot_squash ask;
	_Atomic pid_t tid;
	int result;
};

static void *squash(void *arg)
{
	struct squash_thread *q = arg;
	char err[1024];

	q->tid = gettid();
	q->result = snapshot_squash(&q->ask, err, sizeof(err));
	snapshot_squash_leave(&q->ask);
	return NULL;
}

static bool is_asleep(pid_t tid)
{
	char path[64];
	long nr = -1;
	FILE *f;

	snprintf(path, sizeof(path), "/proc/self/task/%d/syscall", tid);
	f = fopen(path, "re");
	assert_non_null(f);
	if (fscanf(f, "%ld", &nr) != 1)
		nr = -1;
	fclose(f);
	return nr == SYS_clock_nanosleep;
}

static void note_number(struct mount *m, const struct served_place *at, void *ret)
{
	(void)m;
	*(uint64_t *)ret = at->number;
}

static uint64_t number_of(struct served *s, const struct mount_table_target *t)
{
	uint64_t number = 0;

	assert_true(mount_table_at(s->table, t, note_number, &number));
	return number;
}

static int take_nothing(void *arg, int upper_fd)
{
	(void)arg, (void)upper_fd;
	return 0;
}

/* A snapshot has the lock of the chain and waits until nobody uses the mount: a squash that kept
 * the mount while it waits for that lock would refuse. */
static void test_snapshot_squash__waits_for_the_lock_without_the_mount(void **state)
{
	const struct mount_table_target t = { .dev_minor = MINOR };
	const struct mount_table_step how = { .keeps_upper = true, .take = take_nothing };
	struct served *s = *state;
	struct squash_thread q = { .ask = make_ask(s, &t) };
	struct fuse_kernel k;
	pthread_t thread;
	int upper, lock;

	served_start(s, "", KEPT, MINOR, &k);
	take(s, &t, "s1");
	take(s, &t, "s2");
	upper = openat(s->d->s.fd, "upper", O_RDONLY | O_DIRECTORY);
	lock = branch_dir_lock(upper);
	assert_true(lock >= 0);
	assert_int_equal(pthread_create(&thread, NULL, squash, &q), 0);
	wait_until(q.tid && is_asleep(q.tid));
	assert_int_equal(mount_table_replace(s->table, number_of(s, &t), &how), 0);
	close(lock);
	close(upper);
	pthread_join(thread, NULL);
	assert_int_equal(q.result, 0);
	assert_int_equal(q.ask.n, 2);
	served_unmount(s, &k, 1);
}

static void test_snapshot_squash__nothing_to_do_is_no_failure(void **state)
{
	const struct mount_table_target t = { .dev_minor = MINOR }, none = { .dev_minor = 99 };
	struct served *s = *state;
	struct snapshot_squash q = make_ask(s, &none);
	struct fuse_kernel k;
	char err[1024];

	assert_int_equal(snapshot_squash(&q, err, sizeof(err)), -ENOENT);
	served_start(s, "", KEPT, MINOR, &k);
	q = make_ask(s, &t);
	q.n = 5;
	assert_int_equal(snapshot_squash(&q, err, sizeof(err)), 0);
	assert_int_equal(q.n, 0);
	assert_false(q.is_in_gate);
	snapshot_squash_leave(&q);
	/* A mount that asks for none. */
	snapshot_squash_oldest(s->table, &t);
	snapshot_squash_oldest(s->table, &none);
	served_unmount(s, &k, 1);
}

static void test_snapshot_squash__read_only_mount_is_refused(void **state)
{
	const struct mount_table_target t = { .dev_minor = MINOR };
	struct served *s = *state;
	struct snapshot_squash q = make_ask(s, &t);
	struct fuse_kernel k;
	char err[1024];

	served_start(s, "", KEPT ",ro", MINOR, &k);
	assert_int_equal(snapshot_squash(&q, err, sizeof(err)), -EROFS);
	assert_string_not_equal(err, "");
	snapshot_squash_leave(&q);
	served_unmount(s, &k, 1);
}

#define row(test) cmocka_unit_test_setup_teardown(test, served_setup_saved, served_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_snapshot_squash__names_and_the_rate_are_read),
		cmocka_unit_test(test_snapshot_squash__text_that_is_no_names_is_refused),
		row(test_snapshot_squash__neighbours_become_one_while_they_are_used),
		row(test_snapshot_squash__waits_for_the_lock_without_the_mount),
		row(test_snapshot_squash__nothing_to_do_is_no_failure),
		row(test_snapshot_squash__read_only_mount_is_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
