// SPDX-License-Identifier: Apache-2.0
/* An input is the memory file that a dead server left of one mount. */
#include "support.h"

#include "veneer/base/cleanup.h"
#include "veneer/server/mount_record.h"
#include "veneer/sys/file.h"

#include <errno.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct seen {
	size_t n;
};

static void see(int fd, void *arg)
{
	struct seen *s = arg;

	(void)fd;
	s->n++;
}

/* Drop the descriptors, which are numbers that this process has not open. */
static void disown(struct mount_record *d)
{
	d->dirs.upper = d->dirs.work = d->dirs.lock = d->fuse_fd = -1;
	d->slots_fd = d->names_fd = d->locks_fd = d->estale_table_fd = -1;
	d->dirs.n_lower = d->dirs.n_clones = 0;
}

static void check_written(struct mount_record *d, const uint8_t *data, size_t size)
{
	_cleanup_(freep) uint8_t *again = malloc(size + 1);

	if (!again || mount_record_write(d) < 0)
		return;
	fuzz_require(file_pread(d->fd, again, size + 1, 0) == (ssize_t)size &&
		     !memcmp(again, data, size));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	_cleanup_(closep) int fd = fuzz_memfd(data, size);
	struct seen s = { 0 };
	struct mount_opts o;
	struct mount_record d;
	char err[256];
	int r;

	if (fd < 0)
		return 0;
	r = mount_record_read(fd, &d);
	if (r < 0) {
		fuzz_require(r == -EPROTO || r == -EBADMSG || r == -ENOMEM);
		return 0;
	}
	fuzz_require(d.fd == fd);
	fd = -1; /* the record's, which closes it */
	mount_record_each_fd(&d, see, &s);
	fuzz_require(s.n >= d.dirs.n_lower + d.dirs.n_clones);
	if (mount_record_options(&d, &d.dirs, &o, err, sizeof(err)) == 0) {
		fuzz_require(o.n_lower == d.dirs.n_lower && !o.wants_help);
		options_release(&o);
	} else {
		fuzz_require(err[0] && memchr(err, 0, sizeof(err)));
	}
	check_written(&d, data, size);
	disown(&d);
	mount_record_release(&d);
	return 0;
}
