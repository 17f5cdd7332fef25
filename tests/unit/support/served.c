// SPDX-License-Identifier: Apache-2.0
#include "support/served.h"

#include "server/wire.h"
#include "veneer/layer/layer_registry.h"

#include <sys/socket.h>

static void note_change(void *arg)
{
	struct served *s = arg;

	pthread_mutex_lock(&s->lock);
	s->n_changed++;
	pthread_cond_broadcast(&s->changed);
	pthread_mutex_unlock(&s->lock);
}

static int setup(void **state, bool is_saved)
{
	struct served *s = calloc(1, sizeof(*s));

	if (!s || tree_setup((void **)&s->d) < 0)
		return -1;
	/* As a server does: an image that nobody uses has no descriptors. */
	layer_registry_keep(60, 1 << 20);
	pthread_mutex_init(&s->lock, NULL);
	pthread_cond_init(&s->changed, NULL);
	if (is_saved && supervisor_state_new(4096, &s->supervisor_state) < 0)
		return -1;
	if (mount_table_new(note_change, s, s->supervisor_state, &s->table) < 0)
		return -1;
	*state = s;
	return 0;
}

int served_setup(void **state)
{
	return setup(state, false);
}

int served_setup_saved(void **state)
{
	return setup(state, true);
}

int served_teardown(void **state)
{
	struct served *s = *state;

	/* Of a test that failed. */
	mount_table_end_all(s->table);
	mount_table_free(s->table);
	layer_registry_stop();
	pthread_cond_destroy(&s->changed);
	pthread_mutex_destroy(&s->lock);
	tree_teardown((void **)&s->d);
	free(s);
	return 0;
}

void served_request(struct served *s, const char *dir, const char *extra, struct mount_record *d,
		    struct mount_dirs *dirs)
{
	char name[64], *options, self[] = "veneer", flag[] = "-o", point[] = "/nowhere";
	const char *slash = *dir ? "/" : "", *root = s->d->s.path;
	struct mount_opts opts;
	char err[256];

	snprintf(name, sizeof(name), "%s%supper", dir, slash);
	tree_put_dir(s->d, name);
	snprintf(name, sizeof(name), "%s%swork", dir, slash);
	tree_put_dir(s->d, name);
	assert_true(asprintf(&options,
			     "lowerdir=%s/lower,upperdir=%s/%s%supper,workdir=%s/%s%swork%s%s",
			     root, root, dir, slash, root, dir, slash, extra ? "," : "",
			     extra ? extra : "") > 0);
	char *argv[] = { self, flag, options, point, NULL };

	mount_record_init(d);
	assert_int_equal(wire_put_arg(&d->args, "/"), 0);
	for (d->argc = 0; argv[d->argc]; d->argc++)
		assert_int_equal(wire_put_arg(&d->args, argv[d->argc]), 0);
	d->flags = WIRE_MOUNT_IS_ROOT;
	if (options_parse(&(struct options_argv){ 4, argv, "/", true, false }, &opts, err,
			  sizeof(err)) < 0 ||
	    mount_dirs_open(&opts, dirs, err, sizeof(err)) < 0)
		fail_msg("%s", err);
	options_release(&opts);
	free(options);
}

int served_open(struct served *s, const char *dir, const char *extra, struct served_mount **ret,
		char *err)
{
	struct mount_record d;
	struct mount_dirs dirs;
	int r;

	served_request(s, dir, extra, &d, &dirs);
	*err = '\0';
	r = mount_table_open(s->table, &dirs, &d, ret, err, 256);
	if (r < 0) {
		mount_dirs_release(&dirs);
		mount_record_release(&d);
	}
	return r;
}

struct served_mount *served_start(struct served *s, const char *dir, const char *extra,
				  unsigned dev_minor, struct fuse_kernel *k)
{
	const struct served_place at = { .dev_minor = dev_minor };
	struct served_mount *m;
	char err[256];

	if (served_open(s, dir, extra, &m, err) < 0)
		fail_msg("%s", err);
	fuse_kernel_open(k, 0);
	if (mount_table_start(s->table, m, k->fuse_fd, &at, err, sizeof(err)) < 0)
		fail_msg("%s", err);
	/* Of the kernel alone: a mount has no more descriptors than the server's. */
	close(k->fuse_fd);
	k->fuse_fd = -1;
	fuse_kernel_take_init(k);
	return m;
}

void served_await_fewer(struct served *s, size_t n)
{
	/* The table calls under its own lock: it is asked outside of ours. */
	while (mount_table_count(s->table) >= n) {
		unsigned before;

		pthread_mutex_lock(&s->lock);
		before = s->n_changed;
		pthread_mutex_unlock(&s->lock);
		if (mount_table_count(s->table) < n)
			return;
		pthread_mutex_lock(&s->lock);
		while (s->n_changed == before)
			pthread_cond_wait(&s->changed, &s->lock);
		pthread_mutex_unlock(&s->lock);
	}
}

void served_unmount(struct served *s, struct fuse_kernel *k, size_t n)
{
	shutdown(k->fd, SHUT_RDWR);
	served_await_fewer(s, n);
	fuse_kernel_close(k);
}
