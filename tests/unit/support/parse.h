/* SPDX-License-Identifier: Apache-2.0 */
/* Options as a caller gives them, for the tests of what reads them. What is parsed is the caller's
 * to release. */
#pragma once

#include "veneer/mount/options.h"

/* The words for the kernel that are there without an option. */
#define KERNEL_USER "fsname=fuse-overlayfs,subtype=fuse-overlayfs,default_permissions"
#define KERNEL_ROOT KERNEL_USER ",allow_other,suid"
#define NOATIME	    ",noatime"

/* The error text of the last parse_words. */
extern char parse_error[256];

/* options_parse of words up to a NULL; the program's name is added. */
int parse_words(const char *cwd, bool is_root, struct mount_opts *ret, const char *const *words);
#define PARSE(ret, ...) parse_words("/cwd", true, ret, (const char *[]){ __VA_ARGS__, NULL })

/* "-o list /mnt", as root; the test fails if that is no good. with_lower: "lowerdir=/l," goes
 * before it. */
struct mount_opts good(const char *list);
struct mount_opts good_with_lower(const char *more);
/* -EINVAL, and this sentence. */
void assert_bad(const char *list, const char *sentence);
void assert_bad_with_lower(const char *more, const char *sentence);
/* expected: the lowers joined by '|'. */
void assert_lowers(const struct mount_opts *o, const char *expected);
