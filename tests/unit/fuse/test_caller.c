// SPDX-License-Identifier: Apache-2.0
#include "support/fuse_pair.h"
#include "support/tree.h"

#include "fuse/op.h"

#include <grp.h>
#include <linux/capability.h>
#include <linux/fuse.h>

/* The answers about the caller of one request. */
struct seen {
	bool may_setgid, may_setgid_of_another, has_fsetid, has_admin, may_unmount;
};

static struct seen seen;
static struct mount mount_ = { .opts = { .squash_uid = -1, .squash_gid = -1 } };

#define OTHER_GID 4000000000u

static void on_statfs(fuse_req_t req, fuse_ino_t ino)
{
	(void)ino;
	seen = (struct seen){
		.may_setgid = caller_may_setgid(req, getegid()),
		.may_setgid_of_another = caller_may_setgid(req, OTHER_GID),
		.has_fsetid = caller_has_cap(req, CAP_FSETID),
		.has_admin = caller_has_cap(req, CAP_SYS_ADMIN),
		.may_unmount = caller_may_unmount(req),
	};
	fuse_reply_err(req, 0);
}

static struct seen ask_as(uint32_t uid, uint32_t gid, uint32_t pid)
{
	const struct fuse_lowlevel_ops ops = { .statfs = on_statfs };
	struct fuse_in_header in = { .len = sizeof(in),
				     .opcode = FUSE_STATFS,
				     .unique = 2,
				     .uid = uid,
				     .gid = gid,
				     .pid = pid };
	struct {
		struct fuse_in_header in;
		struct fuse_init_in init;
	} init = { { .len = sizeof(init), .opcode = FUSE_INIT, .unique = 1 },
		   { .major = FUSE_KERNEL_VERSION, .minor = FUSE_KERNEL_MINOR_VERSION } };
	int ends[2];
	struct fuse_session *se = fuse_pair_open_with(ends, &ops, &mount_);

	fuse_session_process_buf(se, &(struct fuse_buf){ .mem = &init, .size = sizeof(init) });
	memset(&seen, 1, sizeof(seen));
	fuse_session_process_buf(se, &(struct fuse_buf){ .mem = &in, .size = sizeof(in) });
	fuse_session_destroy(se);
	close(ends[1]);
	return seen;
}

static void test_caller__this_process_has_what_it_has(void **state)
{
	const struct seen s = ask_as(geteuid(), getegid(), (uint32_t)getpid());
	const bool is_root = geteuid() == 0;

	(void)state;
	assert_true(s.may_setgid);
	if (is_root && s.has_fsetid)
		assert_true(s.may_setgid_of_another);
	if (!is_root)
		assert_false(s.has_fsetid || s.has_admin || s.may_setgid_of_another);
	if (s.has_admin || !is_root)
		assert_true(s.may_unmount);
}

static void test_caller__another_user_may_not_unmount(void **state)
{
	const struct seen s = ask_as(geteuid() + 1, getegid(), (uint32_t)getpid());

	(void)state;
	assert_false(s.may_unmount);
}

/* Of another process namespace, or gone: in doubt no. */
static void test_caller__process_that_is_not_there_has_nothing(void **state)
{
	static const uint32_t pids[] = { 0, INT32_MAX, UINT32_MAX };

	(void)state;
	for (size_t i = 0; i < sizeof(pids) / sizeof(*pids); i++) {
		const struct seen s = ask_as(geteuid(), getegid(), pids[i]);

		assert_false(s.has_fsetid || s.has_admin || s.may_unmount);
		assert_false(s.may_setgid_of_another);
		/* That the request says itself. */
		assert_true(s.may_setgid);
	}
}

static void test_caller__group_that_is_only_a_supplementary_one(void **state)
{
	static gid_t groups[200];
	pid_t pid;
	int status, hold[2], ready[2];
	char byte;
	struct seen s;

	(void)state;
	if (geteuid() != 0)
		skip();
	for (unsigned i = 0; i < 200; i++)
		groups[i] = OTHER_GID - i;
	assert_int_equal(pipe(hold), 0);
	assert_int_equal(pipe(ready), 0);
	pid = fork();
	if (pid == 0) {
		close(hold[1]);
		/* The last of more than are asked for at first. */
		if (setgroups(200, groups) < 0 || setresgid(65534, 65534, 65534) < 0 ||
		    setresuid(65534, 65534, 65534) < 0)
			_exit(2);
		(void)!write(ready[1], "r", 1);
		(void)!read(hold[0], &byte, 1);
		_exit(0);
	}
	close(ready[1]);
	if (read(ready[0], &byte, 1) == 1) {
		s = ask_as(65534, 65534, (uint32_t)pid);
		assert_true(s.may_setgid_of_another);
		assert_false(s.has_fsetid || s.has_admin || s.may_unmount);
	}
	close(hold[1]);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	close(hold[0]);
	close(ready[0]);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_caller__this_process_has_what_it_has),
		cmocka_unit_test(test_caller__another_user_may_not_unmount),
		cmocka_unit_test(test_caller__process_that_is_not_there_has_nothing),
		cmocka_unit_test(test_caller__group_that_is_only_a_supplementary_one),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
