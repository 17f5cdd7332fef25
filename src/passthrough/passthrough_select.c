// SPDX-License-Identifier: Apache-2.0
#include "veneer/passthrough/passthrough_select.h"

#include "veneer/base/cleanup.h"
#include "veneer/data/cow_fsync.h"
#include "veneer/data/read.h"
#include "veneer/layer/source_flat.h"
#include "veneer/sys/path.h"
#include "veneer/union/inode_struct.h"
#include "veneer/union/lookup.h"
#include "veneer/union/upper.h"

#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

/* The word ends the name, or a dot or dash follows: libx.so.6, app.log-20261124, and not
 * app.source. */
static bool has_extension(const char *name, const char *word)
{
	const size_t len = strlen(word);
	const char *at = strstr(name, word);

	while (at && at[len] && at[len] != '.' && at[len] != '-')
		at = strstr(at + 1, word);
	return at;
}

static bool is_log(const char *name, const struct image_entry *e)
{
	bool r = has_extension(name, ".log") || has_extension(name, ".out") ||
		 has_extension(name, ".err");

	for (e = e ? e->parent : NULL; e && !r; e = e->parent)
		r = !strcmp(e->name, "log") || !strcmp(e->name, "logs");
	return r;
}

static void look_at_name(struct union_fs *t, struct inode *i, struct passthrough_select *o)
{
	char name[NAME_MAX + 1];
	struct inode *parent;

	if (inode_any_name(t, i, &parent, name) < 0)
		return;
	inode_unref(t, parent);
	o->is_program |= has_extension(name, ".so");
	o->is_log = is_log(name, i->lower);
}

/* Below directories of "shareable, read-only data" (Filesystem Hierarchy Standard 3.0, chapter 4)
 * and their kin. */
static bool is_static(const struct image_entry *e)
{
	static const char *const tops[] = {
		"usr", "lib", "lib32", "lib64", "libx32", "bin", "sbin"
	};
	const char *top = e ? image_top_name(e) : "";

	for (size_t k = 0; k < sizeof(tops) / sizeof(*tops); k++)
		if (!strcmp(top, tops[k]))
			return true;
	return false;
}

/* A copy whose attributes alone were changed: every byte is still that of the plain file below. 1,
 * 0 or -errno. */
static int is_untouched(struct inode *i, off_t size)
{
	struct source *below = i->src.below;
	uint64_t clip;
	struct stat st;
	bool is_own;
	blk_t n, end = ((uint64_t)size + BLK_BYTES - 1) >> BLK_SHIFT;
	int fd, r;

	if (!below || !source_is_plain(below) || !end)
		return 0;
	r = mapfile_clip(i->src.map, i->src.id, &clip);
	if (r == 0 && clip == (uint64_t)size)
		r = mapfile_run(i->src.map, i->src.id, 0, end, &is_own, &n);
	else if (r == 0)
		return 0;
	if (r < 0 || is_own || n < end)
		return r;
	fd = source_pin(below);
	if (fd < 0)
		return fd;
	r = fstat(fd, &st) < 0 ? -errno : st.st_size == size;
	fd_cache_unpin(&below->fd);
	return r;
}

/* Writes of the kernel that go past us are not counted, and go on when a snapshot is taken. */
static enum passthrough_table_kind kind_of_upper(const struct union_fs *t)
{
	return t->quota || t->has_branches ? PASSTHROUGH_TABLE_NONE : PASSTHROUGH_TABLE_UPPER;
}

/* An emptied file needs nothing of the lower, but its cut must be on the disk before the kernel
 * lets it grow past us. Else a power cut may leave the new size and uncover the lower's bytes in
 * its holes. Its first write here would wait for that too. */
static bool is_settled(struct union_fs *t, struct inode *i, bool writes, uint64_t clip)
{
	if (writes && !clip && t->backing && kind_of_upper(t) &&
	    mapfile_has_uncommitted(i->src.map, i->src.id))
		return cow_fsync_unasked(t, i) == 0 &&
		       (t->is_volatile || !mapfile_has_uncommitted(i->src.map, i->src.id));
	return !mapfile_has_uncommitted(i->src.map, i->src.id);
}

static int look_upper(struct union_fs *t, struct inode *i, bool writes,
		      struct passthrough_select *o)
{
	uint64_t clip;
	int r;

	if (i->is_damaged)
		return 0;
	if (!i->src.id) {
		o->kind = i->shuns_backing ? PASSTHROUGH_TABLE_NONE : kind_of_upper(t);
		return 0;
	}
	/* Blocks past the clip are own by definition, so a complete file stays so after any
	 * write. */
	r = mapfile_is_complete(i->src.map, i->src.id);
	if (r == 1)
		r = mapfile_clip(i->src.map, i->src.id, &clip) == 0 && clip <= (uint64_t)o->size;
	/* The map does not hear of zeros that are written past us. Where all own blocks are on the
	 * disk, it need not. */
	if (r == 1)
		r = is_settled(t, i, writes, clip) &&
		    (!writes || mapfile_expect_zeros(i->src.map, i->src.id, 0,
						     (clip + BLK_BYTES - 1) >> BLK_SHIFT) == 0);
	/* The file may have become an ordinary one just now. */
	if (r == 1 || !i->src.id) {
		o->kind = kind_of_upper(t);
		return 0;
	}
	o->is_partial = true;
	if (r < 0 || writes)
		return r;
	r = is_untouched(i, o->size);
	if (r == 1) {
		o->kind = PASSTHROUGH_TABLE_LOWER;
		o->lower = i->src.below;
		r = 0;
	}
	return r;
}

static void look_lower(struct union_fs *t, struct source *src, bool writes,
		       struct passthrough_select *o)
{
	o->is_partial = !source_is_plain(src);
	if (writes)
		return;
	o->lower = src;
	if (!o->is_partial)
		o->kind = PASSTHROUGH_TABLE_LOWER;
	else if (t->backing && (o->flat = source_flat_fd(src)) >= 0)
		o->kind = PASSTHROUGH_TABLE_FLAT;
}

int passthrough_select_look(struct union_fs *t, struct inode *i, bool writes,
			    struct passthrough_select *ret)
{
	/* Once: it may be copied up meanwhile, and then the result is outdated but not wrong. */
	const bool is_up = i->has_upper;
	struct passthrough_select o = { .kind = PASSTHROUGH_TABLE_NONE, .flat = -1 };
	struct source *src;
	struct stat st = { 0 };
	int r = 0;

	/* Neither size nor mode matters for an ordinary file of the upper, which a partial one may
	 * become, and which ceases to be one while no open is passed through (copy_reference.c). */
	if (!is_up || i->src.id)
		r = lookup_stat(t, i, &st);
	if (r < 0)
		return r;
	o.size = st.st_size;
	o.is_program = st.st_mode & 0111;
	o.is_writable = st.st_mode & 0222;
	o.is_static = is_static(i->lower);
	look_at_name(t, i, &o);
	if (is_up) {
		r = look_upper(t, i, writes, &o);
	} else {
		r = image_source(t->image, i->lower, &src);
		if (r == 0)
			look_lower(t, src, writes, &o);
	}
	if (r < 0)
		return r;
	o.is_remote = o.kind == PASSTHROUGH_TABLE_LOWER && o.lower->layer->is_static;
	*ret = o;
	return 0;
}

bool passthrough_select_is_whole(const struct inode *i)
{
	const file_id_t id = i->src.id;

	/* The map forgets a file that becomes an ordinary one. */
	return !id || mapfile_is_complete(i->src.map, id) != 0;
}

/* SQLite file format 1.3.1 and 4.1; systemd, JOURNAL_FILE_FORMAT; LMDB's mdb.c, MDB_MAGIC; file(1)
 * for the others. In the byte order of the machines that write them here. */
static bool is_database(const unsigned char *head, size_t len)
{
	static const struct {
		size_t at, len;
		const char *bytes;
	} kinds[] = {
		{ 0, 16, "SQLite format 3" },  { 0, 4, "\x37\x7f\x06\x82" },
		{ 0, 4, "\x37\x7f\x06\x83" },  { 0, 8, "LPKSHHRH" },
		{ 16, 4, "\xde\xc0\xef\xbe" }, { 12, 4, "\x62\x31\x05\x00" },
		{ 12, 4, "\x61\x15\x06\x00" }, { 0, 8, "TDB file" },
		{ 0, 4, "\xcf\x9a\x57\x13" },
	};

	for (size_t k = 0; k < sizeof(kinds) / sizeof(kinds[0]); k++)
		if (kinds[k].at + kinds[k].len <= len &&
		    !memcmp(head + kinds[k].at, kinds[k].bytes, kinds[k].len))
			return true;
	return false;
}

/* No control character but the ones that terminals and editors take, in any encoding that extends
 * ASCII. */
static bool is_text(const unsigned char *head, size_t len)
{
	for (size_t k = 0; k < len; k++)
		if ((head[k] < ' ' && !strchr("\b\t\n\f\r\033", head[k])) || !head[k])
			return false;
	return len > 0;
}

static enum source_head look_at_head(const struct passthrough_select *o)
{
	const size_t room = 512, len = o->size < (off_t)room ? (size_t)o->size : room;
	unsigned char head[512];

	if (read_source(o->lower, head, len, 0) < 0)
		return HEAD_UNSEEN;
	return is_database(head, len) ? HEAD_DATABASE : is_text(head, len) ? HEAD_TEXT : HEAD_OTHER;
}

static bool is_followed(const struct passthrough_select *o)
{
	enum source_head head;

	if (o->is_log)
		return true;
	/* Two at once see the same. */
	if (o->lower->head == HEAD_UNSEEN)
		o->lower->head = look_at_head(o);
	head = o->lower->head;
	return head == HEAD_DATABASE ||
	       (head == HEAD_TEXT && o->size > PASSTHROUGH_SELECT_SMALL_BYTES && o->is_writable &&
		!o->is_program && !o->is_static);
}

bool passthrough_select_is_followed(const struct passthrough_select *o)
{
	return passthrough_table_is_below(o->kind) && is_followed(o);
}

bool passthrough_select_gains_copy(struct union_fs *t, struct inode *i, bool minds_followers)
{
	struct passthrough_select o;

	return passthrough_select_look(t, i, false, &o) == 0 && o.kind == PASSTHROUGH_TABLE_NONE &&
	       o.is_partial && o.lower && o.size > PASSTHROUGH_SELECT_SMALL_BYTES &&
	       !(minds_followers && is_followed(&o));
}

static bool is_same_file(int a, int b)
{
	struct stat sa, sb;

	return fstat(a, &sa) == 0 && fstat(b, &sb) == 0 && sa.st_dev == sb.st_dev &&
	       sa.st_ino == sb.st_ino;
}

/* Reading through the layer's own mount writes no access time. */
static bool is_quiet(int fd)
{
	struct statvfs fs;

	return fstatvfs(fd, &fs) == 0 && fs.f_flag & (ST_RDONLY | ST_NOATIME);
}

static int open_lower(struct source *s, int data, int *ret_own)
{
	const int flags = O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY;
	_cleanup_(closep) int fd = -1, alone = -1;
	int root = s->path ? layer_readonly_root(s->layer) : -EOPNOTSUPP;

	if (root >= 0)
		fd = path_open(root, s->path, flags, 0);
	/* Below another mount inside the layer: a clone of that one, which shows this file
	 * alone. */
	if (fd < 0 || !is_same_file(fd, data)) {
		closep(&fd);
		alone = path_clone_readonly(data);
		if (alone >= 0)
			fd = path_reopen(alone, O_RDONLY | O_NONBLOCK | O_NOCTTY);
	}
	if (fd < 0 || !is_same_file(fd, data))
		return is_quiet(data) ? 0 : -EOPNOTSUPP;
	*ret_own = steal_fd(&fd);
	return 0;
}

int passthrough_select_open(struct union_fs *t, struct inode *i, const struct passthrough_select *o,
			    struct passthrough_select_file *ret)
{
	struct passthrough_select_file f = { .own = -1 };
	int r = 0;

	if (o->kind == PASSTHROUGH_TABLE_NONE)
		return -EOPNOTSUPP;
	if (o->kind == PASSTHROUGH_TABLE_FLAT) {
		*ret = (struct passthrough_select_file){ .fd = o->flat, .own = -1 };
		return 0;
	}
	f.fd = o->kind == PASSTHROUGH_TABLE_UPPER ? upper_pin(t, i) : source_pin(o->lower);
	if (f.fd < 0)
		return f.fd;
	f.pinned = o->kind == PASSTHROUGH_TABLE_UPPER ? &i->src.fd : &o->lower->fd;
	if (o->kind == PASSTHROUGH_TABLE_LOWER)
		r = open_lower(o->lower, f.fd, &f.own);
	else if (!fd_cache_is_writable(f.pinned) && fcntl(f.fd, F_GETFL) & O_PATH)
		r = -EACCES; /* we may not read it ourselves */
	if (r < 0) {
		passthrough_select_close(&f);
		return r;
	}
	if (f.own >= 0)
		f.fd = f.own;
	*ret = f;
	return 0;
}

void passthrough_select_close(struct passthrough_select_file *f)
{
	closep(&f->own);
	if (f->pinned)
		fd_cache_unpin(f->pinned);
	f->pinned = NULL;
}
