// SPDX-License-Identifier: Apache-2.0
#include "support/tree.h"

#include "veneer/base/cleanup.h"
#include "veneer/layer/xattr_trust.h"
#include "veneer/map/format.h"
#include "veneer/sys/xattr.h"

#define ME 0 /* stands for this user */
#define U  1000

static uid_t uid_of(uid_t uid)
{
	return uid == ME ? geteuid() : uid;
}

static void test_xattr_trust__mark_leads_where_those_who_could_write_it_can_read(void **state)
{
	static const struct {
		uid_t up_uid;
		gid_t up_gid;
		mode_t up_mode;
		bool has_acl;
		uid_t low_uid;
		gid_t low_gid;
		mode_t low_mode;
		bool at_own_place, elsewhere;
	} rows[] = {
		/* this user's: nobody else wrote it */
		{ ME, 0, 0644, false, ME, 0, 0600, true, true },
		{ ME, 0, 0755, false, U, 5, 0000, true, true },
		/* copied up as it was */
		{ U, U, 0600, false, U, U, 0600, true, true },
		{ U, U, 0664, false, U, U, 0664, true, true },
		{ ME, 5, 0660, false, ME, 5, 0660, true, true },
		{ ME, 0, 0666, false, ME, 0, 0666, true, false },
		/* given away */
		{ U, U, 0600, false, ME, 0, 0600, false, false },
		{ U, U, 0644, false, ME, 0, 0644, true, false },
		{ ME, U, 0660, false, ME, 0, 0660, false, false },
		{ ME, U, 0640, false, ME, 0, 0640, true, true },
		{ ME, 0, 0666, false, ME, 0, 0600, false, false },
		{ U, U, 0640, false, ME, U, 0640, false, false },
		/* writable, and not to be read */
		{ ME, 5, 0620, false, ME, 5, 0620, false, false },
		/* the group's bits are the mask of an ACL */
		{ ME, 5, 0660, true, ME, 5, 0660, false, false },
		{ ME, 5, 0664, true, ME, 5, 0664, true, false },
		{ ME, 5, 0640, true, ME, 5, 0640, true, true },
	};

	(void)state;
	for (size_t k = 0; k < sizeof(rows) / sizeof(*rows); k++) {
		const struct stat up = { .st_uid = uid_of(rows[k].up_uid),
					 .st_gid = rows[k].up_gid,
					 .st_mode = rows[k].up_mode };
		const struct stat low = { .st_uid = uid_of(rows[k].low_uid),
					  .st_gid = rows[k].low_gid,
					  .st_mode = rows[k].low_mode };

		if (xattr_trust_covers(&up, rows[k].has_acl, true, &low) != rows[k].at_own_place ||
		    xattr_trust_covers(&up, rows[k].has_acl, false, &low) != rows[k].elsewhere)
			fail_msg("row %zu", k);
	}
}

static void test_xattr_trust__seal_is_of_one_mark(void **state)
{
	struct partial_xattr m = { .file_id = 7, .lower_size = 100, .path = "a/b" };
	_cleanup_(buf_release) struct buf first = { 0 }, second = { 0 };
	struct tree_dirs *d = *state;
	int fd;

	if (geteuid() != 0)
		skip();
	tree_put_text(d, "lower/f", "");
	fd = openat(d->s.fd, "lower/f", O_RDWR);
	assert_int_equal(partial_xattr_encode(&m, &first), 0);
	m.path[0] = 'c';
	assert_int_equal(partial_xattr_encode(&m, &second), 0);
	assert_false(xattr_trust_is_sealed(fd, "", first.data, first.len));
	assert_int_equal(xattr_trust_seal(fd, &first), 0);
	assert_true(xattr_trust_is_sealed(fd, "", first.data, first.len));
	assert_true(xattr_trust_is_sealed(d->s.fd, "lower/f", first.data, first.len));
	assert_false(xattr_trust_is_sealed(fd, "", second.data, second.len));
	assert_false(xattr_trust_is_sealed(fd, "", first.data, 47));
	assert_int_equal(xattr_set(fd, "", XATTR_TRUST_SEAL_ATTR, first.data + 40, 8, 0), 0);
	assert_false(xattr_trust_is_sealed(fd, "", first.data, first.len));
	assert_int_equal(xattr_trust_seal(fd, &first), 0);
	xattr_trust_remove_seal(fd);
	assert_false(xattr_trust_is_sealed(fd, "", first.data, first.len));
	close(fd);
}

#define row(test) cmocka_unit_test_setup_teardown(test, tree_setup, tree_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		row(test_xattr_trust__mark_leads_where_those_who_could_write_it_can_read),
		row(test_xattr_trust__seal_is_of_one_mark),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
