// SPDX-License-Identifier: Apache-2.0
/* Runs one fuzzer over the files named, and those in the directories named, without libFuzzer.
 * Each input also goes in cut short at every length and with single bits turned, within limits:
 * what a mutating fuzzer tries first, and the same in every run. Every bit is turned where a
 * sanitizer sees what that does, else about one in a byte. */
#include <dirent.h>
#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "veneer/base/cleanup.h"

enum {
	INPUT_MAX = 1 << 20,
	CUTS_MAX = 2048,
	FLIPPED_BYTES_MAX = 512,
#ifdef VENEER_INVARIANTS
	BIT_STEP = 1,
#else
	BIT_STEP = 9, /* another bit of each byte */
#endif
};

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len);

static void closedirp(DIR **dir)
{
	if (*dir)
		closedir(*dir);
}

static void fclosep(FILE **f)
{
	if (*f)
		fclose(*f);
}

/* An exact copy on the heap lets the address sanitizer see a read one byte past the end. */
static int run_copy(const uint8_t *data, size_t len)
{
	_cleanup_(freep) uint8_t *copy = malloc(len ? len : 1);

	if (!copy)
		return -ENOMEM;
	if (len)
		memcpy(copy, data, len);
	LLVMFuzzerTestOneInput(copy, len);
	return 0;
}

static int run_variants(uint8_t *data, size_t len)
{
	int r = run_copy(data, len);

	for (size_t cut = 0; !r && cut < len && cut < CUTS_MAX; cut++)
		r = run_copy(data, cut);
	for (size_t bit = 0; !r && bit < len * 8 && bit < FLIPPED_BYTES_MAX * 8; bit += BIT_STEP) {
		data[bit / 8] ^= 1u << bit % 8;
		r = run_copy(data, len);
		data[bit / 8] ^= 1u << bit % 8;
	}
	return r;
}

static int run_file(const char *path)
{
	_cleanup_(fclosep) FILE *f = fopen(path, "rbe");
	_cleanup_(freep) uint8_t *data = malloc(INPUT_MAX);

	if (!f)
		return -errno;
	if (!data)
		return -ENOMEM;
	size_t len = fread(data, 1, INPUT_MAX, f);

	if (ferror(f))
		return -EIO;
	return run_variants(data, len);
}

static int run_dir(const char *path, size_t *n_inputs)
{
	_cleanup_(closedirp) DIR *dir = opendir(path);

	if (!dir)
		return -errno;
	for (struct dirent *d; (d = readdir(dir));) {
		char file[4096];

		if (d->d_name[0] == '.')
			continue;
		if (snprintf(file, sizeof(file), "%s/%s", path, d->d_name) >= (int)sizeof(file))
			return -ENAMETOOLONG;
		int r = run_file(file);

		if (r)
			return r;
		++*n_inputs;
	}
	return 0;
}

int main(int argc, char **argv)
{
	size_t n_inputs = 0;

	if (run_copy(NULL, 0))
		return EXIT_FAILURE;
	for (int i = 1; i < argc; i++) {
		struct stat st;
		int r = stat(argv[i], &st) ? -errno : 0;

		if (!r && S_ISDIR(st.st_mode)) {
			r = run_dir(argv[i], &n_inputs);
		} else if (!r) {
			r = run_file(argv[i]);
			n_inputs++;
		}
		if (r) {
			fprintf(stderr, "%s: %s\n", argv[i], strerror(-r));
			return EXIT_FAILURE;
		}
	}
	printf("%zu inputs\n", n_inputs);
	return EXIT_SUCCESS;
}
