// SPDX-License-Identifier: Apache-2.0
#include "support/fuse_kernel.h"
#include "support/tree.h"

#include "fuse/op.h"
#include "veneer/fuse/resend_state.h"

#include <string.h>
#include <sys/mman.h>

#define KEY 99

static struct fuse_kernel start(struct tree_dirs *d, uint64_t key)
{
	struct fuse_kernel k;

	tree_put_text(d, "lower/file", "text");
	tree_put_text(d, "lower/other", "text");
	tree_mount(d, "volatile");
	fuse_kernel_open(&k, 0);
	fuse_kernel_start(&k, &d->m);
	/* After INIT: the session would ask a kernel, which this is not, for its old requests. */
	d->m.key = key;
	return k;
}

static void count_intent(struct intent *n, void *arg)
{
	(void)n;
	++*(unsigned *)arg;
}

static unsigned n_begun(void)
{
	unsigned n = 0;

	intent_log_each(KEY, count_intent, &n);
	return n;
}

static void test_resend_state__intent_ends_with_the_reply(void **state)
{
	struct tree_dirs *d = *state;
	struct fuse_kernel k = start(d, KEY);

	assert_int_equal(fuse_kernel_ask_name(&k, FUSE_UNLINK, FUSE_ROOT_ID, "file", NULL, 0), 0);
	assert_null(intent_log_current());
	assert_int_equal(n_begun(), 0);
	assert_int_equal(fuse_kernel_ask_name(&k, FUSE_UNLINK, FUSE_ROOT_ID, "file", NULL, 0),
			 -ENOENT);
	assert_int_equal(n_begun(), 0);
	intent_log_drop(KEY);
	fuse_kernel_close(&k);
}

static ssize_t ask_again(struct fuse_kernel *k, uint32_t opcode, const char *name)
{
	ssize_t r;

	/* The kernel's mark of a request that a dead server had read. */
	k->unique |= OP_UNIQUE_RESENT;
	fuse_kernel_send(k, &(struct fuse_question){ .opcode = opcode,
						     .node = FUSE_ROOT_ID,
						     .rest = name,
						     .rest_len = strlen(name) + 1 });
	fuse_kernel_serve(k);
	r = fuse_kernel_reply(k, k->unique, NULL, 0);
	k->unique &= ~OP_UNIQUE_RESENT;
	return r;
}

/* The kernel held the directory meanwhile: a name that is gone went by the dead server. */
static void test_resend_state__request_that_comes_again_is_carried_out_once(void **state)
{
	struct tree_dirs *d = *state;
	struct fuse_kernel k = start(d, KEY);

	fuse_kernel_node(&k, "file");
	assert_int_equal(ask_again(&k, FUSE_UNLINK, "file"), 0);
	tree_expect_names(d, "", "other");
	assert_int_equal(ask_again(&k, FUSE_UNLINK, "file"), 0);
	assert_int_equal(n_begun(), 0);
	/* Another request, which does not come again. */
	assert_int_equal(fuse_kernel_ask_name(&k, FUSE_UNLINK, FUSE_ROOT_ID, "file", NULL, 0),
			 -ENOENT);
	intent_log_drop(KEY);
	fuse_kernel_close(&k);
}

static void test_resend_state__mount_without_a_key_keeps_no_journal(void **state)
{
	struct tree_dirs *d = *state;
	struct fuse_kernel k = start(d, 0);

	assert_int_equal(fuse_kernel_ask_name(&k, FUSE_UNLINK, FUSE_ROOT_ID, "file", NULL, 0), 0);
	assert_null(intent_log_current());
	assert_int_equal(ask_again(&k, FUSE_UNLINK, "other"), 0);
	tree_expect_names(d, "", "");
	/* Nothing to bring in line. */
	resend_state_settle(&d->m);
	fuse_kernel_close(&k);
}

static void test_resend_state__settling_without_a_death_changes_nothing(void **state)
{
	struct tree_dirs *d = *state;
	struct fuse_kernel k = start(d, KEY);
	uint64_t node = fuse_kernel_node(&k, "file");

	assert_int_equal(fuse_kernel_write(&k, node, 0, "T", 1), 1);
	resend_state_settle(&d->m);
	tree_expect_text(d, "file", "Text");
	tree_expect_names(d, "", "file other");
	assert_int_equal(fuse_kernel_attr(&k, node).size, 4);
	intent_log_drop(KEY);
	fuse_kernel_close(&k);
}

#define row(test) cmocka_unit_test_setup_teardown(test, tree_setup, tree_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		row(test_resend_state__intent_ends_with_the_reply),
		row(test_resend_state__request_that_comes_again_is_carried_out_once),
		row(test_resend_state__mount_without_a_key_keeps_no_journal),
		row(test_resend_state__settling_without_a_death_changes_nothing),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
