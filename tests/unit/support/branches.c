// SPDX-License-Identifier: Apache-2.0
#include "support/branches.h"

#include <stdbool.h>

int branches_setup(void **state)
{
	static struct branches p;

	p = (struct branches){ .chain = { 0 } };
	assert_int_equal(scratch_enter(&p.s), 0);
	*state = &p;
	return 0;
}

int branches_teardown(void **state)
{
	struct branches *p = *state;

	branch_chain_release(&p->chain);
	scratch_leave(&p->s);
	return 0;
}

void branches_put(struct branches *p, const char *name)
{
	int fd = openat(p->s.fd, name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);

	assert_true(fd >= 0);
	assert_int_equal(write(fd, name, strlen(name)), (ssize_t)strlen(name));
	close(fd);
}

bool branches_is_there(struct branches *p, const char *name)
{
	return faccessat(p->s.fd, name, F_OK, AT_SYMLINK_NOFOLLOW) == 0;
}

void branches_add(struct branches *p, uint64_t id, const char *name)
{
	struct branch_chain_entry e = { .id = id, .parent = p->chain.head };

	strcpy(e.name, name);
	assert_int_equal(branch_chain_add(&p->chain, &e), 0);
	p->chain.head = id;
}

void branches_take(struct branches *p, uint64_t id, const char *name)
{
	branches_add(p, id, name);
	assert_int_equal(branch_dir_take(p->s.fd, id, &p->chain, true), 0);
}
