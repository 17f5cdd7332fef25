// SPDX-License-Identifier: Apache-2.0
/* Preloaded into the program by tests: counts its calls by class, and fails those that the control
 * page names.
 *
 * Not reached: what libc does inside itself (the mapping of a thread's stack, the reads of stdio),
 * page faults in mappings, and what the kernel does for a ring. Requests and replies on /dev/fuse
 * are left alone: the kernel keeps a request until it is answered, and a write that failed there in
 * earnest has ended it. */
#include "fault.h"
#include "control.h"

#include <dlfcn.h>
#include <errno.h>
#include <execinfo.h>
#include <fcntl.h>
#include <link.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#define FUSE_MAJOR 10
#define FUSE_MINOR 229

static struct fault_control *control;
static uint64_t base;
static __thread int depth __attribute__((tls_model("initial-exec")));

void *fault_find(void **slot, const char *name)
{
	void *found = __atomic_load_n(slot, __ATOMIC_RELAXED);

	if (!found) {
		depth++;
		found = dlsym(RTLD_NEXT, name);
		depth--;
		__atomic_store_n(slot, found, __ATOMIC_RELAXED);
	}
	return found;
}

static int note_base(struct dl_phdr_info *info, size_t size, void *arg)
{
	(void)size;
	*(uint64_t *)arg = info->dlpi_addr;
	return 1;
}

/* Does what may allocate or open later, while nothing is counted. */
__attribute__((constructor)) static void start(void)
{
	const char *path = getenv("VENEER_FAULT");
	void *frames[2];
	int fd;

	depth++;
	backtrace(frames, 2);
	dl_iterate_phdr(note_base, &base);
	fd = path ? open(path, O_RDWR | O_CLOEXEC) : -1;
	if (fd >= 0) {
		void *p = mmap(NULL, sizeof(*control), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

		if (p != MAP_FAILED && ((struct fault_control *)p)->magic == FAULT_MAGIC)
			control = p;
		close(fd);
	}
	depth--;
}

static void note_trace(void)
{
	void *frames[FAULT_TRACE_MAX];
	int n;

	depth++;
	n = backtrace(frames, FAULT_TRACE_MAX);
	depth--;
	for (int i = 0; i < n; i++)
		control->trace[i] = (uint64_t)(uintptr_t)frames[i];
	control->base = base;
	control->ntrace = (uint32_t)n;
}

/* 0: call it; else what it fails with. */
static int count(enum fault_class which)
{
	uint32_t n;

	if (!control || depth || !__atomic_load_n(&control->is_armed, __ATOMIC_ACQUIRE))
		return 0;
	n = __atomic_add_fetch(&control->counts[which], 1, __ATOMIC_RELAXED);
	if (which != control->which || !control->nth || n < control->nth ||
	    n - control->nth >= control->times)
		return 0;
	note_trace();
	__atomic_add_fetch(&control->injected, 1, __ATOMIC_RELEASE);
	return control->error;
}

bool fault_hits(enum fault_class which)
{
	int error = count(which);

	if (error == FAULT_SHORT)
		error = EINTR;
	if (error)
		errno = error;
	return error != 0;
}

bool fault_hits_io(enum fault_class which, int fd, size_t *len)
{
	int error, saved = errno;
	struct stat st;

	if (!control || depth || !__atomic_load_n(&control->is_armed, __ATOMIC_ACQUIRE))
		return false;
	depth++;
	if (fstat(fd, &st) < 0)
		st.st_mode = 0;
	depth--;
	errno = saved;
	if (S_ISCHR(st.st_mode) && st.st_rdev == makedev(FUSE_MAJOR, FUSE_MINOR))
		return false;
	error = count(which);
	/* A pipe is memory: it can only be interrupted. */
	if (S_ISFIFO(st.st_mode) && error != EINTR)
		return false;
	if (error == FAULT_SHORT) {
		*len -= *len / 2;
		return false;
	}
	if (error)
		errno = error;
	return error != 0;
}
