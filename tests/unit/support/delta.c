// SPDX-License-Identifier: Apache-2.0
#include "support/delta.h"

#include "veneer/sys/probe.h"
#include "veneer/sys/rmtree.h"

#include <sys/mman.h>

void delta_make(struct tree_dirs *d, const struct delta_head *head, struct delta_text *ret)
{
	char *upper = tree_path(d, "upper"), *lower = tree_path(d, "lower");
	int fd = memfd_create("delta", MFD_CLOEXEC);
	struct delta_progress done;
	struct stat st;
	struct diff diff;

	assert_int_equal(diff_read(upper, &lower, 1, false, NULL, &diff), 0);
	assert_int_equal(delta_send(&diff, head, false, fd, &(struct delta_hooks){ 0 }, &done), 0);
	diff_release(&diff);
	assert_int_equal(fstat(fd, &st), 0);
	ret->len = (size_t)st.st_size;
	ret->bytes = malloc(ret->len);
	assert_non_null(ret->bytes);
	assert_int_equal(pread(fd, ret->bytes, ret->len, 0), ret->len);
	close(fd);
	free(upper);
	free(lower);
}

void delta_release(struct delta_text *t)
{
	free(t->bytes);
}

static int open_dir(struct tree_dirs *d, const char *name)
{
	int fd;

	tree_put_dir(d, name);
	fd = openat(d->s.fd, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	assert_true(fd >= 0);
	return fd;
}

void delta_place_open(struct delta_place *p, struct tree_dirs *d, bool goes_on)
{
	char *lower = tree_path(d, "lower");
	struct probe_dir can;

	*p = (struct delta_place){ .d = d, .goes_on = goes_on };
	if (!goes_on) {
		rmtree(d->s.fd, "made");
		rmtree(d->s.fd, "madework");
	}
	p->layer.rootfd = open_dir(d, "made");
	p->layer.work_fd = open_dir(d, "madework");
	assert_int_equal(layer_open(lower, &p->lower), 0);
	assert_int_equal(image_new(&p->lower, 1, &p->below), 0);
	free(lower);
	assert_int_equal(probe_work_dir(p->layer.work_fd, &can), 0);
	p->layer.below = p->below;
	p->layer.style = (struct whiteout_style){ .has_device = can.has_whiteout,
						  .has_rename = can.has_rename_whiteout,
						  .has_trusted = can.has_trusted_xattr,
						  .has_user_attr = can.has_user_xattr };
	assert_int_equal(delta_layer_open(&p->layer), 0);
}

void delta_place_close(struct delta_place *p)
{
	delta_layer_close(&p->layer);
	close(p->layer.rootfd);
	close(p->layer.work_fd);
	image_unref(p->below);
	layer_unref(p->lower);
}

static int begin(void *arg, const struct delta_head *head, struct delta_layer **ret)
{
	struct delta_place *p = arg;

	(void)head;
	*ret = &p->layer;
	return 0;
}

int delta_take(struct tree_dirs *d, const void *bytes, size_t len, bool goes_on,
	       struct delta_received *ret)
{
	struct delta_place p;
	const struct delta_target to = { begin, &p };
	int fd = memfd_create("delta", MFD_CLOEXEC), r;

	assert_int_equal(pwrite(fd, bytes, len, 0), len);
	delta_place_open(&p, d, goes_on);
	r = delta_receive(fd, &to, &(struct delta_hooks){ 0 }, ret);
	if (r == 0 || r == -EPIPE)
		assert_int_equal(delta_layer_sync(&p.layer), 0);
	delta_place_close(&p);
	close(fd);
	return r;
}

void delta_mount(struct tree_dirs *d)
{
	tree_layers(d, "made:lower");
	assert_int_equal(renameat(d->s.fd, "upper", d->s.fd, "sent"), 0);
	tree_put_dir(d, "upper");
	tree_mount(d, "volatile");
}
