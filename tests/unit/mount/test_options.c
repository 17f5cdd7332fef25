// SPDX-License-Identifier: Apache-2.0
#include "support/parse.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* ---- argv ---- */

static void test_options__defaults(void **state)
{
	struct mount_opts o = good("lowerdir=/l");

	(void)state;
	assert_lowers(&o, "/l");
	assert_null(o.upper);
	assert_null(o.work);
	assert_string_equal(o.mountpoint, "/mnt");
	assert_int_equal(o.uids.n + o.gids.n, 0);
	assert_int_equal(o.squash_uid, -1);
	assert_int_equal(o.squash_gid, -1);
	assert_true(o.timeout_s == 1e9);
	assert_int_equal(o.xattr_permissions, 0);
	assert_false(o.squash_to_root || o.is_foreground || o.is_debug || o.is_readonly);
	assert_false(o.is_volatile || o.has_static_nlink || o.has_no_acl || o.has_no_xattrs);
	assert_false(o.is_private || o.is_cow_given || o.wants_help || o.wants_version);
	assert_int_equal(o.writeback, WRITEBACK_AUTO);
	assert_int_equal(o.cow, COW_MAP);
	assert_string_equal(o.kernel_opts, KERNEL_ROOT NOATIME);
	assert_int_equal(o.n_unknown, 0);
	options_release(&o);
}

static void test_options__last_plain_argument_is_the_mountpoint(void **state)
{
	struct mount_opts o;

	(void)state;
	assert_int_equal(PARSE(&o, "overlay", "/m", "-o", "lowerdir=/l,dev,suid"), 0);
	assert_string_equal(o.mountpoint, "/m");
	assert_string_equal(o.kernel_opts, KERNEL_ROOT ",dev,suid" NOATIME);
	assert_int_equal(o.n_unknown, 0);
	options_release(&o);
	assert_int_equal(PARSE(&o, "a", "-olowerdir=/l", "b", "c"), 0);
	assert_string_equal(o.mountpoint, "/cwd/c");
	options_release(&o);
}

static void test_options__o_repeats_and_glues(void **state)
{
	struct mount_opts o;

	(void)state;
	assert_int_equal(PARSE(&o, "-o", "workdir=/w", "-oupperdir=/u", "/m", "-o", "lowerdir=/l",
			       "-o", "lowerdir=/k:/l", "-f"),
			 0);
	assert_lowers(&o, "/k|/l");
	assert_string_equal(o.upper, "/u");
	assert_string_equal(o.work, "/w");
	assert_true(o.is_foreground);
	options_release(&o);
}

static void test_options__dash_forms(void **state)
{
	static const char *const debug[] = { "-d", "--debug" };
	struct mount_opts o;

	(void)state;
	for (size_t i = 0; i < 2; i++) {
		assert_int_equal(PARSE(&o, debug[i], "-olowerdir=/l", "/m"), 0);
		assert_true(o.is_debug && o.is_foreground);
		options_release(&o);
	}
	assert_int_equal(PARSE(&o, "-f", "-olowerdir=/l", "/m"), 0);
	assert_true(o.is_foreground);
	assert_false(o.is_debug);
	options_release(&o);
}

static void test_options__help_and_version_need_nothing_else(void **state)
{
	struct mount_opts o;

	(void)state;
	assert_int_equal(PARSE(&o, "--help"), 0);
	assert_true(o.wants_help && !o.wants_version);
	options_release(&o);
	assert_int_equal(PARSE(&o, "-h"), 0);
	assert_true(o.wants_help);
	options_release(&o);
	assert_int_equal(PARSE(&o, "--version"), 0);
	assert_true(o.wants_version && !o.wants_help);
	options_release(&o);
	assert_int_equal(PARSE(&o, "-V"), 0);
	assert_true(o.wants_version);
	options_release(&o);
}

static void test_options__unknown_ones_are_collected_and_never_fail(void **state)
{
	static const char *const expected[] = { "-s",	     "--foo",	    "--",
						"-",	     "metacopy=on", "verity=off",
						"index=off", "fsname=x",    "lazytime",
						"noxattrs",  "noacl=1" };
	struct mount_opts o;

	(void)state;
	assert_int_equal(PARSE(&o, "-s", "--foo", "--", "-", "-o",
			       "lowerdir=/l,metacopy=on,verity=off,index=off,fsname=x,lazytime,"
			       "noxattrs,noacl=1",
			       "/m"),
			 0);
	assert_int_equal(o.n_unknown, 11);
	for (size_t i = 0; i < 11; i++)
		assert_string_equal(o.unknown[i], expected[i]);
	assert_string_equal(o.kernel_opts, KERNEL_ROOT NOATIME);
	options_release(&o);
}

#define NO_PLACE "no mountpoint specified: the last argument is the directory to mount at"
#define NO_LOWER \
	"lowerdir not specified: -o lowerdir=A[:B...][,upperdir=U,workdir=W] names the layers"

static void test_options__missing_parts_are_named(void **state)
{
	struct mount_opts o;

	(void)state;
	assert_int_equal(PARSE(&o, "-o", "lowerdir=/l"), -EINVAL);
	assert_string_equal(parse_error, NO_PLACE);
	assert_int_equal(PARSE(&o, "-o", "lowerdir=/l", ""), -EINVAL);
	assert_string_equal(parse_error, NO_PLACE);
	assert_int_equal(PARSE(&o, "/m"), -EINVAL);
	assert_string_equal(parse_error, NO_LOWER);
	assert_int_equal(PARSE(&o, "/m", "-o"), -EINVAL);
	assert_string_equal(parse_error, "missing argument after -o");
	assert_bad("lowerdir=", NO_LOWER);
	assert_bad("lowerdir=:::", NO_LOWER);
	assert_bad("upperdir=/u,workdir=/w", NO_LOWER);
	assert_bad("lowerdir=/l,upperdir=/u", "workdir not specified: an upperdir needs one, a "
					      "directory on the same file system");
}

static void test_options__no_workdir_is_wanted_where_none_is_used(void **state)
{
	static const char *const lists[] = { "lowerdir=/l", "lowerdir=/l,workdir=/w",
					     "lowerdir=/l,upperdir=/u,ro" };

	(void)state;
	for (size_t i = 0; i < 3; i++) {
		struct mount_opts o = good(lists[i]);

		options_release(&o);
	}
}

static void test_options__what_belongs_to_o_is_not_ignored(void **state)
{
	static const char *const lines[][6] = {
		{ "-o", "lowerdir=/l,", "upperdir=/u,workdir=/w", "/m" },
		{ "-o", "lowerdir=/l", "workdir=/w", "/m" },
		{ "lowerdir=/l,upperdir=/u", "/m" },
		{ "-o", "lowerdir=/l", "/m", "upperdir=/u" },
	};
	static const char *const strays[] = { "upperdir=/u,workdir=/w", "workdir=/w",
					      "lowerdir=/l,upperdir=/u", "upperdir=/u" };
	struct mount_opts o;

	(void)state;
	for (size_t i = 0; i < sizeof(lines) / sizeof(*lines); i++) {
		assert_int_equal(parse_words("/", true, &o, lines[i]), -EINVAL);
		assert_memory_equal(parse_error, strays[i], strlen(strays[i]));
		assert_non_null(strstr(parse_error, " is not a part of -o"));
	}
}

static void test_options__strict_makes_unknown_ones_an_error(void **state)
{
	struct mount_opts o;
	char *text;

	(void)state;
	assert_bad_with_lower("strict,sizze=5M",
			      "unknown option: sizze=5M; with strict that is an error");
	assert_bad_with_lower("sizze=5M,strict",
			      "unknown option: sizze=5M; with strict that is an error");
	assert_int_equal(PARSE(&o, "--foo", "-o", "lowerdir=/l,strict", "/m"), -EINVAL);
	assert_string_equal(parse_error, "unknown option: --foo; with strict that is an error");
	assert_int_equal(PARSE(&o, "--foo", "-o", "lowerdir=/l,sizze=5M,a=b\\,c", "/m"), 0);
	text = options_unknown(&o);
	assert_string_equal(text, "--foo, sizze=5M, a=b\\,c");
	free(text);
	options_release(&o);
	o = good_with_lower("predictor=latest");
	assert_int_equal(o.n_unknown, 1);
	options_release(&o);
	o = good_with_lower("strict,size=5M,private,xino=auto,context=x,,");
	assert_null(options_unknown(&o));
	options_release(&o);
}

static void test_options__relative_paths_are_the_callers(void **state)
{
	const char *words[] = { "-o", "lowerdir=a:b/c:/d,upperdir=u,workdir=../w", "m", NULL };
	struct mount_opts o;

	(void)state;
	assert_int_equal(parse_words("/home/x", false, &o, words), 0);
	assert_lowers(&o, "/home/x/a|/home/x/b/c|/d");
	assert_string_equal(o.upper, "/home/x/u");
	assert_string_equal(o.work, "/home/x/../w");
	assert_string_equal(o.mountpoint, "/home/x/m");
	options_release(&o);
	assert_int_equal(parse_words("/", false, &o, words), 0);
	assert_lowers(&o, "/a|/b/c|/d");
	options_release(&o);
}

static void test_options__failure_leaves_the_result_alone(void **state)
{
	struct mount_opts o, before;

	(void)state;
	memset(&o, 0x5a, sizeof(o));
	memset(&before, 0x5a, sizeof(before));
	assert_int_equal(PARSE(&o, "-o", "lowerdir=/l,upperdir=/u,uidmapping=0:0:1,cow=x", "/m"),
			 -EINVAL);
	assert_memory_equal(&o, &before, sizeof(o));
}

static void test_options__long_sentence_is_cut_not_overrun(void **state)
{
	const char *argv[] = { "x", "-o", "lowerdir=/l,uidmapping=abcdefghijklmnopqrstuvwxyz",
			       "/m" };
	struct mount_opts o;
	char err[20];

	(void)state;
	assert_int_equal(
		options_parse(&(struct options_argv){ 4, (char *const *)argv, "/", true, false },
			      &o, err, sizeof(err)),
		-EINVAL);
	assert_string_equal(err, "invalid mapping spe");
}

/* ---- separators ---- */

static void test_options__quotes_protect_commas(void **state)
{
	struct mount_opts o = good("lowerdir=/l,context=\"system_u:object_r:x_t:s0:c1,c2\",noacl");

	(void)state;
	assert_true(o.has_no_acl);
	assert_int_equal(o.n_unknown, 0);
	options_release(&o);
	o = good("lowerdir=/l,upperdir=/a\"b,workdir=/w");
	assert_string_equal(o.upper, "/a\"b");
	assert_string_equal(o.work, "/w");
	options_release(&o);
}

static void test_options__empty_options_are_skipped(void **state)
{
	struct mount_opts o = good(",,lowerdir=/l,,volatile,,");

	(void)state;
	assert_true(o.is_volatile);
	assert_int_equal(o.n_unknown, 0);
	options_release(&o);
}

/* ---- what is given to the kernel ---- */

static void test_options__kernel_words_follow_the_injected_ones(void **state)
{
	static const char *const words[] = {
		"suid",	  "nosuid", "dev", "nodev",	  "exec",
		"noexec", "ro",	    "rw",  "allow_other", "default_permissions",
	};
	const char *user[] = { "-olowerdir=/l,nosuid,ro", "/m", NULL };
	struct mount_opts o;

	(void)state;
	for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++) {
		char expected[256];

		o = good_with_lower(words[i]);
		snprintf(expected, sizeof(expected), KERNEL_ROOT ",%s" NOATIME, words[i]);
		assert_string_equal(o.kernel_opts, expected);
		assert_int_equal(o.n_unknown, 0);
		options_release(&o);
	}
	assert_int_equal(parse_words("/", false, &o, user), 0);
	assert_string_equal(o.kernel_opts, KERNEL_USER ",nosuid,ro" NOATIME);
	options_release(&o);
}

static void test_options__allow_root_leaves_allow_other_out_or_is_an_error(void **state)
{
	const char *user[] = { "-olowerdir=/l,allow_root", "/m", NULL };
	struct mount_opts o = good_with_lower("allow_root,nodev");

	(void)state;
	assert_string_equal(o.kernel_opts, KERNEL_USER ",suid,nodev" NOATIME);
	assert_int_equal(o.n_unknown, 0);
	options_release(&o);
	assert_bad_with_lower("allow_root,allow_other",
			      "allow_root and allow_other exclude each other: give one of them");
	assert_bad_with_lower("allow_other,allow_root",
			      "allow_root and allow_other exclude each other: give one of them");
	assert_true(parse_words("/", false, &o, user) < 0);
}

static void test_options__atime_is_the_absence_of_noatime(void **state)
{
	static const struct {
		const char *text, *kernel;
	} table[] = {
		{ "atime", KERNEL_ROOT },
		{ "noatime", KERNEL_ROOT NOATIME },
		{ "atime,noatime", KERNEL_ROOT NOATIME },
		{ "noatime,atime,dev", KERNEL_ROOT ",dev" },
	};

	(void)state;
	for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++) {
		struct mount_opts o = good_with_lower(table[i].text);

		assert_string_equal(o.kernel_opts, table[i].kernel);
		assert_int_equal(o.n_unknown, 0);
		options_release(&o);
	}
}

static void test_options__shared_pages_are_cached_and_locked_by_the_server(void **state)
{
	struct mount_opts o = good_with_lower("io=cached"), shared = good_with_lower("share=pages");

	(void)state;
	assert_int_equal(o.share, SHARE_OFF);
	assert_int_equal(shared.share, SHARE_PAGES);
	assert_int_equal(shared.io, IO_CACHED);
	assert_int_equal(shared.locks, LOCKING_SERVER);
	options_release(&o);
	options_release(&shared);
	assert_bad_with_lower("share=pages,io=direct",
			      "share=pages shares the pages of cached files: not with "
			      "io=passthrough or io=direct");
	assert_bad_with_lower("io=passthrough,share=pages",
			      "share=pages shares the pages of cached files: not with "
			      "io=passthrough or io=direct");
	assert_bad_with_lower("share=pages,timeout=0",
			      "share=pages shares what the kernel keeps: not with timeout=0");
}

/* ---- what callers really send ---- */

static void test_options__podman(void **state)
{
	struct mount_opts o =
		good("lowerdir=/s/l/AAA:/s/l/BBB,upperdir=/s/x/diff,workdir=/s/x/work,"
		     ",volatile,context=\"system_u:object_r:container_file_t:s0:c1,c2\","
		     ",uidmapping=:0:1000:1:1:100000:65536,"
		     "gidmapping=:0:1000:1:1:100000:65536,xattr_permissions=2,");

	(void)state;
	assert_lowers(&o, "/s/l/AAA|/s/l/BBB");
	assert_string_equal(o.upper, "/s/x/diff");
	assert_string_equal(o.work, "/s/x/work");
	assert_true(o.is_volatile);
	assert_int_equal(o.uids.n, 2);
	assert_int_equal(o.gids.n, 2);
	assert_int_equal(idmap_from_disk(&o.uids, 5), 100004);
	assert_int_equal(o.xattr_permissions, 2);
	assert_int_equal(o.n_unknown, 0);
	options_release(&o);
}

static void test_options__buildah_volume(void **state)
{
	struct mount_opts o = good("lowerdir=/home/u/a\\:b,upperdir=/c/overlay/1/upper,"
				   "workdir=/c/overlay/1/work,private,context=\"s0:c1,c2\"");

	(void)state;
	assert_lowers(&o, "/home/u/a:b");
	assert_true(o.is_private);
	assert_int_equal(o.cow, COW_COPY);
	assert_int_equal(o.n_unknown, 0);
	options_release(&o);
}

static void test_options__docker(void **state)
{
	struct mount_opts o = good("lowerdir=/d/l/A:/d/l/B,upperdir=/d/i/diff,workdir=/d/i/work,"
				   "context=\"system_u:object_r:svirt_sandbox_file_t:s0:c1,c2\"");

	(void)state;
	assert_lowers(&o, "/d/l/A|/d/l/B");
	assert_int_equal(o.n_unknown, 0);
	options_release(&o);
}

static void test_options__snapshotter(void **state)
{
	struct mount_opts o;

	(void)state;
	assert_int_equal(PARSE(&o, "overlay", "/t", "-o",
			       "workdir=/w,upperdir=/u,lowerdir=/l1:/l2,uidmapping=0:100:5,"
			       "gidmapping=0:100:5,ro,dev,suid"),
			 0);
	assert_lowers(&o, "/l1|/l2");
	assert_true(o.is_readonly);
	assert_string_equal(o.mountpoint, "/t");
	assert_string_equal(o.kernel_opts, KERNEL_ROOT ",ro,dev,suid" NOATIME);
	assert_int_equal(o.n_unknown, 0);
	options_release(&o);
}

static void test_options__fstab(void **state)
{
	struct mount_opts o;

	(void)state;
	assert_int_equal(PARSE(&o, "overlay", "/m", "-o", "rw,lowerdir=/l,nodev,suid"), 0);
	assert_string_equal(o.kernel_opts, KERNEL_ROOT ",rw,nodev,suid" NOATIME);
	assert_int_equal(o.n_unknown, 0);
	options_release(&o);
}

/* mount(8) runs "mount.veneer SPEC DIR -o ...", and knows a mount again by SPEC. */
static void test_options__source_names_the_container(void **state)
{
	char program[] = "fuse-overlayfs", flag[] = "-o", lower[] = "lowerdir=/l",
	     shared[] = "lowerdir=/l,share=pages";
	char point[] = "/s/overlay/"
		       "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef/merged";
	char *argv[] = { program, flag, lower, point };
	struct mount_opts o;
	char err[256];

	(void)state;
	assert_int_equal(options_parse(&(struct options_argv){ 4, argv, "/", false, false }, &o,
				       err, sizeof(err)),
			 0);
	assert_non_null(strstr(o.kernel_opts, ",fsname=fuse-overlayfs:0123456789ab,"));
	options_release(&o);
	argv[2] = shared;
	assert_int_equal(options_parse(&(struct options_argv){ 4, argv, "/", false, false }, &o,
				       err, sizeof(err)),
			 0);
	assert_null(strstr(o.kernel_opts, "0123456789ab"));
	options_release(&o);
}

static void test_options__helper_of_mount(void **state)
{
	const char *argv[] = {
		"/sbin/mount.veneer",
		"a,b\\c",
		"/mnt",
		"-o",
		"lowerdir=/l,nofail,_netdev,user=me,users,comment=a,x-y=z,X-y,strange",
		NULL
	};
	struct mount_opts o;

	(void)state;
	assert_int_equal(
		options_parse(&(struct options_argv){ 5, (char *const *)argv, "/", false, false },
			      &o, parse_error, sizeof(parse_error)),
		0);
	assert_string_equal(o.kernel_opts, KERNEL_USER ",fsname=a\\,b\\\\c" NOATIME);
	assert_string_equal(o.mountpoint, "/mnt");
	assert_int_equal(o.n_unknown, 1);
	assert_string_equal(o.unknown[0], "strange");
	options_release(&o);

	argv[0] = "/usr/bin/veneer";
	assert_int_equal(
		options_parse(&(struct options_argv){ 5, (char *const *)argv, "/", false, false },
			      &o, parse_error, sizeof(parse_error)),
		0);
	assert_string_equal(o.kernel_opts, KERNEL_USER NOATIME);
	assert_int_equal(o.n_unknown, 8);
	options_release(&o);
}

static void test_options__five_hundred_lowers_in_128_kib(void **state)
{
	size_t size = 128 << 10, len = 9;
	char *list = malloc(size);
	struct mount_opts o;

	(void)state;
	assert_non_null(list);
	memcpy(list, "lowerdir=", 10);
	for (int i = 0; i < 500; i++)
		len += (size_t)snprintf(list + len, size - len, "%s/%0255d", i ? ":" : "", i);
	snprintf(list + len, size - len, ",upperdir=/u,workdir=/w,noacl");
	o = good(list);
	assert_int_equal(o.n_lower, 500);
	assert_int_equal(strlen(o.lower[499]), 256);
	assert_string_equal(o.lower[499] + 253, "499");
	assert_true(o.has_no_acl);
	options_release(&o);
	free(list);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_options__defaults),
		cmocka_unit_test(test_options__last_plain_argument_is_the_mountpoint),
		cmocka_unit_test(test_options__o_repeats_and_glues),
		cmocka_unit_test(test_options__dash_forms),
		cmocka_unit_test(test_options__help_and_version_need_nothing_else),
		cmocka_unit_test(test_options__unknown_ones_are_collected_and_never_fail),
		cmocka_unit_test(test_options__missing_parts_are_named),
		cmocka_unit_test(test_options__no_workdir_is_wanted_where_none_is_used),
		cmocka_unit_test(test_options__what_belongs_to_o_is_not_ignored),
		cmocka_unit_test(test_options__strict_makes_unknown_ones_an_error),
		cmocka_unit_test(test_options__relative_paths_are_the_callers),
		cmocka_unit_test(test_options__failure_leaves_the_result_alone),
		cmocka_unit_test(test_options__long_sentence_is_cut_not_overrun),
		cmocka_unit_test(test_options__quotes_protect_commas),
		cmocka_unit_test(test_options__empty_options_are_skipped),
		cmocka_unit_test(test_options__kernel_words_follow_the_injected_ones),
		cmocka_unit_test(test_options__allow_root_leaves_allow_other_out_or_is_an_error),
		cmocka_unit_test(test_options__atime_is_the_absence_of_noatime),
		cmocka_unit_test(test_options__shared_pages_are_cached_and_locked_by_the_server),
		cmocka_unit_test(test_options__podman),
		cmocka_unit_test(test_options__buildah_volume),
		cmocka_unit_test(test_options__docker),
		cmocka_unit_test(test_options__snapshotter),
		cmocka_unit_test(test_options__fstab),
		cmocka_unit_test(test_options__source_names_the_container),
		cmocka_unit_test(test_options__helper_of_mount),
		cmocka_unit_test(test_options__five_hundred_lowers_in_128_kib),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
