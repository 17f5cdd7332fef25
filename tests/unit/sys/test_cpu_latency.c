// SPDX-License-Identifier: Apache-2.0
#include "veneer/sys/cpu_latency.h"

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

static int cpu;
static char path[] = "/tmp/cpu-latency-XXXXXX";

static void put(const char *name, const char *text)
{
	int fd = openat(cpu, name, O_WRONLY | O_CREAT | O_TRUNC, 0644);

	assert_true(fd >= 0);
	assert_int_equal(write(fd, text, strlen(text)), strlen(text));
	close(fd);
}

static void put_state(unsigned k, const char *latency, const char *disable)
{
	char name[64];

	snprintf(name, sizeof(name), "cpu0/cpuidle/state%u", k);
	mkdirat(cpu, name, 0755);
	snprintf(name, sizeof(name), "cpu0/cpuidle/state%u/latency", k);
	put(name, latency);
	snprintf(name, sizeof(name), "cpu0/cpuidle/state%u/disable", k);
	put(name, disable);
}

/* A made-up /sys/devices/system/cpu, with exit latencies of its idle states, NULL at the end. */
static int fit_of(const char *driver, const char *governor, const char *const *latencies)
{
	char command[64];

	snprintf(command, sizeof(command), "rm -rf %s/*", path);
	assert_int_equal(system(command), 0);
	if (driver) {
		mkdirat(cpu, "cpuidle", 0755);
		put("cpuidle/current_driver", driver);
		put("cpuidle/current_governor_ro", governor);
	}
	if (latencies) {
		mkdirat(cpu, "cpu0", 0755);
		mkdirat(cpu, "cpu0/cpuidle", 0755);
	}
	for (unsigned k = 0; latencies && latencies[k]; k++)
		put_state(k, latencies[k], "0\n");
	return cpu_latency_fit(cpu);
}

static void test_cpu_latency__a_guest_that_polls_asks_for_0(void **state)
{
	const char *const haltpoll[] = { "0\n", "1\n", NULL };
	const char *const acpi[] = { "0\n", "1\n", "50\n", NULL };

	(void)state;
	assert_int_equal(fit_of("haltpoll\n", "haltpoll\n", haltpoll), 0);
	assert_int_equal(fit_of("acpi_idle\n", "haltpoll\n", acpi), 0);
}

/* A server of 2023 (intel_idle), one of AMD, and one whose C1 is slow. */
static void test_cpu_latency__shallow_sleep_stays_allowed(void **state)
{
	const char *const intel[] = { "0\n", "1\n", "2\n", "290\n", NULL };
	const char *const amd[] = { "0\n", "1\n", "18\n", "350\n", NULL };
	const char *const slow[] = { "0\n", "33\n", "200\n", NULL };

	(void)state;
	assert_int_equal(fit_of("intel_idle\n", "menu\n", intel), 2);
	assert_int_equal(fit_of("acpi_idle\n", "menu\n", amd), 18);
	assert_int_equal(fit_of("acpi_idle\n", "ladder\n", slow), 33);
}

static void test_cpu_latency__no_deep_sleep_is_no_use(void **state)
{
	const char *const shallow[] = { "0\n", "2\n", "20\n", NULL };
	const char *const one[] = { "0\n", "200\n", NULL };
	const char *const deep[] = { "0\n", "2\n", "133\n", NULL };

	(void)state;
	assert_int_equal(fit_of("intel_idle\n", "menu\n", shallow), -ENOTSUP);
	/* Nothing between polling and that. */
	assert_int_equal(fit_of("acpi_idle\n", "menu\n", one), -ENOTSUP);
	assert_int_equal(fit_of("intel_idle\n", "menu\n", deep), 2);
	/* An administrator has disabled what is deep. */
	put_state(2, "133\n", "1\n");
	assert_int_equal(cpu_latency_fit(cpu), -ENOTSUP);
}

static void test_cpu_latency__without_cpuidle_there_is_nothing(void **state)
{
	const char *const none[] = { NULL };
	const char *const nonsense[] = { "many\n", "-1\n", NULL };

	(void)state;
	assert_int_equal(fit_of(NULL, NULL, NULL), -ENOENT);
	assert_int_equal(fit_of("none\n", "menu\n", none), -ENOENT);
	assert_int_equal(fit_of("none\n", "menu\n", nonsense), -ENOENT);
}

static void test_cpu_latency__values(void **state)
{
	static const char *const bad[] = { "",	 "-1", "on", "Auto",	"1us",
					   "0x", " 1", "1 ", "1000001", "99999999999999999999" };
	int us = 7;

	(void)state;
	assert_true(cpu_latency_parse("auto", &us) && us == CPU_LATENCY_AUTO);
	assert_true(cpu_latency_parse("off", &us) && us == CPU_LATENCY_OFF);
	assert_true(cpu_latency_parse("0", &us) && us == 0);
	assert_true(cpu_latency_parse("1000000", &us) && us == CPU_LATENCY_MAX_US);
	for (size_t k = 0; k < sizeof(bad) / sizeof(*bad); k++)
		assert_false(cpu_latency_parse(bad[k], &us));
}

static int make(void **state)
{
	(void)state;
	cpu = mkdtemp(path) ? open(path, O_RDONLY | O_DIRECTORY) : -1;
	return cpu < 0;
}

static int take_down(void **state)
{
	char command[64];

	(void)state;
	close(cpu);
	snprintf(command, sizeof(command), "rm -rf %s", path);
	return system(command);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_cpu_latency__a_guest_that_polls_asks_for_0),
		cmocka_unit_test(test_cpu_latency__shallow_sleep_stays_allowed),
		cmocka_unit_test(test_cpu_latency__no_deep_sleep_is_no_use),
		cmocka_unit_test(test_cpu_latency__without_cpuidle_there_is_nothing),
		cmocka_unit_test(test_cpu_latency__values),
	};

	return cmocka_run_group_tests(tests, make, take_down);
}
