// SPDX-License-Identifier: Apache-2.0
#include "support/tree.h"

#include "veneer/tools/container_name.h"

#define ID  "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
#define CID "fedcba9876543210fedcba9876543210fedcba9876543210fedcba9876543210"

static void expect_name(struct tree_dirs *d, const char *below, const char *expected)
{
	char path[PATH_MAX + 512], *name;

	snprintf(path, sizeof(path), "%s/%s", d->s.path, below);
	assert_int_equal(container_name(path, &name), 0);
	if (expected)
		assert_string_equal(name ? name : "none", expected);
	else
		assert_null(name);
	free(name);
}

static void test_container_name__podman_names_it_by_its_layer(void **state)
{
	struct tree_dirs *d = *state;

	expect_name(d, "overlay/" ID "/merged", NULL);
	tree_put_text(d, "overlay-containers/containers.json",
		      "[{\"id\":\"1\",\"names\":[\"other\"],\"layer\":\"" CID "\"},"
		      "{\"id\":\"2\",\"names\":[\"web\",\"alias\"],\"layer\":\"" ID
		      "\"},{\"id\":\"3\"},7]");
	expect_name(d, "overlay/" ID "/merged", "web");
	tree_put_text(d, "overlay-containers/containers.json", "[]");
	tree_put_text(d, "overlay-containers/volatile-containers.json",
		      "[{\"names\":[\"brief\"],\"layer\":\"" ID "\"}]");
	expect_name(d, "overlay/" ID "/merged", "brief");
}

static void test_container_name__docker_names_it_by_its_mount(void **state)
{
	struct tree_dirs *d = *state;

	tree_put_text(d, "image/fuse-overlayfs/layerdb/mounts/" CID "/mount-id", ID);
	tree_put_text(d, "containers/" CID "/config.v2.json", "{\"Name\":\"/eager_euler\"}");
	expect_name(d, "fuse-overlayfs/" ID "/merged", "eager_euler");
	expect_name(d, "fuse-overlayfs/" CID "/merged", NULL);
}

static void test_container_name__what_makes_no_sense_gives_no_name(void **state)
{
	static const char *const texts[] = { "",
					     "{",
					     "[",
					     "7",
					     "[{\"names\":7,\"layer\":\"" ID "\"}]",
					     "[{\"names\":[7],\"layer\":\"" ID "\"}]",
					     "[{\"names\":[\"\"],\"layer\":\"" ID "\"}]",
					     "{\"layer\":\"" ID "\"}" };
	struct tree_dirs *d = *state;

	for (size_t k = 0; k < sizeof(texts) / sizeof(texts[0]); k++) {
		tree_put_text(d, "overlay-containers/containers.json", texts[k]);
		expect_name(d, "overlay/" ID "/merged", NULL);
	}
	assert_int_equal(unlinkat(d->s.fd, "overlay-containers/containers.json", 0), 0);
	assert_int_equal(mkfifoat(d->s.fd, "overlay-containers/containers.json", 0600), 0);
	expect_name(d, "overlay/" ID "/merged", NULL);
}

#define row(test) cmocka_unit_test_setup_teardown(test, tree_setup, tree_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		row(test_container_name__podman_names_it_by_its_layer),
		row(test_container_name__docker_names_it_by_its_mount),
		row(test_container_name__what_makes_no_sense_gives_no_name),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
