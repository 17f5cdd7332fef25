// SPDX-License-Identifier: Apache-2.0
/* opens DIRECTORY FILES READERS WRITERS: as many threads open f0, f1, ... at the same time, to read
 * or to write. Says which could not, and exits with 1 if there was any. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define THREADS_MAX 64
#define READS	    15
#define WRITES	    5

static const char *directory;
static int nfiles;
static pthread_barrier_t start;
static _Atomic int nfailed;

static void open_times(int file, int flags, int times)
{
	char path[4096], bytes[] = "written!";

	snprintf(path, sizeof(path), "%s/f%d", directory, file);
	for (int k = 0; k < times; k++) {
		int fd = open(path, flags);

		if (fd < 0 ||
		    (flags == O_RDWR ? pwrite(fd, bytes, 8, 0) : pread(fd, bytes, 8, 0)) != 8) {
			nfailed++;
			printf("%s %s: %m\n", flags == O_RDWR ? "writing" : "reading", path);
		}
		if (fd >= 0)
			close(fd);
	}
}

static void *work(void *writes)
{
	for (int file = 0; file < nfiles; file++) {
		pthread_barrier_wait(&start);
		open_times(file, writes ? O_RDWR : O_RDONLY, writes ? WRITES : READS);
	}
	return NULL;
}

int main(int argc, char **argv)
{
	pthread_t threads[THREADS_MAX];
	int nreaders, n;

	if (argc != 5)
		return 2;
	directory = argv[1];
	nfiles = atoi(argv[2]);
	nreaders = atoi(argv[3]);
	n = nreaders + atoi(argv[4]);
	if (n > THREADS_MAX || pthread_barrier_init(&start, NULL, (unsigned)n) != 0)
		return 2;
	for (int k = 0; k < n; k++)
		if (pthread_create(&threads[k], NULL, work, k < nreaders ? NULL : argv) != 0)
			return 2;
	for (int k = 0; k < n; k++)
		pthread_join(threads[k], NULL);
	return nfailed > 0;
}
