// SPDX-License-Identifier: Apache-2.0
/* An input is a list of changes to a profile with three images in it: two bytes say where, and the
 * four that follow are put there. What is read of the file then is within the bounds, and a start
 * is noted or refused with a sentence. */
#include "support.h"

#include "veneer/base/cleanup.h"
#include "veneer/prefetch/profile.h"
#include "veneer/sys/file.h"
#include "veneer/sys/path.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define CHANGE_BYTES 6u
#define CHANGES_MAX  64u
#define IMAGES	     3u

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const uint64_t layers[] = { 11, 22, 33 };
static char err[256];
static uint8_t *sound;
static size_t sound_bytes;

static void clear(int dirfd)
{
	static const char *const names[] = { PROFILE_FILE, PROFILE_FILE "-wal", PROFILE_FILE "-shm",
					     PROFILE_FILE "-journal" };

	for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++)
		unlinkat(dirfd, names[i], 0);
}

static struct profile_stack stack_of(size_t first)
{
	return (struct profile_stack){ .layers = layers + first,
				       .n = IMAGES - first,
				       .label = "/a/layer" };
}

static int note(int dirfd, size_t first, uint32_t extent)
{
	char path[] = "some/file";
	const struct profile_file file = { path, layers[first] };
	const struct profile_item item = { .extent = extent,
					   .history = { .first_ms = 7, .order = 3 } };
	const struct profile_start start = {
		.files = &file, .nfiles = 1, .items = &item, .nitems = 1, .at = 1000
	};
	const struct profile_stack s = stack_of(first);
	struct profile *p;
	int r = profile_open(dirfd, false, &p, err, sizeof(err));

	if (r < 0)
		return r;
	r = profile_store(p, &s, &start, err, sizeof(err));
	profile_close(p);
	return r;
}

/* Once: what all inputs change. The last connection that goes has brought all of it into the one
 * file. */
static void make_sound(int dirfd)
{
	_cleanup_(closep) int fd = -1;
	struct stat st;

	clear(dirfd);
	for (size_t i = 0; i < IMAGES; i++)
		for (uint32_t k = 0; k < 3; k++)
			fuzz_require(note(dirfd, i, k) == 0);
	fd = openat(dirfd, PROFILE_FILE, O_RDONLY | O_CLOEXEC);
	fuzz_require(fd >= 0 && fstat(fd, &st) == 0 && st.st_size > 0);
	sound_bytes = (size_t)st.st_size;
	sound = malloc(sound_bytes);
	fuzz_require(sound && pread(fd, sound, sound_bytes, 0) == (ssize_t)sound_bytes);
	clear(dirfd);
}

static void put(int dirfd, const uint8_t *data, size_t size)
{
	_cleanup_(closep) int fd =
		openat(dirfd, PROFILE_FILE, O_CREAT | O_TRUNC | O_RDWR | O_CLOEXEC, 0600);

	fuzz_require(fd >= 0 && file_pwrite(fd, sound, sound_bytes, 0) == 0);
	for (size_t i = 0; i < CHANGES_MAX && size >= CHANGE_BYTES;
	     i++, data += CHANGE_BYTES, size -= CHANGE_BYTES) {
		const size_t at = ((size_t)data[0] << 8 | data[1]) % sound_bytes;

		fuzz_require(pwrite(fd, data + 2, 4, (off_t)at) == 4);
	}
}

static void check_image(const struct profile_image *img)
{
	fuzz_require(img->nitems <= PROFILE_ITEMS_MAX);
	for (size_t i = 0; i < img->nfiles; i++)
		fuzz_require(img->files[i].path &&
			     path_is_plain(img->files[i].path, strlen(img->files[i].path)));
	for (size_t i = 0; i < img->nitems; i++)
		fuzz_require(img->items[i].file < img->nfiles &&
			     img->items[i].kind < PROFILE_KINDS);
}

static int check_each(const struct profile_image *img, void *arg)
{
	(void)arg;
	check_image(img);
	return 0;
}

static void use(int dirfd)
{
	struct profile *p;

	if (profile_open(dirfd, false, &p, err, sizeof(err)) < 0) {
		fuzz_require(*err);
		return;
	}
	for (size_t i = 0; i < IMAGES; i++) {
		_cleanup_(profile_image_release) struct profile_image img = { 0 };
		const struct profile_stack s = stack_of(i);

		if (profile_load(p, &s, &img, err, sizeof(err)) == 0)
			check_image(&img);
	}
	profile_each(p, true, check_each, NULL, err, sizeof(err));
	profile_close(p);
	note(dirfd, 0, 7);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	const char *path;
	const int dirfd = fuzz_directory(&path);

	fuzz_be_quiet();
	if (!sound)
		make_sound(dirfd);
	put(dirfd, data, size);
	use(dirfd);
	clear(dirfd);
	return 0;
}
