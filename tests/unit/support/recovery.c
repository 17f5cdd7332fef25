// SPDX-License-Identifier: Apache-2.0
#include "support/recovery.h"

#include "veneer/base/log.h"
#include "veneer/union/lookup.h"

#include <dirent.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#define FDS_MAX 4096

static bool is_child;

int recovery_setup(void **state)
{
	struct recovery *h = calloc(1, sizeof(*h));
	void *d;

	if (!h || tree_setup(&d) < 0)
		return -1;
	h->d = d;
	h->slots_fd = h->names_fd = -1;
	mount_dirs_init(&h->dirs);
	h->will = mmap(NULL, sizeof(*h->will), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
		       -1, 0);
	*state = h;
	return h->will == MAP_FAILED ? -1 : 0;
}

int recovery_teardown(void **state)
{
	struct recovery *h = *state;
	void *d = h->d;

	if (is_child) {
		fflush(NULL);
		_exit(1);
	}
	if (h->slots_fd >= 0)
		close(h->slots_fd);
	if (h->names_fd >= 0)
		close(h->names_fd);
	mount_dirs_release(&h->dirs);
	munmap(h->will, sizeof(*h->will));
	tree_teardown(&d);
	free(h);
	return 0;
}

static void parse(struct recovery *h, struct mount_opts *opts)
{
	char all[4096], point[] = "/nowhere", self[] = "veneer", flag[] = "-o";
	char *argv[] = { self, flag, all, point, NULL };
	int n = snprintf(all, sizeof(all), "upperdir=%s/upper,workdir=%s/work", h->d->s.path,
			 h->d->s.path);
	char *copy = strdup(h->d->names), *rest = copy, *name;
	const char *sep = ",lowerdir=";

	while ((name = strsep(&rest, ":"))) {
		n += snprintf(all + n, sizeof(all) - (size_t)n, "%s%s/%s", sep, h->d->s.path, name);
		sep = ":";
	}
	free(copy);
	if (*h->options)
		snprintf(all + n, sizeof(all) - (size_t)n, ",%s", h->options);
	if (options_parse(&(struct options_argv){ 4, argv, "/", true, false }, opts, h->d->err,
			  sizeof(h->d->err)) < 0)
		fail_msg("options: %s", h->d->err);
	/* No threads: this process makes children that are no forks. */
	opts->is_offline = true;
}

static void copy_dirs(const struct mount_dirs *from, struct mount_dirs *to)
{
	mount_dirs_init(to);
	for (size_t k = 0; k < from->n_lower; k++)
		assert_int_equal(
			mount_dirs_add_lower(to, fcntl(from->lower[k], F_DUPFD_CLOEXEC, 0)), 0);
	to->upper = fcntl(from->upper, F_DUPFD_CLOEXEC, 0);
	to->work = fcntl(from->work, F_DUPFD_CLOEXEC, 0);
}

static void each_fd(void (*fn)(int fd, void *arg), void *arg)
{
	DIR *dir = opendir("/proc/self/fd");
	int fds[FDS_MAX];
	struct dirent *de;
	size_t n = 0;

	assert_non_null(dir);
	while ((de = readdir(dir)))
		if (*de->d_name != '.' && atoi(de->d_name) != dirfd(dir) && n < FDS_MAX)
			fds[n++] = atoi(de->d_name);
	closedir(dir);
	while (n)
		fn(fds[--n], arg);
}

static void mark(int fd, void *arg)
{
	bool *keep = arg;

	if (fd < FDS_MAX)
		keep[fd] = true;
}

static void close_unkept(int fd, void *arg)
{
	const bool *keep = arg;

	if (fd < FDS_MAX && !keep[fd])
		close(fd);
}

int recovery_take(struct recovery *h, int slots, int names)
{
	struct mount_saved_tables saved = MOUNT_SAVED_TABLES_NONE;
	struct mount_opts opts;
	struct mount_dirs dirs;
	int r;

	saved.slots_fd = slots;
	saved.names_fd = names;
	parse(h, &opts);
	copy_dirs(&h->dirs, &dirs);
	r = mount_reopen_at(&h->d->m, &opts, &dirs, &saved, h->d->err, sizeof(h->d->err));
	closep(&saved.slots_fd);
	closep(&saved.names_fd);
	if (r < 0)
		mount_close(&h->d->m);
	else
		h->d->t = &h->d->m.tree;
	return r;
}

void recovery_inherit(struct recovery *h)
{
	int slots = h->slots_fd, names = h->names_fd;

	h->slots_fd = h->names_fd = -1;
	if (recovery_take(h, slots, names) < 0)
		fail_msg("mount again: %s", h->d->err);
}

static void serve(struct recovery *h, void (*live)(struct tree_dirs *d, struct will *w))
{
	struct mount_opts opts;
	struct mount_dirs dirs;

	is_child = true;
	if (h->slots_fd >= 0) {
		recovery_inherit(h);
	} else {
		parse(h, &opts);
		copy_dirs(&h->dirs, &dirs);
		if (mount_open_at(&h->d->m, &opts, &dirs, h->d->err, sizeof(h->d->err)) < 0)
			fail_msg("mount: %s", h->d->err);
		h->d->t = &h->d->m.tree;
	}
	node_table_fds(h->d->t->nodes, &h->will->slots_fd, &h->will->names_fd);
	live(h->d, h->will);
	kill(getpid(), SIGKILL);
	_exit(1);
}

static void die(struct recovery *h, bool *keep, void (*live)(struct tree_dirs *d, struct will *w))
{
	int status;
	pid_t pid;

	fflush(stdout);
	fflush(stderr);
	pid = (pid_t)syscall(SYS_clone, CLONE_FILES | SIGCHLD, NULL, NULL, NULL, NULL);
	assert_true(pid >= 0);
	if (pid == 0)
		serve(h, live);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	if (!WIFSIGNALED(status) || WTERMSIG(status) != SIGKILL)
		fail_msg("the first server failed before it was killed");
	/* All that it had open is still open here. */
	h->slots_fd = h->will->slots_fd;
	h->names_fd = h->will->names_fd;
	keep[h->slots_fd] = keep[h->names_fd] = true;
	node_table_held_fds(h->slots_fd, mark, keep);
	each_fd(close_unkept, keep);
}

void recovery_die(struct recovery *h, const char *options,
		  void (*live)(struct tree_dirs *d, struct will *w))
{
	bool keep[FDS_MAX] = { false };
	struct mount_opts opts;

	snprintf(h->options, sizeof(h->options), "%s", options);
	parse(h, &opts);
	assert_int_equal(mount_dirs_open(&opts, &h->dirs, h->d->err, sizeof(h->d->err)), 0);
	options_release(&opts);
	each_fd(mark, keep);
	die(h, keep, live);
}

void recovery_die_again(struct recovery *h, void (*live)(struct tree_dirs *d, struct will *w))
{
	bool keep[FDS_MAX] = { false };

	each_fd(mark, keep);
	die(h, keep, live);
}

static int copy_file(int from)
{
	int fd = memfd_create("copy", MFD_CLOEXEC);
	struct stat st;
	void *bytes;

	assert_true(fd >= 0 && fstat(from, &st) == 0);
	bytes = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_SHARED, from, 0);
	assert_true(bytes != MAP_FAILED);
	assert_int_equal(pwrite(fd, bytes, (size_t)st.st_size, 0), st.st_size);
	munmap(bytes, (size_t)st.st_size);
	return fd;
}

void recovery_copy(struct recovery *h, int *ret_slots, int *ret_names)
{
	*ret_slots = copy_file(h->slots_fd);
	*ret_names = copy_file(h->names_fd);
}

void recovery_grant(struct tree_dirs *d, struct will *w, unsigned n, struct inode *i)
{
	w->ino[n] = i->ino;
	inode_grant(d->t, i, &w->id[n], &w->generation[n]);
}

struct inode *recovery_get(struct recovery *h, unsigned n)
{
	struct inode *i = inode_get(h->d->t, h->will->id[n]);

	assert_non_null(i);
	assert_int_equal(lookup_restore(h->d->t, i), 0);
	assert_int_equal(i->ino, h->will->ino[n]);
	assert_int_equal(i->generation, h->will->generation[n]);
	return i;
}
