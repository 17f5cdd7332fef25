/* SPDX-License-Identifier: Apache-2.0 */
/* Keeps idle processors awake while requests follow one another closely, by /dev/cpu_dma_latency
 * (the kernel's PM QoS): waking one costs more than most requests do. It is for the whole machine,
 * so it is given up after a few milliseconds of quiet (base/latency_policy.h), and with the
 * process. A process that is stopped or frozen meanwhile goes on asking.
 *
 * The device is open in a thread that shares its table of descriptors with nobody: neither a child
 * nor the supervisor, which outlives a killed server, can keep it open. The thread starts with the
 * first run of requests. One for the process. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

/* A number is microseconds that waking may take. */
#define CPU_LATENCY_AUTO   (-1) /* what cpu_latency_use says, else what the machine gains by */
#define CPU_LATENCY_OFF	   (-2)
#define CPU_LATENCY_MAX_US 1000000
#define CPU_LATENCY_FORM   "auto, off or microseconds, at most 1000000"

/* The longest exit latency of an idle state that waking may have without much loss. It leaves
 * C1 and C1E of common processors allowed, which save most of the power. */
#define CPU_LATENCY_SHALLOW_US 20

/* What the idle states in /sys/devices/system/cpu, open at fd, ask for: microseconds; 0 where the
 * guest's processors poll or halt (haltpoll), else so much that some sleep stays allowed. -ENOENT:
 * the kernel does not choose between idle states; -ENOTSUP: none of them takes long. */
int cpu_latency_fit(int fd);

/* "auto", "off" or a number. False: it is none of them. */
bool cpu_latency_parse(const char *text, int *ret_us);
/* What CPU_LATENCY_AUTO means in this process; before the first request. */
void cpu_latency_use(int us);
/* A request came, at that time of clock_ms, to a mount with that value. No system call but when a
 * run of requests begins. Any thread, without locks. */
void cpu_latency_request(int us, int64_t now_ms);
/* What is done, and if nothing why, in a word or two. Borrowed, constant. */
const char *cpu_latency_state(void);
/* Give up what is asked for and end the thread. No requests come any more. */
void cpu_latency_stop(void);
