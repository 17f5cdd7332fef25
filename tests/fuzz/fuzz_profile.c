// SPDX-License-Identifier: Apache-2.0
/* An input is a list of changes to a profile: two bytes say where, and the four that follow are put
 * there. Its sums are right, as a forger would have them, unless the first byte is odd. What is
 * read of the file then is within the bounds, and a start is noted or refused with a sentence. */
#include "support.h"

#include "veneer/base/cleanup.h"
#include "veneer/base/hash.h"
#include "veneer/prefetch/profile.h"
#include "veneer/sys/file.h"
#include "veneer/sys/path.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define CHANGE_BYTES 6u
#define CHANGES_MAX  64u
#define IMAGES	     3u
#define START_BYTES  32u

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const uint64_t layers[] = { 11, 22, 33 };
static char err[256], name[64];
static uint8_t *sound;
static size_t sound_bytes;

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

	return profile_store(dirfd, &s, &start, err, sizeof(err));
}

/* Once: what all inputs change, the file of the first image. The others borrow from it. */
static void make_sound(int dirfd)
{
	const struct profile_stack s = stack_of(0);
	_cleanup_(closep) int fd = -1;
	struct stat st;

	snprintf(name, sizeof(name), PROFILE_PREFIX "%016llx",
		 (unsigned long long)profile_image_key(&s));
	for (uint32_t k = 0; k < 3; k++)
		fuzz_require(note(dirfd, 0, k) == 0);
	fd = openat(dirfd, name, O_RDONLY | O_CLOEXEC);
	fuzz_require(fd >= 0 && fstat(fd, &st) == 0 && st.st_size > START_BYTES);
	sound_bytes = (size_t)st.st_size;
	sound = malloc(2 * sound_bytes);
	fuzz_require(sound && pread(fd, sound, sound_bytes, 0) == (ssize_t)sound_bytes);
}

/* Where the head and the body are, whatever they are now. */
static void forge_sums(uint8_t *p)
{
	uint32_t head, body;
	uint64_t sum;

	memcpy(&head, p + 8, sizeof(head));
	memcpy(&body, p + 12, sizeof(body));
	if ((uint64_t)head + body > sound_bytes - START_BYTES)
		return;
	sum = hash_checksum(p + START_BYTES, head);
	memcpy(p + 16, &sum, sizeof(sum));
	sum = hash_checksum(p + START_BYTES + head, body);
	memcpy(p + 24, &sum, sizeof(sum));
}

static void put(int dirfd, const uint8_t *data, size_t size)
{
	_cleanup_(closep) int fd =
		openat(dirfd, name, O_CREAT | O_TRUNC | O_RDWR | O_CLOEXEC, 0600);
	const bool is_forged = !size || !(data[0] & 1);
	uint8_t *changed = sound + sound_bytes;

	memcpy(changed, sound, sound_bytes);
	for (size_t i = 0; i < CHANGES_MAX && size >= CHANGE_BYTES;
	     i++, data += CHANGE_BYTES, size -= CHANGE_BYTES) {
		const size_t at = ((size_t)data[0] << 8 | data[1]) % (sound_bytes - 3);

		memcpy(changed + at, data + 2, 4);
	}
	if (is_forged)
		forge_sums(changed);
	fuzz_require(fd >= 0 && file_pwrite(fd, changed, sound_bytes, 0) == 0);
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
	for (size_t i = 0; i < IMAGES; i++) {
		_cleanup_(profile_image_release) struct profile_image img = { 0 };
		const struct profile_stack s = stack_of(i);

		*err = '\0';
		if (profile_load(dirfd, &s, &img, err, sizeof(err)) == 0)
			check_image(&img);
		else
			fuzz_require(*err);
	}
	profile_each(dirfd, true, check_each, NULL, err, sizeof(err));
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
	unlinkat(dirfd, name, 0);
	return 0;
}
