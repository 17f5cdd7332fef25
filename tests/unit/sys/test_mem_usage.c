// SPDX-License-Identifier: Apache-2.0
#include "veneer/sys/mem_usage.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#define MIB (1u << 20)

static char dir[64], proc[96], groups[96];

/* path below dir; its directories are made. */
static void put(const char *path, const char *text)
{
	char full[512];
	FILE *f;

	snprintf(full, sizeof(full), "%s/%s", dir, path);
	for (char *s = full + strlen(dir) + 1; (s = strchr(s, '/')); *s++ = '/') {
		*s = '\0';
		mkdir(full, 0755);
	}
	f = fopen(full, "we");
	assert_non_null(f);
	fputs(text, f);
	fclose(f);
}

static void remove_all(void)
{
	char command[128];

	snprintf(command, sizeof(command), "rm -rf %s", dir);
	assert_int_equal(system(command), 0);
}

static int setup(void **state)
{
	(void)state;
	snprintf(dir, sizeof(dir), "/tmp/test-memuse-XXXXXX");
	assert_non_null(mkdtemp(dir));
	snprintf(proc, sizeof(proc), "%s/proc", dir);
	snprintf(groups, sizeof(groups), "%s/groups", dir);
	put("proc/meminfo", "MemTotal:       16777216 kB\nMemFree:         4194304 "
			    "kB\nMemAvailable:    8388608 kB\nBuffers: 1 kB\n");
	put("proc/self/cgroup", "0::/user/app\n");
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	remove_all();
	return 0;
}

static struct mem_usage look(void)
{
	struct mem_usage m;

	assert_int_equal(mem_usage_read_at(proc, groups, &m), 0);
	return m;
}

static void test_mem_usage__without_a_limit_it_is_the_host(void **state)
{
	struct mem_usage m;

	(void)state;
	put("groups/user/app/memory.max", "max\n");
	put("groups/user/app/memory.current", "1048576\n");
	m = look();
	assert_int_equal(m.limit >> 20, 16384);
	assert_int_equal(m.used >> 20, 12288);
	assert_int_equal(m.cache >> 20, 4096);
	assert_false(m.is_pressed);
	/* of the cache nothing, all and half counts */
	assert_int_equal(mem_usage_percent(&m, 0), 50);
	assert_int_equal(mem_usage_percent(&m, UINT64_MAX), 75);
	assert_int_equal(mem_usage_percent(&m, 2048ull * MIB), 62);
}

static void test_mem_usage__the_group_with_the_least_room_counts(void **state)
{
	struct mem_usage m;

	(void)state;
	put("groups/user/app/memory.max", "1073741824\n");
	put("groups/user/app/memory.current", "104857600\n");
	put("groups/user/memory.max", "536870912\n");
	put("groups/user/memory.current", "471859200\n");
	put("groups/user/memory.stat",
	    "anon 1\ninactive_file 104857600\nactive_file 10485760\nfile 9\n");
	put("groups/user/memory.pressure",
	    "some avg10=34.00 avg60=1.00 avg300=0.00 total=5\nfull avg10=0.00\n");
	m = look();
	assert_int_equal(m.limit, 512 * MIB);
	assert_int_equal(m.used, 450 * MIB);
	assert_int_equal(m.cache, 110 * MIB);
	assert_true(m.is_pressed);
}

static void test_mem_usage__groups_of_the_first_kind(void **state)
{
	struct mem_usage m;

	(void)state;
	put("proc/self/cgroup", "9:name=systemd:/x\n4:cpu,memory:/box\n0::/\n");
	put("groups/memory/memory.limit_in_bytes", "9223372036854771712\n");
	put("groups/memory/memory.usage_in_bytes", "1\n");
	put("groups/memory/box/memory.limit_in_bytes", "104857600\n");
	put("groups/memory/box/memory.usage_in_bytes", "94371840\n");
	put("groups/memory/box/memory.stat",
	    "inactive_file 7\ntotal_inactive_file 10485760\ntotal_active_file 10485760\n");
	m = look();
	assert_int_equal(m.limit, 100 * MIB);
	assert_int_equal(m.cache, 20 * MIB);
	assert_int_equal(mem_usage_percent(&m, 0), 70);
	assert_int_equal(mem_usage_percent(&m, 20 * MIB), 90);
}

/* A container sees its own group as the root, whatever its path says. */
static void test_mem_usage__a_path_that_is_not_there_is_the_root(void **state)
{
	(void)state;
	put("proc/self/cgroup", "0::/system.slice/docker-1.scope\n");
	put("groups/memory.max", "209715200\n");
	put("groups/memory.current", "1048576\n");
	assert_int_equal(look().limit, 200 * MIB);
}

static void test_mem_usage__pressure_on_the_host(void **state)
{
	(void)state;
	put("proc/pressure/memory", "some avg10=12.34 avg60=0.00 avg300=0.00 total=1\n");
	assert_true(look().is_pressed);
}

static void test_mem_usage__nonsense_is_no_group(void **state)
{
	struct mem_usage m;

	(void)state;
	put("groups/user/app/memory.max", "0\n");
	put("groups/user/memory.max", "zzz\n");
	put("groups/memory.max", "4096\n");
	assert_int_equal(look().limit >> 20, 16384);
	/* more in use than there may be */
	put("groups/memory.current", "8192\n");
	put("groups/memory.stat", "inactive_file 999999\n");
	m = look();
	assert_int_equal(m.cache, 8192);
	assert_int_equal(mem_usage_percent(&m, UINT64_MAX), 100);
	remove_all();
	assert_int_equal(mem_usage_read_at(proc, groups, &m), -ENOENT);
}

/* The page cache is room; a group that is full is so on a host that has plenty. */
static void test_mem_usage__short_is_what_programs_themselves_take(void **state)
{
	struct mem_usage m;

	(void)state;
	m = look();
	assert_false(mem_usage_is_short(&m));
	put("groups/user/app/memory.max", "104857600\n");
	put("groups/user/app/memory.current", "103809024\n");
	put("groups/user/app/memory.stat", "inactive_file 20971520\nactive_file 10485760\n");
	m = look();
	assert_false(mem_usage_is_short(&m));
	put("groups/user/app/memory.pressure", "some avg10=50.00 avg60=0.00 avg300=0.00 total=1\n");
	m = look();
	assert_true(mem_usage_is_short(&m));
	put("groups/user/app/memory.current", "98566144\n");
	m = look();
	assert_false(mem_usage_is_short(&m));
	put("groups/user/app/memory.pressure", "some avg10=0.00 avg60=0.00 avg300=0.00 total=1\n");
	put("groups/user/app/memory.stat", "inactive_file 1048576\nactive_file 0\n");
	m = look();
	assert_true(mem_usage_is_short(&m));
}

static void test_mem_usage__of_this_machine(void **state)
{
	struct mem_usage m;

	(void)state;
	assert_int_equal(mem_usage_read(&m), 0);
	assert_true(m.limit > MIB && m.used >= m.cache);
	assert_true(mem_usage_percent(&m, UINT64_MAX) <= 100);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_mem_usage__without_a_limit_it_is_the_host,
						setup, teardown),
		cmocka_unit_test_setup_teardown(
			test_mem_usage__the_group_with_the_least_room_counts, setup, teardown),
		cmocka_unit_test_setup_teardown(test_mem_usage__groups_of_the_first_kind, setup,
						teardown),
		cmocka_unit_test_setup_teardown(
			test_mem_usage__a_path_that_is_not_there_is_the_root, setup, teardown),
		cmocka_unit_test_setup_teardown(test_mem_usage__pressure_on_the_host, setup,
						teardown),
		cmocka_unit_test_setup_teardown(test_mem_usage__nonsense_is_no_group, setup,
						teardown),
		cmocka_unit_test_setup_teardown(
			test_mem_usage__short_is_what_programs_themselves_take, setup, teardown),
		cmocka_unit_test_setup_teardown(test_mem_usage__of_this_machine, setup, teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
