// SPDX-License-Identifier: Apache-2.0
/* An input is what stands in the memory that a supervisor and its servers share. */
#include "support.h"

#include "veneer/recover/supervisor_state.h"

#include <string.h>

#define EXTRA 4096u

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_fd(int fd, uint32_t place, void *arg)
{
	fuzz_require(fd >= 0 && place < SUPERVISOR_STATE_MOUNTS_MAX);
	supervisor_state_drop(arg, place);
}

static void check_none(int fd, uint32_t place, void *arg)
{
	(void)fd;
	(void)place;
	(void)arg;
	fuzz_require(false);
}

static void use(struct supervisor_state *l)
{
	uint32_t place;
	uint64_t key = supervisor_state_key(l);

	fuzz_require(supervisor_state_last_key(l) == key);
	fuzz_require(supervisor_state_going(l) <= SUPERVISOR_STATE_IS_WITHDRAWN);
	supervisor_state_is_left(l);
	supervisor_state_note_death(l);
	fuzz_require(supervisor_state_word(l) >= -1);
	fuzz_require(supervisor_state_take_hand_over(l) >= -1 &&
		     supervisor_state_take_hand_over(l) == -1);
	fuzz_require(supervisor_state_hand_over(l, 5) == 0 &&
		     supervisor_state_take_hand_over(l) == 5);
	supervisor_state_judge(l, true);
	supervisor_state_is_given_up(l, 1);
	supervisor_state_cost(l, 1);
	fuzz_require(!supervisor_state_activity(l, SUPERVISOR_STATE_MOUNTS_MAX));
	if (supervisor_state_put(l, 3, &place) == 0)
		supervisor_state_drop(l, place);
	supervisor_state_each(l, check_fd, l);
	supervisor_state_each(l, check_none, NULL);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static struct supervisor_state *l;
	size_t head;

	if (!l && supervisor_state_new(EXTRA, &l) < 0)
		return 0;
	head = (size_t)((uint8_t *)supervisor_state_extra(l) - (uint8_t *)l);
	memset((uint8_t *)l, 0, head);
	memcpy((uint8_t *)l, data, size < head ? size : head);
	use(l);
	return 0;
}
