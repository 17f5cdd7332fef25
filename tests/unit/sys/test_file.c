// SPDX-License-Identifier: Apache-2.0
#include "veneer/sys/file.h"

#include "support/scratch.h"

#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <cmocka.h>

enum { KIB = 1 << 10, MIB = 1 << 20 };

static struct scratch dir;

static int setup(void **state)
{
	(void)state;
	return scratch_enter(&dir);
}

static int teardown(void **state)
{
	(void)state;
	scratch_leave(&dir);
	return 0;
}

static int make(const char *name)
{
	int fd = openat(dir.fd, name, O_CREAT | O_TRUNC | O_RDWR | O_CLOEXEC, 0600);

	assert_true(fd >= 0);
	return fd;
}

static char *pattern(size_t len, unsigned seed)
{
	char *p = malloc(len);

	assert_non_null(p);
	for (size_t i = 0; i < len; i++) {
		seed = seed * 1103515245 + 12345;
		p[i] = (char)(seed >> 16);
	}
	return p;
}

static void assert_content(int fd, off_t off, const char *want, size_t len)
{
	char *got = malloc(len + 1);

	assert_non_null(got);
	assert_int_equal(file_pread(fd, got, len, off), len);
	assert_memory_equal(got, want, len);
	free(got);
}

static void test_file__pread_is_short_only_at_the_end(void **state)
{
	int fd = make("short");
	char p[16];

	(void)state;
	assert_int_equal(file_pwrite(fd, "0123456789", 10, 0), 0);
	assert_int_equal(file_pread(fd, p, 4, 3), 4);
	assert_memory_equal(p, "3456", 4);
	assert_int_equal(file_pread(fd, p, sizeof(p), 5), 5);
	assert_int_equal(file_pread(fd, p, sizeof(p), 100), 0);
	assert_int_equal(file_pread(fd, p, 0, 0), 0);
	close(fd);
	assert_int_equal(file_pread(fd, p, 1, 0), -EBADF);
	assert_int_equal(file_pwrite(fd, p, 1, 0), -EBADF);
	assert_int_equal(file_pwrite(fd, p, 0, 0), 0);
}

static void test_file__pwritev_takes_any_number_of_pieces(void **state)
{
	enum { PIECES = 3000 };
	struct iovec *iov = calloc(PIECES, sizeof(*iov));
	char *bytes = pattern(PIECES * 7, 1);
	int fd = make("pieces");
	size_t len = 0;

	(void)state;
	assert_non_null(iov);
	for (size_t i = 0; i < PIECES; i++) {
		iov[i].iov_base = bytes + len;
		iov[i].iov_len = i % 8;
		len += i % 8;
	}
	assert_int_equal(file_pwritev(fd, iov, PIECES, 123), 0);
	assert_content(fd, 123, bytes, len);
	assert_int_equal(lseek(fd, 0, SEEK_END), 123 + (off_t)len);
	assert_int_equal(file_pwritev(fd, iov, 0, 0), 0);
	close(fd);
	free(bytes);
	free(iov);
}

static void test_file__write_out_takes_files_alone(void **state)
{
	int fd = make("out"), pipes[2];

	(void)state;
	assert_int_equal(file_pwrite(fd, "some", 4, 100), 0);
	assert_int_equal(file_write_out(fd), 0);
	assert_int_equal(pipe(pipes), 0);
	assert_int_equal(file_write_out(pipes[0]), -ESPIPE);
	close(pipes[0]);
	close(pipes[1]);
	assert_int_equal(file_write_out(-1), -EBADF);
	close(fd);
}

struct seen {
	uint64_t end;
	unsigned char blocks[4096]; /* of 4 KiB: 0 hole, 1 written, 2 unwritten */
	int stop_after, calls;
};

static int see(void *arg, uint64_t off, uint64_t len, bool is_unwritten)
{
	struct seen *s = arg;

	assert_true(off >= s->end);
	assert_true(len > 0);
	s->end = off + len;
	for (uint64_t b = off / 4096; b < (off + len + 4095) / 4096; b++)
		s->blocks[b] = is_unwritten ? 2 : 1;
	return ++s->calls == s->stop_after ? 42 : 0;
}

static void test_file__extents_tell_written_from_unwritten_and_holes(void **state)
{
	struct seen s = { 0 };
	unsigned char want[4096] = { 0 };
	int fd = make("extents");
	char *block = pattern(4096, 6);
	bool has_fallocate;
	int r;

	(void)state;
	assert_int_equal(ftruncate(fd, 16 * MIB), 0);
	/* More pieces than one call of the kernel reports here. */
	for (int b = 10; b < 2010; b += 5) {
		assert_int_equal(file_pwrite(fd, block, 4096, (off_t)b * 4096), 0);
		want[b] = 1;
	}
	has_fallocate = !fallocate(fd, 0, 3000 * 4096, 16 * 4096);
	if (has_fallocate)
		memset(want + 3000, 2, 16);
	free(block);
	r = file_extents(fd, 16 * MIB, see, &s);
	if (r == -EOPNOTSUPP) {
		close(fd);
		print_message("no extent map on this file system\n");
		skip();
	}
	assert_int_equal(r, 0);
	assert_memory_equal(s.blocks, want, sizeof(want));

	/* Clipped to the size that was asked for, though not a multiple of anything. */
	s = (struct seen){ 0 };
	assert_int_equal(file_extents(fd, 10 * 4096 + 100, see, &s), 0);
	assert_int_equal(s.end, 10 * 4096 + 100);
	assert_int_equal(file_extents(fd, 0, see, &s), 0);

	s = (struct seen){ .stop_after = 70 };
	assert_int_equal(file_extents(fd, 16 * MIB, see, &s), 42);
	assert_int_equal(s.calls, 70);
	close(fd);
	assert_int_equal(file_extents(fd, 4096, see, &s), -EBADF);
}

static void test_file__extents_where_there_are_none(void **state)
{
	int pipe_fds[2];
	struct seen s = { 0 };

	(void)state;
	assert_int_equal(pipe(pipe_fds), 0);
	assert_int_equal(file_extents(pipe_fds[0], 4096, see, &s), -EOPNOTSUPP);
	close(pipe_fds[0]);
	close(pipe_fds[1]);
}

/* A mapping of two pages over a file of one. */
static char *half_backed_map(int *ret_fd)
{
	int fd = memfd_create("half", MFD_CLOEXEC);
	char *p;

	assert_true(fd >= 0);
	assert_int_equal(ftruncate(fd, 4096), 0);
	p = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	assert_ptr_not_equal(p, MAP_FAILED);
	*ret_fd = fd;
	return p;
}

/* The guard is tried in processes of their own, as cmocka takes SIGBUS for itself in each test. */
static int store_and_load(void)
{
	char bytes[8192] = "some", out[8192];
	int fd, wrong = 0;
	char *p = half_backed_map(&fd);

	wrong += file_guard_init() != 0 || file_guard_init() != 0;
	for (int i = 0; i < 3; i++) {
		wrong += file_map_store(p, bytes, 4096) != 0 || memcmp(p, bytes, 4096);
		wrong += file_map_store(p + 4096, bytes, 1) != -EIO;
		wrong += file_map_store(p, bytes, 8192) != -EIO;
		wrong += file_map_store(out, p, 4096) != 0 || memcmp(out, bytes, 4096);
		wrong += file_map_store(out, p + 4096, 8) != -EIO;
	}
	wrong += file_map_store(p + 4096, bytes, 0) != 0;
	wrong += ftruncate(fd, 8192) != 0;
	wrong += file_map_store(p, bytes, 8192) != 0;
	munmap(p, 8192);
	close(fd);
	return wrong;
}

static void test_file__store_beyond_the_file_is_eio(void **state)
{
	(void)state;
	assert_int_equal(scratch_run_self("store"), 0);
}

static void *fault_often(void *arg)
{
	char *p = arg, out[64] = { 0 };
	intptr_t wrong = 0;

	for (int i = 0; i < 300; i++) {
		wrong += file_map_store(p + 4096, out, sizeof(out)) != -EIO;
		wrong += file_map_store(out, p, sizeof(out)) != 0;
	}
	return (void *)wrong;
}

static int fault_in_threads(void)
{
	pthread_t threads[4];
	int fd, wrong = 0;
	char *p = half_backed_map(&fd);

	for (int i = 0; i < 4; i++) {
		if (pthread_create(&threads[i], NULL, fault_often, p + 64 * i))
			return 100;
	}
	for (int i = 0; i < 4; i++) {
		void *ret;

		wrong += pthread_join(threads[i], &ret) || ret;
	}
	munmap(p, 8192);
	close(fd);
	return wrong;
}

static void test_file__threads_fault_each_for_itself(void **state)
{
	(void)state;
	assert_int_equal(scratch_run_self("threads"), 0);
}

static void exit_43(int sig)
{
	(void)sig;
	_exit(43);
}

static void exit_44(int sig, siginfo_t *info, void *context)
{
	(void)sig;
	(void)context;
	_exit(info->si_addr ? 44 : 45);
}

/* In a process of its own: what was there before the guard, and then a fault outside of it. */
static int fault_outside(const char *before)
{
	struct sigaction sa = { .sa_handler = SIG_DFL };
	char out[64];
	int fd;
	char *p = half_backed_map(&fd);

	if (!strcmp(before, "handler")) {
		sa.sa_handler = exit_43;
	} else if (!strcmp(before, "siginfo")) {
		sa.sa_sigaction = exit_44;
		sa.sa_flags = SA_SIGINFO;
	} else if (!strcmp(before, "ignore") || !strcmp(before, "ignore-kill")) {
		sa.sa_handler = SIG_IGN;
	}
	sigaction(SIGBUS, &sa, NULL);
	if (file_guard_init() < 0 || file_map_store(out, p + 4096, 8) != -EIO)
		return 1;
	if (!strcmp(before, "kill") || !strcmp(before, "ignore-kill")) {
		kill(getpid(), SIGBUS);
		return file_map_store(out, p + 4096, 8) == -EIO ? 0 : 2;
	}
	*(volatile char *)(p + 4096) = 1;
	return 3;
}

static void test_file__other_faults_keep_their_old_disposition(void **state)
{
	(void)state;
	assert_int_equal(WEXITSTATUS(scratch_run_self("handler")), 43);
	assert_int_equal(WEXITSTATUS(scratch_run_self("siginfo")), 44);
	assert_int_equal(scratch_run_self("default") & 0x7f, SIGBUS);
	assert_int_equal(scratch_run_self("kill") & 0x7f, SIGBUS);
	assert_int_equal(scratch_run_self("ignore") & 0x7f, SIGBUS);
	assert_int_equal(scratch_run_self("ignore-kill"), 0);
}

static void test_file__flock_names_its_holder(void **state)
{
	int fd = make("locked"), other = make("other");

	(void)state;
	assert_int_equal(file_flock_holder(fd), 0);
	assert_int_equal(flock(fd, LOCK_EX), 0);
	assert_int_equal(file_flock_holder(fd), getpid());
	assert_int_equal(file_flock_holder(other), 0);
	assert_int_equal(flock(fd, LOCK_UN), 0);
	assert_int_equal(file_flock_holder(fd), 0);
	close(fd);
	close(other);
}

static void test_file__text_is_cut_where_there_is_no_room(void **state)
{
	char text[5] = "xxxx";

	(void)state;
	assert_int_equal(file_read_text("/proc/self/no such file", text, sizeof(text)), -ENOENT);
	assert_string_equal(text, "");
	assert_int_equal(file_read_text("/proc/self/status", text, sizeof(text)), 4);
	assert_string_equal(text, "Name");
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_file__text_is_cut_where_there_is_no_room),
		cmocka_unit_test(test_file__pread_is_short_only_at_the_end),
		cmocka_unit_test(test_file__pwritev_takes_any_number_of_pieces),
		cmocka_unit_test(test_file__write_out_takes_files_alone),
		cmocka_unit_test(test_file__extents_tell_written_from_unwritten_and_holes),
		cmocka_unit_test(test_file__extents_where_there_are_none),
		cmocka_unit_test(test_file__store_beyond_the_file_is_eio),
		cmocka_unit_test(test_file__flock_names_its_holder),
		cmocka_unit_test(test_file__threads_fault_each_for_itself),
		cmocka_unit_test(test_file__other_faults_keep_their_old_disposition),
	};

	if (argc > 1 && !strcmp(argv[1], "store"))
		return store_and_load();
	if (argc > 1 && !strcmp(argv[1], "threads"))
		return fault_in_threads();
	if (argc > 1)
		return fault_outside(argv[1]);
	return cmocka_run_group_tests(tests, setup, teardown);
}
