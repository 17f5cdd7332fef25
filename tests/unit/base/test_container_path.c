// SPDX-License-Identifier: Apache-2.0
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "veneer/base/container_path.h"

#define ID "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

static void test_container_path__number_is_in_the_path(void **state)
{
	static const struct {
		const char *path, *id;
	} rows[] = {
		{ "/var/lib/containers/storage/overlay/" ID "/merged", "0123456789ab" },
		{ "/var/lib/docker/fuse-overlayfs/" ID "/merged", "0123456789ab" },
		{ "/run/containerd/io.containerd.runtime.v2.task/k8s.io/" ID "/rootfs",
		  "0123456789ab" },
		{ "/run/containerd/io.containerd.runtime.v2.task/default/web/rootfs", "web" },
		{ "/overlay/" ID "/merged", NULL },
		{ "/x/overlay/0123/merged", NULL },
		{ "/x/overlay2/" ID "/merged", NULL },
		{ "/x/overlay/" ID "/diff", NULL },
		{ "/mnt", NULL },
		{ "", NULL },
	};

	(void)state;
	for (size_t k = 0; k < sizeof(rows) / sizeof(rows[0]); k++) {
		char id[NAME_MAX + 1];

		assert_int_equal(container_path_short_id(rows[k].path, id), rows[k].id != NULL);
		assert_string_equal(id, rows[k].id ? rows[k].id : "");
	}
}

static void test_container_path__directory_of_the_engine_is_above(void **state)
{
	struct container_path at;

	(void)state;
	assert_true(container_path_parse("/var/lib/containers/storage/overlay/" ID "/merged", &at));
	assert_int_equal(at.engine, CONTAINER_STORAGE);
	assert_string_equal(at.root, "/var/lib/containers/storage");
	assert_string_equal(at.id, ID);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_container_path__number_is_in_the_path),
		cmocka_unit_test(test_container_path__directory_of_the_engine_is_above),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
