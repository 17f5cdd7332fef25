/* SPDX-License-Identifier: Apache-2.0 */
/* Tells the thread sanitizer of an order that it does not see, since it goes by other threads and
 * other descriptors. A request that an answer causes (FORGET after LOOKUP) is read after that
 * answer was written. Nothing in other builds. */
#pragma once

#if defined(__SANITIZE_THREAD__)
#include <sanitizer/tsan_interface.h>
#include <stdio.h>

/* Before an answer is written, or a caller learns a node id or handle; and after a request was
 * read. (stderr is but an address that stands for the kernel.) */
static inline void tsan_order_answer(void)
{
	__tsan_release(stderr);
}
static inline void tsan_order_request(void)
{
	__tsan_acquire(stderr);
}
#else
static inline void tsan_order_answer(void)
{
}
static inline void tsan_order_request(void)
{
}
#endif
