// SPDX-License-Identifier: Apache-2.0
#include "veneer/tools/oci_layout.h"

#include "sha256_library.h"

#include "veneer/base/cleanup.h"
#include "veneer/base/log.h"
#include "veneer/sys/file.h"

#include <fcntl.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#define INDEX	      "index.json"
#define INDEX_NEW     ".index.json.veneer"
#define MANIFEST_TYPE "application/vnd.oci.image.manifest.v1+json"
#define REF_NAME      "org.opencontainers.image.ref.name"
#define TEXT_MAX      (4u << 20)
#define DIGEST	      "sha256:"

static int fail(int r, const char *what)
{
	log_error("%s: %s", what,
		  r == -EUCLEAN ? "this is no OCI image layout, or it is damaged" : strerror(-r));
	return r;
}

/* ---- files ---- */

/* Open a new file without a name. */
static int open_nameless(int dirfd)
{
	int fd = openat(dirfd, ".", O_TMPFILE | O_RDWR | O_CLOEXEC, 0644);

	return fd < 0 ? -errno : fd;
}

/* Name the file by its digest. An existing file of that name has the same contents. */
static int name_blob(int blobs, int fd, char ret_digest[SHA256_LIBRARY_HEX + 1])
{
	char self[sizeof("/proc/self/fd/-2147483648")];
	int r = sha256_library_file(fd, ret_digest);

	snprintf(self, sizeof(self), "/proc/self/fd/%d", fd);
	if (r == 0 && fsync(fd) < 0)
		r = -errno;
	if (r == 0 && linkat(AT_FDCWD, self, blobs, ret_digest, AT_SYMLINK_FOLLOW) < 0 &&
	    errno != EEXIST)
		r = -errno;
	return r;
}

/* j is taken over. */
static int put_json(int blobs, json_t *j, json_int_t *ret_size,
		    char ret_digest[SHA256_LIBRARY_HEX + 1])
{
	_cleanup_(freep) char *text = j ? json_dumps(j, JSON_COMPACT | JSON_SORT_KEYS) : NULL;
	_cleanup_(closep) int fd = text ? open_nameless(blobs) : -ENOMEM;
	int r = fd < 0 ? fd : file_pwrite(fd, text, strlen(text), 0);

	json_decref(j);
	if (r < 0)
		return r;
	*ret_size = (json_int_t)strlen(text);
	return name_blob(blobs, fd, ret_digest);
}

/* Read the text of a JSON object. */
static int read_json(int dirfd, const char *name, json_t **ret)
{
	_cleanup_(closep) int fd =
		openat(dirfd, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
	_cleanup_(freep) char *text = NULL;
	struct stat st;
	ssize_t n;

	if (fd < 0 || fstat(fd, &st) < 0)
		return -errno;
	if (!S_ISREG(st.st_mode) || st.st_size > TEXT_MAX)
		return -EUCLEAN;
	text = malloc((size_t)st.st_size + 1);
	if (!text)
		return -ENOMEM;
	n = file_pread(fd, text, (size_t)st.st_size, 0);
	if (n < 0)
		return (int)n;
	*ret = json_loadb(text, (size_t)n, 0, NULL);
	if (json_is_object(*ret))
		return 0;
	json_decref(*ret);
	*ret = NULL;
	return -EUCLEAN;
}

/* j is taken over. */
static int replace_index(int dirfd, json_t *j)
{
	_cleanup_(freep) char *text = json_dumps(j, JSON_INDENT(2));
	_cleanup_(closep) int fd = -1;
	int r = text ? 0 : -ENOMEM;

	json_decref(j);
	unlinkat(dirfd, INDEX_NEW, 0);
	fd = openat(dirfd, INDEX_NEW, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0644);
	r = fd < 0 ? -errno : r ?: file_pwrite(fd, text, strlen(text), 0);
	if (r == 0 && (fsync(fd) < 0 || renameat(dirfd, INDEX_NEW, dirfd, INDEX) < 0))
		r = -errno;
	return r;
}

/* ---- writing ---- */

static int make_file(int dirfd, const char *name, const char *text)
{
	_cleanup_(closep) int fd =
		openat(dirfd, name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);

	if (fd < 0)
		return errno == EEXIST ? 0 : -errno;
	return file_pwrite(fd, text, strlen(text), 0);
}

static int make_dir(int dirfd, const char *name)
{
	if (mkdirat(dirfd, name, 0755) < 0 && errno != EEXIST)
		return -errno;
	dirfd = openat(dirfd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	return dirfd < 0 ? -errno : dirfd;
}

static int open_blobs(int dirfd)
{
	_cleanup_(closep) int blobs = make_dir(dirfd, "blobs");

	return blobs < 0 ? blobs : make_dir(blobs, "sha256");
}

int oci_layout_begin(const char *path, struct oci_layout *ret)
{
	int r = 0;

	*ret = OCI_LAYOUT_NONE;
	if (mkdir(path, 0755) < 0 && errno != EEXIST)
		return fail(-errno, path);
	ret->dirfd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (ret->dirfd < 0)
		return fail(-errno, path);
	r = make_file(ret->dirfd, "oci-layout", "{\"imageLayoutVersion\": \"1.0.0\"}");
	r = r ?: make_file(ret->dirfd, INDEX, "{\"schemaVersion\": 2, \"manifests\": []}");
	if (r == 0)
		r = ret->blobs = open_blobs(ret->dirfd);
	if (r >= 0)
		r = ret->fd = open_nameless(ret->blobs);
	return r < 0 ? fail(r, path) : 0;
}

void oci_layout_release(struct oci_layout *l)
{
	closep(&l->fd);
	closep(&l->blobs);
	closep(&l->dirfd);
}

static json_t *descriptor(const char *type, const char *digest, json_int_t size)
{
	char text[sizeof(DIGEST) + SHA256_LIBRARY_HEX];

	snprintf(text, sizeof(text), DIGEST "%s", digest);
	return json_pack("{ss, ss, sI}", "mediaType", type, "digest", text, "size", size);
}

static json_t *config(const struct delta_head *head, const struct delta_progress *done)
{
	char id[17], from[17];

	snprintf(id, sizeof(id), "%016" PRIx64, head->id);
	snprintf(from, sizeof(from), "%016" PRIx64, head->from);
	return json_pack("{ss, ss*, ss, sI, sI, sI}", "id", id, "from", head->from ? from : NULL,
			 "name", head->name, "time", (json_int_t)head->time_ns, "entries",
			 (json_int_t)done->entries, "bytes", (json_int_t)done->bytes);
}

static int put_manifest(struct oci_layout *l, const struct delta_head *head,
			const struct delta_progress *done, json_t **ret)
{
	char digest[SHA256_LIBRARY_HEX + 1], of_config[SHA256_LIBRARY_HEX + 1];
	json_int_t size;
	struct stat st;
	json_t *m;
	int r = name_blob(l->blobs, l->fd, digest);

	r = r ?: put_json(l->blobs, config(head, done), &size, of_config);
	if (r == 0 && fstat(l->fd, &st) < 0)
		r = -errno;
	if (r < 0)
		return r;
	m = json_pack("{si, ss, ss, so, s[o]}", "schemaVersion", 2, "mediaType", MANIFEST_TYPE,
		      "artifactType", OCI_LAYOUT_ARTIFACT_TYPE, "config",
		      descriptor(OCI_LAYOUT_CONFIG_TYPE, of_config, size), "layers",
		      descriptor(OCI_LAYOUT_DELTA_TYPE, digest, (json_int_t)st.st_size));
	r = put_json(l->blobs, m, &size, digest);
	*ret = r == 0 ? descriptor(MANIFEST_TYPE, digest, size) : NULL;
	return r == 0 && !*ret ? -ENOMEM : r;
}

static const char *ref_name(json_t *entry)
{
	return json_string_value(json_object_get(json_object_get(entry, "annotations"), REF_NAME));
}

/* entry is taken over. */
static int put_in_index(struct oci_layout *l, const char *tag, json_t *entry)
{
	json_t *index = NULL, *all;
	int r = read_json(l->dirfd, INDEX, &index);

	all = json_object_get(index, "manifests");
	if (r == 0 && !json_is_array(all))
		r = -EUCLEAN;
	for (size_t k = json_array_size(all); k-- > 0;) {
		const char *name = ref_name(json_array_get(all, k));

		if (name && !strcmp(name, tag))
			json_array_remove(all, k);
	}
	if (r == 0 &&
	    (json_object_set_new(entry, "annotations", json_pack("{ss}", REF_NAME, tag)) < 0 ||
	     json_array_append(all, entry) < 0))
		r = -ENOMEM;
	json_decref(entry);
	if (r == 0)
		return replace_index(l->dirfd, index);
	json_decref(index);
	return r;
}

int oci_layout_commit(struct oci_layout *l, const char *tag, const struct delta_head *head,
		      const struct delta_progress *done)
{
	json_t *entry;
	int r = put_manifest(l, head, done, &entry);

	r = r ?: put_in_index(l, tag, entry);
	return r < 0 ? fail(r, tag) : 0;
}

/* ---- reading ---- */

static json_t *find(json_t *index, const char *tag)
{
	json_t *all = json_object_get(index, "manifests"), *e;
	size_t k;

	json_array_foreach(all, k, e)
	{
		const char *name = ref_name(e);

		if (name && !strcmp(name, tag))
			return e;
	}
	return NULL;
}

/* The digits of a descriptor's digest; NULL: it has none of this kind. */
static const char *digest_of(json_t *descriptor)
{
	const char *s = json_string_value(json_object_get(descriptor, "digest"));

	if (!s || strncmp(s, DIGEST, strlen(DIGEST)) != 0)
		return NULL;
	s += strlen(DIGEST);
	return strlen(s) == SHA256_LIBRARY_HEX &&
			       strspn(s, "0123456789abcdef") == SHA256_LIBRARY_HEX
		       ? s
		       : NULL;
}

/* Open the blob, and check that its contents match its name. */
static int open_blob(int blobs, const char *digest)
{
	char is[SHA256_LIBRARY_HEX + 1];
	_cleanup_(closep) int fd =
		openat(blobs, digest, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
	struct stat st;
	int r;

	if (fd < 0 || fstat(fd, &st) < 0)
		return -errno;
	r = S_ISREG(st.st_mode) ? sha256_library_file(fd, is) : -EUCLEAN;
	if (r == 0 && strcmp(is, digest) != 0)
		r = -EUCLEAN;
	return r < 0 ? r : steal_fd(&fd);
}

static int check_digest(int blobs, const char *digest)
{
	_cleanup_(closep) int fd = open_blob(blobs, digest);

	return fd < 0 ? fd : 0;
}

/* The only layer of a manifest, if it is a delta. */
static json_t *delta_of(json_t *manifest)
{
	json_t *layers = json_object_get(manifest, "layers"), *one = json_array_get(layers, 0);
	const char *type = json_string_value(json_object_get(one, "mediaType"));

	return json_array_size(layers) == 1 && type && !strcmp(type, OCI_LAYOUT_DELTA_TYPE) ? one
											    : NULL;
}

static int open_delta(int blobs, json_t *entry, const char *tag)
{
	const char *digest = digest_of(entry);
	json_t *manifest = NULL, *delta;
	int r = digest ? check_digest(blobs, digest) : -EUCLEAN;

	r = r ?: read_json(blobs, digest, &manifest);
	if (r < 0)
		return fail(r, tag);
	delta = delta_of(manifest);
	digest = delta ? digest_of(delta) : NULL;
	if (!digest) {
		log_error("%s: this is no delta of veneer", tag);
		r = -EUCLEAN;
	} else {
		r = open_blob(blobs, digest);
		if (r < 0)
			fail(r, tag);
	}
	json_decref(manifest);
	return r;
}

int oci_layout_open(const char *path, const char *tag)
{
	_cleanup_(closep) int dirfd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC), all = -1,
			      blobs = -1;
	json_t *index = NULL, *entry;
	int r = dirfd < 0 ? -errno : read_json(dirfd, INDEX, &index);

	all = r < 0 ? -1 : openat(dirfd, "blobs", O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	blobs = all < 0 ? -1
			: openat(all, "sha256", O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (r == 0 && blobs < 0)
		r = -errno;
	if (r < 0) {
		fail(r, path);
	} else if (!(entry = find(index, tag))) {
		log_error("%s: it has no tag %s", path, tag);
		r = -ENOENT;
	} else {
		r = open_delta(blobs, entry, tag);
	}
	json_decref(index);
	return r;
}

char *oci_layout_split(char *name)
{
	char *colon = strrchr(name, ':');

	if (!colon || colon == name || !colon[1] || strchr(colon, '/'))
		return NULL;
	*colon = '\0';
	return colon + 1;
}
