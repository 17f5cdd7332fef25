// SPDX-License-Identifier: Apache-2.0
#include "support/recovery.h"

#include "veneer/data/cow.h"
#include "veneer/data/create.h"
#include "veneer/data/remove.h"
#include "veneer/union/lookup.h"

#include <fcntl.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/wait.h>

static void put_layers(struct recovery *h)
{
	tree_put_text(h->d, "lower/dir/f", "text");
	tree_put_text(h->d, "lower/dir/sub/g", "more");
	free(tree_put_pattern(h->d, "lower/dir/big", 40000, 1));
}

static void grant_dir(struct tree_dirs *d, struct will *w)
{
	recovery_grant(d, w, 0, tree_get(d, "dir"));
}

static void live_without_grant(struct tree_dirs *d, struct will *w)
{
	recovery_grant(d, w, 0, tree_get(d, "dir/f"));
	tree_get(d, "dir/sub/g");
	tree_make(d, "dir", "made", S_IFREG | 0644);
}

static void test_inode_load__what_the_kernel_never_heard_of_is_let_go(void **state)
{
	struct recovery *h = *state;

	put_layers(h);
	recovery_die(h, "volatile", live_without_grant);
	recovery_inherit(h);
	assert_int_equal(node_table_count(h->d->t->nodes), 3); /* the root, dir, f */
	assert_int_equal(inode_count_unresolved(h->d->t), 2);
	tree_expect_text(h->d, "dir/f", "text");
}

/* ---- former numbers ---- */

static void live_renumbered(struct tree_dirs *d, struct will *w)
{
	struct inode *f = tree_get(d, "dir/f");

	inode_ref(d->t, f);
	recovery_grant(d, w, 0, f);
	assert_int_equal(inode_renumber(d->t, f, w->id[0]), 0);
	inode_ref(d->t, f);
	recovery_grant(d, w, 1, f);
	assert_int_equal(inode_renumber(d->t, f, w->id[1]), 0);
	inode_note_mapped(d->t, f);
	recovery_grant(d, w, 2, f);
}

static void test_inode_load__former_numbers_lead_to_the_same_inode(void **state)
{
	struct recovery *h = *state;
	struct inode *f;

	put_layers(h);
	recovery_die(h, "volatile", live_renumbered);
	recovery_inherit(h);
	f = recovery_get(h, 2);
	assert_int_equal(f->id, h->will->id[2]);
	assert_int_equal(f->n_former, 2);
	assert_true(inode_is_mapped_past_us(f));
	assert_ptr_equal(inode_get(h->d->t, h->will->id[0]), f);
	assert_ptr_equal(inode_get(h->d->t, h->will->id[1]), f);
	assert_true(inode_slot(h->d->t, h->will->id[2])->is_successor);
	tree_expect_inode(h->d, f, "text", 4);
	for (unsigned n = 3; n-- > 0;)
		inode_forget(h->d->t, h->will->id[n], 1);
	assert_int_equal(node_table_count(h->d->t->nodes), 1);
}

static void live_renumbered_and_forgotten(struct tree_dirs *d, struct will *w)
{
	live_renumbered(d, w);
	inode_forget(d->t, w->id[1], 1);
}

static void test_inode_load__a_former_number_does_not_need_the_one_after_it(void **state)
{
	struct recovery *h = *state;
	struct inode *f;

	put_layers(h);
	recovery_die(h, "volatile", live_renumbered_and_forgotten);
	recovery_inherit(h);
	f = recovery_get(h, 2);
	assert_int_equal(f->n_former, 1);
	assert_ptr_equal(inode_get(h->d->t, h->will->id[0]), f);
}

/* ---- damage ---- */

static void flip_bytes(int fd, size_t from, size_t to, uint64_t *seed, unsigned n)
{
	uint8_t *bytes = mmap(NULL, to, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

	assert_true(bytes != MAP_FAILED);
	while (n--) {
		size_t at = from + tree_random(seed) % (to - from);

		bytes[at] = tree_random(seed) % 2 ? (uint8_t)tree_random(seed)
						  : (uint8_t)(tree_random(seed) % 8);
	}
	munmap(bytes, to);
}

static void live_crowded(struct tree_dirs *d, struct will *w)
{
	struct inode *dir = tree_get(d, "dir"), *made = tree_make(d, "dir", "made", S_IFREG | 0644);
	struct inode *big = tree_get(d, "dir/big"), *f = tree_get(d, "dir/f");
	struct stat st;

	assert_int_equal(create_link(d->t, made, dir, "again", &st), 0);
	assert_int_equal(cow_write(d->t, big, "x", 1, 9000), 0);
	assert_int_equal(remove_file(d->t, dir, "big"), 0);
	assert_int_equal(remove_file(d->t, dir, "f"), 0);
	recovery_grant(d, w, 0, made);
	recovery_grant(d, w, 1, big);
	recovery_grant(d, w, 2, f);
	recovery_grant(d, w, 3, tree_make(d, "dir/sub", "new", S_IFDIR | 0755));
	recovery_grant(d, w, 4, tree_get(d, "pair/a"));
	recovery_grant(d, w, 10, tree_get(d, "dir/sub/g"));
	recovery_grant(d, w, 11, tree_get(d, "x/y/z"));
	inode_ref(d->t, inode_get(d->t, w->id[11]));
	assert_int_equal(inode_renumber(d->t, inode_get(d->t, w->id[11]), w->id[11]), 0);
}

static void damage(int slots, int names, uint64_t *seed)
{
	unsigned n = 1 + (unsigned)(tree_random(seed) % 8);

	while (n--) {
		size_t slot = sizeof(struct node_slot) * (1 + tree_random(seed) % 24);

		/* Not the descriptors: they are this process's own. */
		flip_bytes(slots, slot, slot + offsetof(struct node_slot, held_fd), seed, 1);
		if (n % 2)
			flip_bytes(slots, slot + offsetof(struct node_slot, state),
				   slot + sizeof(struct node_slot), seed, 1);
	}
	flip_bytes(names, 0, 8192, seed, (unsigned)(tree_random(seed) % 16));
}

static void use_damaged(struct recovery *h, uint64_t *seed)
{
	int slots, names;

	recovery_copy(h, &slots, &names);
	damage(slots, names, seed);
	/* One line for each round would hide those of other tests. */
	assert_non_null(freopen("/dev/null", "w", stderr));
	if (recovery_take(h, slots, names) < 0)
		_exit(0);
	for (uint32_t id = 1; id < node_table_end(h->d->t->nodes); id++) {
		struct inode *i = inode_get(h->d->t, id);
		struct stat st;

		if (i && lookup_restore(h->d->t, i) == 0)
			lookup_stat(h->d->t, i, &st);
	}
	tree_unmount(h->d);
	_exit(0);
}

static void test_inode_load__damaged_table_breaks_nothing(void **state)
{
	struct recovery *h = *state;
	uint64_t seed = tree_seed("inodeload");

	put_layers(h);
	tree_put_text(h->d, "lower/pair/a", "pair");
	tree_put_text(h->d, "lower/x/y/z", "text");
	assert_int_equal(linkat(h->d->s.fd, "lower/pair/a", h->d->s.fd, "lower/pair/b", 0), 0);
	recovery_die(h, "volatile", live_crowded);
	for (unsigned round = 0; round < 100; round++) {
		int status;
		pid_t pid = fork();

		if (pid == 0) {
			alarm(20);
			use_damaged(h, &seed);
		}
		tree_random(&seed);
		assert_int_equal(waitpid(pid, &status, 0), pid);
		if (!WIFEXITED(status) || WEXITSTATUS(status))
			fail_msg("round %u: status %x", round, status);
	}
}

static void test_inode_load__table_of_another_version_is_refused(void **state)
{
	struct recovery *h = *state;
	uint32_t version = NODE_TABLE_VERSION + 1;
	int slots, names;

	put_layers(h);
	recovery_die(h, "volatile", grant_dir);
	assert_int_equal(pwrite(h->slots_fd, &version, sizeof(version), 8), sizeof(version));
	recovery_copy(h, &slots, &names);
	assert_int_equal(recovery_take(h, slots, names), -EPROTO);
}

/* ---- numbers of what is mounted inside a layer ---- */

static void live_on_mounts(struct tree_dirs *d, struct will *w)
{
	w->ino[3] = tree_stat(d, "two/f").st_ino;
	recovery_grant(d, w, 0, tree_get(d, "one/f"));
	w->ino[4] = tree_stat(d, "three/f").st_ino;
}

static void test_inode_load__devices_inside_a_layer_have_the_numbers_they_had(void **state)
{
	static const char *const names[] = { "lower/one", "lower/two", "lower/three" };
	struct recovery *h = *state;
	char path[PATH_MAX + 32], file[64];
	int fd;

	put_layers(h);
	if (unshare(CLONE_NEWNS) < 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0)
		skip(); /* not allowed here */
	/* As it is seen in here. */
	fd = open(h->d->s.path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	assert_true(fd >= 0 && dup3(fd, h->d->s.fd, O_CLOEXEC) >= 0);
	close(fd);
	for (unsigned k = 0; k < 3; k++) {
		tree_put_dir(h->d, names[k]);
		snprintf(path, sizeof(path), "%s/%s", h->d->s.path, names[k]);
		assert_int_equal(mount("none", path, "tmpfs", 0, NULL), 0);
		snprintf(file, sizeof(file), "%s/f", names[k]);
		tree_put_text(h->d, file, names[k]);
	}
	recovery_die(h, "volatile", live_on_mounts);
	recovery_inherit(h);
	/* In another order. */
	assert_int_equal(tree_stat(h->d, "three/f").st_ino, h->will->ino[4]);
	assert_int_equal(tree_stat(h->d, "two/f").st_ino, h->will->ino[3]);
	tree_expect_inode(h->d, recovery_get(h, 0), "lower/one", 9);
	tree_unmount(h->d);
	mount_dirs_release(&h->dirs);
	for (unsigned k = 0; k < 3; k++) {
		snprintf(path, sizeof(path), "%s/%s", h->d->s.path, names[k]);
		assert_int_equal(umount2(path, MNT_DETACH), 0);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		RECOVERY_TEST(test_inode_load__what_the_kernel_never_heard_of_is_let_go),
		RECOVERY_TEST(test_inode_load__former_numbers_lead_to_the_same_inode),
		RECOVERY_TEST(test_inode_load__a_former_number_does_not_need_the_one_after_it),
		RECOVERY_TEST(test_inode_load__damaged_table_breaks_nothing),
		RECOVERY_TEST(test_inode_load__table_of_another_version_is_refused),
		/* Last: what it mounts, it mounts in a namespace of its own. */
		RECOVERY_TEST(test_inode_load__devices_inside_a_layer_have_the_numbers_they_had),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
