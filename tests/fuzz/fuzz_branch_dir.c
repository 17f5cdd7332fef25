// SPDX-License-Identifier: Apache-2.0
/* An input is what somebody has put into the hidden directory of an upper's snapshots: steps of two
 * or three bytes, which make names of those that mean something there. It is looked at, finished or
 * taken back, and used. Nothing beside the upper may change, a reader shows what a writer makes of
 * it, and a second attempt changes nothing. */
#include "support.h"

#include "veneer/base/cleanup.h"
#include "veneer/base/hash.h"
#include "veneer/layer/branch_dir.h"
#include "veneer/layer/branch_merge.h"
#include "veneer/layer/snapshot_number.h"
#include "veneer/map/mapfile.h"
#include "veneer/sys/rmtree.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#define UPPER	"upper"
#define OUTSIDE "outside"
#define LINES	6
#define STEPS	64

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const uint64_t ids[] = { 1, 2, 3, 0xabcdef };

#define ID(n)  "000000000000000" n
#define HOLDER "/" BRANCH_DIR_NAME

/* In the directory of snapshots. Each is also made in what is outside, so that a link that is
 * followed does harm. */
static const char *const places[] = {
	"chain",
	"chain.new",
	"squash",
	"squash" HOLDER,
	"squash" HOLDER "/new",
	"squash" HOLDER "/" ID("1"),
	"squash/a",
	ID("1"),
	ID("2"),
	ID("3"),
	ID("1") ".new",
	ID("2") ".new",
	ID("3") ".new",
	ID("1") ".old",
	ID("2") ".old",
	ID("1") "/a",
	ID("2") "/a",
	ID("1") "/d",
	ID("1") "/d/a",
	ID("2") "/" MAPFILE_NAME,
	ID("1") HOLDER,
	ID("1") HOLDER "/new",
	ID("1") HOLDER "/" ID("1"),
	ID("1") HOLDER "/" ID("2"),
	ID("1") HOLDER "/" ID("2") "/a",
	ID("2") HOLDER,
	ID("2") HOLDER "/new",
	ID("2") HOLDER "/" ID("1"),
	ID("2") HOLDER "/" ID("1") "/a",
	ID("2") HOLDER "/" ID("3"),
	ID("1") ".new/a",
	ID("1") ".new/b",
	ID("1") ".new/d",
	ID("1") ".new/d/a",
	ID("1") ".new/" MAPFILE_NAME,
	ID("1") ".new" HOLDER,
	ID("1") ".new" HOLDER "/x",
	ID("2") ".new/b",
	ID("1") ".old/a",
	ID("1") ".old/d",
	ID("1") "/" MAPFILE_NAME,
	"0000000000000000.new",
	"fffffffffffffffff.new",
	ID("3") HOLDER,
	ID("3") HOLDER "/new",
	ID("3") HOLDER "/" ID("2"),
	ID("3") "/a",
	"",
};

struct input {
	const uint8_t *data;
	size_t n;
};

static uint8_t draw(struct input *in)
{
	if (!in->n)
		return 0;
	in->n--;
	return *in->data++;
}

/* ---- what is there ---- */

struct state {
	uint64_t sum;
	bool has_times;
};

static void add(struct state *s, const void *p, size_t n)
{
	s->sum = s->sum * 31 + hash_checksum(p, n);
}

static void add_contents(struct state *s, int dirfd, const char *name)
{
	_cleanup_(closep) int fd = openat(dirfd, name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
	char buf[4096];
	ssize_t n;

	while (fd >= 0 && (n = read(fd, buf, sizeof(buf))) > 0)
		add(s, buf, (size_t)n);
}

static void add_tree(struct state *s, int dirfd, const char *name);

static int by_name(const struct dirent **a, const struct dirent **b)
{
	return strcmp((*a)->d_name, (*b)->d_name);
}

static void add_entries(struct state *s, int dirfd, const char *name)
{
	_cleanup_(closep) int fd = openat(dirfd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW);
	struct dirent **list;
	int n = fd < 0 ? -1 : scandirat(fd, ".", &list, NULL, by_name);

	for (int k = 0; k < n; k++) {
		if (strcmp(list[k]->d_name, ".") != 0 && strcmp(list[k]->d_name, "..") != 0)
			add_tree(s, fd, list[k]->d_name);
		free(list[k]);
	}
	if (n >= 0)
		free(list);
}

static void add_tree(struct state *s, int dirfd, const char *name)
{
	char target[256];
	struct stat st;
	ssize_t n;

	fuzz_require(fstatat(dirfd, name, &st, AT_SYMLINK_NOFOLLOW) == 0);
	add(s, name, strlen(name));
	add(s, &st.st_mode, sizeof(st.st_mode));
	add(s, &st.st_ino, sizeof(st.st_ino));
	if (s->has_times)
		add(s, &st.st_mtim, sizeof(st.st_mtim));
	if (S_ISLNK(st.st_mode) && (n = readlinkat(dirfd, name, target, sizeof(target))) > 0)
		add(s, target, (size_t)n);
	if (S_ISREG(st.st_mode))
		add_contents(s, dirfd, name);
	if (S_ISDIR(st.st_mode))
		add_entries(s, dirfd, name);
}

static uint64_t state_of(int base, const char *name, bool has_times)
{
	struct state s = { .has_times = has_times };

	add_tree(&s, base, name);
	return s.sum;
}

/* ---- what is made ---- */

static void put(int dirfd, const char *name, const void *data, size_t n)
{
	_cleanup_(closep) int fd =
		openat(dirfd, name,
		       O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0644);

	if (fd >= 0 && write(fd, data, n) != (ssize_t)n)
		abort();
}

/* In this order each is made before what is in it. */
static void make_outside(int base)
{
	_cleanup_(closep) int fd = -1;

	fuzz_require(mkdirat(base, OUTSIDE, 0755) == 0);
	fd = openat(base, OUTSIDE, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	fuzz_require(fd >= 0);
	fuzz_require(mkdirat(fd, BRANCH_DIR_NAME, 0755) == 0);
	fuzz_require(mkdirat(fd, BRANCH_DIR_NAME "/new", 0755) == 0);
	fuzz_require(mkdirat(fd, BRANCH_DIR_NAME "/" ID("1"), 0755) == 0);
	fuzz_require(mkdirat(fd, BRANCH_DIR_NAME "/" ID("2"), 0755) == 0);
	fuzz_require(mkdirat(fd, "new", 0755) == 0);
	fuzz_require(mkdirat(fd, ID("1"), 0755) == 0);
	fuzz_require(mkdirat(fd, ID("2"), 0755) == 0);
	put(fd, "a", "outside", 7);
	put(fd, "b", "outside", 7);
	put(fd, ID("1") "/a", "outside", 7);
	put(fd, ID("2") "/a", "outside", 7);
	put(fd, BRANCH_DIR_NAME "/" ID("2") "/a", "outside", 7);
	put(fd, MAPFILE_NAME, "map", 3);
}

static int make_upper(int base)
{
	int fd;

	fuzz_require(mkdirat(base, UPPER, 0755) == 0);
	fd = openat(base, UPPER, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	fuzz_require(fd >= 0 && mkdirat(fd, BRANCH_DIR_NAME, 0700) == 0);
	put(fd, "a", "upper", 5);
	fuzz_require(mkdirat(fd, "c", 0755) == 0);
	put(fd, "c/a", "upper", 5);
	return fd;
}

static const char *draw_place(struct input *in)
{
	return places[draw(in) % (sizeof(places) / sizeof(*places))];
}

/* Of snapshots that the input names, as far as they agree. */
static void write_chain(struct input *in, int dir, const char *place)
{
	_cleanup_(branch_chain_release) struct branch_chain c = { 0 };
	_cleanup_(freep) char *text = NULL;
	size_t len;

	for (unsigned k = draw(in) % LINES; k; k--) {
		const uint8_t how = draw(in);
		struct branch_chain_entry e = { .id = ids[how % 4], .parent = 0 };

		if (how & 0x10)
			e.parent = ids[how >> 2 & 3];
		snprintf(e.name, sizeof(e.name), "s%u", how % 4u);
		branch_chain_add(&c, &e);
		if (!(how & 0x20) && branch_chain_by_id(&c, e.id))
			c.head = e.id;
	}
	if (branch_chain_format(&c, &text, &len) == 0)
		put(dir, place, text, len);
}

static void write_raw(struct input *in, int dir, const char *place)
{
	char text[64];
	size_t n = draw(in) % 32;

	for (size_t k = 0; k < n; k++)
		text[k] = (char)draw(in);
	put(dir, place, text, n);
}

static void write_number(struct input *in, int upper, int dir, const char *place)
{
	_cleanup_(closep) int fd =
		openat(dir, place, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
	const char *of = draw_place(in);
	struct stat st;

	if (fd >= 0 && fstatat(*of ? dir : upper, *of ? of : "a", &st, AT_SYMLINK_NOFOLLOW) == 0)
		snapshot_number_write(fd, st.st_ino);
}

/* What an input asks for need not be possible. */
static void may_fail(int r)
{
	(void)r;
}

static void link_to(int dir, const char *place, unsigned how)
{
	static const char *const targets[] = {
		"../../" OUTSIDE,
		"../../../" OUTSIDE,
		"../../../../" OUTSIDE,
		"../../" OUTSIDE "/a",
		"..",
		"../../" OUTSIDE "/" ID("1"),
		".",
	};

	may_fail(symlinkat(targets[how % (sizeof(targets) / sizeof(*targets))], dir, place));
}

/* A second name of what is there, or of what is outside. */
static void add_name(struct input *in, int dir, const char *place, bool is_outside)
{
	may_fail(linkat(dir, is_outside ? "../../" OUTSIDE "/a" : draw_place(in), dir, place, 0));
}

static void make_one(struct input *in, int upper, int dir)
{
	const unsigned how = draw(in);
	const char *place = draw_place(in);

	switch (how % 12) {
	case 0:
	case 1:
	case 2:
	case 3:
		mkdirat(dir, place, how & 0x10 ? 0700 : 0755);
		break;
	case 4:
		write_chain(in, dir, how & 0x10 ? place : "chain");
		break;
	case 5:
		write_raw(in, dir, place);
		break;
	case 6:
		link_to(dir, place, how / 12);
		break;
	case 7:
		mkfifoat(dir, place, 0644);
		break;
	case 8:
		add_name(in, dir, place, how / 12 & 1);
		break;
	case 9:
		write_number(in, upper, dir, place);
		break;
	case 10:
		put(upper, MAPFILE_NAME, "map", 3);
		may_fail(linkat(upper, MAPFILE_NAME, dir, place, 0));
		break;
	default:
		may_fail(fchmodat(dir, place, how & 0x10 ? 0 : 0500, 0));
	}
}

static void make_all(struct input *in, int upper)
{
	_cleanup_(closep) int dir =
		openat(upper, BRANCH_DIR_NAME, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	fuzz_require(dir >= 0);
	for (int k = 0; k < STEPS && in->n > 1; k++)
		make_one(in, upper, dir);
}

/* ---- what is done ---- */

static bool is_same(const struct branch_chain *a, const struct branch_chain *b)
{
	if (a->n != b->n || a->head != b->head)
		return false;
	for (size_t k = 0; k < a->n; k++)
		if (a->entries[k].id != b->entries[k].id ||
		    a->entries[k].parent != b->entries[k].parent)
			return false;
	return true;
}

/* As a mount that may not write does. */
static int look(int upper, struct branch_chain *ret)
{
	const struct timespec none = { 0 };
	struct timespec time = none;
	uint64_t pending;
	int r = branch_dir_load(upper, ret);

	if (r < 0)
		return r;
	for (size_t k = 0; k < ret->n; k++) {
		int fd = branch_dir_open(upper, ret->entries[k].id);
		_cleanup_(freep) char *path = branch_dir_path(UPPER, ret->entries[k].id);

		fuzz_require(path);
		closep(&fd);
	}
	branch_dir_taken_time(upper, ret, &time);
	if (branch_dir_pending(upper, ret, &pending) == 0 && pending) {
		_cleanup_(closep) int fd = branch_dir_open(upper, pending);

		if (fd >= 0)
			branch_dir_noted_time(fd, &time);
	}
	branch_dir_is_held(upper);
	return 0;
}

static void recover(int base, int upper)
{
	_cleanup_(branch_chain_release) struct branch_chain before = { 0 }, after = { 0 };
	uint64_t state = state_of(base, UPPER, true);
	int shown = look(upper, &before), r;

	fuzz_require(state_of(base, UPPER, true) == state);
	r = branch_dir_recover(upper);
	if (r < 0)
		return;
	fuzz_require(shown == 0 || shown == -ENOENT);
	fuzz_require(branch_dir_load(upper, &after) == shown && is_same(&before, &after));
	state = state_of(base, UPPER, false);
	fuzz_require(branch_dir_recover(upper) == 0);
	fuzz_require(state_of(base, UPPER, false) == state);
}

static void take(int upper)
{
	_cleanup_(branch_chain_release) struct branch_chain c = { 0 }, after = { 0 };
	char name[BRANCH_CHAIN_NAME_MAX + 1] = "taken";
	uint64_t id;
	int r = branch_dir_load(upper, &c);

	if ((r < 0 && r != -ENOENT) || branch_dir_plan(&c, name, &id) < 0)
		return;
	if (branch_dir_take(upper, id, &c, true) == 0)
		fuzz_require(branch_dir_load(upper, &after) == 0 &&
			     branch_chain_by_id(&after, id) && after.head == id);
}

static void squash(int upper, bool is_published)
{
	_cleanup_(branch_chain_release) struct branch_chain c = { 0 };
	_cleanup_(freep) uint64_t *found = calloc(BRANCH_CHAIN_MAX, sizeof(*found));
	_cleanup_(closep) int made = -1, fresh = -1;
	size_t n;

	fuzz_require(found);
	if (branch_dir_load(upper, &c) < 0 || branch_merge_plan(&c, NULL, NULL, found, &n) < 0)
		return;
	made = branch_merge_begin(upper, found, n);
	if (made < 0)
		return;
	put(made, "merged", "merged", 6);
	fresh = is_published ? branch_merge_publish(upper, found, n, true) : -1;
	if (fresh >= 0)
		branch_merge_tidy(upper, found[0]);
	else
		branch_merge_cancel(upper);
}

static void use(struct input *in, int base, int upper)
{
	for (int k = 0; k < 3; k++) {
		const uint8_t how = draw(in);

		if (how % 4 == 0)
			take(upper);
		else if (how % 4 == 1)
			squash(upper, how & 0x10);
		else if (how % 4 == 2)
			branch_dir_delete(upper, how & 0x10 ? "s1" : "s2");
		else
			branch_dir_dissolve(upper);
		recover(base, upper);
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct input in = { data, size };
	const char *path;
	int base = fuzz_directory(&path), upper;
	uint8_t uses[3] = { draw(&in), draw(&in), draw(&in) };
	struct input last = { uses, sizeof(uses) };
	uint64_t outside;

	fuzz_be_quiet();
	make_outside(base);
	upper = make_upper(base);
	make_all(&in, upper);
	outside = state_of(base, OUTSIDE, true);
	recover(base, upper);
	use(&last, base, upper);
	fuzz_require(state_of(base, OUTSIDE, true) == outside);
	close(upper);
	rmtree(base, UPPER);
	rmtree(base, OUTSIDE);
	return 0;
}
