// SPDX-License-Identifier: Apache-2.0
/* What is made beside a table that changes is what attaching its memory files makes. */
#include "support/tree.h"

#include "union/inode-internal.h"

#include "veneer/data/copyup.h"
#include "veneer/data/cow.h"
#include "veneer/data/create.h"
#include "veneer/data/remove.h"
#include "veneer/data/rename.h"
#include "veneer/layer/branch_dir.h"
#include "veneer/union/inode_rebuild.h"
#include "veneer/union/inode_rollback.h"
#include "veneer/union/lookup.h"
#include "veneer/union/upper.h"

#include <dirent.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define DIRS	4
#define FILES	6
#define GRANTED 2048
#define ROUNDS	40
#define KEPT	0x1234567812345678u

struct world {
	struct tree_dirs *d;
	uint64_t seed;
	uint32_t granted[GRANTED]; /* node ids of which the kernel has a look-up each */
	size_t n;
	atomic_bool is_stopped;
};

static void put_layers(struct tree_dirs *d)
{
	char path[64], other[64];

	for (unsigned k = 0; k < DIRS; k++)
		for (unsigned n = 0; n < FILES / 2; n++) {
			snprintf(path, sizeof(path), "lower/d%u/f%u", k, n);
			tree_put_text(d, path, path);
		}
	for (unsigned k = 1; k < DIRS; k++) {
		snprintf(path, sizeof(path), "lower/d%u/f0", k - 1);
		snprintf(other, sizeof(other), "lower/d%u/linked", k);
		assert_int_equal(linkat(d->s.fd, path, d->s.fd, other, 0), 0);
	}
}

static unsigned pick(struct world *w, unsigned n)
{
	return (unsigned)(tree_random(&w->seed) >> 16) % n;
}

static struct inode *look(struct union_fs *t, struct inode *dir, const char *name)
{
	struct inode *i;
	struct stat st;

	return lookup_name(t, dir, name, &i, &st) < 0 ? NULL : i;
}

/* Referenced. */
static struct inode *some_dir(struct world *w)
{
	struct union_fs *t = w->d->t;
	struct inode *dir, *sub;
	char name[16];

	snprintf(name, sizeof(name), "d%u", pick(w, DIRS));
	dir = look(t, t->root, name);
	sub = dir && !pick(w, 3) ? look(t, dir, "sub") : NULL;
	if (!sub)
		return dir;
	if (!inode_is_dir(sub)) {
		inode_unref(t, sub);
		return dir;
	}
	inode_unref(t, dir);
	return sub;
}

static const char *some_name(struct world *w, char name[16])
{
	static const char *const others[] = { "linked", "sub", "again" };
	const unsigned k = pick(w, FILES + 3);

	if (k >= FILES)
		return others[k - FILES];
	snprintf(name, 16, "f%u", k);
	return name;
}

static void grant(struct world *w, struct inode *i)
{
	uint32_t generation;

	if (w->n == GRANTED)
		inode_unref(w->d->t, i);
	else
		inode_grant(w->d->t, i, &w->granted[w->n++], &generation);
}

static void forget_one(struct world *w)
{
	size_t k;

	if (!w->n)
		return;
	k = pick(w, (unsigned)w->n);
	inode_forget(w->d->t, w->granted[k], 1);
	w->granted[k] = w->granted[--w->n];
}

/* Of a file that the kernel holds. */
static void renumber_one(struct world *w)
{
	struct union_fs *t = w->d->t;
	uint32_t id = w->n ? w->granted[pick(w, (unsigned)w->n)] : 0;
	struct inode *i = id ? inode_get(t, id) : NULL;

	if (!i || !inode_is_regular(i) || i->id != id)
		return;
	inode_ref(t, i);
	if (pick(w, 3))
		inode_renumber(t, i, id);
	else
		inode_note_mapped(t, i);
	grant(w, i);
}

static void change(struct world *w, struct inode *dir, const char *name)
{
	struct union_fs *t = w->d->t;
	struct inode *i = look(t, dir, name), *to = some_dir(w);
	char text[16];
	const char *other = some_name(w, text);
	struct stat st;

	switch (i && to ? pick(w, 8) : 99) {
	case 0:
		remove_file(t, dir, name);
		break;
	case 1:
		remove_dir(t, dir, name);
		break;
	case 2:
		if (inode_is_regular(i))
			create_link(t, i, to, other, &st);
		break;
	case 3:
		rename_entry(t, dir, name, to, other, 0);
		break;
	case 4:
		rename_entry(t, dir, name, to, other, RENAME_EXCHANGE);
		break;
	case 5:
		if (inode_is_regular(i))
			cow_write(t, i, "x", 1, 0);
		break;
	default:
		if (i)
			inode_ref(t, i), grant(w, i);
		break;
	}
	if (i)
		inode_unref(t, i);
	if (to)
		inode_unref(t, to);
}

static void do_something(struct world *w)
{
	const struct create_args dir_of = { .mode = S_IFDIR | 0755 },
				 file_of = { .mode = S_IFREG | 0644 };
	struct union_fs *t = w->d->t;
	struct inode *dir = some_dir(w), *i = NULL;
	char text[16];
	struct stat st;

	if (!dir)
		return;
	switch (pick(w, 6)) {
	case 0:
		forget_one(w);
		break;
	case 1:
		renumber_one(w);
		break;
	case 2:
		if (create_node(t, dir, some_name(w, text), pick(w, 3) ? &file_of : &dir_of, &i,
				&st) == 0)
			grant(w, i);
		break;
	default:
		change(w, dir, some_name(w, text));
		break;
	}
	inode_unref(t, dir);
}

/* ---- what attaching makes ---- */

static int copy_file(int from)
{
	int to = memfd_create("copy", MFD_CLOEXEC);
	struct stat st;
	void *p;

	assert_true(to >= 0 && fstat(from, &st) == 0 && ftruncate(to, st.st_size) == 0);
	p = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_SHARED, from, 0);
	assert_true(p != MAP_FAILED);
	assert_int_equal(pwrite(to, p, (size_t)st.st_size, 0), st.st_size);
	munmap(p, (size_t)st.st_size);
	return to;
}

static bool is_listed(struct union_fs *t, const struct inode *i)
{
	const uint64_t key = inode_unresolved_key(node_table_slot(t->nodes, i->id));
	struct hlink *l = htab_first(&t->inodes->unresolved, key);

	while (l && container_of(l, struct inode, by_lower) != i)
		l = htab_next(l);
	return l;
}

static void expect_same_name(const struct inode *a, const struct inode *b)
{
	const struct name *x, *y;

	assert_int_equal(list_is_empty(&a->names), list_is_empty(&b->names));
	if (list_is_empty(&a->names))
		return;
	assert_ptr_equal(a->names.next, a->names.prev);
	x = container_of(a->names.next, struct name, of_inode);
	y = container_of(b->names.next, struct name, of_inode);
	assert_int_equal(x->parent->id, y->parent->id);
	assert_ptr_equal(x->inode, a);
	assert_string_equal(x->name, y->name);
}

static void expect_same(struct union_fs *t, const struct inode *a, struct union_fs *u,
			const struct inode *b)
{
	assert_int_equal(a->id, b->id);
	assert_int_equal(a->generation, b->generation);
	assert_int_equal(a->type, b->type);
	assert_int_equal(a->ino, b->ino);
	assert_int_equal(a->stage, b->stage);
	assert_int_equal(a->links, b->links);
	assert_int_equal(a->given, b->given);
	assert_int_equal(a->n_former, b->n_former);
	assert_int_equal(a->refs, b->refs);
	assert_int_equal(a->is_held, b->is_held);
	assert_int_equal(a->src.fd.fd_plus_one, b->src.fd.fd_plus_one);
	assert_int_equal(list_is_empty(&a->special), list_is_empty(&b->special));
	assert_int_equal(is_listed(t, a), is_listed(u, b));
	expect_same_name(a, b);
}

static void expect_same_tables(struct union_fs *t, struct union_fs *u)
{
	assert_int_equal(node_table_count(t->nodes), node_table_count(u->nodes));
	assert_int_equal(t->inodes->n_unresolved, u->inodes->n_unresolved);
	assert_int_equal(t->inodes->names.count, u->inodes->names.count);
	assert_int_equal(t->inodes->unresolved.count, u->inodes->unresolved.count);
	assert_ptr_equal(t->root, node_table_object(t->nodes, NODE_TABLE_ROOT));
	for (uint32_t id = NODE_TABLE_ROOT; id < node_table_end(t->nodes); id++) {
		const struct inode *a = node_table_object(t->nodes, id),
				   *b = node_table_object(u->nodes, id);

		if (!a != !b)
			fail_msg("id %u: %s", id, a ? "too many" : "missing");
		if (a)
			expect_same(t, a, u, b);
	}
}

/* As open_root of src/mount/mount.c. */
static void open_root(struct union_fs *t)
{
	t->root->lower = image_root(t->image);
	t->root->ino = image_ino(t->image, t->root->lower);
	t->root->upper_ino = t->upper->ino;
	t->root->has_upper = true;
}

static bool pass_by(void *arg, struct inode *i)
{
	(void)arg;
	(void)i;
	return false;
}

static void attach_both(struct world *w, struct inode_rebuild *b, int slots, int names)
{
	struct union_fs *t = w->d->t;
	struct union_fs other = { .image = t->image, .upper = t->upper, .workfd = -1 };

	assert_int_equal(inode_rebuild_attach(b, t), 0);
	assert_int_equal(inode_table_attach(&other, slots, names), 0);
	/* What is not special any more leaves the list. */
	inode_each_special(t, pass_by, NULL);
	expect_same_tables(t, &other);
	inode_table_leave(&other, &slots, &names);
	close(slots);
	close(names);
	open_root(t);
}

static void forget_all(struct world *w)
{
	while (w->n)
		forget_one(w);
	assert_int_equal(node_table_count(w->d->t->nodes), 1);
}

/* ---- tests ---- */

static void begin(struct world *w, void *state, const char *name)
{
	*w = (struct world){ .d = state, .seed = tree_seed(name) };
	put_layers(w->d);
	tree_mount(w->d, "volatile");
}

static void go_on(struct world *w, struct inode_rebuild *b)
{
	struct union_fs *t = w->d->t;
	int slots, names;

	node_table_fds(t->nodes, &slots, &names);
	slots = copy_file(slots);
	names = copy_file(names);
	assert_int_equal(inode_rebuild_leave(b, t), 0);
	attach_both(w, b, slots, names);
	assert_false(inode_rebuild_has_left(b));
	inode_rebuild_free(b);
}

static void test_inode_rebuild__is_what_attaching_makes(void **state)
{
	struct world w;

	begin(&w, *state, "rebuild");
	for (unsigned round = 0; round < ROUNDS; round++) {
		struct inode_rebuild *b;

		for (unsigned k = pick(&w, 60); k--;)
			do_something(&w);
		assert_int_equal(inode_rebuild_begin(w.d->t, &b), 0);
		for (unsigned k = pick(&w, 60); k--;)
			do_something(&w);
		go_on(&w, b);
	}
	forget_all(&w);
	tree_unmount(w.d);
}

/* The chain of a mount that went back. */
static void put_chain(struct tree_dirs *d)
{
	const struct branch_chain_entry e = { .id = KEPT, .name = "kept" };
	struct branch_chain c = { .head = KEPT };
	char *text;
	size_t len;

	assert_int_equal(branch_chain_add(&c, &e), 0);
	assert_int_equal(branch_chain_format(&c, &text, &len), 0);
	tree_put(d, "upper/" BRANCH_DIR_NAME "/chain", text, len);
	tree_put_dir(d, "upper/" BRANCH_DIR_NAME "/1234567812345678");
	branch_chain_release(&c);
	free(text);
}

/* As mount_freeze_check and mount_rollback_prepare, of some of the files that the kernel holds. */
static void keep_some(struct world *w)
{
	struct union_fs *t = w->d->t;

	for (size_t k = 0; k < w->n; k++) {
		struct inode *i = inode_get(t, w->granted[k]);

		if (i->is_held && !inode_is_orphan(i))
			upper_let_go(t, i);
	}
	inode_rollback_begin(t, KEPT);
	for (size_t k = 0; k < w->n; k++) {
		struct inode *i = inode_get(t, w->granted[k]);
		int fd;

		if (!inode_is_regular(i) || inode_slot(t, i->id)->held_fd || pick(w, 2))
			continue;
		if (lookup_restore(t, i) == -ESTALE)
			continue;
		assert_int_equal(copyup_nameless(t, i, &fd), 0);
		inode_rollback_keep(t, i, fd);
	}
}

static void test_inode_rebuild__is_what_attaching_makes_when_it_goes_back(void **state)
{
	struct world w;

	begin(&w, *state, "rebuildback");
	for (unsigned round = 0; round < ROUNDS; round++) {
		struct inode_rebuild *b;

		for (unsigned k = pick(&w, 60); k--;)
			do_something(&w);
		assert_int_equal(inode_rebuild_begin(w.d->t, &b), 0);
		for (unsigned k = pick(&w, 60); k--;)
			do_something(&w);
		keep_some(&w);
		if (round == ROUNDS / 2)
			put_chain(w.d);
		go_on(&w, b);
		assert_int_equal(inode_rollback_is_unsaid(w.d->t), round >= ROUNDS / 2);
		inode_rollback_end(w.d->t);
	}
	forget_all(&w);
	tree_unmount(w.d);
}

static void *use(void *arg)
{
	struct world *w = arg;

	while (!w->is_stopped)
		do_something(w);
	return NULL;
}

static void test_inode_rebuild__is_made_while_the_table_changes(void **state)
{
	struct world w;
	char name[16];

	begin(&w, *state, "rebuildthread");
	/* More than one batch of it. */
	for (unsigned k = 0; k < 1500; k++) {
		snprintf(name, sizeof(name), "many%u", k);
		grant(&w, tree_make(w.d, "d0", name, S_IFREG | 0644));
	}
	for (unsigned round = 0; round < ROUNDS / 4; round++) {
		struct inode_rebuild *b;
		pthread_t thread;

		w.is_stopped = false;
		assert_int_equal(pthread_create(&thread, NULL, use, &w), 0);
		assert_int_equal(inode_rebuild_begin(w.d->t, &b), 0);
		w.is_stopped = true;
		pthread_join(thread, NULL);
		go_on(&w, b);
	}
	forget_all(&w);
	tree_unmount(w.d);
}

static void test_inode_rebuild__knows_what_is_copied_up_meanwhile(void **state)
{
	struct inode_rebuild *b;
	struct inode *f;
	struct world w;

	begin(&w, *state, "rebuildcopyup");
	f = tree_get(w.d, "d0/f1");
	inode_ref(w.d->t, f);
	grant(&w, f);
	assert_int_equal(inode_rebuild_begin(w.d->t, &b), 0);
	assert_int_equal(cow_write(w.d->t, f, "x", 1, 0), 0);
	inode_unref(w.d->t, f);
	go_on(&w, b);
	forget_all(&w);
	tree_unmount(w.d);
}

static void test_inode_rebuild__may_be_given_up_at_any_time(void **state)
{
	struct inode_rebuild *b, *second;
	struct world w;
	int slots, names;

	begin(&w, *state, "rebuildgiveup");
	for (unsigned k = 0; k < 200; k++)
		do_something(&w);
	assert_int_equal(inode_rebuild_begin(w.d->t, &b), 0);
	assert_int_equal(inode_rebuild_begin(w.d->t, &second), -EAGAIN);
	inode_rebuild_cancel(w.d->t);
	inode_rebuild_free(b);
	for (unsigned k = 0; k < 50; k++)
		do_something(&w);
	assert_int_equal(inode_rebuild_begin(w.d->t, &b), 0);
	assert_false(inode_rebuild_has_left(b));
	assert_int_equal(inode_rebuild_leave(b, w.d->t), 0);
	assert_true(inode_rebuild_has_left(b));
	inode_rebuild_give_up(b, &slots, &names);
	assert_false(inode_rebuild_has_left(b));
	assert_int_equal(inode_table_attach(w.d->t, slots, names), 0);
	open_root(w.d->t);
	inode_rebuild_free(b);
	for (unsigned k = 0; k < 50; k++)
		do_something(&w);
	forget_all(&w);
	tree_unmount(w.d);
}

#define row(test) cmocka_unit_test_setup_teardown(test, tree_setup, tree_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		row(test_inode_rebuild__is_what_attaching_makes),
		row(test_inode_rebuild__is_what_attaching_makes_when_it_goes_back),
		row(test_inode_rebuild__is_made_while_the_table_changes),
		row(test_inode_rebuild__knows_what_is_copied_up_meanwhile),
		row(test_inode_rebuild__may_be_given_up_at_any_time),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
