// SPDX-License-Identifier: Apache-2.0
#include "veneer/prefetch/planner.h"

#include "veneer/base/cleanup.h"
#include "veneer/base/minmax.h"

#include <stdlib.h>
#include <string.h>

/* With less than an even chance a piece is not worth the reading. */
#define CHANCE_BOUND 0.5
#define SCORE_WEIGHT 0.5 /* of the last verdict, against all before */

static struct predictor_item *histories(const struct profile_image *img)
{
	struct predictor_item *h = malloc((img->nitems + 1) * sizeof(*h));

	for (size_t i = 0; h && i < img->nitems; i++)
		h[i] = img->items[i].history;
	return h;
}

/* The likeliest pieces within the limits, in the order of the guesses. How many. */
static size_t choose(const struct planner_limits *l, const struct profile_image *img,
		     const struct predictor_guess *guesses, size_t n, bool *is_known,
		     struct plan_piece *ret)
{
	uint64_t bytes = 0;
	size_t files = 0, kept = 0;

	for (size_t i = 0; i < n; i++) {
		const struct profile_item *item = &img->items[guesses[i].item];
		const uint64_t cost = item->kind == PROFILE_READ ? PLANNER_EXTENT_BYTES : 0;

		if (bytes + cost > l->bytes || (!is_known[item->file] && files == l->files))
			continue;
		files += !is_known[item->file];
		is_known[item->file] = true;
		bytes += cost;
		ret[kept++] = (struct plan_piece){ item->file, item->extent, item->kind,
						   item->history.first_ms,
						   (float)guesses[i].chance };
	}
	return kept;
}

static int by_use(const void *a, const void *b, void *arg)
{
	const struct plan_piece *p = a, *q = b;
	const uint32_t *first = arg;

	return COMPARE(p->kind, q->kind) ?: COMPARE(first[p->file], first[q->file])
	       ?: COMPARE(p->file, q->file) ?: COMPARE(p->extent, q->extent);
}

static void sort(struct plan *p, uint32_t *first)
{
	for (size_t i = 0; i < p->nfiles; i++)
		first[i] = UINT32_MAX;
	for (size_t i = 0; i < p->n; i++)
		if (p->pieces[i].first_ms < first[p->pieces[i].file])
			first[p->pieces[i].file] = p->pieces[i].first_ms;
	qsort_r(p->pieces, p->n, sizeof(*p->pieces), by_use, first);
}

/* Is this start to be left alone for a check? Where reads cannot be told from prefetched data no
 * start that was read ahead is judged. So now and then one is left alone: when verdicts have not
 * kept up with starts, which they do where reads are seen. */
static bool is_check_due(const struct profile_score *s, unsigned starts)
{
	return starts >= PLANNER_CHECK_FIRST + PLANNER_CHECK_EVERY * s->judged;
}

int planner_make(const struct planner_limits *l, struct profile_image *img, struct plan *ret)
{
	const struct predictor_question q = {
		.starts = img->starts,
		.bound = CHANCE_BOUND,
		.limit = l->bytes / PLANNER_EXTENT_BYTES,
	};
	_cleanup_(freep) struct predictor_item *items = histories(img);
	_cleanup_(freep) struct predictor_guess *guesses =
		malloc((img->nitems + 1) * sizeof(*guesses));
	_cleanup_(freep) struct plan_piece *pieces = malloc((img->nitems + 1) * sizeof(*pieces));
	_cleanup_(freep) bool *is_known = calloc(img->nfiles + 1, sizeof(*is_known));
	_cleanup_(freep) uint32_t *first = malloc((img->nfiles + 1) * sizeof(*first));
	size_t n;

	if (!items || !guesses || !pieces || !is_known || !first)
		return -ENOMEM;
	n = predictor_ask(&q, items, img->nitems, guesses);
	n = choose(l, img, guesses, n, is_known, pieces);
	*ret = (struct plan){
		.n = n,
		.pieces = steal_ptr(&pieces),
		.files = steal_ptr(&img->files),
		.nfiles = img->nfiles,
		.is_trusted = planner_trusts(&img->score),
		/* A relative's verdicts are not this image's. */
		.is_check = !img->is_borrowed && is_check_due(&img->score, img->starts),
	};
	img->nfiles = 0;
	sort(ret, first);
	return 0;
}

void planner_release(struct plan *p)
{
	for (size_t i = 0; i < p->nfiles; i++)
		free(p->files[i].path);
	free(p->files);
	free(p->pieces);
	*p = (struct plan){ .n = 0 };
}

uint64_t planner_extents(const struct plan *p)
{
	uint64_t n = 0;

	for (size_t i = 0; i < p->n; i++)
		n += p->pieces[i].kind == PROFILE_READ;
	return n;
}

/* ---- afterwards ---- */

struct named {
	const char *path;
	uint32_t index;
};

static int by_path(const void *a, const void *b)
{
	return strcmp(((const struct named *)a)->path, ((const struct named *)b)->path);
}

static uint64_t place_of(uint32_t file, uint32_t extent)
{
	return (uint64_t)file << 32 | extent;
}

static int by_number(const void *a, const void *b)
{
	const uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return COMPARE(x, y);
}

/* The extents that the start read, by the start's number of the file, ascending. */
static uint64_t *places_read(const struct profile_start *start, size_t *ret_n)
{
	uint64_t *places = malloc((start->nitems + 1) * sizeof(*places));

	*ret_n = 0;
	for (size_t i = 0; places && i < start->nitems; i++)
		if (start->items[i].kind == PROFILE_READ)
			places[(*ret_n)++] = place_of(start->items[i].file, start->items[i].extent);
	if (places)
		qsort(places, *ret_n, sizeof(*places), by_number);
	return places;
}

void planner_judge(const struct plan *p, const struct profile_start *start,
		   struct plan_verdict *ret)
{
	_cleanup_(freep) struct named *names = malloc((start->nfiles + 1) * sizeof(*names));
	size_t n;
	_cleanup_(freep) uint64_t *places = places_read(start, &n);

	*ret = (struct plan_verdict){ 0 };
	if (!names || !places)
		return;
	for (size_t i = 0; i < start->nfiles; i++)
		names[i] = (struct named){ start->files[i].path, (uint32_t)i };
	qsort(names, start->nfiles, sizeof(*names), by_path);
	for (size_t i = 0; i < p->n; i++) {
		const struct named wanted = { p->files[p->pieces[i].file].path, 0 };
		const struct named *found;
		uint64_t place;

		if (p->pieces[i].kind != PROFILE_READ)
			continue;
		ret->predicted++;
		found = bsearch(&wanted, names, start->nfiles, sizeof(*names), by_path);
		if (!found)
			continue;
		place = place_of(found->index, p->pieces[i].extent);
		ret->hits += bsearch(&place, places, n, sizeof(*places), by_number) != NULL;
	}
}

void planner_score(struct profile_score *s, double precision, unsigned starts)
{
	const uint64_t due = starts < PLANNER_CHECK_FIRST
				     ? 0
				     : (starts - PLANNER_CHECK_FIRST) / PLANNER_CHECK_EVERY + 1;

	s->precision = s->judged ? s->precision + SCORE_WEIGHT * (precision - s->precision)
				 : precision;
	s->judged = s->judged < due ? due : s->judged + 1;
}

bool planner_trusts(const struct profile_score *s)
{
	return s->judged < PLANNER_TRIALS || s->precision >= PLANNER_TRUST_BOUND;
}
