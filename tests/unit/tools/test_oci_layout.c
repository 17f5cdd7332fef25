// SPDX-License-Identifier: Apache-2.0
#include "support/tree.h"

#include "tools/sha256_library.h"
#include "veneer/base/cleanup.h"
#include "veneer/tools/oci_layout.h"

#include <dirent.h>
#include <jansson.h>

#define CONTENT "the bytes of a delta"

struct layout {
	struct tree_dirs *d;
	char path[PATH_MAX + 16];
};

static int setup(void **state)
{
	struct layout *l = calloc(1, sizeof(*l));

	if (!l || tree_setup((void **)&l->d) < 0)
		return -1;
	snprintf(l->path, sizeof(l->path), "%s/layout", l->d->s.path);
	*state = l;
	return 0;
}

static int teardown(void **state)
{
	struct layout *l = *state;

	tree_teardown((void **)&l->d);
	free(l);
	return 0;
}

static void put(struct layout *l, const char *tag, const char *content)
{
	const struct delta_head head = { .id = 0x1234, .from = 0x99, .name = "name" };
	const struct delta_progress done = { .entries = 3, .bytes = 4 };
	_cleanup_(oci_layout_release) struct oci_layout o = OCI_LAYOUT_NONE;

	assert_int_equal(oci_layout_begin(l->path, &o), 0);
	assert_int_equal(write(o.fd, content, strlen(content)), strlen(content));
	assert_int_equal(oci_layout_commit(&o, tag, &head, &done), 0);
}

static void expect(struct layout *l, const char *tag, const char *content)
{
	_cleanup_(closep) int fd = oci_layout_open(l->path, tag);
	char got[256] = "";

	assert_true(fd >= 0);
	assert_int_equal(pread(fd, got, sizeof(got) - 1, 0), strlen(content));
	assert_string_equal(got, content);
}

static json_t *read_index(struct layout *l)
{
	char path[PATH_MAX + 64];
	json_t *j;

	snprintf(path, sizeof(path), "%s/index.json", l->path);
	j = json_load_file(path, 0, NULL);
	assert_non_null(j);
	return j;
}

/* The path of the blob of a descriptor, below the scratch directory. */
static void blob_of(json_t *descriptor, char *ret, size_t size)
{
	const char *digest = json_string_value(json_object_get(descriptor, "digest"));

	assert_non_null(digest);
	assert_int_equal(strncmp(digest, "sha256:", 7), 0);
	snprintf(ret, size, "layout/blobs/sha256/%s", digest + 7);
}

static json_t *read_manifest(struct layout *l, size_t k)
{
	json_t *index = read_index(l), *m;
	char rel[PATH_MAX], path[2 * PATH_MAX];

	blob_of(json_array_get(json_object_get(index, "manifests"), k), rel, sizeof(rel));
	snprintf(path, sizeof(path), "%s/%s", l->d->s.path, rel);
	m = json_load_file(path, 0, NULL);
	assert_non_null(m);
	json_decref(index);
	return m;
}

static void test_oci_layout__delta_comes_back_by_its_tag(void **state)
{
	struct layout *l = *state;
	json_t *m;

	put(l, "one", CONTENT);
	put(l, "two", "others");
	expect(l, "one", CONTENT);
	expect(l, "two", "others");
	assert_int_equal(oci_layout_open(l->path, "three"), -ENOENT);
	assert_true(tree_is_there(l->d, "layout/oci-layout"));
	m = read_manifest(l, 0);
	assert_string_equal(json_string_value(json_object_get(m, "artifactType")),
			    OCI_LAYOUT_ARTIFACT_TYPE);
	assert_int_equal(json_array_size(json_object_get(m, "layers")), 1);
	json_decref(m);
}

static void test_oci_layout__tag_goes_to_the_newest(void **state)
{
	struct layout *l = *state;
	json_t *index;

	put(l, "one", CONTENT);
	put(l, "one", "newer");
	put(l, "one", CONTENT);
	expect(l, "one", CONTENT);
	index = read_index(l);
	assert_int_equal(json_array_size(json_object_get(index, "manifests")), 1);
	json_decref(index);
	assert_false(tree_is_there(l->d, "layout/.index.json.veneer"));
}

static void test_oci_layout__layout_that_was_not_committed_names_nothing(void **state)
{
	struct layout *l = *state;
	struct oci_layout o;

	put(l, "one", CONTENT);
	assert_int_equal(oci_layout_begin(l->path, &o), 0);
	assert_int_equal(write(o.fd, "half", 4), 4);
	oci_layout_release(&o);
	expect(l, "one", CONTENT);
	/* Also of one that was not begun. */
	o = OCI_LAYOUT_NONE;
	oci_layout_release(&o);
}

static void test_oci_layout__blob_that_was_changed_is_refused(void **state)
{
	struct layout *l = *state;
	char rel[PATH_MAX];
	json_t *m;

	put(l, "one", CONTENT);
	m = read_manifest(l, 0);
	blob_of(json_array_get(json_object_get(m, "layers"), 0), rel, sizeof(rel));
	json_decref(m);
	tree_put_text(l->d, rel, "another");
	assert_int_equal(oci_layout_open(l->path, "one"), -EUCLEAN);
	/* Nor is a manifest that was. */
	put(l, "two", "others");
	m = read_index(l);
	blob_of(json_array_get(json_object_get(m, "manifests"), 1), rel, sizeof(rel));
	json_decref(m);
	tree_put_text(l->d, rel, "{}");
	assert_int_equal(oci_layout_open(l->path, "two"), -EUCLEAN);
	/* A link that leads elsewhere, and what is no file. */
	assert_int_equal(unlinkat(l->d->s.fd, rel, 0), 0);
	assert_int_equal(symlinkat("/etc/passwd", l->d->s.fd, rel), 0);
	assert_true(oci_layout_open(l->path, "two") < 0);
	assert_int_equal(unlinkat(l->d->s.fd, rel, 0), 0);
	assert_int_equal(mkfifoat(l->d->s.fd, rel, 0600), 0);
	assert_int_equal(oci_layout_open(l->path, "two"), -EUCLEAN);
}

static void test_oci_layout__hostile_index_is_refused(void **state)
{
	static const char *const texts[] = {
		"",
		"[]",
		"{",
		"{\"manifests\": {}}",
		"{\"manifests\": [1, null, \"x\"]}",
		"{\"manifests\": [{\"annotations\": {\"org.opencontainers.image.ref.name\": 5}}]}",
		"{\"manifests\": [{\"annotations\": {\"org.opencontainers.image.ref.name\": "
		"\"one\"}}]}",
		"{\"manifests\": [{\"digest\": \"sha256:../../../../etc/passwd\", \"annotations\": "
		"{\"org.opencontainers.image.ref.name\": \"one\"}}]}",
		"{\"manifests\": [{\"digest\": \"md5:00\", \"annotations\": "
		"{\"org.opencontainers.image.ref.name\": \"one\"}}]}",
		"{\"manifests\": [{\"digest\": "
		"\"sha256:0000000000000000000000000000000000000000000000000000000000000000\", "
		"\"annotations\": {\"org.opencontainers.image.ref.name\": \"one\"}}]}",
	};
	struct layout *l = *state;

	put(l, "two", CONTENT);
	for (size_t i = 0; i < sizeof(texts) / sizeof(*texts); i++) {
		tree_put_text(l->d, "layout/index.json", texts[i]);
		assert_true(oci_layout_open(l->path, "one") < 0);
	}
	/* A new delta does not replace what it cannot read. */
	tree_put_text(l->d, "layout/index.json", "[]");
	{
		const struct delta_head head = { .id = 1 };
		const struct delta_progress done = { 0 };
		struct oci_layout o;

		assert_int_equal(oci_layout_begin(l->path, &o), 0);
		assert_int_equal(oci_layout_commit(&o, "one", &head, &done), -EUCLEAN);
		oci_layout_release(&o);
	}
	assert_int_equal(oci_layout_open(l->path, "two"), -EUCLEAN);
}

static void test_oci_layout__manifest_of_something_else_is_refused(void **state)
{
	static const char manifest[] = "{\"layers\": [{\"mediaType\": \"text/plain\"}]}";
	char digest[SHA256_LIBRARY_HEX + 1], path[256], index[512];
	struct layout *l = *state;
	int fd;

	put(l, "two", CONTENT);
	tree_put_text(l->d, "layout/m", manifest);
	fd = openat(l->d->s.fd, "layout/m", O_RDONLY | O_CLOEXEC);
	assert_int_equal(sha256_library_file(fd, digest), 0);
	close(fd);
	snprintf(path, sizeof(path), "layout/blobs/sha256/%s", digest);
	tree_put_text(l->d, path, manifest);
	snprintf(index, sizeof(index),
		 "{\"manifests\": [{\"digest\": \"sha256:%s\", \"annotations\": "
		 "{\"org.opencontainers.image.ref.name\": \"one\"}}]}",
		 digest);
	tree_put_text(l->d, "layout/index.json", index);
	assert_int_equal(oci_layout_open(l->path, "one"), -EUCLEAN);
}

static void test_oci_layout__place_that_cannot_be_one(void **state)
{
	struct layout *l = *state;
	struct oci_layout o;

	assert_int_equal(oci_layout_open(l->path, "one"), -ENOENT);
	tree_put_text(l->d, "upper/layout", "a file");
	snprintf(l->path, sizeof(l->path), "%s/upper/layout", l->d->s.path);
	assert_int_equal(oci_layout_begin(l->path, &o), -ENOTDIR);
	oci_layout_release(&o);
	strcat(l->path, "/in/it");
	assert_true(oci_layout_begin(l->path, &o) < 0);
	oci_layout_release(&o);
}

static void expect_split(const char *text, const char *path, const char *tag)
{
	char *copy = strdup(text), *got = oci_layout_split(copy);

	if (tag)
		assert_string_equal(got, tag);
	else
		assert_null(got);
	assert_string_equal(copy, path);
	free(copy);
}

static void test_oci_layout__name_is_split_at_the_last_colon(void **state)
{
	(void)state;
	expect_split("dir:tag", "dir", "tag");
	expect_split("/a:b/dir:tag", "/a:b/dir", "tag");
	expect_split("a:b:c", "a:b", "c");
	expect_split("dir", "dir", NULL);
	expect_split("a:b/dir", "a:b/dir", NULL);
	expect_split(":tag", ":tag", NULL);
	expect_split("dir:", "dir:", NULL);
	expect_split("", "", NULL);
}

#define row(test) cmocka_unit_test_setup_teardown(test, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		row(test_oci_layout__delta_comes_back_by_its_tag),
		row(test_oci_layout__tag_goes_to_the_newest),
		row(test_oci_layout__layout_that_was_not_committed_names_nothing),
		row(test_oci_layout__blob_that_was_changed_is_refused),
		row(test_oci_layout__hostile_index_is_refused),
		row(test_oci_layout__manifest_of_something_else_is_refused),
		row(test_oci_layout__place_that_cannot_be_one),
		cmocka_unit_test(test_oci_layout__name_is_split_at_the_last_colon),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
