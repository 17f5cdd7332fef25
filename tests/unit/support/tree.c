// SPDX-License-Identifier: Apache-2.0
#include "support/tree.h"

#include "veneer/base/log.h"
#include "veneer/data/create.h"
#include "veneer/data/read.h"
#include "veneer/union/lookup.h"

#include <inttypes.h>
#include <sys/random.h>
#include <sys/sysmacros.h>

char *tree_path(struct tree_dirs *d, const char *rel)
{
	char *path;

	assert_true(asprintf(&path, "%s/%s", d->s.path, rel) > 0);
	return path;
}

int tree_setup(void **state)
{
	struct tree_dirs *d = calloc(1, sizeof(*d));

	if (!d || scratch_enter(&d->s) < 0)
		return -1;
	log_set_level(LOG_LVL_ERROR);
	tree_put_dir(d, "upper");
	tree_put_dir(d, "work");
	tree_layers(d, "lower");
	*state = d;
	return 0;
}

int tree_teardown(void **state)
{
	struct tree_dirs *d = *state;

	if (d->t)
		tree_unmount(d);
	scratch_leave(&d->s);
	free(d);
	return 0;
}

void tree_layers(struct tree_dirs *d, const char *names)
{
	char *copy = strdup(names), *rest = copy, *name;

	while ((name = strsep(&rest, ":")))
		tree_put_dir(d, name);
	snprintf(d->names, sizeof(d->names), "%s", names);
	free(copy);
}

static void lower_option(const struct tree_dirs *d, char *out, size_t size)
{
	const char *name = d->names;
	int n = snprintf(out, size, "lowerdir=");

	for (;;) {
		size_t len = strcspn(name, ":");

		n += snprintf(out + n, size - (size_t)n, "%s/%.*s%s", d->s.path, (int)len, name,
			      name[len] ? ":" : "");
		if (!name[len])
			return;
		name += len + 1;
	}
}

int tree_try_mount(struct tree_dirs *d, const char *extra)
{
	char lower[32768], all[49152], point[] = "/nowhere", self[] = "veneer", flag[] = "-o";
	char *argv[] = { self, flag, all, point, NULL };
	struct mount_opts opts;
	int r;

	lower_option(d, lower, sizeof(lower));
	snprintf(all, sizeof(all), "%s,upperdir=%s/upper,workdir=%s/work%s%s", lower, d->s.path,
		 d->s.path, extra ? "," : "", extra ? extra : "");
	r = options_parse(&(struct options_argv){ 4, argv, "/", true, false }, &opts, d->err,
			  sizeof(d->err));
	if (r < 0)
		return r;
	r = mount_open(&d->m, &opts, d->err, sizeof(d->err));
	if (r < 0)
		mount_close(&d->m);
	else
		d->t = &d->m.tree;
	return r;
}

void tree_mount(struct tree_dirs *d, const char *extra)
{
	*d->err = '\0';
	if (tree_try_mount(d, extra) < 0)
		fail_msg("mount: %s", d->err);
}

void tree_unmount(struct tree_dirs *d)
{
	mount_close(&d->m);
	d->t = NULL;
}

void tree_freeze(struct tree_dirs *d)
{
	char name[32], names[sizeof(d->names)];

	assert_null(d->t);
	snprintf(name, sizeof(name), "frozen%u", ++d->nfrozen);
	assert_int_equal(renameat(d->s.fd, "upper", d->s.fd, name), 0);
	tree_put_dir(d, "upper");
	assert_true(snprintf(names, sizeof(names), "%s:%s", name, d->names) < (int)sizeof(names));
	strcpy(d->names, names);
}

void tree_put_dir(struct tree_dirs *d, const char *rel)
{
	char *copy = strdup(rel);

	for (char *p = copy; p; p = strchr(p, '/')) {
		if (*p == '/')
			p++;
		p = strchr(p, '/');
		if (p)
			*p = '\0';
		assert_true(mkdirat(d->s.fd, copy, 0755) == 0 || errno == EEXIST);
		if (!p)
			break;
		*p = '/';
	}
	free(copy);
}

static void put_parents(struct tree_dirs *d, const char *rel)
{
	char *copy = strdup(rel), *slash = strrchr(copy, '/');

	*slash = '\0';
	tree_put_dir(d, copy);
	free(copy);
}

void tree_put(struct tree_dirs *d, const char *rel, const void *data, size_t len)
{
	int fd;

	put_parents(d, rel);
	fd = openat(d->s.fd, rel, O_CREAT | O_TRUNC | O_WRONLY | O_CLOEXEC, 0644);
	assert_true(fd >= 0);
	for (size_t off = 0; off < len;) {
		ssize_t n = write(fd, (const char *)data + off, len - off);

		assert_true(n > 0);
		off += (size_t)n;
	}
	close(fd);
}

void tree_put_text(struct tree_dirs *d, const char *rel, const char *text)
{
	tree_put(d, rel, text, strlen(text));
}

void tree_put_whiteout(struct tree_dirs *d, const char *rel)
{
	put_parents(d, rel);
	assert_int_equal(mknodat(d->s.fd, rel, S_IFCHR, makedev(0, 0)), 0);
}

void tree_put_opaque(struct tree_dirs *d, const char *rel)
{
	char *path = tree_path(d, rel);

	tree_put_dir(d, rel);
	assert_int_equal(setxattr(path, "user.overlay.opaque", "y", 1, 0), 0);
	free(path);
}

void tree_pattern(void *p, size_t len, uint64_t seed)
{
	uint64_t state = seed * 0x9e3779b97f4a7c15u + 1;
	uint8_t *bytes = p;

	for (size_t i = 0; i < len; i += 8) {
		uint64_t word = tree_random(&state) | 0x0101010101010101u;

		memcpy(bytes + i, &word, len - i < 8 ? len - i : 8);
	}
}

char *tree_put_pattern(struct tree_dirs *d, const char *rel, size_t len, uint64_t seed)
{
	char *data = malloc(len ? len : 1);

	assert_non_null(data);
	tree_pattern(data, len, seed);
	tree_put(d, rel, data, len);
	return data;
}

void tree_put_redirect(struct tree_dirs *d, const char *rel, const char *target)
{
	char *path = tree_path(d, rel);

	tree_put_dir(d, rel);
	assert_int_equal(setxattr(path, "user.overlay.redirect", target, strlen(target), 0), 0);
	free(path);
}

bool tree_is_there(struct tree_dirs *d, const char *rel)
{
	return faccessat(d->s.fd, rel, F_OK, AT_SYMLINK_NOFOLLOW) == 0;
}

bool tree_is_partial(struct tree_dirs *d, const char *rel)
{
	char *path = tree_path(d, rel);
	bool is_partial = lgetxattr(path, "user.veneer.partial", NULL, 0) > 0;

	free(path);
	return is_partial;
}

void tree_open_layers(struct tree_dirs *d, const char *const *names, size_t n, struct layer **ret)
{
	for (size_t k = 0; k < n; k++) {
		char *path = tree_path(d, names[k]);

		assert_int_equal(layer_open(path, &ret[k]), 0);
		free(path);
	}
}

void tree_close_layers(struct layer **layers, size_t n)
{
	for (size_t k = 0; k < n; k++)
		layer_unref(layers[k]);
}

struct inode *tree_look(struct tree_dirs *d, const char *path)
{
	struct inode *dir = d->t->root, *i;

	while (*path) {
		char name[NAME_MAX + 1];
		size_t len = strcspn(path, "/");
		struct stat st;
		int r;

		memcpy(name, path, len);
		name[len] = '\0';
		r = lookup_name(d->t, dir, name, &i, &st);
		tree_forget(d, dir);
		if (r == -ENOENT)
			return NULL;
		assert_int_equal(r, 0);
		dir = i;
		path += len + (path[len] == '/');
	}
	return dir;
}

struct inode *tree_get(struct tree_dirs *d, const char *path)
{
	struct inode *i = tree_look(d, path);

	if (!i)
		fail_msg("%s is not there", path);
	return i;
}

void tree_forget(struct tree_dirs *d, struct inode *i)
{
	if (i != d->t->root)
		inode_unref(d->t, i);
}

uint32_t tree_grant(struct tree_dirs *d, struct inode *i)
{
	uint32_t id, generation;

	inode_grant(d->t, i, &id, &generation);
	assert_int_equal(generation, node_table_slot(d->t->nodes, id)->generation);
	return id;
}

struct inode *tree_get_granted(struct tree_dirs *d, const char *path, uint32_t *ret_id)
{
	struct inode *i = tree_get(d, path);

	*ret_id = tree_grant(d, i);
	return i;
}

uint64_t tree_lookups(struct tree_dirs *d, uint32_t id)
{
	struct node_slot *s = node_table_slot(d->t->nodes, id);

	return s ? s->nlookup : 0;
}

struct stat tree_stat(struct tree_dirs *d, const char *path)
{
	struct inode *i = tree_get(d, path);
	struct stat st;

	assert_int_equal(lookup_stat(d->t, i, &st), 0);
	tree_forget(d, i);
	return st;
}

struct inode *tree_make(struct tree_dirs *d, const char *dir, const char *name, mode_t mode)
{
	const struct create_args args = { .mode = mode, .target = S_ISLNK(mode) ? "target" : NULL };
	struct inode *parent = tree_get(d, dir), *i;
	struct stat st;

	assert_int_equal(create_node(d->t, parent, name, &args, &i, &st), 0);
	tree_forget(d, parent);
	return i;
}

void tree_expect_inode(struct tree_dirs *d, struct inode *i, const void *data, size_t len)
{
	char *got = malloc(len + 100);
	struct stat st;

	assert_non_null(got);
	assert_int_equal(lookup_stat(d->t, i, &st), 0);
	assert_int_equal(st.st_size, len);
	for (size_t off = 0; off < len;) {
		ssize_t n =
			read_file(d->t, i, got + off,
				  131072 + 100 < len + 100 - off ? 131072 + 100 : len + 100 - off,
				  (off_t)off);

		if (n <= 0)
			fail_msg("read at %zu: %zd", off, n);
		off += (size_t)n;
	}
	for (size_t off = 0; off < len; off++)
		if (got[off] != ((const char *)data)[off])
			fail_msg("byte %zu of %zu (block %zu) is %02x, not %02x", off, len,
				 off / BLK_BYTES, (uint8_t)got[off], ((const uint8_t *)data)[off]);
	assert_int_equal(read_file(d->t, i, got, 10, (off_t)len), 0);
	free(got);
}

void tree_expect(struct tree_dirs *d, const char *path, const void *data, size_t len)
{
	struct inode *i = tree_get(d, path);

	tree_expect_inode(d, i, data, len);
	tree_forget(d, i);
}

void tree_expect_text(struct tree_dirs *d, const char *path, const char *text)
{
	tree_expect(d, path, text, strlen(text));
}

static int compare_names(const void *a, const void *b)
{
	return strcmp(*(char *const *)a, *(char *const *)b);
}

void tree_expect_names(struct tree_dirs *d, const char *dir, const char *names)
{
	struct inode *i = tree_get(d, dir);
	struct lookup_entry e;
	char *all[256], line[8192] = "";
	uint64_t pos = 0;
	size_t n = 0;
	int r;

	while ((r = lookup_next(d->t, i, &pos, &e)) == 1) {
		assert_true(n < 256);
		all[n++] = strdup(e.name);
	}
	assert_int_equal(r, 0);
	tree_forget(d, i);
	qsort(all, n, sizeof(*all), compare_names);
	for (size_t k = 0; k < n; k++) {
		snprintf(line + strlen(line), sizeof(line) - strlen(line), "%s%s", k ? " " : "",
			 all[k]);
		free(all[k]);
	}
	assert_string_equal(line, names);
}

uint64_t tree_seed(const char *test)
{
	const char *given = getenv("TEST_SEED");
	uint64_t seed = 0;

	if (given)
		seed = strtoull(given, NULL, 0);
	else if (getrandom(&seed, 4, 0) < 0)
		seed = 1;
	if (!seed)
		seed = 1;
	print_message("# %s: TEST_SEED=%" PRIu64 "\n", test, seed);
	return seed;
}
