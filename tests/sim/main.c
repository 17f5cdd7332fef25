// SPDX-License-Identifier: Apache-2.0
/* Plays seeds until one shows a fault, or the time is over: doc/internals/simulator.md. */
#include "arena.h"
#include "life.h"

#include <fcntl.h>
#include <getopt.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/personality.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#define OPS_MAX	    4096
#define AGAIN_EVERY 16

struct sim *sim;

int __real_open(const char *path, int flags, ...);
int __real_clock_gettime(clockid_t clock, struct timespec *ret);
ssize_t __real_getrandom(void *p, size_t len, unsigned flags);

struct arguments {
	uint64_t seed;
	bool has_seed, shrinks, plants_all;
	unsigned seconds;
	uint64_t count;
	int trace;
};

void sim_violation(const char *fmt, ...)
{
	va_list ap;

	fprintf(stderr, "sim: operation %" PRIu64 ": ", sim->ops);
	va_start(ap, fmt);
	vfprintf(stderr, fmt, ap);
	va_end(ap);
	fputc('\n', stderr);
	sim->end = SIM_END_VIOLATION;
	_exit(1);
}

void sim_give_up(const char *fmt, ...)
{
	va_list ap;

	fprintf(stderr, "sim: ");
	va_start(ap, fmt);
	vfprintf(stderr, fmt, ap);
	va_end(ap);
	fputc('\n', stderr);
	_exit(2);
}

void sim_trace(int level, const char *fmt, ...)
{
	va_list ap;

	if (sim->trace < level)
		return;
	va_start(ap, fmt);
	vfprintf(stderr, fmt, ap);
	va_end(ap);
	fputc('\n', stderr);
}

/* True: nothing is wrong. */
static bool play_seed(uint64_t seed)
{
	life_make_world(seed);
	for (unsigned n = 0; n < life_count(); n++)
		if (!life_play(n))
			return false;
	return true;
}

/* Does it still show a fault without these operations? Nothing is printed. */
static bool fails_without(uint64_t seed, uint8_t *skip)
{
	const int saved = dup(2), null_fd = __real_open("/dev/null", O_WRONLY | O_CLOEXEC);
	bool is_fine;

	dup2(null_fd, 2);
	close(null_fd);
	sim->trace = 0;
	sim->skip = skip;
	sim->nskip = OPS_MAX;
	is_fine = play_seed(seed);
	dup2(saved, 2);
	close(saved);
	return !is_fine;
}

/* Leave out as many operations as can be. */
static void shrink(uint64_t seed, uint8_t *skip)
{
	const uint64_t nops = sim->ops < OPS_MAX ? sim->ops : OPS_MAX - 1;

	for (uint64_t piece = (nops + 1) / 2; piece; piece /= 2)
		for (uint64_t from = 1; from <= nops; from += piece) {
			uint8_t before[OPS_MAX];

			memcpy(before, skip, sizeof(before));
			for (uint64_t k = from; k < from + piece && k <= nops; k++)
				skip[k] = 1;
			if (!memcmp(before, skip, sizeof(before)))
				continue;
			if (!fails_without(seed, skip))
				memcpy(skip, before, sizeof(before));
		}
}

static void report(const struct arguments *a, uint64_t seed)
{
	static uint8_t skip[OPS_MAX];

	fprintf(stderr, "sim: seed %" PRIu64 " shows %s%s%s; again: sim --seed %" PRIu64 "%s%s\n",
		seed, fate_planted ? "the fault '" : "a fault",
		fate_planted ? fate_plant_names[fate_planted] : "", fate_planted ? "'" : "", seed,
		fate_planted ? " --plant " : "",
		fate_planted ? fate_plant_names[fate_planted] : "");
	if (!a->shrinks)
		return;
	shrink(seed, skip);
	fprintf(stderr, "sim: the fewest operations that show one:\n");
	sim->trace = a->trace ? a->trace : 1;
	sim->skip = skip;
	sim->nskip = OPS_MAX;
	play_seed(seed);
}

/* The same addresses each time. */
static void fix_addresses(char **argv)
{
	const int now = personality(0xffffffff);

	if (now < 0 || now & ADDR_NO_RANDOMIZE ||
	    personality((unsigned)now | ADDR_NO_RANDOMIZE) < 0 || getenv("VENEER_SIM_AGAIN"))
		return;
	setenv("VENEER_SIM_AGAIN", "1", 1);
	execv("/proc/self/exe", argv);
}

static enum fate_plant plant_of(const char *name)
{
	for (int k = 0; k < FATE_PLANTS; k++)
		if (!strcmp(fate_plant_names[k], name))
			return (enum fate_plant)k;
	fprintf(stderr, "sim: no fault is called %s\n", name);
	exit(2);
}

static void parse(int argc, char **argv, struct arguments *ret)
{
	static const struct option options[] = {
		{ "seed", required_argument, NULL, 's' },
		{ "from", required_argument, NULL, 'f' },
		{ "seconds", required_argument, NULL, 't' },
		{ "count", required_argument, NULL, 'n' },
		{ "trace", optional_argument, NULL, 'v' },
		{ "plant", required_argument, NULL, 'p' },
		{ "no-shrink", no_argument, NULL, 'k' },
		{ "no-ghosts", no_argument, NULL, 'g' },
		{ 0 },
	};
	int c;

	*ret = (struct arguments){ .shrinks = true, .seconds = 10, .count = UINT64_MAX };
	while ((c = getopt_long(argc, argv, "", options, NULL)) >= 0) {
		switch (c) {
		case 's':
			ret->seed = strtoull(optarg, NULL, 0);
			ret->has_seed = true;
			ret->count = 1;
			break;
		case 'f':
			ret->seed = strtoull(optarg, NULL, 0);
			ret->has_seed = true;
			break;
		case 't':
			ret->seconds = (unsigned)atoi(optarg);
			break;
		case 'n':
			ret->count = strtoull(optarg, NULL, 0);
			break;
		case 'v':
			ret->trace = optarg ? atoi(optarg) : 1;
			break;
		case 'p':
			if (!strcmp(optarg, "all"))
				ret->plants_all = true;
			else
				fate_planted = plant_of(optarg);
			break;
		case 'g':
			history_has_no_ghosts = true;
			break;
		case 'k':
			ret->shrinks = false;
			break;
		default:
			exit(2);
		}
	}
}

/* A seed is played again now and then, and has to go the same way. */
static bool goes_the_same_way(uint64_t seed)
{
	const uint64_t before = sim->digest;

	if (seed % AGAIN_EVERY || (play_seed(seed) && sim->digest == before))
		return true;
	fprintf(stderr, "sim: seed %" PRIu64 " goes another way the second time\n", seed);
	return false;
}

/* By the clock; or by what the processors did for us, which other work does not shorten. */
static uint64_t now_s(const struct arguments *a)
{
	struct rusage self, children;
	struct timespec t;

	if (!a->plants_all) {
		__real_clock_gettime(CLOCK_MONOTONIC, &t);
		return (uint64_t)t.tv_sec;
	}
	getrusage(RUSAGE_SELF, &self);
	getrusage(RUSAGE_CHILDREN, &children);
	return (uint64_t)(self.ru_utime.tv_sec + self.ru_stime.tv_sec + children.ru_utime.tv_sec +
			  children.ru_stime.tv_sec);
}

/* Seeds until one shows a fault, or all time or all seeds are used. True: none did. */
static bool play_all(const struct arguments *a)
{
	const uint64_t end = now_s(a) + a->seconds;
	uint64_t n = 0;

	for (; n < a->count && (n == 0 || now_s(a) < end); n++) {
		sim->trace = a->shrinks ? 0 : a->trace;
		sim->skip = NULL;
		if (play_seed(a->seed + n)) {
			if (!fate_planted && !goes_the_same_way(a->seed + n))
				return false;
			continue;
		}
		report(a, a->seed + n);
		return false;
	}
	printf("sim: seeds %" PRIu64 " to %" PRIu64 " show nothing\n", a->seed, a->seed + n - 1);
	return true;
}

/* Each of the faults that can be planted has to be found. Exit code. */
static int plant_all(struct arguments a)
{
	int code = 0;

	a.shrinks = false;
	for (int k = FATE_PLANT_NONE + 1; k < FATE_PLANTS; k++) {
		fate_planted = (enum fate_plant)k;
		a.seed = fate_plant_seeds[k] ?: 1;
		if (a.seed != FATE_PLANT_RARE && play_all(&a)) {
			printf("sim: the fault '%s' is not found\n", fate_plant_names[k]);
			code = 1;
		}
	}
	return code;
}

int main(int argc, char **argv)
{
	struct arguments a;

	fix_addresses(argv);
	parse(argc, argv, &a);
	if (!a.has_seed && __real_getrandom(&a.seed, 4, 0) < 0)
		a.seed = 1;
	arena_init();
	sim = arena_alloc(sizeof(*sim));
	if (a.plants_all)
		return plant_all(a);
	return play_all(&a) ? 0 : 1;
}
