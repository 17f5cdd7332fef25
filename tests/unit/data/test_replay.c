// SPDX-License-Identifier: Apache-2.0
/* Each operation on names is killed at each of its system calls, and done again by another process
 * as a request that comes again: what is in the upper and what is seen must be as if it had been
 * done once. (Calls that change nothing are left out, unless TEST_ALL is in the environment.) */
#include "support/tree.h"

#include "veneer/data/attr.h"
#include "veneer/data/copyup.h"
#include "veneer/data/cow.h"
#include "veneer/data/create.h"
#include "veneer/data/read.h"
#include "veneer/data/remove.h"
#include "veneer/data/rename.h"
#include "veneer/data/replay.h"
#include "veneer/union/lookup.h"
#include "veneer/union/upper.h"

#include <dirent.h>
#include <signal.h>
#include <stdarg.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>

#define KEY	   7
#define UNIQUE	   11
#define BIG	   50000
#define CALLS_MAX  400
#define TEXT_BYTES 65536

enum dialect { DEVICES_IN_ONE_STEP, DEVICES, FILES };

/* With the sanitizers only that with the most steps, and some of them: a fork costs ten times as
 * much. */
#ifdef __SANITIZE_ADDRESS__
#define FIRST_DIALECT FILES
#define STEP	      5
#else
#define FIRST_DIALECT DEVICES_IN_ONE_STEP
#define STEP	      1
#endif

/* Shared by the processes of one trial. */
struct shared {
	enum dialect dialect;
	char error[512];
	char seen[TEXT_BYTES]; /* by the process that did it, or did it again */
	char again[TEXT_BYTES]; /* by the next mount */
};

static struct shared *shared;
static void *area;

static void die(const char *fmt, ...) __attribute__((format(printf, 1, 2), noreturn));

static void die(const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(shared->error, sizeof(shared->error), fmt, ap);
	va_end(ap);
	_exit(1);
}

/* ---- what is there ---- */

static void say(char *text, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

static void say(char *text, const char *fmt, ...)
{
	size_t len = strlen(text);
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text + len, TEXT_BYTES - len, fmt, ap);
	va_end(ap);
}

static int by_name(const void *a, const void *b)
{
	return strcmp(((const struct lookup_entry *)a)->name,
		      ((const struct lookup_entry *)b)->name);
}

static uint64_t sum_of(struct union_fs *t, struct inode *i, off_t size)
{
	char *data = malloc((size_t)size + 1);
	uint64_t sum = 0;

	if (!data || read_file(t, i, data, (size_t)size, 0) != size)
		die("cannot read");
	for (off_t k = 0; k < size; k++)
		sum = sum * 31 + (uint8_t)data[k];
	free(data);
	return sum;
}

static void see(struct union_fs *t, struct inode *dir, const char *path, char *text)
{
	struct lookup_entry names[64];
	uint64_t pos = 0;
	size_t n = 0;

	while (n < 64 && lookup_next(t, dir, &pos, &names[n]) == 1)
		n++;
	qsort(names, n, sizeof(*names), by_name);
	for (size_t k = 0; k < n; k++) {
		char below[PATH_MAX * 8];
		struct inode *i;
		struct stat st;
		int r = lookup_name(t, dir, names[k].name, &i, &st);

		if (r < 0)
			die("%s/%s: %s", path, names[k].name, strerror(-r));
		snprintf(below, sizeof(below), "%s/%s", path, names[k].name);
		say(text, "%s %o %u:%u %lu", below, st.st_mode, st.st_uid, st.st_gid,
		    (unsigned long)st.st_nlink);
		if (S_ISREG(st.st_mode))
			say(text, " %ld %lx", (long)st.st_size,
			    (unsigned long)sum_of(t, i, st.st_size));
		say(text, "\n");
		if (S_ISDIR(st.st_mode))
			see(t, i, below, text);
		inode_unref(t, i);
	}
}

static int not_dots(const struct dirent *de)
{
	return strcmp(de->d_name, ".") && strcmp(de->d_name, "..");
}

static void list_attrs(const char *path, char *text)
{
	char list[1024], value[1024];
	ssize_t len = llistxattr(path, list, sizeof(list)), n;

	for (char *a = list; a < list + len; a += strlen(a) + 1) {
		n = lgetxattr(path, a, value, sizeof(value));
		/* The place of a file in the map depends on what was there before. */
		if (!strcmp(a, "user.veneer.partial"))
			say(text, " partial");
		else
			say(text, " %s=%.*s", a, strstr(a, "overlay") ? (int)n : 0, value);
	}
}

/* The upper as it is, with all that is hidden. */
static void list_raw(const char *top, const char *path, char *text)
{
	struct dirent **v;
	int n = scandir(top, &v, not_dots, alphasort);

	for (int k = 0; k < n; k++) {
		char full[PATH_MAX + NAME_MAX], below[PATH_MAX + NAME_MAX];
		struct stat st;

		snprintf(full, sizeof(full), "%s/%s", top, v[k]->d_name);
		snprintf(below, sizeof(below), "%s/%s", path, v[k]->d_name);
		free(v[k]);
		if (strstr(below, ".wh..wh.veneer") || lstat(full, &st) < 0)
			continue;
		say(text, "%s %o %u:%u", below, st.st_mode, st.st_uid, st.st_gid);
		if (!S_ISDIR(st.st_mode) && !S_ISCHR(st.st_mode))
			say(text, " %lu %ld", (unsigned long)st.st_nlink, (long)st.st_size);
		list_attrs(full, text);
		say(text, "\n");
		if (S_ISDIR(st.st_mode))
			list_raw(full, below, text);
	}
	free(v);
}

/* ---- operations, in words ---- */

struct op {
	char verb[16], a[256], b[256];
	unsigned mode, uid, gid;
};

static struct op parse(const char *text)
{
	struct op op = { .mode = 0644 };

	if (!strncmp(text, "mk", 2))
		sscanf(text, "%15s %255s %o %u %u", op.verb, op.a, &op.mode, &op.uid, &op.gid);
	else
		sscanf(text, "%15s %255s %255s", op.verb, op.a, op.b);
	return op;
}

static struct inode *walk(struct union_fs *t, const char *path, bool is_needed)
{
	struct inode *i = t->root;

	while (*path) {
		char name[NAME_MAX + 1];
		size_t len = strcspn(path, "/");
		struct stat st;

		memcpy(name, path, len);
		name[len] = '\0';
		if (lookup_name(t, i, name, &i, &st) < 0) {
			if (is_needed)
				die("%s is not there", path);
			return NULL;
		}
		path += len + (path[len] == '/');
	}
	return i;
}

static const char *split(struct union_fs *t, const char *path, struct inode **ret)
{
	const char *slash = strrchr(path, '/');
	char dir[256];

	snprintf(dir, sizeof(dir), "%.*s", slash ? (int)(slash - path) : 0, path);
	*ret = walk(t, dir, true);
	return slash ? slash + 1 : path;
}

static int do_make(struct union_fs *t, const struct op *op, struct inode *dir, const char *name,
		   bool again)
{
	struct create_args args = {
		.umask = 022, .uid = op->uid, .gid = op->gid, .target = "target"
	};
	struct inode *i;
	struct stat st;

	args.mode = op->mode | (!strcmp(op->verb, "mkdir")    ? S_IFDIR
				: !strcmp(op->verb, "mksym")  ? S_IFLNK
				: !strcmp(op->verb, "mkfifo") ? S_IFIFO
							      : S_IFREG);
	return (again ? create_again : create_node)(t, dir, name, &args, &i, &st);
}

static struct intent *begin_on(enum intent_kind kind, bool again)
{
	return intent_log_begin(&(struct intent_request){
		.key = KEY, .unique = UNIQUE, .kind = kind, .is_resent = again });
}

static int do_attr(struct union_fs *t, const struct op *op, struct inode *i, bool again)
{
	bool is_set = !strcmp(op->verb, "set");
	struct intent *n = begin_on(is_set ? INTENT_SETXATTR : INTENT_REMOVEXATTR, again);

	return is_set ? replay_setxattr(t, i, n, "user.x", op->b, strlen(op->b))
		      : replay_removexattr(t, i, n, "user.x");
}

/* A write by one who keeps set-id bits, by a server that cannot. */
static int do_setid(struct union_fs *t, struct inode *i, bool again)
{
	struct attr_setid setid;
	struct stat st;
	int r;

	t->can.has_trusted_xattr = false;
	attr_setid_begin(t, i, false, again, &setid);
	replay_setid(t, i, begin_on(INTENT_SETID, again), false, &setid);
	r = cow_write(t, i, "new", 3, 20000);
	/* The write of a privileged server leaves them. */
	if (r == 0 && lookup_stat(t, i, &st) == 0)
		attr_chmod(t, i, st.st_mode & 01777);
	return attr_setid_end(t, i, &setid, r);
}

static int do_acl(struct union_fs *t, const char *path)
{
	static const uint32_t acl[] = { 2,	    7u << 16 | 1,  UINT32_MAX, 7u << 16 | 4,
					UINT32_MAX, 1u << 16 | 32, UINT32_MAX };

	return attr_setxattr(t, walk(t, path, true), "system.posix_acl_default", acl, sizeof(acl),
			     0);
}

static unsigned flags_of(const struct op *op)
{
	return !strcmp(op->verb, "swap")    ? RENAME_EXCHANGE
	       : !strcmp(op->verb, "mvnew") ? RENAME_NOREPLACE
					    : 0;
}

static struct intent *begin(const struct op *op, struct inode *dir, const char *name,
			    struct inode *to, const char *to_name, bool again)
{
	return intent_log_begin(&(struct intent_request){
		.key = KEY,
		.unique = UNIQUE,
		.kind = !strncmp(op->verb, "rm", 2)	 ? INTENT_REMOVE
			: flags_of(op) & RENAME_EXCHANGE ? INTENT_EXCHANGE
							 : INTENT_RENAME,
		.is_resent = again,
		.from_parent = dir->id,
		.from_name = name,
		.to_parent = to ? to->id : 0,
		.to_name = to_name,
	});
}

/* The kernel's look-ups, and the places of the directories. */
struct ready {
	struct op op;
	struct inode *dir, *to_dir, *source;
	const char *name, *to_name;
};

static void get_ready(struct union_fs *t, const char *text, bool is_moved, struct ready *y)
{
	*y = (struct ready){ .op = parse(text) };
	y->name = split(t, y->op.a, &y->dir);
	/* A made object is unknown also if it was made before. */
	if (strncmp(y->op.verb, "mk", 2) && !is_moved)
		y->source = walk(t, y->op.a, false);
	if (!*y->op.b)
		return;
	if (!strcmp(y->op.verb, "set"))
		return;
	y->to_name = split(t, y->op.b, &y->to_dir);
	if (strcmp(y->op.verb, "ln"))
		walk(t, y->op.b, false);
}

static int perform(struct union_fs *t, struct ready *y, bool again)
{
	const char *verb = y->op.verb;
	struct intent *n;
	struct stat st;

	if (!strncmp(verb, "mk", 2))
		return do_make(t, &y->op, y->dir, y->name, again);
	if (!strcmp(verb, "acl"))
		return do_acl(t, y->op.a);
	if (!strcmp(verb, "set") || !strcmp(verb, "unset"))
		return do_attr(t, &y->op, y->source, again);
	if (!strcmp(verb, "setid"))
		return do_setid(t, y->source, again);
	if (!strcmp(verb, "chmod"))
		return attr_chmod(t, y->source, 06755);
	if (!strcmp(verb, "write"))
		return cow_write(t, y->source, "new", 3, 20000);
	if (!strcmp(verb, "ln"))
		return (again ? replay_link : create_link)(t, y->source, y->to_dir, y->to_name,
							   &st);
	n = begin(&y->op, y->dir, y->name, y->to_dir, y->to_name, again);
	if (!strcmp(verb, "rm") && !again)
		return remove_file(t, y->dir, y->name);
	if (!strcmp(verb, "rmdir") && !again)
		return remove_dir(t, y->dir, y->name);
	if (!strncmp(verb, "rm", 2))
		return replay_remove(t, y->dir, y->name, !strcmp(verb, "rmdir"));
	if (again)
		return replay_rename(
			t, n, &(struct replay_names){ y->dir, y->name, y->to_dir, y->to_name },
			flags_of(&y->op));
	return rename_entry(t, y->dir, y->name, y->to_dir, y->to_name, flags_of(&y->op));
}

/* ---- trials ---- */

static void put_layers(struct tree_dirs *d)
{
	free(tree_put_pattern(d, "lower/f", BIG, 1));
	tree_put_text(d, "lower/g", "small");
	tree_put_text(d, "lower/d/x", "x");
	tree_put_text(d, "lower/d/y", "y");
	tree_put_dir(d, "lower/e");
	tree_put_text(d, "lower/deep/down/z", "z");
	free(tree_put_pattern(d, "lower/l1", BIG, 2));
	assert_int_equal(linkat(d->s.fd, "lower/l1", d->s.fd, "lower/l2", 0), 0);
	assert_int_equal(linkat(d->s.fd, "lower/l1", d->s.fd, "lower/deep/l3", 0), 0);
	assert_int_equal(symlinkat("g", d->s.fd, "lower/s"), 0);
	tree_put_text(d, "upper/u", "upper");
	tree_put_text(d, "upper/ud/in", "in");
	tree_put_dir(d, "upper/ue");
	/* Hidden as other implementations do, with and without something beneath the whiteout. */
	tree_put_text(d, "lower/h", "hidden");
	tree_put_text(d, "upper/.wh.h", "");
	tree_put_text(d, "lower/hd/in", "hidden");
	tree_put_text(d, "upper/.wh.hd", "");
	tree_put_text(d, "upper/stale", "stale");
	tree_put_text(d, "upper/.wh.stale", "");
	tree_put_text(d, "upper/sd/in", "stale");
	tree_put_text(d, "upper/.wh.sd", "");
}

static void mount_here(struct tree_dirs *d)
{
	int r;

	setenv("FUSE_OVERLAYFS_DISABLE_OVL_WHITEOUT", "1", 1);
	if (shared->dialect != FILES)
		unsetenv("FUSE_OVERLAYFS_DISABLE_OVL_WHITEOUT");
	r = tree_try_mount(d, "volatile");
	if (r < 0)
		die("mount: %s", d->err);
	if (shared->dialect != DEVICES_IN_ONE_STEP)
		d->t->style.has_rename = false;
}

static void do_before(struct tree_dirs *d, const char *before)
{
	char *copy = strdup(before), *rest = copy, *text;

	while ((text = strsep(&rest, ";"))) {
		struct ready y;
		int r;

		if (!*text)
			continue;
		get_ready(d->t, text, false, &y);
		r = perform(d->t, &y, false);
		intent_log_end(intent_log_current());
		if (r < 0)
			die("before: %s: %s", text, strerror(-r));
	}
	free(copy);
}

static void first_process(struct tree_dirs *d, const char *before, const char *text, bool is_traced)
{
	struct ready y;
	int r;

	intent_log_use_area(area);
	mount_here(d);
	do_before(d, before);
	get_ready(d->t, text, false, &y);
	if (is_traced) {
		ptrace(PTRACE_TRACEME, 0, NULL, NULL);
		raise(SIGSTOP);
	}
	r = perform(d->t, &y, false);
	if (is_traced)
		_exit(0);
	if (r < 0)
		die("%s: %s", text, strerror(-r));
}

static void see_all(struct tree_dirs *d)
{
	see(d->t, d->t->root, "", shared->seen);
	tree_unmount(d);
	mount_here(d);
	see(d->t, d->t->root, "", shared->again);
	tree_unmount(d);
	_exit(0);
}

/* Node ids mean nothing here, as the table of the first process is gone. */
static void forget_nodes(struct intent *n, void *arg)
{
	(void)arg;
	n->from.node = n->to.node = 0;
}

static void look_at_source(struct intent *n, void *arg)
{
	struct stat st;
	int *r = arg;

	if (n->kind == INTENT_RENAME)
		r[1] = fstatat(r[0], n->from.name, &st, AT_SYMLINK_NOFOLLOW) < 0 ||
		       st.st_ino != n->from.upper_ino;
}

/* The table would have it at its new name; what is at the old one nobody has asked for. */
static bool is_moved(struct tree_dirs *d)
{
	int r[2] = { openat(d->s.fd, "upper", O_PATH), 0 };

	intent_log_each(KEY, look_at_source, r);
	close(r[0]);
	return r[1];
}

static void next_process(struct tree_dirs *d, const char *text)
{
	struct ready y;
	int r;

	intent_log_use_area(area);
	mount_here(d);
	replay_settle(d->t, KEY);
	intent_log_each(KEY, forget_nodes, NULL);
	get_ready(d->t, text, is_moved(d), &y);
	r = perform(d->t, &y, true);
	if (r < 0)
		die("again: %s: %s", text, strerror(-r));
	see_all(d);
}

/* The call leaves everything as it was: to die before it is to die before the next one. */
static bool is_pure(pid_t pid)
{
	static const uint64_t calls[] = {
		SYS_fstat,	SYS_newfstatat, SYS_statx,	SYS_read,      SYS_pread64,
		SYS_getdents64, SYS_lseek,	SYS_close,	SYS_fgetxattr, SYS_flistxattr,
		SYS_getxattr,	SYS_listxattr,	SYS_readlinkat, SYS_futex,     SYS_mmap,
		SYS_munmap,	SYS_brk,	SYS_madvise,	SYS_fcntl,     SYS_getpid,
	};
	struct __ptrace_syscall_info info;

	if (getenv("TEST_ALL") || ptrace(PTRACE_GET_SYSCALL_INFO, pid, sizeof(info), &info) <= 0)
		return false;
	for (size_t k = 0; k < sizeof(calls) / sizeof(*calls); k++)
		if (info.entry.nr == calls[k])
			return true;
	return false;
}

/* The child stops before each system call; it dies at the n-th. False: it came to its end
 * before. */
static bool kill_at(pid_t pid, unsigned n)
{
	bool is_entry = true;
	int status;

	assert_int_equal(waitpid(pid, &status, 0), pid);
	if (!WIFSTOPPED(status))
		return false;
	ptrace(PTRACE_SETOPTIONS, pid, NULL, PTRACE_O_TRACESYSGOOD);
	for (unsigned calls = 0;; is_entry = !is_entry) {
		ptrace(PTRACE_SYSCALL, pid, NULL, NULL);
		if (waitpid(pid, &status, 0) != pid || !WIFSTOPPED(status))
			return false;
		assert_int_equal(WSTOPSIG(status), SIGTRAP | 0x80);
		if (is_entry && !is_pure(pid) && calls++ == n) {
			kill(pid, SIGKILL);
			while (waitpid(pid, &status, 0) == pid && !WIFSIGNALED(status) &&
			       !WIFEXITED(status))
				;
			return true;
		}
	}
}

static void join(pid_t pid, const char *text, unsigned n)
{
	int status;

	assert_int_equal(waitpid(pid, &status, 0), pid);
	if (!WIFEXITED(status) || WEXITSTATUS(status))
		fail_msg("%s, killed at %u: status %x, %s", text, n, status, shared->error);
}

static struct tree_dirs *fresh_layers(void)
{
	void *state;

	assert_int_equal(tree_setup(&state), 0);
	put_layers(state);
	memset(area, 0, intent_log_area_bytes());
	*shared->seen = *shared->again = *shared->error = '\0';
	return state;
}

static void drop_layers(struct tree_dirs *d)
{
	void *state = d;

	tree_teardown(&state);
}

static char *raw_of(struct tree_dirs *d)
{
	char *path = NULL, *text = calloc(1, TEXT_BYTES);

	assert_true(text && asprintf(&path, "%s/upper", d->s.path) > 0);
	list_raw(path, "", text);
	free(path);
	return text;
}

static bool try_at(const char *before, const char *text, unsigned n, const char *seen,
		   const char *raw)
{
	struct tree_dirs *d = fresh_layers();
	char *got;
	pid_t pid = fork();
	bool is_killed;

	if (pid == 0)
		first_process(d, before, text, true);
	is_killed = kill_at(pid, n);
	if (*shared->error)
		fail_msg("%s: %s", text, shared->error);
	if (is_killed) {
		pid = fork();
		if (pid == 0)
			next_process(d, text);
		join(pid, text, n);
		got = raw_of(d);
		if (strcmp(shared->seen, seen) || strcmp(shared->again, seen) || strcmp(got, raw))
			fail_msg("%s (%d), killed at %u:\nwant\n%s\nseen\n%s\nnext mount\n%s\nwant "
				 "in the "
				 "upper\n%s\nthere\n%s",
				 text, shared->dialect, n, seen, shared->seen, shared->again, raw,
				 got);
		free(got);
	}
	drop_layers(d);
	return is_killed;
}

/* In each dialect: once as a whole, and then killed at each call. */
static void expect_redone(const char *before, const char *text)
{
	for (shared->dialect = FIRST_DIALECT; shared->dialect <= FILES; shared->dialect++) {
		struct tree_dirs *d = fresh_layers();
		char *seen, *raw;
		unsigned n = 0;
		pid_t pid = fork();

		if (pid == 0) {
			first_process(d, before, text, false);
			see_all(d);
		}
		join(pid, text, 0);
		seen = strdup(shared->seen);
		assert_string_equal(shared->again, seen);
		raw = raw_of(d);
		drop_layers(d);
		while (try_at(before, text, n, seen, raw))
			assert_true((n += STEP) < CALLS_MAX);
		if (getenv("TEST_VERBOSE"))
			print_message("# %s; %s (%d): %u calls\n", before, text, shared->dialect,
				      n);
		assert_true(n >= 1);
		free(seen);
		free(raw);
	}
}

static void expect_all(const char *const (*v)[2], size_t n)
{
	for (size_t k = 0; k < n; k++)
		expect_redone(v[k][0], v[k][1]);
}

#define EXPECT_ALL(v) expect_all(v, sizeof(v) / sizeof(*(v)))

static void test_replay__creations(void **state)
{
	static const char *const ops[][2] = {
		{ "", "mkreg new 6755 12 34" },
		{ "", "mkreg d/new 644 12 34" },
		{ "", "mkdir new 2755 12 34" },
		{ "rm f", "mkreg f 4711 12 34" },
		{ "rm d/x;rm d/y;rmdir d", "mkdir d 755 12 34" },
		{ "rm g", "mksym g 777 12 34" },
		{ "rmdir e", "mkfifo e 640 12 34" },
		{ "", "mkreg h 644 12 34" },
		{ "", "mkdir hd 755 12 34" },
		{ "", "mkdir sd 755 12 34" },
		{ "", "mkreg sd 644 12 34" },
		{ "", "mkdir stale 755 12 34" },
		{ "acl d;rm d/x", "mkreg d/x 644 12 34" },
		{ "acl d;rm d/x", "mkdir d/x 755 12 34" },
	};

	(void)state;
	EXPECT_ALL(ops);
}

static void test_replay__links(void **state)
{
	static const char *const ops[][2] = {
		{ "", "ln f new" },
		{ "", "ln u d/new" },
		{ "rm g", "ln f g" },
		{ "rm g", "ln u g" },
		{ "", "ln l1 deep/down/new" },
		{ "", "ln u h" },
		{ "", "ln u stale" },
		{ "", "ln s new" },
	};

	(void)state;
	EXPECT_ALL(ops);
}

static void test_replay__removals(void **state)
{
	static const char *const ops[][2] = {
		{ "", "rm f" },
		{ "", "rm u" },
		{ "write f", "rm f" },
		{ "", "rm d/x" },
		{ "", "rm l1" },
		{ "", "rmdir e" },
		{ "", "rmdir ue" },
		{ "rm d/x;rm d/y", "rmdir d" },
		{ "mkdir new 755;mv d/x new/x;rm new/x", "rmdir new" },
	};

	(void)state;
	EXPECT_ALL(ops);
}

static void test_replay__renames_of_files(void **state)
{
	static const char *const ops[][2] = {
		{ "", "mv f new" },	 { "", "mv u new" },   { "", "mvnew f d/new" },
		{ "write f", "mv f g" }, { "", "mv u g" },     { "rm g", "mvnew f g" },
		{ "", "mv l1 new" },	 { "", "mv s l2" },    { "", "mv f h" },
		{ "", "mvnew u h" },	 { "", "mv f stale" }, { "", "mvnew u stale" },
		{ "", "mv u sd" },
	};

	(void)state;
	EXPECT_ALL(ops);
}

static void test_replay__renames_of_directories(void **state)
{
	static const char *const ops[][2] = {
		{ "", "mv d new" },	    { "", "mv ud new" },
		{ "", "mv ud e" },	    { "", "mv d e" },
		{ "", "mv d deep/new" },    { "rm d/x;rm d/y", "mv ud d" },
		{ "rmdir e", "mvnew d e" }, { "rmdir e", "mvnew ud e" },
		{ "", "mvnew d hd" },	    { "", "mvnew ud hd" },
		{ "", "mvnew ud sd" },	    { "", "mvnew d stale" },
		{ "mv d new", "mv new e" },
	};

	(void)state;
	EXPECT_ALL(ops);
}

static void test_replay__exchanges(void **state)
{
	static const char *const ops[][2] = {
		{ "", "swap f g" },  { "", "swap u f" }, { "", "swap d deep" },
		{ "", "swap ud d" }, { "", "swap f d" },
	};

	(void)state;
	EXPECT_ALL(ops);
}

static void test_replay__attributes(void **state)
{
	static const char *const ops[][2] = {
		{ "", "set f value" },	      { "", "set u value" },
		{ "set f value", "unset f" }, { "set u value", "unset u" },
		{ "chmod f", "setid f" },
	};

	(void)state;
	EXPECT_ALL(ops);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_replay__creations),
		cmocka_unit_test(test_replay__links),
		cmocka_unit_test(test_replay__removals),
		cmocka_unit_test(test_replay__renames_of_files),
		cmocka_unit_test(test_replay__renames_of_directories),
		cmocka_unit_test(test_replay__exchanges),
		cmocka_unit_test(test_replay__attributes),
	};

	/* Thousands of small trees: in memory, if that can hold them. */
	if (!getenv("TMPDIR") && access("/dev/shm", W_OK) == 0)
		setenv("TMPDIR", "/dev/shm", 1);
	shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1,
		      0);
	area = mmap(NULL, intent_log_area_bytes(), PROT_READ | PROT_WRITE,
		    MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (shared == MAP_FAILED || area == MAP_FAILED)
		return 1;
	return cmocka_run_group_tests(tests, NULL, NULL);
}
