// SPDX-License-Identifier: Apache-2.0
#include "support/peer.h"
#include "support/served.h"

#include "server/mount_request.h"
#include "server/snapshot_take.h"

#include <inttypes.h>
#include <sys/sysmacros.h>

#define KEPT	  "io=cached,copies=all,volatile"
#define MINOR	  7u
#define NO_TARGET 4711u

struct asking {
	struct served *s;
	struct peer_end p;
	int server_fd;
};

static int setup(void **state)
{
	struct asking *a = calloc(1, sizeof(*a));

	if (!a || served_setup_saved((void **)&a->s) < 0)
		return -1;
	peer_end_open(&a->p, &a->server_fd);
	*state = a;
	return 0;
}

static int teardown(void **state)
{
	struct asking *a = *state;

	peer_end_close(&a->p);
	close(a->server_fd);
	served_teardown((void **)&a->s);
	free(a);
	return 0;
}

static void ask(struct asking *a, enum wire_type type, unsigned dev_minor, const char *text)
{
	const struct wire_message m = { .type = type,
					.dev_minor = dev_minor,
					.text = text,
					.text_len = text ? strlen(text) : 0 };
	struct mount_request q = { .type = WIRE_OK };

	mount_request_read(&q, &m);
	assert_int_equal(q.type, type);
	mount_request_answer(&q, a->server_fd, a->s->table);
}

static void test_mount_request__types_that_are_one(void **state)
{
	unsigned n = 0;

	(void)state;
	for (enum wire_type type = WIRE_HELLO; type < WIRE_TYPES; type++)
		n += mount_request_is_one(type);
	assert_int_equal(n, 4);
	assert_true(mount_request_is_one(WIRE_FLATTEN));
	assert_true(mount_request_is_one(WIRE_SNAPSHOT));
	assert_true(mount_request_is_one(WIRE_ROLLBACK));
	assert_true(mount_request_is_one(WIRE_SQUASH));
}

static void test_mount_request__mount_of_another_server_is_told_apart(void **state)
{
	static const struct {
		enum wire_type type;
		const char *text;
	} all[] = { { WIRE_FLATTEN, NULL },
		    { WIRE_SNAPSHOT, "name" },
		    { WIRE_ROLLBACK, "name\n" },
		    { WIRE_SQUASH, "a\nb" } };
	struct asking *a = *state;

	for (size_t i = 0; i < 4; i++) {
		ask(a, all[i].type, NO_TARGET, all[i].text);
		peer_end_expect(&a->p, WIRE_ERROR);
		assert_int_equal(a->p.m.count, WIRE_EXIT_ELSEWHERE);
		peer_end_expect_nothing(&a->p);
	}
}

static void test_mount_request__flattening_says_how_far_it_is_and_that_it_is_done(void **state)
{
	struct asking *a = *state;
	struct fuse_kernel k;
	size_t files, nfiles, left;
	uint64_t bytes, cloned, nbytes;
	uint64_t node;
	char text[256];

	free(tree_put_pattern(a->s->d, "lower/file", 200000, 1));
	served_start(a->s, "", KEPT, MINOR, &k);
	node = fuse_kernel_node(&k, "file");
	assert_int_equal(fuse_kernel_write(&k, node, 100, "x", 1), 1);
	assert_true(tree_is_partial(a->s->d, "upper/file"));
	ask(a, WIRE_FLATTEN, MINOR, NULL);
	do {
		peer_end_expect(&a->p, WIRE_TEXT);
		snprintf(text, sizeof(text), "%.*s", (int)a->p.m.text_len, a->p.m.text);
		assert_int_equal(sscanf(text, "%zu %zu %zu %" SCNu64 " %" SCNu64 " %" SCNu64,
					&files, &nfiles, &left, &bytes, &cloned, &nbytes),
				 6);
	} while (files < nfiles || !nfiles);
	assert_int_equal(files, 1);
	assert_int_equal(left, 0);
	peer_end_expect(&a->p, WIRE_OK);
	assert_false(tree_is_partial(a->s->d, "upper/file"));
	served_unmount(a->s, &k, 1);
}

static void test_mount_request__read_only_mount_has_nothing_to_flatten(void **state)
{
	struct asking *a = *state;
	struct fuse_kernel k;

	served_start(a->s, "", KEPT ",ro", MINOR, &k);
	ask(a, WIRE_FLATTEN, MINOR, NULL);
	peer_end_expect_error(&a->p, "Read-only");
	served_unmount(a->s, &k, 1);
}

static void test_mount_request__snapshot_is_taken_and_gone_back_to(void **state)
{
	struct asking *a = *state;
	struct fuse_kernel k;
	uint64_t node;
	char got[8];

	tree_put_text(a->s->d, "lower/file", "text");
	served_start(a->s, "", KEPT, MINOR, &k);
	node = fuse_kernel_node(&k, "file");
	assert_int_equal(fuse_kernel_write(&k, node, 0, "1", 1), 1);
	ask(a, WIRE_SNAPSHOT, MINOR, "first");
	peer_end_expect(&a->p, WIRE_TEXT);
	assert_int_equal(a->p.m.text_len, 5);
	assert_memory_equal(a->p.m.text, "first", 5);
	peer_end_expect(&a->p, WIRE_OK);
	assert_int_equal(fuse_kernel_write(&k, node, 0, "2", 1), 1);
	/* The name is taken. */
	ask(a, WIRE_SNAPSHOT, MINOR, "first");
	peer_end_expect_error(&a->p, "of this name");
	ask(a, WIRE_ROLLBACK, MINOR, "none\n");
	peer_end_expect_error(&a->p, "no snapshot");
	assert_int_equal(fuse_kernel_read(&k, node, 0, got, sizeof(got)), 4);
	assert_memory_equal(got, "2ext", 4);
	served_unmount(a->s, &k, 1);
}

static void test_mount_request__squash_of_names_that_are_none_is_refused(void **state)
{
	struct asking *a = *state;
	struct fuse_kernel k;

	served_start(a->s, "", KEPT, MINOR, &k);
	ask(a, WIRE_SQUASH, MINOR, "no newline");
	peer_end_expect_error(&a->p, "two names");
	ask(a, WIRE_SQUASH, MINOR, "none\nof these");
	peer_end_expect(&a->p, WIRE_ERROR);
	/* Nothing is squashed where there is nothing. */
	ask(a, WIRE_SQUASH, MINOR, "\n");
	peer_end_expect(&a->p, WIRE_TEXT);
	assert_memory_equal(a->p.m.text, "0 0 0", 5);
	peer_end_expect(&a->p, WIRE_OK);
	served_unmount(a->s, &k, 1);
}

#define row(test) cmocka_unit_test_setup_teardown(test, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		row(test_mount_request__types_that_are_one),
		row(test_mount_request__mount_of_another_server_is_told_apart),
		row(test_mount_request__flattening_says_how_far_it_is_and_that_it_is_done),
		row(test_mount_request__read_only_mount_has_nothing_to_flatten),
		row(test_mount_request__snapshot_is_taken_and_gone_back_to),
		row(test_mount_request__squash_of_names_that_are_none_is_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
