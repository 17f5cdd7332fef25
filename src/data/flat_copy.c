// SPDX-License-Identifier: Apache-2.0
#include "veneer/data/flat_copy.h"

#include "veneer/base/buf.h"
#include "veneer/base/cleanup.h"
#include "veneer/base/minmax.h"
#include "veneer/data/read.h"
#include "veneer/layer/source_flat.h"
#include "veneer/sys/file.h"
#include "veneer/sys/path.h"

#include <fcntl.h>
#include <string.h>
#include <unistd.h>

/* Extra cost of a request over a read by the kernel, as bytes of copying. A request costs some 20
 * us, in which 32 KiB are copied; its bytes cost a quarter of their copying. */
#define REQUEST_BYTES (32u << 10)
#define BYTES_PART    4
#define STEP_BYTES    (512u << 10)

bool flat_copy_note_read(struct source *s, size_t len, off_t size)
{
	const uint64_t cost = REQUEST_BYTES + len / BYTES_PART, price = (uint64_t)size;
	const uint64_t before =
		atomic_fetch_add_explicit(&s->flat_reads, cost, memory_order_relaxed);

	return before < price && before + cost >= price;
}

/* Length in bytes of the run of blocks at p that are zeros, or are not, like the first. */
static size_t alike(const char *p, size_t len, bool *ret_is_zero)
{
	size_t n = MIN(len, BLK_BYTES);

	*ret_is_zero = buf_is_zero(p, n);
	while (n < len && buf_is_zero(p + n, MIN(len - n, BLK_BYTES)) == *ret_is_zero)
		n += MIN(len - n, BLK_BYTES);
	return n;
}

/* Blocks of zeros stay holes. */
static int put(int fd, const char *p, size_t len, off_t off)
{
	int r = 0;

	for (size_t done = 0, n; done < len && r == 0; done += n) {
		bool is_zero;

		n = alike(p + done, len - done, &is_zero);
		if (!is_zero)
			r = file_pwrite(fd, p + done, n, off + (off_t)done);
	}
	return r;
}

static int copy(struct source *s, off_t size, int fd, const struct flat_copy_pace *pace)
{
	_cleanup_(freep) char *step = malloc(STEP_BYTES);
	int r = step ? 0 : -ENOMEM;

	if (r == 0 && ftruncate(fd, size) < 0)
		r = -errno;
	for (off_t off = 0; r == 0 && off < size; off += STEP_BYTES) {
		const size_t n = (size_t)MIN(size - off, (off_t)STEP_BYTES);

		r = read_source(s, step, n, (uint64_t)off);
		r = r ?: put(fd, step, n, off);
		r = r ?: pace->go_on(pace->arg, n);
	}
	return r;
}

/* A copy keeps the mount of its directory busy as long as any mount uses it. So it must be in the
 * layer's own mount, which the layer keeps busy anyway. */
static int make_file(const struct source *s, int dirfd, int *ret_reading)
{
	_cleanup_(closep) int fd = -1;
	uint64_t mount;
	ino_t ino;
	int r = layer_inner_mount(s->layer, dirfd, &mount, &ino);

	if (r < 0 || mount)
		return r < 0 ? r : -EXDEV;
	fd = openat(dirfd, ".", O_TMPFILE | O_RDWR | O_CLOEXEC | O_EXCL, 0400);
	if (fd < 0)
		return -errno;
	*ret_reading = path_reopen(fd, O_RDONLY | O_NOATIME);
	if (*ret_reading == -EPERM)
		*ret_reading = path_reopen(fd, O_RDONLY);
	return *ret_reading < 0 ? *ret_reading : steal_fd(&fd);
}

/* A descriptor for reading the copy, or -errno. */
static int fill(struct source *s, off_t size, int dirfd, const struct flat_copy_pace *pace,
		const struct source_flat *f)
{
	_cleanup_(closep) int reading = -1, fd = -1;
	int r;

	/* The known size is older than the chain. */
	if (source_flat_size(f) != size)
		return -EAGAIN;
	fd = make_file(s, dirfd, &reading);
	r = fd < 0 ? fd : copy(s, size, fd, pace);
	if (r == 0 && source_flat_check(s, f) < 0)
		r = -EAGAIN;
	return r < 0 ? r : steal_fd(&reading);
}

int flat_copy_make(struct source *s, off_t size, int dirfd, const struct flat_copy_pace *pace)
{
	struct source_flat *f;
	int fd, r;

	if (source_flat_fd(s) >= 0)
		return 0;
	if (source_flat_is_there(s))
		return -ESTALE;
	r = source_flat_new(s, &f);
	if (r < 0)
		return r;
	fd = fill(s, size, dirfd, pace, f);
	if (fd < 0)
		source_flat_free(f);
	else
		source_flat_publish(s, f, fd);
	return fd < 0 ? fd : 1;
}
