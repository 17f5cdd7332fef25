// SPDX-License-Identifier: Apache-2.0
/* The map is first checked by its own rules; only a sound one is then compared with the files.
 * Repairs come last, after the whole layer was read, since an unused entry can be told only with
 * all files known. */
#include "veneer/tools/check.h"

#include "check_map.h"
#include "check_orphans.h"
#include "check_refill.h"
#include "check_report.h"
#include "layer_walk.h"

#include "veneer/base/array.h"
#include "veneer/base/cleanup.h"
#include "veneer/data/publish.h"
#include "veneer/layer/branch_dir.h"
#include "veneer/layer/map_recover.h"
#include "veneer/layer/metacopy_guard.h"
#include "veneer/layer/metacopy_origin.h"
#include "veneer/layer/origin_xattr.h"
#include "veneer/layer/partial_xattr.h"
#include "veneer/layer/saved_attrs.h"
#include "veneer/layer/snapshot_number.h"
#include "veneer/layer/whiteout.h"
#include "veneer/layer/xattr_trust.h"
#include "veneer/map/format.h"
#include "veneer/mount/upper_lock.h"
#include "veneer/sys/path.h"
#include "veneer/sys/probe.h"
#include "veneer/sys/rmtree.h"
#include "veneer/sys/xattr.h"

#include <dirent.h>
#include <fcntl.h>
#include <inttypes.h>
#include <string.h>
#include <sys/stat.h>

/* directory in the layer for the temporary half of a map that is being rewritten */
#define REPAIR_DIR ".wh..wh.check"

/* A partial file, and the repairs that its entry needs. */
struct seen {
	file_id_t id;
	ino_t ino;
	char *path;
	bool is_long; /* has own blocks beyond its end */
	uint64_t size;
};

struct check {
	struct layer *layer;
	struct image *below;
	struct check_report_place at;
	struct mapfile *map; /* NULL: none, or damaged */
	bool has_damaged_map; /* nothing in the map can be trusted */
	bool is_map_damaged; /* the map has to be rewritten */
	bool guards, repairs, salvages;
	bool has_missed; /* some directories could not be read */
	struct seen *seen;
	size_t nseen, cap;
	file_id_t *lost; /* entries without a file */
	size_t nlost;
	struct check_result s;
};

/* ---- partial files ---- */

static int remember(struct check *c, const struct layer_walk_entry *e, file_id_t id)
{
	if (array_reserve(&c->seen, &c->cap, c->nseen + 1) < 0)
		return -ENOMEM;
	c->seen[c->nseen] = (struct seen){ .id = id,
					   .ino = e->st.st_ino,
					   .path = strdup(e->path),
					   .size = (uint64_t)e->st.st_size };
	if (!c->seen[c->nseen].path)
		return -ENOMEM;
	c->nseen++;
	return 0;
}

static bool knows_file(struct check *c, const struct layer_walk_entry *e,
		       const struct partial_xattr *m, uint64_t *ret_clip)
{
	_cleanup_(closep) int fd = -1;

	if ((uint32_t)mapfile_uuid(c->map) != m->uuid_low) {
		check_report_say(&c->at, "mark-foreign", e->path,
				 "its mark was made in another layer (uuid ...%08" PRIx32 ")",
				 m->uuid_low);
		return false;
	}
	if (mapfile_clip(c->map, m->file_id, ret_clip) == 0)
		return true;
	fd = openat(e->dirfd, e->name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
	if (map_recover_enter(c->layer, c->map, m, fd) == 0 &&
	    mapfile_clip(c->map, m->file_id, ret_clip) == 0)
		return true;
	check_report_say(&c->at, "no-entry", e->path,
			 "a partial file, but the map has no file %" PRIu64, m->file_id);
	return false;
}

static void check_blocks(struct check *c, const struct layer_walk_entry *e,
			 const struct partial_xattr *m, uint64_t clip)
{
	blk_t end = (clip + BLK_BYTES - 1) >> BLK_SHIFT, n;

	for (blk_t at = ((uint64_t)e->st.st_size + BLK_BYTES - 1) >> BLK_SHIFT; at < end; at += n) {
		bool is_own;

		if (mapfile_run(c->map, m->file_id, at, end - at, &is_own, &n) < 0)
			return;
		if (!is_own)
			continue;
		check_report_say(&c->at, "behind-end", e->path,
				 "the map has block %" PRIu64
				 " as its own, behind its end (%jd bytes)",
				 at, (intmax_t)e->st.st_size);
		c->seen[c->nseen - 1].is_long = true;
		return;
	}
}

static int find_lower(struct check *c, const struct layer_walk_entry *e,
		      const struct partial_xattr *m, struct image_entry **ret)
{
	if (*m->path)
		return image_lookup_path(c->below, m->path, ret);
	return e->dir ? image_lookup(c->below, e->dir, e->name, ret) : -ENOENT;
}

static void check_lower(struct check *c, const struct layer_walk_entry *e,
			const struct partial_xattr *m)
{
	struct image_entry *base = NULL;
	const char *path = *m->path ? m->path : e->path;
	struct source *src;
	struct stat st;
	int r = find_lower(c, e, m, &base);

	if (r == 0 && base->type == DT_REG)
		r = image_stat(c->below, base, &st);
	if (r == -ENOENT)
		check_report_say(&c->at, "lower-missing", e->path,
				 "no lower layer has %s, which its blocks come from", path);
	else if (r < 0)
		check_report_say(&c->at, "unreadable", e->path,
				 "its lower file %s cannot be looked at: %s", path, strerror(-r));
	else if (base->type != DT_REG)
		check_report_say(&c->at, "lower-changed", e->path,
				 "its lower file %s is no regular file", path);
	else if ((uint64_t)st.st_size != m->lower_size)
		check_report_say(&c->at, "lower-changed", e->path,
				 "its lower file %s has %jd bytes and not %" PRIu64
				 ": it was changed",
				 path, (intmax_t)st.st_size, m->lower_size);
	else if (st.st_mtim.tv_sec != m->lower_mtime_s ||
		 (uint32_t)st.st_mtim.tv_nsec != m->lower_mtime_ns)
		check_report_say(
			&c->at, "lower-changed", e->path,
			"its lower file %s was modified at %jd.%09ld and not at %jd.%09" PRIu32
			": it was changed",
			path, (intmax_t)st.st_mtim.tv_sec, st.st_mtim.tv_nsec,
			(intmax_t)m->lower_mtime_s, m->lower_mtime_ns);
	else if (image_source(c->below, base, &src) < 0)
		check_report_say(&c->at, "lower-damaged", e->path,
				 "its lower file %s is a damaged partial file itself", path);
}

/* The guard is missing if an older version of veneer made the file, or a copy of the layer lost it,
 * such as a tar without trusted.*. */
static void check_guard(struct check *c, const struct layer_walk_entry *e)
{
	_cleanup_(closep) int fd = -1;
	struct partial_xattr now;

	if (metacopy_guard_is_set(e->dirfd, e->name))
		return;
	check_report_say(&c->at, "unguarded", e->path,
			 "a partial file without the attribute by which overlayfs refuses it: "
			 "overlayfs would show zeros");
	if (!c->guards)
		return;
	fd = openat(e->dirfd, e->name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
	/* The name may belong to another file by now, which a guard would damage. */
	if (fd < 0 || source_read_mark(fd, "", &now, NULL) != 1)
		return;
	if (metacopy_guard_set(fd, metacopy_guard_for(true)) == 0 ||
	    metacopy_guard_set(fd, metacopy_guard_for(false)) == 0)
		check_report_repaired(&c->at, "unguarded", e->path, "the attribute was set");
}

/* May the file permanently get bytes of the lower file? Each of its writers must be able to read
 * those. A seal does not help, as it does not reveal a hole that a writer made. */
static bool may_have(const struct partial_xattr *m, int fd, const struct stat *low)
{
	struct stat up;

	return fstat(fd, &up) == 0 &&
	       xattr_trust_covers(&up, xattr_get(fd, "", "system.posix_acl_access", NULL, 0) > 0,
				  !*m->path, low);
}

static bool salvage(struct check *c, const struct layer_walk_entry *e,
		    const struct partial_xattr *m, int fd)
{
	struct image_entry *base;
	struct source *low;
	struct stat st;
	uint64_t bytes;

	if (!c->salvages || !c->below || find_lower(c, e, m, &base) < 0 ||
	    image_stat(c->below, base, &st) < 0 || !partial_xattr_fits(m, &st) ||
	    !may_have(m, fd, &st) || image_source(c->below, base, &low) < 0 ||
	    check_refill_from_lower(fd, low, m->lower_size, &bytes) < 0)
		return false;
	check_report_repaired(&c->at, "no-entry", e->path,
			      "an ordinary file now: %" PRIu64
			      " bytes that it did not have are those of "
			      "its lower file, also where zeros had been written over them",
			      bytes);
	return true;
}

/* Make a file without an entry ordinary, if it has data in each block of the lower file; with
 * --salvage also otherwise. */
static bool rescue(struct check *c, const struct layer_walk_entry *e, const struct partial_xattr *m)
{
	_cleanup_(closep) int fd = -1;
	struct partial_xattr now;

	if (!c->repairs)
		return false;
	fd = openat(e->dirfd, e->name,
		    (c->salvages ? O_RDWR : O_RDONLY) | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
	/* The name may belong to another file by now. */
	if (fd < 0 || source_read_mark(fd, "", &now, NULL) != 1 || now.file_id != m->file_id ||
	    now.uuid_low != m->uuid_low || now.lower_size != m->lower_size)
		return false;
	if (map_recover_is_whole(fd, m->lower_size) != 1)
		return salvage(c, e, m, fd);
	if (fdatasync(fd) < 0 || xattr_trust_unmark(fd) < 0)
		return false;
	check_report_repaired(&c->at, "no-entry", e->path,
			      "an ordinary file now: it has all of its bytes");
	return true;
}

static int check_partial(struct check *c, const struct layer_walk_entry *e,
			 const struct partial_xattr *m)
{
	uint64_t clip;
	int r;

	c->s.files++;
	check_guard(c, e);
	if (!c->map) {
		check_report_say(&c->at, "no-map", e->path, "a partial file, %s",
				 c->has_damaged_map ? "and the map is damaged"
						    : "but the layer has no map");
		rescue(c, e, m);
		return 0;
	}
	if (knows_file(c, e, m, &clip)) {
		r = remember(c, e, m->file_id);
		if (r < 0)
			return r;
		check_blocks(c, e, m, clip);
	} else if (rescue(c, e, m)) {
		return 0;
	}
	if (c->below && source_needs_lower(c->map, m, (uint64_t)e->st.st_size) != 0)
		check_lower(c, e, m);
	return 0;
}

/* Check a metacopy file of overlayfs, whose data is in a lower file, or a guard without a mark. */
static void check_metacopy(struct check *c, const struct layer_walk_entry *e)
{
	struct image_entry *dir = e->dir, *base = NULL;
	char origin[PATH_MAX];
	struct stat st;
	int r = metacopy_origin_read(e->dirfd, e->name, origin);

	if (metacopy_guard_is_set(e->dirfd, e->name))
		check_report_say(&c->at, "mark-missing", e->path,
				 "guarded as a partial file, but its mark is gone");
	else if (r < 0)
		check_report_say(&c->at, "metacopy", e->path,
				 "a metacopy file whose lower file cannot be found out");
	if (r <= 0 || !c->below)
		return;
	if (*origin == '/')
		r = image_lookup_path(c->below, origin + 1, &base);
	else
		r = dir ? image_lookup(c->below, dir, *origin ? origin : e->name, &base) : -ENOENT;
	r = r ?: image_stat(c->below, base, &st);
	if (r < 0 || !S_ISREG(st.st_mode) || st.st_size != e->st.st_size)
		check_report_say(&c->at, "metacopy", e->path,
				 "a metacopy file without its lower file %s",
				 *origin ? origin : e->path);
}

static int check_file(struct check *c, const struct layer_walk_entry *e)
{
	struct partial_xattr m;
	int r = source_read_mark(e->dirfd, e->name, &m, NULL);

	if (r == 1)
		return check_partial(c, e, &m);
	if (r != -EUCLEAN)
		return r == -ENOENT ? 0 : r;
	if (xattr_get(e->dirfd, e->name, FORMAT_PARTIAL_ATTR, NULL, 0) >= 0)
		check_report_say(&c->at, "mark-damaged", e->path, "its mark is damaged");
	else
		check_metacopy(c, e);
	return 0;
}

/* ---- everything else ---- */

static bool is_ours(const char *attr)
{
	return !strncmp(attr, "user.veneer.", strlen("user.veneer.")) ||
	       !strncmp(attr, "trusted.veneer.", strlen("trusted.veneer."));
}

static bool is_known_attr(const char *attr)
{
	static const char *const known[] = {
		FORMAT_PARTIAL_ATTR,   XATTR_TRUST_SEAL_ATTR,	  SAVED_ATTRS_ATTR,
		SAVED_ATTRS_USER_ATTR, ORIGIN_XATTR_TRUSTED_ATTR, ORIGIN_XATTR_USER_ATTR,
		FORMAT_MAP_COPY_ATTR,  UPPER_LOCK_WORK_ATTR,	  UPPER_LOCK_CONTESTED_ATTR,
		SNAPSHOT_NUMBER_ATTR,  SNAPSHOT_NUMBER_USER_ATTR,
	};

	for (size_t k = 0; k < sizeof(known) / sizeof(*known); k++)
		if (!strcmp(attr, known[k]))
			return true;
	return false;
}

/* Remove the mark: on other files than directories it means nothing to any program. */
static void drop_opaque(struct check *c, const struct layer_walk_entry *e, const char *attr)
{
	check_report_say(&c->at, "opaque", e->path, "an opaque mark on what is no directory (%s)",
			 attr);
	if (!c->repairs || xattr_remove(e->dirfd, e->name, attr) < 0)
		return;
	check_report_repaired(&c->at, "opaque", e->path, "the mark was removed");
}

static void check_attrs(struct check *c, const struct layer_walk_entry *e)
{
	_cleanup_(freep) char *list = NULL;
	ssize_t len = xattr_list_alloc(e->dirfd, e->name, &list);

	for (char *a = list; a && a < list + len; a += strlen(a) + 1)
		if (is_ours(a) && !is_known_attr(a))
			check_report_say(&c->at, "unknown-attribute", e->path,
					 "unknown reserved attribute %s", a);
		else if (!strcmp(a, FORMAT_PARTIAL_ATTR) && !S_ISREG(e->st.st_mode))
			check_report_say(&c->at, "mark-misplaced", e->path,
					 "marked as a partial file, and is none");
		else if (!S_ISDIR(e->st.st_mode) && strstr(a, ".opaque") &&
			 whiteout_is_reserved_attr(a))
			drop_opaque(c, e, a);
}

/* Programs may disagree on the meaning, so there is no repair. */
static void check_hidden(struct check *c, const struct layer_walk_entry *e)
{
	struct stat st;

	if (whiteout_name_kind(e->name) == WHITEOUT_HIDES &&
	    fstatat(e->dirfd, e->name + WHITEOUT_PREFIX_LEN, &st, AT_SYMLINK_NOFOLLOW) == 0)
		check_report_say(&c->at, "whiteout-beside", e->path,
				 "a whiteout that hides %s beside it, in the same layer",
				 e->name + WHITEOUT_PREFIX_LEN);
}

static bool is_known_name(const struct layer_walk_entry *e)
{
	static const char *const prefixes[] = {
		PUBLISH_PENDING_NAME, REPAIR_DIR,     MAPFILE_DAMAGED_NAME, BRANCH_DIR_NAME,
		".wh..wh.flatten",    ".wh..wh.#", /* left by a tool that was killed */
		".wh..wh.aufs",	      ".wh..wh.plnk", ".wh..wh.orph", /* of aufs */
	};

	if (!strcmp(e->path, MAPFILE_NAME))
		return true;
	for (size_t k = 0; k < sizeof(prefixes) / sizeof(*prefixes); k++)
		if (!strncmp(e->name, prefixes[k], strlen(prefixes[k])))
			return true;
	return false;
}

/* Compare the directory's entries with the lower directory. */
static int check_dir(struct check *c, const struct layer_walk_entry *e, void **ret_dir)
{
	_cleanup_(closep) int fd =
		openat(e->dirfd, e->name, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	struct image_entry *dir = e->dir, *merged = NULL;
	char redirect[PATH_MAX];
	struct stat st;
	int kind, r = 0;

	if (fd < 0)
		return errno == ENOENT ? 1 : -errno;
	kind = whiteout_dir_kind(fd, false, redirect);
	if (fstatat(fd, WHITEOUT_OPAQUE_NAME, &st, AT_SYMLINK_NOFOLLOW) == 0)
		kind = WHITEOUT_DIR_OPAQUE;
	if (kind == -EUCLEAN)
		check_report_say(&c->at, "redirect-damaged", e->path, "its redirect is no path");
	else if (kind < 0)
		return kind;
	if (!c->below || kind < 0 || kind == WHITEOUT_DIR_OPAQUE)
		return 0;
	if (kind == WHITEOUT_DIR_MERGED)
		r = dir ? image_lookup(c->below, dir, e->name, &merged) : -ENOENT;
	else if (redirect[0] == '/')
		r = image_lookup_path(c->below, redirect + 1, &merged);
	else
		r = dir ? image_lookup(c->below, dir, redirect, &merged) : -ENOENT;
	if (r < 0 && r != -ENOENT)
		check_report_say(&c->at, "unreadable", e->path,
				 "the directory below it cannot be read: %s", strerror(-r));
	if (r < 0 || merged->type != DT_DIR)
		merged = NULL;
	if (!merged && kind == WHITEOUT_DIR_REDIRECTED)
		check_report_say(
			&c->at, "redirect-missing", e->path,
			"no lower layer has the directory %s, which it was before it was renamed",
			redirect);
	*ret_dir = merged;
	return 0;
}

static int check_entry(void *arg, const struct layer_walk_entry *e, void **ret_dir)
{
	struct check *c = arg;

	if (whiteout_name_kind(e->name) == WHITEOUT_META) {
		if (!is_known_name(e))
			check_report_say(&c->at, "unknown-name", e->path, "unknown reserved name");
		return strcmp(e->path, PUBLISH_PENDING_NAME) != 0;
	}
	check_hidden(c, e);
	check_attrs(c, e);
	if (S_ISDIR(e->st.st_mode))
		return check_dir(c, e, ret_dir);
	return S_ISREG(e->st.st_mode) ? check_file(c, e) : 0;
}

static int miss_dir(void *arg, const char *path, int error)
{
	struct check *c = arg;

	c->has_missed = true;
	check_report_say(&c->at, "unreadable", path, "cannot be looked at: %s", strerror(-error));
	return 0;
}

/* ---- entries ---- */

static int by_id(const void *a, const void *b)
{
	const struct seen *s = a, *o = b;

	return s->id < o->id ? -1 : s->id > o->id;
}

struct lost_ids {
	struct check *c;
	file_id_t *ids;
	size_t n, cap;
	bool is_short;
};

static void note_lost(void *arg, file_id_t id, const struct blkmap *map)
{
	struct lost_ids *l = arg;
	struct seen key = { .id = id };

	(void)map;
	if (l->c->nseen && bsearch(&key, l->c->seen, l->c->nseen, sizeof(key), by_id))
		return;
	if (array_reserve(&l->ids, &l->cap, l->n + 1) < 0)
		l->is_short = true;
	else
		l->ids[l->n++] = id;
}

static int check_entries(struct check *c)
{
	struct lost_ids lost = { .c = c };

	if (c->nseen)
		qsort(c->seen, c->nseen, sizeof(*c->seen), by_id);
	for (size_t k = 1; k < c->nseen; k++)
		if (c->seen[k].id == c->seen[k - 1].id && c->seen[k].ino != c->seen[k - 1].ino)
			check_report_say(&c->at, "number-twice", c->seen[k].path,
					 "has the number %" PRIu64 " of another file, %s",
					 c->seen[k].id, c->seen[k - 1].path);
	if (c->has_missed || !c->map)
		return 0;
	mapfile_each(c->map, note_lost, &lost);
	c->lost = lost.ids;
	c->nlost = lost.n;
	for (size_t k = 0; k < c->nlost; k++)
		check_report_say(&c->at, "entry-unused", MAPFILE_NAME,
				 "no file carries the number %" PRIu64
				 "; its entry is of no use, and harmless",
				 c->lost[k]);
	return lost.is_short ? -ENOMEM : 0;
}

static int repair_entries(struct check *c, struct mapfile *map)
{
	for (size_t k = 0; k < c->nlost; k++) {
		int r = mapfile_file_gone(map, c->lost[k]);

		if (r < 0 && r != -ENOENT)
			return r;
		check_report_repaired(&c->at, "entry-unused", MAPFILE_NAME,
				      "the entry %" PRIu64 " was dropped", c->lost[k]);
	}
	for (size_t k = 0; k < c->nseen; k++) {
		const struct seen *s = &c->seen[k];
		int r = s->is_long ? mapfile_truncate(map, s->id, s->size) : 0;

		if (r < 0)
			return r;
		if (!s->is_long)
			continue;
		check_report_repaired(&c->at, "behind-end", s->path, "the map goes to its end now");
	}
	/* Sync first, so that a power cut cannot undo the repair. */
	if (syncfs(c->layer->rootfd) < 0)
		return -errno;
	return mapfile_mark_clean(map);
}

static int repair(struct check *c)
{
	_cleanup_(closep) int work_fd = -1;
	struct layer *l;
	bool has_work = c->nlost > 0 || c->is_map_damaged;
	int r;

	for (size_t k = 0; k < c->nseen; k++)
		has_work = has_work || c->seen[k].is_long;
	if (!has_work)
		return 0;
	if (mkdirat(c->layer->rootfd, REPAIR_DIR, 0700) < 0 && errno != EEXIST)
		return -errno;
	work_fd = path_open(c->layer->rootfd, REPAIR_DIR, O_RDONLY | O_DIRECTORY | O_NOFOLLOW, 0);
	r = work_fd < 0 ? work_fd : layer_open(c->layer->path, &l);
	if (r == 0) {
		r = layer_open_upper_map(l, work_fd, 0, probe_true_extents(l->rootfd));
		r = r ?: repair_entries(c, l->map);
		layer_unref(l);
	}
	rmtree(c->layer->rootfd, REPAIR_DIR);
	/* A newer version wrote the map. */
	if (r == -EUCLEAN)
		return 0;
	if (r == 0 && c->is_map_damaged)
		check_report_repaired(&c->at, "map-record", MAPFILE_NAME,
				      c->has_damaged_map ? "set aside as " MAPFILE_DAMAGED_NAME
							 : "written anew");
	return r;
}

static int open_map(struct check *c)
{
	int r = layer_map(c->layer, &c->map);

	if (r == -EUCLEAN && !c->is_map_damaged)
		check_report_say(&c->at, "map-damaged", MAPFILE_NAME, "the map is damaged");
	c->has_damaged_map = r == -EUCLEAN;
	return r == -EUCLEAN || r == -ENOENT ? 0 : r;
}

static void check_map_links(struct check *c)
{
	struct stat st;

	if (fstatat(c->layer->rootfd, MAPFILE_NAME, &st, AT_SYMLINK_NOFOLLOW) == 0 &&
	    S_ISREG(st.st_mode) && st.st_nlink > 1)
		check_report_say(&c->at, "map-links", MAPFILE_NAME,
				 "the map has %ju names: a write through another one destroys it",
				 (uintmax_t)st.st_nlink);
}

int check_layer(struct layer *l, struct image *below, enum check_mode mode,
		const struct check_hooks *hooks, struct check_result *ret)
{
	const bool repairs = mode >= CHECK_REPAIRS;
	struct check c = { .layer = l,
			   .below = below,
			   .at = { hooks, l->path, &c.s },
			   .guards = mode >= CHECK_GUARDS,
			   .repairs = repairs,
			   .salvages = mode == CHECK_SALVAGES };
	const struct layer_walk_hooks walk = {
		.fn = check_entry, .miss = miss_dir, .arg = &c, .step = hooks->step
	};
	struct check_map m;
	int r = check_map_read(l->rootfd, repairs, &m);

	if (r < 0)
		return r;
	if (m.rule)
		check_report_say(&c.at, "map-record", MAPFILE_NAME, "offset %" PRIu64 ": %s", m.off,
				 m.rule);
	if (m.is_repaired)
		check_report_repaired(&c.at, "map-record", MAPFILE_NAME,
				      "cut to its %" PRIu64 " bytes of records", m.off);
	check_map_links(&c);
	c.is_map_damaged = m.is_damaged;
	r = open_map(&c);
	r = r ?: layer_walk(l->rootfd, below ? image_root(below) : NULL, &walk);
	r = r ?: check_entries(&c);
	r = r ?: check_orphans_in_layer(l->rootfd, repairs, &c.at);
	if (r == 0 && repairs && (c.map || m.is_damaged))
		r = repair(&c);
	for (size_t k = 0; k < c.nseen; k++)
		free(c.seen[k].path);
	free(c.seen);
	free(c.lost);
	*ret = c.s;
	return r;
}
