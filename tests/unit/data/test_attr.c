// SPDX-License-Identifier: Apache-2.0
#include "support/tree.h"

#include "veneer/data/attr.h"
#include "veneer/data/cow.h"
#include "veneer/data/cow_fsync.h"
#include "veneer/data/remove.h"
#include "veneer/data/replay.h"
#include "veneer/layer/xattr_trust.h"
#include "veneer/sys/mode_relax.h"
#include "veneer/union/lookup.h"

#include <dirent.h>
#include <pthread.h>
#include <sys/mman.h>

#define BIG 50000

static void set_lower_attr(struct tree_dirs *d, const char *rel, const char *name,
			   const char *value)
{
	char path[PATH_MAX + 64];

	snprintf(path, sizeof(path), "%s/%s", d->s.path, rel);
	assert_int_equal(lsetxattr(path, name, value, strlen(value), 0), 0);
}

static void test_attr__change_of_a_large_lower_file_copies_no_data(void **state)
{
	struct tree_dirs *d = *state;
	char *data = tree_put_pattern(d, "lower/f", BIG, 1);
	struct timespec times[2] = { { 1000, 1 }, { 2000, 2 } };
	struct inode *i;
	struct stat st;

	tree_mount(d, "volatile");
	i = tree_get(d, "f");
	assert_int_equal(attr_chmod(d->t, i, 0600), 0);
	assert_int_equal(attr_chown(d->t, i, 5, (gid_t)-1), 0);
	assert_int_equal(attr_utimens(d->t, i, times), 0);
	assert_int_equal(fstatat(d->s.fd, "upper/f", &st, 0), 0);
	assert_true(st.st_blocks <= 8);
	st = tree_stat(d, "f");
	assert_int_equal(st.st_mode & 07777, 0600);
	assert_int_equal(st.st_uid, 5);
	assert_int_equal(st.st_gid, 0);
	assert_int_equal(st.st_mtim.tv_sec, 2000);
	assert_int_equal(st.st_mtim.tv_nsec, 2);
	/* The file occupies what its bytes occupy. */
	assert_true(st.st_blocks >= BIG / 512);
	tree_expect(d, "f", data, BIG);
	free(data);
}

static bool is_sealed(struct tree_dirs *d, const char *name)
{
	char path[PATH_MAX + 64];

	snprintf(path, sizeof(path), "%s/upper/%s", d->s.path, name);
	return lgetxattr(path, XATTR_TRUST_SEAL_ATTR, NULL, 0) > 0;
}

static void put_with_mode(struct tree_dirs *d, const char *rel, mode_t mode)
{
	free(tree_put_pattern(d, rel, BIG, 1));
	assert_int_equal(fchmodat(d->s.fd, rel, mode, 0), 0);
}

/* Whether the copy is made with the mode, or has it later. */
static void test_attr__copy_that_strangers_may_write_is_sealed(void **state)
{
	struct tree_dirs *d = *state;

	put_with_mode(d, "lower/at once", 0600);
	put_with_mode(d, "lower/later", 0600);
	put_with_mode(d, "lower/given away", 0600);
	put_with_mode(d, "lower/read by all", 0644);
	tree_mount(d, "volatile");
	assert_int_equal(attr_chmod(d->t, tree_get(d, "at once"), 0606), 0);
	assert_int_equal(attr_chmod(d->t, tree_get(d, "later"), 0640), 0);
	assert_int_equal(is_sealed(d, "later"), false);
	assert_int_equal(attr_chmod(d->t, tree_get(d, "later"), 0606), 0);
	assert_int_equal(attr_chown(d->t, tree_get(d, "given away"), 5, 5), 0);
	assert_int_equal(attr_chmod(d->t, tree_get(d, "read by all"), 0666), 0);
	assert_int_equal(is_sealed(d, "at once"), d->t->style.has_trusted);
	assert_int_equal(is_sealed(d, "later"), d->t->style.has_trusted);
	assert_int_equal(is_sealed(d, "given away"), d->t->style.has_trusted);
	assert_int_equal(is_sealed(d, "read by all"), false);
	assert_int_equal(tree_stat(d, "at once").st_mode & 07777, 0606);
	assert_int_equal(tree_stat(d, "given away").st_uid, 5);
}

static void test_attr__chown_of_a_lower_file_takes_set_id_bits_and_chmod_gives_them(void **state)
{
	struct tree_dirs *d = *state;

	put_with_mode(d, "lower/had", 06755);
	put_with_mode(d, "lower/gets", 0755);
	tree_mount(d, "volatile");
	assert_int_equal(attr_chown(d->t, tree_get(d, "had"), 5, 5), 0);
	assert_int_equal(attr_chmod(d->t, tree_get(d, "gets"), 06755), 0);
	assert_int_equal(tree_stat(d, "had").st_mode & 07777, 0755);
	assert_int_equal(tree_stat(d, "gets").st_mode & 07777, 06755);
}

static void test_attr__of_other_types_can_be_changed(void **state)
{
	struct tree_dirs *d = *state;
	struct timespec times[2] = { { 1000, 1 }, { 2000, 2 } };

	tree_put_dir(d, "lower/dir");
	assert_int_equal(mkfifoat(d->s.fd, "lower/fifo", 0600), 0);
	assert_int_equal(symlinkat("x", d->s.fd, "lower/link"), 0);
	tree_mount(d, "volatile");
	assert_int_equal(attr_chmod(d->t, tree_get(d, "dir"), 01777), 0);
	assert_int_equal(attr_chmod(d->t, tree_get(d, "fifo"), 0640), 0);
	assert_int_equal(attr_chown(d->t, tree_get(d, "link"), 5, 6), 0);
	assert_int_equal(attr_utimens(d->t, tree_get(d, "link"), times), 0);
	assert_int_equal(tree_stat(d, "dir").st_mode & 07777, 01777);
	assert_int_equal(tree_stat(d, "fifo").st_mode & 07777, 0640);
	assert_int_equal(tree_stat(d, "link").st_uid, 5);
	assert_int_equal(tree_stat(d, "link").st_mtim.tv_sec, 2000);
}

static void test_attr__file_that_cannot_be_copied_up_keeps_all_of_them(void **state)
{
	struct timespec times[2] = { { 1000, 1 }, { 2000, 2 } };
	struct tree_dirs *d = *state;
	struct stat before, st;
	struct inode *i;

	tree_put_text(d, "lower/f", "text");
	tree_mount(d, "ro");
	i = tree_get(d, "f");
	before = tree_stat(d, "f");
	assert_int_equal(attr_chmod(d->t, i, 0600), -EROFS);
	assert_int_equal(attr_chown(d->t, i, 5, 6), -EROFS);
	assert_int_equal(attr_utimens(d->t, i, times), -EROFS);
	st = tree_stat(d, "f");
	assert_int_equal(st.st_mode, before.st_mode);
	assert_int_equal(st.st_uid, before.st_uid);
	assert_int_equal(st.st_mtim.tv_sec, before.st_mtim.tv_sec);
	tree_forget(d, i);
}

static void test_attr__set_id_bits_are_killed_as_by_the_kernel(void **state)
{
	static const mode_t rows[][2] = {
		{ 06755, 0755 }, { 02745, 0745 }, { 04644, 0644 }, { 02755, 0755 }, { 0644, 0644 }
	};
	struct tree_dirs *d = *state;
	struct inode *i;

	tree_mount(d, "volatile");
	i = tree_make(d, "", "f", S_IFREG | 0644);
	for (size_t k = 0; k < sizeof(rows) / sizeof(*rows); k++) {
		assert_int_equal(attr_chmod(d->t, i, rows[k][0]), 0);
		assert_int_equal(attr_kill_setid(d->t, i, NULL, NULL), 0);
		if ((tree_stat(d, "f").st_mode & 07777) != rows[k][1])
			fail_msg("%04o became %04o", rows[k][0], tree_stat(d, "f").st_mode & 07777);
	}
}

/* As the kernel asks for with a new access list: whatever the group may do. */
static void test_attr__set_group_id_alone_is_killed(void **state)
{
	static const mode_t rows[][2] = {
		{ 07755, 05755 }, { 02745, 0745 }, { 04755, 04755 }, { 0644, 0644 }
	};
	struct tree_dirs *d = *state;
	struct inode *i;

	tree_mount(d, "volatile");
	i = tree_make(d, "", "f", S_IFREG | 0644);
	for (size_t k = 0; k < sizeof(rows) / sizeof(*rows); k++) {
		assert_int_equal(attr_chmod(d->t, i, rows[k][0]), 0);
		assert_int_equal(attr_kill_setgid(d->t, i), 0);
		if ((tree_stat(d, "f").st_mode & 07777) != rows[k][1])
			fail_msg("%04o became %04o", rows[k][0], tree_stat(d, "f").st_mode & 07777);
	}
}

static void test_attr__killing_set_id_bits_that_are_not_there_copies_nothing_up(void **state)
{
	struct tree_dirs *d = *state;

	tree_put_text(d, "lower/f", "x");
	tree_mount(d, "volatile");
	assert_int_equal(attr_kill_setid(d->t, tree_get(d, "f"), NULL, NULL), 0);
	assert_int_equal(attr_kill_setgid(d->t, tree_get(d, "f")), 0);
	assert_false(tree_is_there(d, "upper/f"));
}

static void test_attr__extended_attributes_come_along_and_change(void **state)
{
	struct tree_dirs *d = *state;
	struct inode *i;
	char value[16], list[256];

	tree_put_text(d, "lower/f", "x");
	set_lower_attr(d, "lower/f", "user.a", "one");
	tree_mount(d, "volatile");
	i = tree_get(d, "f");
	assert_int_equal(attr_getxattr(d->t, i, "user.a", value, sizeof(value)), 3);
	assert_int_equal(attr_getxattr(d->t, i, "user.a", NULL, 0), 3);
	assert_int_equal(attr_getxattr(d->t, i, "user.a", value, 2), -ERANGE);
	assert_int_equal(attr_getxattr(d->t, i, "user.none", value, 2), -ENODATA);
	assert_int_equal(attr_setxattr(d->t, i, "user.b", "2", 1, 0), 0);
	assert_int_equal(attr_setxattr(d->t, i, "user.b", "2", 1, XATTR_CREATE), -EEXIST);
	assert_int_equal(attr_getxattr(d->t, i, "user.a", value, sizeof(value)), 3);
	assert_memory_equal(value, "one", 3);
	assert_int_equal(attr_listxattr(d->t, i, NULL, NULL, NULL, 0), 14);
	assert_int_equal(attr_listxattr(d->t, i, NULL, NULL, list, 13), -ERANGE);
	assert_int_equal(attr_listxattr(d->t, i, NULL, NULL, list, sizeof(list)), 14);
	assert_int_equal(attr_removexattr(d->t, i, "user.a"), 0);
	assert_int_equal(attr_removexattr(d->t, i, "user.a"), -ENODATA);
}

static void test_attr__names_of_unions_are_hidden(void **state)
{
	static const char *const names[] = { "user.overlay.opaque", "user.veneer.partial",
					     "user.fuseoverlayfs.x", "trusted.overlay.opaque" };
	struct tree_dirs *d = *state;
	struct inode *i;
	char list[256];

	free(tree_put_pattern(d, "lower/f", BIG, 1));
	tree_mount(d, "volatile");
	i = tree_get(d, "f");
	assert_int_equal(cow_write(d->t, i, "x", 1, 0), 0);
	assert_true(tree_is_partial(d, "upper/f"));
	for (size_t k = 0; k < sizeof(names) / sizeof(*names); k++) {
		assert_int_equal(attr_getxattr(d->t, i, names[k], NULL, 0), -ENODATA);
		assert_int_equal(attr_setxattr(d->t, i, names[k], "y", 1, 0), -EPERM);
		assert_int_equal(attr_removexattr(d->t, i, names[k]), -EPERM);
	}
	assert_int_equal(attr_listxattr(d->t, i, NULL, NULL, list, sizeof(list)), 0);
	assert_int_equal(attr_listxattr(d->t, i, NULL, NULL, NULL, 0), 0);
}

static void test_attr__removing_what_is_not_there_copies_nothing_up(void **state)
{
	struct tree_dirs *d = *state;

	tree_put_text(d, "lower/f", "x");
	tree_mount(d, "volatile");
	assert_int_equal(attr_removexattr(d->t, tree_get(d, "f"), "user.none"), -ENODATA);
	assert_false(tree_is_there(d, "upper/f"));
}

static void test_attr__read_only_mount_refuses_changes(void **state)
{
	struct tree_dirs *d = *state;
	struct inode *i;

	tree_put_text(d, "lower/f", "x");
	tree_mount(d, "ro");
	i = tree_get(d, "f");
	assert_int_equal(attr_chmod(d->t, i, 0600), -EROFS);
	assert_int_equal(attr_setxattr(d->t, i, "user.a", "", 0, 0), -EROFS);
	assert_int_equal(cow_write(d->t, i, "y", 1, 0), -EROFS);
	assert_int_equal(cow_truncate(d->t, i, 0), -EROFS);
	assert_int_equal(cow_fsync(d->t, i, false), 0);
	tree_expect_text(d, "f", "x");
}

static void test_attr__of_an_unlinked_lower_file_can_be_changed(void **state)
{
	struct tree_dirs *d = *state;
	struct inode *i;
	struct stat st;

	tree_put_text(d, "lower/f", "x");
	tree_mount(d, "volatile");
	i = tree_get(d, "f");
	assert_int_equal(remove_file(d->t, d->t->root, "f"), 0);
	assert_int_equal(attr_chmod(d->t, i, 0600), 0);
	assert_int_equal(lookup_stat(d->t, i, &st), 0);
	assert_int_equal(st.st_mode & 07777, 0600);
	assert_null(tree_look(d, "f"));
}

/* ---- what a write takes away for a moment ---- */

#define KEY	   7
#define CAPABILITY "security.capability"

static const char some_capability[20] = { 1, 0, 0, 2, 0, 4 };

enum between { NOTHING, OTHER_FILE, WRITE, CHMOD, CHOWN, REMOVAL, BETWEENS };

static void put_privileged(struct tree_dirs *d, struct inode *i, bool has_capability)
{
	d->t->can.has_trusted_xattr = has_capability;
	assert_int_equal(attr_chmod(d->t, i, has_capability ? 0755 : 04755), 0);
	if (has_capability)
		assert_int_equal(attr_setxattr(d->t, i, CAPABILITY, some_capability,
					       sizeof(some_capability), 0),
				 0);
}

static bool is_privileged(struct tree_dirs *d, const char *name)
{
	return tree_stat(d, name).st_mode & S_ISUID ||
	       attr_getxattr(d->t, tree_get(d, name), CAPABILITY, NULL, 0) > 0;
}

static void begin_keeping(struct tree_dirs *d, struct inode *i, bool has_capability, bool again,
			  struct attr_setid *s)
{
	struct intent_request request = {
		.key = KEY, .unique = 1, .kind = INTENT_SETID, .is_resent = again
	};

	attr_setid_begin(d->t, i, has_capability, again, s);
	replay_setid(d->t, i, intent_log_begin(&request), has_capability, s);
	assert_int_equal(cow_write(d->t, i, "one", 3, 0), 0);
	/* The chmod of a privileged server leaves the bits. */
	assert_int_equal(attr_chmod(d->t, i, tree_stat(d, "f").st_mode & 01777), 0);
}

/* As by a server that died. */
static void die(struct tree_dirs *d, void *area, struct attr_setid *s)
{
	pthread_mutex_unlock(s->lock);
	d->t->keeping = 0;
	intent_log_use_area(area);
}

static void change_between(struct tree_dirs *d, enum between what)
{
	struct inode *i = tree_get(d, what == OTHER_FILE ? "g" : "f");

	if (what == NOTHING)
		return;
	attr_change_begin(d->t, i, KEY, 2);
	if (what == WRITE || what == OTHER_FILE)
		assert_int_equal(attr_kill_setid(d->t, i, NULL, NULL)
					 ?: cow_write(d->t, i, "two", 3, 10),
				 0);
	else if (what == CHMOD)
		assert_int_equal(attr_chmod(d->t, i, 0755), 0);
	else if (what == CHOWN)
		assert_int_equal(attr_chown(d->t, i, 5, 5), 0);
	else
		attr_removexattr(d->t, i, CAPABILITY);
	attr_change_end(i);
}

static void *use_new_area(void)
{
	void *area = mmap(NULL, intent_log_area_bytes(), PROT_READ | PROT_WRITE,
			  MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	assert_true(area != MAP_FAILED);
	intent_log_use_area(area);
	return area;
}

static void test_attr__nothing_comes_back_onto_what_another_changed(void **state)
{
	struct tree_dirs *d = *state;
	void *area = use_new_area();

	tree_mount(d, "volatile");
	tree_make(d, "", "g", S_IFREG | 0644);
	for (unsigned k = 0; k < 2 * BETWEENS; k++) {
		const bool has_capability = k % 2;
		struct inode *i = tree_make(d, "", "f", S_IFREG | 0644);
		struct attr_setid s;

		put_privileged(d, i, has_capability);
		begin_keeping(d, i, has_capability, false, &s);
		assert_false(is_privileged(d, "f"));
		die(d, area, &s);
		change_between(d, k / 2);
		assert_false(is_privileged(d, "f"));
		begin_keeping(d, i, has_capability, true, &s);
		assert_int_equal(attr_setid_end(d->t, i, &s, 0), 0);
		assert_int_equal(is_privileged(d, "f"), k / 2 < WRITE);
		intent_log_end(intent_log_current());
		assert_false(intent_log_has_setid());
		assert_int_equal(remove_file(d->t, d->t->root, "f"), 0);
	}
}

/* The reply is not out, and the server dies. */
static void test_attr__what_was_put_back_is_not_put_back_again(void **state)
{
	struct tree_dirs *d = *state;
	void *area = use_new_area();
	struct attr_setid s;
	struct inode *i;

	tree_mount(d, "volatile");
	i = tree_make(d, "", "f", S_IFREG | 0644);
	put_privileged(d, i, false);
	begin_keeping(d, i, false, false, &s);
	assert_int_equal(attr_setid_end(d->t, i, &s, 0), 0);
	assert_true(is_privileged(d, "f"));
	assert_int_equal(attr_kill_setid(d->t, i, NULL, NULL), 0);
	intent_log_use_area(area);
	begin_keeping(d, i, false, true, &s);
	assert_int_equal(attr_setid_end(d->t, i, &s, 0), 0);
	assert_false(is_privileged(d, "f"));
	intent_log_end(intent_log_current());
}

static void test_attr__no_capability_comes_back_beside_another_change(void **state)
{
	struct tree_dirs *d = *state;
	struct attr_setid s;
	struct inode *i;

	use_new_area();
	tree_mount(d, "volatile");
	i = tree_make(d, "", "f", S_IFREG | 0644);
	put_privileged(d, i, true);
	attr_change_begin(d->t, i, KEY, 2);
	begin_keeping(d, i, true, false, &s);
	assert_int_equal(attr_setid_end(d->t, i, &s, 0), 0);
	attr_change_end(i);
	assert_false(is_privileged(d, "f"));
	intent_log_end(intent_log_current());
}

static void test_attr__a_failed_write_costs_no_set_id_bits(void **state)
{
	struct tree_dirs *d = *state;
	struct attr_setid s;
	struct inode *i;

	use_new_area();
	tree_mount(d, "volatile");
	i = tree_make(d, "", "f", S_IFREG | 0644);
	put_privileged(d, i, false);
	begin_keeping(d, i, false, false, &s);
	assert_int_equal(attr_setid_end(d->t, i, &s, -ENOSPC), -ENOSPC);
	assert_true(is_privileged(d, "f"));
	intent_log_end(intent_log_current());
}

struct relaxed {
	struct union_fs *t;
	struct inode *i;
	int fd, r;
};

/* As a server that permissions bind, in the middle of another request on the directory. */
static void *chmod_relaxed(void *arg)
{
	struct relaxed *x = arg;
	struct mode_relax *relax;

	x->r = -EPERM;
	if (scratch_be_bound() < 0)
		return NULL;
	relax = mode_relax_begin(x->fd, "");
	x->r = relax ? attr_chmod(x->t, x->i, 0550) : -ENOENT;
	mode_relax_end(relax);
	return NULL;
}

static void test_attr__mode_of_a_directory_that_is_opened_for_a_moment_lasts(void **state)
{
	struct tree_dirs *d = *state;
	struct relaxed x;
	pthread_t thread;
	struct stat st;

	tree_put_dir(d, "upper/dir");
	assert_int_equal(fchmodat(d->s.fd, "upper/dir", 0110, 0), 0);
	tree_mount(d, "volatile");
	x = (struct relaxed){ .t = d->t, .i = tree_get(d, "dir") };
	x.fd = openat(d->s.fd, "upper/dir", O_PATH | O_DIRECTORY | O_CLOEXEC);
	assert_true(x.fd >= 0);
	assert_int_equal(pthread_create(&thread, NULL, chmod_relaxed, &x), 0);
	assert_int_equal(pthread_join(thread, NULL), 0);
	assert_int_equal(x.r, 0);
	assert_int_equal(fstatat(d->s.fd, "upper/dir", &st, 0), 0);
	assert_int_equal(st.st_mode & 07777, 0550);
	close(x.fd);
	tree_forget(d, x.i);
}

static struct intent *begin_on(enum intent_kind kind)
{
	return intent_log_begin(&(struct intent_request){ .key = KEY, .unique = 11, .kind = kind });
}

static void test_attr__attribute_that_was_there_is_there_again(void **state)
{
	struct tree_dirs *d = *state;
	struct intent *n;
	struct inode *i;

	use_new_area();
	tree_put_text(d, "upper/u", "upper");
	tree_mount(d, "volatile");
	i = tree_get(d, "u");
	assert_int_equal(attr_setxattr(d->t, i, "user.x", "value", 5, 0), 0);
	n = begin_on(INTENT_SETXATTR);
	assert_int_equal(replay_setxattr(d->t, i, n, "user.x", "value", 5), -EEXIST);
	assert_int_equal(replay_setxattr(d->t, i, n, "user.x", "value", 5), -EEXIST);
	intent_log_end(n);
	n = begin_on(INTENT_REMOVEXATTR);
	assert_int_equal(replay_removexattr(d->t, i, n, "user.y"), -ENODATA);
	assert_int_equal(replay_removexattr(d->t, i, n, "user.y"), -ENODATA);
	intent_log_end(n);
	/* Another value is not ours. */
	n = begin_on(INTENT_SETXATTR);
	assert_int_equal(replay_setxattr(d->t, i, n, "user.z", "value", 5), 0);
	assert_int_equal(replay_setxattr(d->t, i, n, "user.z", "other", 5), -EEXIST);
	assert_int_equal(replay_setxattr(d->t, i, n, "user.z", "value", 5), 0);
	intent_log_end(n);
	tree_forget(d, i);
}

/* Another program may change the upper's file, of which no request tells. */
static void test_attr__set_id_bits_come_back_onto_no_other_mode(void **state)
{
	struct tree_dirs *d = *state;
	void *area = use_new_area();
	struct attr_setid s;
	struct inode *i;

	tree_mount(d, "volatile");
	i = tree_make(d, "", "f", S_IFREG | 0644);
	put_privileged(d, i, false);
	begin_keeping(d, i, false, false, &s);
	die(d, area, &s);
	assert_int_equal(fchmodat(d->s.fd, "upper/f", 0700, 0), 0);
	begin_keeping(d, i, false, true, &s);
	assert_int_equal(attr_setid_end(d->t, i, &s, 0), 0);
	intent_log_end(intent_log_current());
	assert_int_equal(tree_stat(d, "f").st_mode & 07777, 0700);
	tree_forget(d, i);
}

/* Of a server that was started without its standard input. A mount without an upper has no threads
 * that open files. */
static void test_attr__descriptor_0_is_closed_like_any_other(void **state)
{
	const int kept = fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 3);
	struct tree_dirs *d = *state;
	bool was_left_open;
	struct inode *i;
	char *path;
	ssize_t n;

	tree_put_dir(d, "lower/dir");
	path = tree_path(d, "lower/dir");
	assert_int_equal(setxattr(path, "user.x", "value", 5, 0), 0);
	free(path);
	tree_mount(d, "ro");
	i = tree_get(d, "dir");
	close(STDIN_FILENO);
	n = attr_getxattr(d->t, i, "user.x", NULL, 0);
	was_left_open = fcntl(STDIN_FILENO, F_GETFD) >= 0;
	if (kept >= 0) {
		dup2(kept, STDIN_FILENO);
		close(kept);
	}
	assert_int_equal(n, 5);
	assert_false(was_left_open);
	tree_forget(d, i);
}

#define row(test) cmocka_unit_test_setup_teardown(test, tree_setup, tree_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		row(test_attr__change_of_a_large_lower_file_copies_no_data),
		row(test_attr__copy_that_strangers_may_write_is_sealed),
		row(test_attr__chown_of_a_lower_file_takes_set_id_bits_and_chmod_gives_them),
		row(test_attr__of_other_types_can_be_changed),
		row(test_attr__file_that_cannot_be_copied_up_keeps_all_of_them),
		row(test_attr__set_id_bits_are_killed_as_by_the_kernel),
		row(test_attr__set_group_id_alone_is_killed),
		row(test_attr__killing_set_id_bits_that_are_not_there_copies_nothing_up),
		row(test_attr__extended_attributes_come_along_and_change),
		row(test_attr__names_of_unions_are_hidden),
		row(test_attr__removing_what_is_not_there_copies_nothing_up),
		row(test_attr__read_only_mount_refuses_changes),
		row(test_attr__of_an_unlinked_lower_file_can_be_changed),
		row(test_attr__nothing_comes_back_onto_what_another_changed),
		row(test_attr__what_was_put_back_is_not_put_back_again),
		row(test_attr__no_capability_comes_back_beside_another_change),
		row(test_attr__a_failed_write_costs_no_set_id_bits),
		row(test_attr__mode_of_a_directory_that_is_opened_for_a_moment_lasts),
		row(test_attr__attribute_that_was_there_is_there_again),
		row(test_attr__set_id_bits_come_back_onto_no_other_mode),
		row(test_attr__descriptor_0_is_closed_like_any_other),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
