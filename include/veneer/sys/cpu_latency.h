/* SPDX-License-Identifier: Apache-2.0 */
/* Keeps idle processors awake while requests follow closely, by /dev/cpu_dma_latency (the kernel's
 * PM QoS): waking one costs more than most requests. This affects the whole machine, so it ends
 * after a few milliseconds of quiet (base/latency_policy.h), and with the process. A process that
 * is stopped or frozen meanwhile keeps the setting.
 *
 * The device is open in a thread with its own table of descriptors: neither a child nor the
 * supervisor, which outlives a killed server, can keep it open. The thread starts with the first
 * run of requests. One for the process. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

/* A value is the allowed wake-up time in microseconds. */
/* the value of cpu_latency_use, else the best one for this machine */
#define CPU_LATENCY_AUTO   (-1)
#define CPU_LATENCY_OFF	   (-2)
#define CPU_LATENCY_MAX_US 1000000
#define CPU_LATENCY_FORM   "auto, off or microseconds, at most 1000000"

/* The longest exit latency of an idle state that is allowed without much loss. It allows C1 and C1E
 * of common processors, which save most of the power. */
#define CPU_LATENCY_SHALLOW_US 20

/* The value for the idle states in /sys/devices/system/cpu, open at fd, in microseconds. 0 if the
 * guest's processors poll or halt (haltpoll); else some sleep stays allowed. -ENOENT: the kernel
 * does not choose between idle states; -ENOTSUP: no state takes long. */
int cpu_latency_fit(int fd);

/* Parse "auto", "off" or a number. False: the text is none of them. */
bool cpu_latency_parse(const char *text, int *ret_us);
/* Set the meaning of CPU_LATENCY_AUTO in this process; before the first request. */
void cpu_latency_use(int us);
/* Count a request at time now_ms (clock_ms) to a mount with value us. No system call, except at the
 * start of a run of requests. Any thread, without locks. */
void cpu_latency_request(int us, int64_t now_ms);
/* The present state, or the reason of doing nothing, in a word or two. Borrowed, constant. */
const char *cpu_latency_state(void);
/* Close the device and end the thread. No requests may follow. */
void cpu_latency_stop(void);
