// SPDX-License-Identifier: Apache-2.0
/* The bytes of a file against a plain array: random changes, reopening, frozen uppers, dead
 * servers. */
#include "support/model.h"
#include "support/wait.h"

#include "map/mapfile-internal.h"
#include "veneer/base/buf.h"
#include "veneer/data/cow_fsync.h"
#include "veneer/data/read.h"
#include "veneer/data/rename.h"
#include "veneer/layer/fd_cache.h"
#include "veneer/map/session_epoch.h"
#include "veneer/union/lookup.h"
#include "veneer/union/upper.h"

#include <inttypes.h>
#include <signal.h>
#include <sys/mman.h>

#define FILE_BYTES ((size_t)3 * CHUNK_BYTES + 3 * BLK_BYTES + 77)

static int setup_tmpfs(void **state)
{
	const char *tmp = getenv("TMPDIR");
	char *saved = tmp ? strdup(tmp) : NULL;
	int r;

	setenv("TMPDIR", "/dev/shm", 1);
	r = tree_setup(state);
	if (saved)
		setenv("TMPDIR", saved, 1);
	else
		unsetenv("TMPDIR");
	free(saved);
	return r;
}

static struct model put_file(struct tree_dirs *d, size_t size, uint64_t seed)
{
	char *data = tree_put_pattern(d, "lower/dir/big", size, seed);
	struct model m;

	assert_true(model_new(&m, data, size));
	free(data);
	return m;
}

/* n changes; 0 or the first failure. */
static int change(struct union_fs *t, struct inode *i, struct model *m, uint64_t *state, unsigned n)
{
	int r = 0;

	for (unsigned k = 0; r >= 0 && k < n; k++) {
		struct model_op op = model_next(state, m->size);

		r = model_do(t, i, m, &op);
		if (r == 0)
			model_apply(m, &op);
		if (r < 0)
			fprintf(stderr,
				"# change %u: kind %d mode %d at %" PRIu64 " len %" PRIu64 ": %d\n",
				k, op.kind, op.mode, op.off, op.len, r);
	}
	return r < 0 ? r : 0;
}

/* Each own block that reads as zeros is known to: in a copy it would else be one that was lost. */
static void check_zeros(struct union_fs *t, struct inode *i)
{
	const struct table_file *f = i->src.id ? table_find(&t->map->now.table, i->src.id) : NULL;
	char block[BLK_BYTES];
	int fd = f ? upper_pin(t, i) : -1;
	bool is_zero;
	ssize_t n = 1;

	for (blk_t blk = 0; f && blk * BLK_BYTES < blkmap_clip(f->map) && n > 0; blk++) {
		n = pread(fd, block, sizeof(block), (off_t)(blk * BLK_BYTES));
		if (n <= 0 || !blkmap_is_own(f->map, blk) || !buf_is_zero(block, (size_t)n))
			continue;
		if (!f->zero || blkmap_run(f->zero, blk, 1, &is_zero) != 1 || !is_zero)
			fail_msg("block %ju is zeros, and the map does not know", (uintmax_t)blk);
	}
	if (f)
		fd_cache_unpin(&i->src.fd);
}

static void change_some(struct tree_dirs *d, const char *path, struct model *m, uint64_t *state,
			unsigned n)
{
	struct inode *i = tree_get(d, path);

	assert_int_equal(change(d->t, i, m, state, n), 0);
	check_zeros(d->t, i);
	tree_forget(d, i);
	tree_expect(d, path, m->data, m->size);
}

static void run_reopened(struct tree_dirs *d, size_t size, const char *options, uint64_t state,
			 unsigned rounds, unsigned n)
{
	struct model m = put_file(d, size, 1);

	for (unsigned round = 0; round < rounds; round++) {
		tree_mount(d, options);
		tree_expect(d, "dir/big", m.data, m.size);
		change_some(d, "dir/big", &m, &state, n);
		tree_unmount(d);
	}
	tree_mount(d, options);
	tree_expect(d, "dir/big", m.data, m.size);
	model_free(&m);
}

static void test_cow__random_changes_match_an_array(void **state)
{
	run_reopened(*state, FILE_BYTES, "volatile", tree_seed("random changes"), 6, 200);
}

static void test_cow__random_changes_of_small_files_match_an_array(void **state)
{
	static const size_t sizes[] = { 0, 1, BLK_BYTES, 3 * BLK_BYTES + 1, 4 * BLK_BYTES };

	for (size_t k = 0; k < sizeof(sizes) / sizeof(*sizes); k++) {
		struct tree_dirs *d;

		assert_int_equal(tree_setup((void **)&d), 0);
		run_reopened(d, sizes[k], "volatile", tree_seed("small files"), 8, 6);
		tree_teardown((void **)&d);
	}
	(void)state;
}

static void test_cow__random_changes_with_clean_unmounts_match_an_array(void **state)
{
	run_reopened(*state, FILE_BYTES, NULL, tree_seed("clean unmounts"), 2, 60);
}

static void test_cow__random_changes_on_tmpfs_match_an_array(void **state)
{
	run_reopened(*state, FILE_BYTES, "volatile", tree_seed("tmpfs"), 3, 300);
}

static void test_cow__random_changes_of_a_whole_copy_match_an_array(void **state)
{
	run_reopened(*state, FILE_BYTES, "volatile,cow=copy", tree_seed("whole copy"), 2, 100);
}

static void test_cow__random_changes_through_frozen_layers_match_an_array(void **state)
{
	struct tree_dirs *d = *state;
	uint64_t seed = tree_seed("frozen layers");
	struct model m = put_file(d, FILE_BYTES, 2);

	for (unsigned generation = 0; generation < 7; generation++) {
		tree_mount(d, "volatile");
		tree_expect(d, "dir/big", m.data, m.size);
		/* A few changes only, so that every layer keeps holes. */
		change_some(d, "dir/big", &m, &seed, 4 + generation * 3);
		tree_unmount(d);
		tree_freeze(d);
	}
	tree_mount(d, "volatile");
	tree_expect(d, "dir/big", m.data, m.size);
	model_free(&m);
}

static void move(struct tree_dirs *d, const char *from, const char *to)
{
	struct inode *i = tree_get(d, from), *dir = tree_get(d, "dir");

	assert_int_equal(
		rename_entry(d->t, dir, strchr(from, '/') + 1, dir, strchr(to, '/') + 1, 0), 0);
	tree_forget(d, dir);
	tree_forget(d, i);
}

static void test_cow__random_changes_and_renames_through_frozen_layers_match_an_array(void **state)
{
	static const char *const names[] = { "dir/big", "dir/b", "dir/c", "dir/d" };
	struct tree_dirs *d = *state;
	uint64_t seed = tree_seed("frozen layers with renames");
	struct model m = put_file(d, FILE_BYTES, 3);
	const char *now = names[0];

	for (unsigned generation = 0; generation < 8; generation++) {
		const char *next = names[tree_random(&seed) % 4];

		tree_mount(d, "volatile");
		if (tree_random(&seed) % 3)
			change_some(d, now, &m, &seed, 5);
		if (next != now)
			move(d, now, next);
		now = next;
		if (tree_random(&seed) % 2) {
			tree_unmount(d);
			tree_mount(d, "volatile");
		}
		change_some(d, now, &m, &seed, 5);
		tree_unmount(d);
		if (tree_random(&seed) % 3)
			tree_freeze(d);
	}
	tree_mount(d, "volatile");
	tree_expect(d, now, m.data, m.size);
	model_free(&m);
}

/* In a child: mount, look the file up, change it until done or killed. The number of changes
 * made is shared. */
static void work_and_die(struct tree_dirs *d, struct model *m, uint64_t seed, unsigned n,
			 _Atomic unsigned *ndone)
{
	struct inode *dir, *i;
	struct stat st;

	if (tree_try_mount(d, "volatile") < 0 ||
	    lookup_name(d->t, d->t->root, "dir", &dir, &st) < 0 ||
	    lookup_name(d->t, dir, "big", &i, &st) < 0)
		_exit(2);
	for (; *ndone < n; ++*ndone)
		if (change(d->t, i, m, &seed, 1) < 0)
			_exit(3);
	_exit(0);
}

static int run_child(struct tree_dirs *d, struct model *m, uint64_t seed, unsigned n,
		     unsigned kill_after_us, unsigned *ret_ndone)
{
	_Atomic unsigned *ndone =
		mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	int status = -1;
	pid_t pid;

	assert_ptr_not_equal(ndone, MAP_FAILED);
	pid = fork();
	assert_true(pid >= 0);
	if (pid == 0)
		work_and_die(d, m, seed, n, ndone);
	if (kill_after_us) {
		wait_until(*ndone > 0);
		usleep(kill_after_us);
		kill(pid, SIGKILL);
	}
	waitpid(pid, &status, 0);
	*ret_ndone = *ndone;
	munmap(ndone, 4096);
	return status;
}

/* The model as the child left it, had it made n changes. */
static void replay(struct model *m, uint64_t *state, unsigned n)
{
	for (unsigned k = 0; k < n; k++) {
		struct model_op op = model_next(state, m->size);

		model_apply(m, &op);
	}
}

static void test_cow__server_that_exits_without_closing_loses_nothing(void **state)
{
	struct tree_dirs *d = *state;
	uint64_t seed = tree_seed("exit without closing");
	struct model m = put_file(d, FILE_BYTES, 4);
	unsigned ndone;

	for (unsigned round = 0; round < 4; round++) {
		assert_int_equal(run_child(d, &m, seed, 80, 0, &ndone), 0);
		replay(&m, &seed, 80);
		tree_mount(d, "volatile");
		tree_expect(d, "dir/big", m.data, m.size);
		tree_unmount(d);
		if (round == 1)
			tree_freeze(d);
	}
	model_free(&m);
}

/* Take over what the file shows as the model, if it is between old and new. */
static void adopt_between(struct tree_dirs *d, struct model *m, const struct model *next)
{
	struct inode *i = tree_get(d, "dir/big");
	uint8_t *got = calloc(1, MODEL_MAX);
	struct stat st;

	assert_non_null(got);
	assert_int_equal(lookup_stat(d->t, i, &st), 0);
	assert_in_range(st.st_size, m->size < next->size ? m->size : next->size,
			m->size > next->size ? m->size : next->size);
	assert_int_equal(read_file(d->t, i, got, MODEL_MAX, 0), st.st_size);
	for (off_t at = 0; at < st.st_size; at++)
		if (got[at] != m->data[at] && got[at] != next->data[at])
			fail_msg("byte %jd is neither old nor new", (intmax_t)at);
	memcpy(m->data, got, MODEL_MAX);
	m->size = (size_t)st.st_size;
	free(got);
	tree_forget(d, i);
}

static void test_cow__killed_server_leaves_every_byte_old_or_new(void **state)
{
	struct tree_dirs *d = *state;
	uint64_t seed = tree_seed("killed server"), more = seed;
	struct model m = put_file(d, FILE_BYTES, 5), next;
	unsigned ndone;

	assert_true(model_new(&next, NULL, 0));
	for (unsigned round = 0; round < 12; round++) {
		int status = run_child(d, &m, seed, 100000,
				       500 + (unsigned)(tree_random(&more) % 30000), &ndone);

		assert_true(WIFSIGNALED(status));
		replay(&m, &seed, ndone);
		model_copy(&next, &m);
		replay(&next, &seed, 1);
		tree_mount(d, "volatile");
		adopt_between(d, &m, &next);
		change_some(d, "dir/big", &m, &more, 10);
		tree_unmount(d);
	}
	model_free(&next);
	model_free(&m);
}

static void write_within(struct tree_dirs *d, struct inode *i, struct model *m, uint64_t *state,
			 unsigned n)
{
	for (unsigned k = 0; k < n; k++) {
		struct model_op op = model_next(state, m->size);

		op.kind = MODEL_WRITE;
		if (op.off + op.len > m->size)
			continue;
		assert_int_equal(model_do(d->t, i, m, &op), 0);
		model_apply(m, &op);
	}
}

/* The machine itself stays up, so every byte is still in the file: what is asked is whether each
 * is shown from where it was synced, or from where the extents prove it. */
static void test_cow__unclean_boot_leaves_every_byte_synced_or_newer(void **state)
{
	struct tree_dirs *d = *state;
	struct model synced, m = put_file(d, FILE_BYTES, 6);
	uint64_t seed = tree_seed("unclean boot");
	bool has_true_extents;
	struct inode *i;

	assert_true(model_new(&synced, NULL, 0));
	session_epoch_for_tests = 0xaaaa;
	tree_mount(d, NULL);
	has_true_extents = d->t->can.has_true_extents;
	i = tree_get(d, "dir/big");
	write_within(d, i, &m, &seed, 20);
	assert_int_equal(cow_fsync(d->t, i, false), 0);
	model_copy(&synced, &m);
	write_within(d, i, &m, &seed, 40);
	/* As if it were killed: a volatile mount leaves no mark of a clean end. */
	d->t->is_volatile = true;
	tree_unmount(d);
	session_epoch_for_tests = 0xbbbb;
	tree_mount(d, NULL);
	if (has_true_extents)
		tree_expect(d, "dir/big", m.data, m.size);
	adopt_between(d, &synced, &m);
	d->t->is_volatile = true;
	tree_unmount(d);
	session_epoch_for_tests = 0;
	model_free(&synced);
	model_free(&m);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_cow__random_changes_of_small_files_match_an_array),
		cmocka_unit_test_setup_teardown(test_cow__random_changes_match_an_array, tree_setup,
						tree_teardown),
		cmocka_unit_test_setup_teardown(
			test_cow__random_changes_with_clean_unmounts_match_an_array, tree_setup,
			tree_teardown),
		cmocka_unit_test_setup_teardown(test_cow__random_changes_on_tmpfs_match_an_array,
						setup_tmpfs, tree_teardown),
		cmocka_unit_test_setup_teardown(
			test_cow__random_changes_of_a_whole_copy_match_an_array, tree_setup,
			tree_teardown),
		cmocka_unit_test_setup_teardown(
			test_cow__random_changes_through_frozen_layers_match_an_array, tree_setup,
			tree_teardown),
		cmocka_unit_test_setup_teardown(
			test_cow__random_changes_and_renames_through_frozen_layers_match_an_array,
			tree_setup, tree_teardown),
		cmocka_unit_test_setup_teardown(
			test_cow__server_that_exits_without_closing_loses_nothing, tree_setup,
			tree_teardown),
		cmocka_unit_test_setup_teardown(
			test_cow__killed_server_leaves_every_byte_old_or_new, tree_setup,
			tree_teardown),
		cmocka_unit_test_setup_teardown(
			test_cow__unclean_boot_leaves_every_byte_synced_or_newer, tree_setup,
			tree_teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
