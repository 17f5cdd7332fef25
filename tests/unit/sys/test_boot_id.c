// SPDX-License-Identifier: Apache-2.0
#include "veneer/sys/boot_id.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>

#include <cmocka.h>

/* Of a process without a descriptor left, at first; what is known then stays known. */
static void test_boot_id__is_an_error_until_it_is_known(void **state)
{
	struct rlimit before, none;
	char id[BOOT_ID_SIZE] = "", line[64] = "";
	FILE *f;

	(void)state;
	assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
	none = (struct rlimit){ 0, before.rlim_max };
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
	assert_int_equal(boot_id_read(id), -EMFILE);
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
	assert_int_equal(boot_id_read(id), 0);
	f = fopen("/proc/sys/kernel/random/boot_id", "re");
	assert_non_null(f);
	assert_non_null(fgets(line, sizeof(line), f));
	fclose(f);
	line[strcspn(line, "\n")] = '\0';
	assert_string_equal(id, line);
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
	memset(id, 0, sizeof(id));
	assert_int_equal(boot_id_read(id), 0);
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
	assert_string_equal(id, line);
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(
		test_boot_id__is_an_error_until_it_is_known) };

	return cmocka_run_group_tests(tests, NULL, NULL);
}
