// SPDX-License-Identifier: Apache-2.0
/* An input is a whole stream of a delta, of which a layer is made beside a directory that must not
 * change, over one that must not change. All sums are taken as 0, so that an input needs no other:
 * they are what a forger makes right. A layer that is made is read, whatever it says. */
#include "support.h"

#include "tools/delta_record.h"

#include "veneer/base/cleanup.h"
#include "veneer/base/hash.h"
#include "veneer/base/minmax.h"
#include "veneer/data/read.h"
#include "veneer/layer/fd_cache.h"
#include "veneer/sys/rmtree.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define BASE_BYTES 40960

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
uint64_t __wrap_delta_record_next_sum(uint64_t sum, uint64_t header, uint64_t data, uint64_t base);
uint64_t __real_hash_stream_take(struct hash_stream *s);
uint64_t __wrap_hash_stream_take(struct hash_stream *s);

uint64_t __wrap_delta_record_next_sum(uint64_t sum, uint64_t header, uint64_t data, uint64_t base)
{
	(void)(sum + header + data + base);
	return 0;
}

uint64_t __wrap_hash_stream_take(struct hash_stream *s)
{
	__real_hash_stream_take(s);
	return 0;
}

/* ---- what is there ---- */

static void put(int dirfd, const char *name, int byte)
{
	static char bytes[BASE_BYTES];
	_cleanup_(closep) int fd = openat(dirfd, name, O_WRONLY | O_CREAT | O_CLOEXEC, 0644);

	memset(bytes, byte, sizeof(bytes));
	fuzz_require(fd >= 0 && write(fd, bytes, sizeof(bytes)) == BASE_BYTES);
}

static int make_dir(int dirfd, const char *name)
{
	int fd;

	fuzz_require(mkdirat(dirfd, name, 0755) == 0);
	fd = openat(dirfd, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	fuzz_require(fd >= 0);
	return fd;
}

static void fill(int base, const char *name)
{
	_cleanup_(closep) int fd = make_dir(base, name), in = make_dir(fd, "d");

	put(fd, "public", 'p');
	put(fd, "file", 'f');
	put(in, "secret", 's');
	put(in, "file", 'f');
	fuzz_require(symlinkat("d", fd, "link") == 0 && symlinkat("public", fd, "filelink") == 0);
}

static uint64_t state_of(int dirfd, const char *name)
{
	_cleanup_(closep) int fd = openat(dirfd, name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
	struct dirent **list;
	struct stat st;
	uint64_t sum;
	int n;

	fuzz_require(fstatat(dirfd, name, &st, AT_SYMLINK_NOFOLLOW) == 0);
	const int64_t all[] = { (int64_t)st.st_ino, st.st_mode,		st.st_uid,
				st.st_size,	    st.st_mtim.tv_sec,	st.st_mtim.tv_nsec,
				st.st_ctim.tv_sec,  st.st_ctim.tv_nsec, (int64_t)st.st_nlink };

	sum = hash_checksum(all, sizeof(all));
	n = S_ISDIR(st.st_mode) ? scandirat(fd, ".", &list, NULL, alphasort) : -1;
	for (int k = 0; k < n; k++) {
		if (strcmp(list[k]->d_name, ".") != 0 && strcmp(list[k]->d_name, "..") != 0)
			sum = sum * 31 + state_of(fd, list[k]->d_name);
		free(list[k]);
	}
	if (n >= 0)
		free(list);
	return sum;
}

/* ---- what is made ---- */

struct making {
	struct delta_layer layer;
	struct image *below;
	char *path; /* of the layer */
};

static int begin(void *arg, const struct delta_head *head, struct delta_layer **ret)
{
	struct making *m = arg;

	(void)head;
	m->layer.below = m->below;
	*ret = &m->layer;
	return delta_layer_open(&m->layer);
}

static void read_dir(struct image *img, struct image_entry *dir);

static void read_one(struct image *img, struct image_entry *e)
{
	char buf[16384];
	struct source *src;
	struct stat st;

	if (e->type == DT_DIR)
		read_dir(img, e);
	if (e->type != DT_REG || image_stat(img, e, &st) < 0 || image_source(img, e, &src) < 0)
		return;
	for (uint64_t off = 0; off < MIN((uint64_t)st.st_size, (uint64_t)2 * BASE_BYTES);) {
		const size_t n = MIN(sizeof(buf), (uint64_t)st.st_size - off);

		read_source(src, buf, n, off);
		off += n;
	}
}

static void read_dir(struct image *img, struct image_entry *dir)
{
	const ssize_t n = image_count(img, dir);

	for (ssize_t k = 0; k < n; k++)
		read_one(img, image_child(dir, (size_t)k));
}

/* With what is below it. */
static void read_layer(const struct making *m)
{
	struct layer *const *below;
	struct layer *layers[2];
	struct image *img;

	fuzz_require(image_layers(m->below, &below) == 1);
	if (layer_open(m->path, &layers[0]) < 0)
		return;
	layers[1] = below[0];
	if (image_new(layers, 2, &img) == 0) {
		read_dir(img, image_root(img));
		image_unref(img);
	}
	layer_unref(layers[0]);
}

static struct image *open_below(const char *base)
{
	_cleanup_(freep) char *path = NULL;
	struct layer *low;
	struct image *img = NULL;

	fuzz_require(asprintf(&path, "%s/low", base) > 0);
	fuzz_require(layer_open(path, &low) == 0 && image_new(&low, 1, &img) == 0);
	layer_unref(low);
	return img;
}

static void receive(struct making *m, const uint8_t *data, size_t size)
{
	const struct delta_target target = { begin, m };
	const struct delta_hooks hooks = { NULL, NULL };
	_cleanup_(closep) int fd = fuzz_memfd(data, size);
	struct delta_received done;
	int r = delta_receive(fd, &target, &hooks, &done);

	if (r == 0 || r == -EPIPE)
		r = m->layer.map ? delta_layer_sync(&m->layer) : r;
	delta_layer_close(&m->layer);
	if (r == 0)
		read_layer(m);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static bool is_begun;
	const char *path;
	int base = fuzz_directory(&path);
	struct making m = { .layer = { .rootfd = -1 } };
	uint64_t outside, low;

	fuzz_be_quiet();
	if (!is_begun)
		fd_cache_init();
	is_begun = true;
	umask(0);
	fill(base, "outside");
	fill(base, "low");
	m.layer = (struct delta_layer){ .rootfd = make_dir(base, "layer"),
					.work_fd = make_dir(base, "work") };
	fuzz_require(asprintf(&m.path, "%s/layer", path) > 0);
	m.below = open_below(path);
	outside = state_of(base, "outside");
	low = state_of(base, "low");
	receive(&m, data, size);
	fuzz_require(state_of(base, "outside") == outside && state_of(base, "low") == low);
	image_unref(m.below);
	free(m.path);
	close(m.layer.rootfd);
	close(m.layer.work_fd);
	rmtree(base, "layer");
	rmtree(base, "work");
	rmtree(base, "low");
	rmtree(base, "outside");
	return 0;
}
