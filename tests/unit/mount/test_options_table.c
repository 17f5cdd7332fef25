// SPDX-License-Identifier: Apache-2.0
#include "support/parse.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

static void test_options_table__flags(void **state)
{
	static const struct {
		const char *text;
		size_t field;
		bool expected;
	} table[] = {
#define ROW(text, field, expected) { text, offsetof(struct mount_opts, field), expected }
		ROW("squash_to_root", squash_to_root, true),
		ROW("static_nlink", has_static_nlink, true),
		ROW("noacl", has_no_acl, true),
		ROW("userxattr", is_userxattr, true),
		ROW("volatile", is_volatile, true),
		ROW("fsync=0", is_volatile, true),
		ROW("fsync=1", is_volatile, false),
		ROW("sync=0", is_volatile, true),
		ROW("sync=1", is_volatile, false),
		ROW("volatile,fsync=1", is_volatile, false),
		ROW("noxattrs=1", has_no_xattrs, true),
		ROW("noxattrs=0", has_no_xattrs, false),
		ROW("private", is_private, true),
		ROW("debug", is_debug, true),
		ROW("debug", is_foreground, true),
		ROW("ro", is_readonly, true),
		ROW("rw", is_readonly, false),
		ROW("ro,rw", is_readonly, false),
		ROW("rw,ro", is_readonly, true),
#undef ROW
	};

	(void)state;
	for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++) {
		struct mount_opts o = good_with_lower(table[i].text);

		assert_int_equal(*(bool *)((char *)&o + table[i].field), table[i].expected);
		assert_int_equal(o.n_unknown, 0);
		options_release(&o);
	}
}

static void test_options_table__accepted_ones_change_nothing(void **state)
{
	static const char *const table[] = {
		"threaded=0",	 "threaded=1",	     "fast_ino=1",	 "fast_ino_check=0",
		"plugins=/p.so", "redirect_dir=off", "context=\"a,b\"",	 "xino=off",
		"xino=auto",	 "xino=on",	     "ino32_t",		 "diratime",
		"nodiratime",	 "splice_write",     "splice_read",	 "splice_move",
		"kernel_cache",	 "max_write",	     "max_write=131072", "uidmapping=",
		"gidmapping=:",
	};

	(void)state;
	for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++) {
		struct mount_opts o = good_with_lower(table[i]);

		assert_int_equal(o.n_unknown, 0);
		assert_int_equal(o.uids.n + o.gids.n, 0);
		assert_string_equal(o.kernel_opts, KERNEL_ROOT NOATIME);
		options_release(&o);
	}
}

static void test_options_table__ids_and_numbers(void **state)
{
	struct mount_opts o = good_with_lower("uidmapping=:0:100000:65536,gidmapping=5:6:7,"
					      "squash_to_uid=1000,squash_to_gid=4294967294,"
					      "timeout=0.25,xattr_permissions=2");

	(void)state;
	assert_int_equal(o.uids.n, 1);
	assert_int_equal(idmap_from_disk(&o.uids, 1), 100001);
	assert_int_equal(o.gids.n, 1);
	assert_int_equal(idmap_to_disk(&o.gids, 6), 5);
	assert_int_equal(o.squash_uid, 1000);
	assert_true(o.squash_gid == 4294967294);
	assert_true(o.timeout_s == 0.25);
	assert_int_equal(o.xattr_permissions, 2);
	options_release(&o);
	o = good_with_lower("timeout=0,squash_to_uid=-1,uidmapping=0:0:1,uidmapping=1:2:3");
	assert_true(o.timeout_s == 0);
	assert_int_equal(o.squash_uid, -1);
	assert_int_equal(o.uids.n, 1);
	assert_int_equal(o.uids.rows[0].outside, 1);
	options_release(&o);
}

static void test_options_table__cow_is_copied_for_private_volumes(void **state)
{
	static const struct {
		const char *text;
		enum cow_mode cow;
		bool is_given;
	} table[] = {
		{ "cow=map", COW_MAP, true },	      { "cow=copy", COW_COPY, true },
		{ "private", COW_COPY, false },	      { "private,cow=map", COW_MAP, true },
		{ "cow=map,private", COW_MAP, true },
	};

	(void)state;
	for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++) {
		struct mount_opts o = good_with_lower(table[i].text);

		assert_int_equal(o.cow, table[i].cow);
		assert_int_equal(o.is_cow_given, table[i].is_given);
		options_release(&o);
	}
}

static void test_options_table__ways_to_open(void **state)
{
	struct mount_opts o = good("lowerdir=/l");

	(void)state;
	assert_int_equal(o.io, IO_AUTO);
	assert_int_equal(o.coherence, COHERENCE_AUTO);
	assert_int_equal(o.partial, PARTIAL_AUTO);
	assert_int_equal(o.locks, LOCKING_LOCAL);
	options_release(&o);
	o = good_with_lower("io=passthrough,coherence=strict,partial=cached");
	assert_int_equal(o.io, IO_PASSTHROUGH);
	assert_int_equal(o.coherence, COHERENCE_STRICT);
	assert_int_equal(o.partial, PARTIAL_CACHED);
	options_release(&o);
	o = good_with_lower("io=direct,coherence=fast,partial=direct,locks=server");
	assert_int_equal(o.io, IO_DIRECT);
	assert_int_equal(o.coherence, COHERENCE_FAST);
	assert_int_equal(o.partial, PARTIAL_DIRECT);
	assert_int_equal(o.locks, LOCKING_SERVER);
	options_release(&o);
	o = good_with_lower("io=direct,io=cached,io=\"cached\"");
	assert_int_equal(o.io, IO_CACHED);
	options_release(&o);
}

static void test_options_table__writeback(void **state)
{
	static const struct {
		const char *options;
		enum writeback_mode mode;
	} table[] = {
		{ "ro", WRITEBACK_AUTO },	   { "writeback=auto", WRITEBACK_AUTO },
		{ "writeback=on", WRITEBACK_ON },  { "writeback=off", WRITEBACK_OFF },
		{ "writeback=1", WRITEBACK_AUTO }, { "writeback=0", WRITEBACK_OFF },
	};

	(void)state;
	for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++) {
		struct mount_opts o = good_with_lower(table[i].options);

		assert_int_equal(o.writeback, table[i].mode);
		options_release(&o);
	}
	assert_bad_with_lower("writeback=2",
			      "invalid value for writeback: 2; it takes auto|on|off");
}

static void test_options_table__layers(void **state)
{
	static const struct {
		const char *options;
		bool is_static;
	} table[] = {
		{ "ro", false },
		{ "layers=auto", false },
		{ "layers=static", true },
		{ "layers=static,layers=auto", false },
		{ "layers=auto,layers=static", true },
	};

	(void)state;
	for (size_t i = 0; i < sizeof(table) / sizeof(*table); i++) {
		struct mount_opts o = good_with_lower(table[i].options);

		assert_int_equal(o.has_static_layers, table[i].is_static);
		options_release(&o);
	}
}

static void test_options_table__limits_of_the_upper(void **state)
{
	static const struct {
		const char *text;
		uint64_t bytes, inodes;
	} table[] = {
		{ "ro", 0, 0 },
		{ "size=10G,inodes=200k", (uint64_t)10 << 30, 200000 },
		{ "size=4096,inodes=7", 4096, 7 },
		{ "size=3t,inodes=2M", (uint64_t)3 << 40, 2000000 },
		{ "size=5M,size=1k", 1024, 0 },
	};

	(void)state;
	for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++) {
		struct mount_opts o = good_with_lower(table[i].text);

		assert_int_equal(o.max_bytes, table[i].bytes);
		assert_int_equal(o.max_inodes, table[i].inodes);
		options_release(&o);
	}
}

static void test_options_table__copies(void **state)
{
	static const struct {
		const char *text;
		uint32_t copies;
	} table[] = {
		{ "ro", OPTIONS_COPIES_AUTO },
		{ "copies=auto", OPTIONS_COPIES_AUTO },
		{ "copies=1", 1 },
		{ "copies=all", OPTIONS_COPIES_ALL },
		{ "copies=all,copies=64", 64 },
		{ "copies=3,copies=auto", OPTIONS_COPIES_AUTO },
	};

	(void)state;
	for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++) {
		struct mount_opts o = good_with_lower(table[i].text);

		assert_int_equal(o.copies, table[i].copies);
		options_release(&o);
	}
}

static void test_options_table__bad_values_are_one_sentence(void **state)
{
	static const struct {
		const char *text, *sentence;
	} table[] = {
		{ "uidmapping=1:2", "invalid mapping specified: 1:2; the form is "
				    "uidmapping=ON_DISK:SHOWN:COUNT[:...]" },
		{ "gidmapping=a:2:3", "invalid mapping specified: a:2:3; the form is "
				      "gidmapping=ON_DISK:SHOWN:COUNT[:...]" },
		{ "redirect_dir=on", "fuse-overlayfs only supports redirect_dir=off" },
		{ "xattr_permissions=3",
		  "invalid value for xattr_permissions: 3; it takes 0, 1 or 2" },
		{ "xattr_permissions=x",
		  "invalid value for xattr_permissions: x; it takes 0, 1 or 2" },
		{ "squash_to_uid=x", "invalid value for squash_to_uid: x; it takes a user id" },
		{ "squash_to_gid=4294967295",
		  "invalid value for squash_to_gid: 4294967295; it takes a group id" },
		{ "fsync=x", "invalid value for fsync: x; it takes 0 or 1" },
		{ "sync=", "invalid value for sync: ; it takes 0 or 1" },
		{ "noxattrs=yes", "invalid value for noxattrs: yes; it takes 0 or 1" },
		{ "timeout=x", "invalid value for timeout: x; it takes seconds, 0 or more" },
		{ "timeout=-1", "invalid value for timeout: -1; it takes seconds, 0 or more" },
		{ "timeout=nan", "invalid value for timeout: nan; it takes seconds, 0 or more" },
		{ "threaded=x", "invalid value for threaded: x; it takes a number" },
		{ "xino=maybe", "invalid value for xino: maybe; it takes off|auto|on" },
		{ "cow=clone", "invalid value for cow: clone; it takes map|copy" },
		{ "io=", "invalid value for io: ; it takes auto|passthrough|cached|direct" },
		{ "io=fast",
		  "invalid value for io: fast; it takes auto|passthrough|cached|direct" },
		{ "coherence=Strict",
		  "invalid value for coherence: Strict; it takes auto|strict|fast" },
		{ "layers=", "invalid value for layers: ; it takes auto|static" },
		{ "layers=dynamic", "invalid value for layers: dynamic; it takes auto|static" },
		{ "share=", "invalid value for share: ; it takes off|pages" },
		{ "share=all", "invalid value for share: all; it takes off|pages" },
		{ "locks=off", "invalid value for locks: off; it takes local|server" },
		{ "copies=0",
		  "invalid value for copies: 0; it takes auto, all or a number of mounts" },
		{ "copies=-1",
		  "invalid value for copies: -1; it takes auto, all or a number of mounts" },
		{ "copies=4294967295", "invalid value for copies: 4294967295; it takes auto, all "
				       "or a number of mounts" },
		{ "copies=2x",
		  "invalid value for copies: 2x; it takes auto, all or a number of mounts" },
		{ "copies=",
		  "invalid value for copies: ; it takes auto, all or a number of mounts" },
		{ "size=0",
		  "invalid value for size: 0; it takes bytes, with K, M, G or T behind them" },
		{ "size=1Q",
		  "invalid value for size: 1Q; it takes bytes, with K, M, G or T behind them" },
		{ "size=20000000T", "invalid value for size: 20000000T; it takes bytes, with K, M, "
				    "G or T behind them" },
		{ "size=",
		  "invalid value for size: ; it takes bytes, with K, M, G or T behind them" },
		{ "size=-1",
		  "invalid value for size: -1; it takes bytes, with K, M, G or T behind them" },
		{ "size=K",
		  "invalid value for size: K; it takes bytes, with K, M, G or T behind them" },
		{ "size=1KK",
		  "invalid value for size: 1KK; it takes bytes, with K, M, G or T behind them" },
		{ "size=17179869184G",
		  "invalid value for size: 17179869184G; it takes bytes, with K, M, G or T "
		  "behind them" },
		{ "threaded=9223372036854775808",
		  "invalid value for threaded: 9223372036854775808; it "
		  "takes a number" },
		{ "inodes=1G",
		  "invalid value for inodes: 1G; it takes a number, with k or m behind it" },
		{ "io=auto|cached",
		  "invalid value for io: auto|cached; it takes auto|passthrough|cached|direct" },
		{ "cow=map\\,", "invalid value for cow: map\\,; it takes map|copy" },
		{ "promote=eage",
		  "invalid value for promote: eage; it takes off|auto|eager|written, "
		  "or bytes a second, with K, M or G behind them" },
		{ "upperdir=", "no directory is given for upperdir: a mount that changes nothing "
			       "leaves the option out" },
		{ "upperdir=/u,workdir=", "no directory is given for workdir: a mount that changes "
					  "nothing leaves the option out" },
		{ "squash=10001", "invalid value for squash: 10001; it takes off or a number of "
				  "snapshots" },
		{ "writeback=2", "invalid value for writeback: 2; it takes auto|on|off" },
		{ "partial=on", "invalid value for partial: on; it takes auto|cached|direct" },
		{ "lowerdir=//plug//data", "plugin layers are not supported: //plug//data" },
		{ "lowerdir=/a://p/x/y:/b", "plugin layers are not supported: //p/x/y" },
	};

	(void)state;
	for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++)
		assert_bad_with_lower(table[i].text, table[i].sentence);
}

static void test_options_table__what_holds_is_said_with_the_defaults(void **state)
{
	struct mount_opts o =
		good("lowerdir=/l,upperdir=/u,workdir=/"
		     "w,size=1K,share=pages,promote=8M,promote_max=1M,noacl,timeout=1,private,"
		     "squash=20");
	char *text;

	(void)state;
	assert_int_equal(options_in_effect(&o, &text), 0);
	assert_string_equal(
		text, "noacl,cow=copy,io=cached,coherence=auto,share=pages,partial=auto,locks="
		      "server,branches=off,promote=auto,"
		      "layers=auto,prefetch=off,private,timeout=1,"
		      "promote_max=1048576,squash=20,size=1024," KERNEL_ROOT NOATIME);
	free(text);
	options_release(&o);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_options_table__flags),
		cmocka_unit_test(test_options_table__writeback),
		cmocka_unit_test(test_options_table__accepted_ones_change_nothing),
		cmocka_unit_test(test_options_table__ids_and_numbers),
		cmocka_unit_test(test_options_table__cow_is_copied_for_private_volumes),
		cmocka_unit_test(test_options_table__ways_to_open),
		cmocka_unit_test(test_options_table__layers),
		cmocka_unit_test(test_options_table__limits_of_the_upper),
		cmocka_unit_test(test_options_table__copies),
		cmocka_unit_test(test_options_table__bad_values_are_one_sentence),
		cmocka_unit_test(test_options_table__what_holds_is_said_with_the_defaults),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
