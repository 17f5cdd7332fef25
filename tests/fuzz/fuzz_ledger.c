// SPDX-License-Identifier: Apache-2.0
/* An input is what stands in the memory that a supervisor and its servers share. */
#include "support.h"

#include "veneer/ledger.h"

#include <string.h>

#define EXTRA 4096u

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_fd(int fd, uint32_t place, void *arg)
{
	fuzz_require(fd >= 0 && place < LEDGER_MOUNTS_MAX);
	ledger_drop(arg, place);
}

static void check_none(int fd, uint32_t place, void *arg)
{
	(void)fd;
	(void)place;
	(void)arg;
	fuzz_require(false);
}

static void use(struct ledger *l)
{
	uint32_t place;
	uint64_t key = ledger_key(l);

	fuzz_require(ledger_last_key(l) == key);
	fuzz_require(ledger_going(l) <= LEDGER_IS_WITHDRAWN);
	ledger_is_left(l);
	ledger_note_death(l);
	fuzz_require(ledger_word(l) >= -1);
	fuzz_require(ledger_take_hand_over(l) >= -1 && ledger_take_hand_over(l) == -1);
	fuzz_require(ledger_hand_over(l, 5) == 0 && ledger_take_hand_over(l) == 5);
	ledger_judge(l, true);
	ledger_is_given_up(l, 1);
	ledger_cost(l, 1);
	fuzz_require(!ledger_duty(l, LEDGER_MOUNTS_MAX));
	if (ledger_put(l, 3, &place) == 0)
		ledger_drop(l, place);
	ledger_each(l, check_fd, l);
	ledger_each(l, check_none, NULL);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static struct ledger *l;
	size_t head;

	if (!l && ledger_new(EXTRA, &l) < 0)
		return 0;
	head = (size_t)((uint8_t *)ledger_extra(l) - (uint8_t *)l);
	memset((uint8_t *)l, 0, head);
	memcpy((uint8_t *)l, data, size < head ? size : head);
	use(l);
	return 0;
}
