// SPDX-License-Identifier: Apache-2.0
#include "support/tree.h"

#include "fuse/kernel_invalidate.h"
#include "veneer/recover/intent_log.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/fuse.h>
#include <sys/mman.h>

#define KEY 7

static void *fresh_area(void)
{
	void *mem = mmap(NULL, intent_log_area_bytes(), PROT_READ | PROT_WRITE,
			 MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	assert_ptr_not_equal(mem, MAP_FAILED);
	intent_log_use_area(mem);
	return mem;
}

struct request {
	struct fuse_in_header in;
	char rest[256];
	size_t len; /* of all */
};

static struct request request(uint32_t opcode, const void *arg, size_t arg_len, const char *names,
			      size_t names_len)
{
	struct request q = { .in = { .opcode = opcode, .nodeid = 5, .unique = 11 } };

	assert_true(arg_len + names_len <= sizeof(q.rest));
	memcpy(q.rest, arg, arg_len);
	memcpy(q.rest + arg_len, names, names_len);
	q.len = sizeof(q.in) + arg_len + names_len;
	return q;
}

static struct intent *note(const struct request *q, size_t len)
{
	return kernel_invalidate_note(KEY, &(struct fuse_buf){ .mem = (void *)q, .size = len });
}

static void test_kernel_invalidate__names_and_nodes_of_a_request_are_noted(void **state)
{
	const struct fuse_rename2_in rename = { .newdir = 6 };
	const struct fuse_link_in link = { .oldnodeid = 8 };
	const struct fuse_write_in write = { .size = 3 };
	struct request q = request(FUSE_RENAME2, &rename, sizeof(rename), "old\0new", 8);
	struct intent *n;

	(void)state;
	fresh_area();
	n = note(&q, q.len);
	assert_non_null(n);
	assert_int_equal(n->from.parent, 5);
	assert_string_equal(n->from.name, "old");
	assert_int_equal(n->to.parent, 6);
	assert_string_equal(n->to.name, "new");
	q = request(FUSE_LINK, &link, sizeof(link), "name", 5);
	n = note(&q, q.len);
	assert_non_null(n);
	assert_string_equal(n->from.name, "name");
	assert_int_equal(n->from.node, 8);
	q = request(FUSE_WRITE, &write, sizeof(write), "abc", 3);
	n = note(&q, q.len);
	assert_non_null(n);
	assert_int_equal(n->from.node, 5);
	assert_string_equal(n->from.name, "");
}

static void
test_kernel_invalidate__nothing_is_noted_of_what_changes_nothing_or_is_cut_short(void **state)
{
	const struct fuse_mkdir_in mkdir = { .mode = 0755 };
	struct request q = request(FUSE_LOOKUP, "", 0, "name", 5);

	(void)state;
	fresh_area();
	assert_null(note(&q, q.len));
	q = request(FUSE_MKDIR, &mkdir, sizeof(mkdir), "name", 5);
	for (size_t len = 0; len < q.len; len++)
		assert_null(note(&q, len));
	assert_non_null(note(&q, q.len));
}

static void test_kernel_invalidate__stays_in_the_journal_until_it_is_told(void **state)
{
	struct request q = request(FUSE_UNLINK, "", 0, "name", 5);
	struct kernel_invalidate *d;

	(void)state;
	fresh_area();
	assert_null(kernel_invalidate_take(KEY));
	assert_non_null(note(&q, q.len));
	d = kernel_invalidate_take(KEY);
	assert_non_null(d);
	/* as if this server had died */
	kernel_invalidate_free(d);
	d = kernel_invalidate_take(KEY);
	assert_non_null(d);
	kernel_invalidate_free(d);
	assert_null(kernel_invalidate_take(KEY + 1));
}

static bool is_left(void)
{
	struct kernel_invalidate *d = kernel_invalidate_take_left(KEY);

	kernel_invalidate_free(d);
	return d != NULL;
}

static void begin_name(enum intent_kind kind, uint64_t unique)
{
	struct intent *n = intent_log_begin(
		&(struct intent_request){ .key = KEY,
					  .unique = unique,
					  .kind = kind,
					  .from_parent = 5,
					  .from_name = "name",
					  .to_parent = kind == INTENT_RENAME ? 6 : 0,
					  .to_name = kind == INTENT_RENAME ? "new" : NULL });

	assert_non_null(n);
	intent_log_mark(n);
}

static void test_kernel_invalidate__what_comes_again_is_none(void **state)
{
	void *mem = fresh_area();

	(void)state;
	begin_name(INTENT_CREATE, 11);
	begin_name(INTENT_RENAME, 12);
	assert_false(is_left());
	intent_log_use_area(mem);
	assert_true(is_left());
	intent_log_came_again(KEY, 12);
	assert_true(is_left());
	intent_log_came_again(KEY, 11);
	assert_false(is_left());
	/* and is again what it was when this server dies, too */
	intent_log_use_area(mem);
	assert_true(is_left());
}

static void test_kernel_invalidate__of_what_is_left_only_names_that_were_made_go(void **state)
{
	void *mem = fresh_area();
	struct intent *n;

	(void)state;
	begin_name(INTENT_CREATE, 11);
	begin_name(INTENT_CREATE, 12);
	begin_name(INTENT_RENAME, 13);
	intent_log_use_area(mem);
	intent_log_came_again(KEY, 12);
	intent_log_drop_left(KEY);
	/* A request that comes again finds what a dead server had begun. */
	for (uint64_t unique = 11; unique <= 13; unique++) {
		n = intent_log_begin(&(struct intent_request){
			.key = KEY, .unique = unique, .kind = INTENT_RENAME, .is_resent = true });
		assert_non_null(n);
		assert_int_equal(n->is_begun, unique != 11);
	}
}

/* How telling the kernel by such a descriptor ends. */
static int tell(const char *path)
{
	struct kernel_invalidate *d = kernel_invalidate_new();
	int fd = open(path, O_RDWR | O_CLOEXEC), r;

	if (fd < 0)
		skip(); /* no FUSE, or not for this user */
	assert_non_null(d);
	kernel_invalidate_put(d, 5, "name");
	kernel_invalidate_put(d, 5, NULL);
	assert_int_equal(kernel_invalidate_start(d, fd), 0);
	r = kernel_invalidate_wait(d, 20000);
	kernel_invalidate_free(d);
	close(fd);
	return r;
}

static void test_kernel_invalidate__what_was_not_said_is_an_error(void **state)
{
	(void)state;
	assert_int_equal(tell("/dev/null"), -EIO);
	assert_int_equal(tell("/dev/fuse"), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_kernel_invalidate__names_and_nodes_of_a_request_are_noted),
		cmocka_unit_test(
			test_kernel_invalidate__nothing_is_noted_of_what_changes_nothing_or_is_cut_short),
		cmocka_unit_test(test_kernel_invalidate__stays_in_the_journal_until_it_is_told),
		cmocka_unit_test(test_kernel_invalidate__what_comes_again_is_none),
		cmocka_unit_test(
			test_kernel_invalidate__of_what_is_left_only_names_that_were_made_go),
		cmocka_unit_test(test_kernel_invalidate__what_was_not_said_is_an_error),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
