// SPDX-License-Identifier: Apache-2.0
#include "support/sharing.h"

#include "veneer/layer/layer_registry.h"

static void note_unused(void *owner)
{
	/* Its owner is its directories, which know of the rest by their name. */
	++*(unsigned *)owner;
}

int sharing_setup(void **state)
{
	struct sharing *s = calloc(1, sizeof(*s));

	if (!s || tree_setup((void **)&s->common) < 0)
		return -1;
	tree_put_text(s->common, "lower/file", "text");
	tree_put_text(s->common, "lower/other", "other");
	tree_put_text(s->common, "lower/dir/inside", "inside");
	for (unsigned i = 0; i < SHARING_MEMBERS; i++) {
		char path[PATH_MAX + 16];

		if (tree_setup((void **)&s->d[i]) < 0)
			return -1;
		snprintf(path, sizeof(path), "%s/lower", s->common->s.path);
		if (unlinkat(s->d[i]->s.fd, "lower", AT_REMOVEDIR) < 0 ||
		    symlinkat(path, s->d[i]->s.fd, "lower") < 0)
			return -1;
	}
	layer_registry_keep(60, 1 << 20);
	*state = s;
	return 0;
}

void sharing_join(struct sharing *s, unsigned i, const uint32_t *secret)
{
	assert_int_equal(sb_member_join(s->g, &s->d[i]->m, &s->n_unused, secret, &s->c[i]), 0);
}

void sharing_leave(struct sharing *s, unsigned i)
{
	sb_member_leave(s->c[i]);
	s->c[i] = NULL;
}

static void mount_common(struct tree_dirs *d, const char *options)
{
	char all[PATH_MAX + 256], point[] = "/nowhere", self[] = "veneer", flag[] = "-o";
	char *argv[] = { self, flag, all, point, NULL };
	struct mount_opts opts;

	snprintf(all, sizeof(all), "lowerdir=%s/lower,%s", d->s.path, options);
	if (options_parse(&(struct options_argv){ 4, argv, "/", true, false }, &opts, d->err,
			  sizeof(d->err)) < 0 ||
	    mount_open(&d->m, &opts, d->err, sizeof(d->err)) < 0)
		fail_msg("%s", d->err);
	d->t = &d->m.tree;
	assert_null(d->t->upper);
}

void sharing_start(struct sharing *s, const char *options)
{
	char err[256];

	mount_common(s->common, options);
	assert_int_equal(shared_sb_new(&s->common->m, -1, note_unused, &s->g), 0);
	fuse_kernel_open(&s->k, ~(uint64_t)0);
	if (shared_sb_start(s->g, s->k.fuse_fd, &s->k.session, err, sizeof(err)) < 0)
		fail_msg("%s", err);
	fuse_kernel_take_init(&s->k);
	for (unsigned i = 0; i < SHARING_MEMBERS; i++) {
		tree_mount(s->d[i], options);
		sharing_join(s, i, NULL);
	}
}

int sharing_teardown(void **state)
{
	struct sharing *s = *state;

	if (s->g) {
		for (unsigned i = 0; i < SHARING_MEMBERS; i++)
			if (s->c[i])
				sharing_leave(s, i);
		sb_reply_release_dirs(s->g);
		fuse_kernel_close(&s->k);
		shared_sb_free(s->g);
	}
	for (unsigned i = 0; i < SHARING_MEMBERS; i++)
		tree_teardown((void **)&s->d[i]);
	tree_teardown((void **)&s->common);
	layer_registry_stop();
	free(s);
	return 0;
}

uint64_t sharing_node(const struct sharing *s, unsigned i, uint64_t own)
{
	return shared_sb_base(s->c[i]) | own;
}

uint64_t sharing_root(struct sharing *s, unsigned i)
{
	struct fuse_entry_out e = { .nodeid = 0 };
	char name[16];

	snprintf(name, sizeof(name), "%u", sb_member_number(s->c[i]));
	assert_int_equal(
		fuse_kernel_ask_name(&s->k, FUSE_LOOKUP, FUSE_ROOT_ID, name, &e, sizeof(e)),
		sizeof(e));
	assert_int_equal(e.nodeid, sharing_node(s, i, FUSE_ROOT_ID));
	return e.nodeid;
}

uint64_t sharing_look(struct sharing *s, unsigned i, const char *path)
{
	char whole[PATH_MAX];

	snprintf(whole, sizeof(whole), "%u/%s", sb_member_number(s->c[i]), path);
	return fuse_kernel_node(&s->k, whole);
}
