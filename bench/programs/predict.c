// SPDX-License-Identifier: Apache-2.0
/* What the predictors make of a trace.
 *
 *	bench-predict default|latest|draw N [SEED] <TRACE
 *
 * Each line of the trace is one start: the files that it touched, as numbers below 4096 in the
 *order of their first touch. For each start one line comes out: the files that were predicted from
 *the lines before it, likeliest first. */
#include "veneer/prefetch/predictor.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FILES_MAX 4096
#define BOUND	  0.5
#define STEP_MS	  1 /* the trace has an order, and no times */

static struct predictor_item known[FILES_MAX];
static size_t number[FILES_MAX]; /* known[k] is this file */
static size_t nknown;

static void predict(const struct predictor_question *q)
{
	static struct predictor_guess guesses[FILES_MAX];
	size_t n = predictor_ask(q, known, nknown, guesses);

	for (size_t i = 0; i < n; i++)
		printf("%s%zu", i ? " " : "", number[guesses[i].item]);
	putchar('\n');
}

static struct predictor_item *item_of(size_t file)
{
	for (size_t k = 0; k < nknown; k++)
		if (number[k] == file)
			return &known[k];
	if (nknown == FILES_MAX)
		return NULL;
	number[nknown] = file;
	known[nknown] = (struct predictor_item){ .count = 0 };
	return &known[nknown++];
}

static void learn(char *line)
{
	char *rest = NULL;
	uint32_t order = 0;

	for (size_t k = 0; k < nknown; k++)
		known[k].seen <<= 1;
	for (char *word = strtok_r(line, " \n", &rest); word; word = strtok_r(NULL, " \n", &rest)) {
		struct predictor_item *item = item_of(strtoul(word, NULL, 10));

		if (!item || item->seen & 1)
			continue;
		item->seen |= 1;
		item->count++;
		item->first_ms = order * STEP_MS;
		item->order = order++;
	}
}

int main(int argc, char **argv)
{
	struct predictor_question q = { .bound = BOUND, .kind = PREDICTOR_KINDS };
	char *line = NULL;
	size_t size = 0;

	if (argc > 2) {
		q.kind = predictor_by_name(argv[1]);
		q.limit = strtoul(argv[2], NULL, 10);
		q.seed = argc > 3 ? strtoull(argv[3], NULL, 10) : 1;
	}
	if (q.kind == PREDICTOR_KINDS) {
		fprintf(stderr, "usage: bench-predict default|latest|draw N [SEED] <TRACE\n");
		return 2;
	}
	for (; getline(&line, &size, stdin) >= 0; q.starts++) {
		predict(&q);
		learn(line);
	}
	free(line);
	return 0;
}
