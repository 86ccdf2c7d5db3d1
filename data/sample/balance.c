#include "data/sample/balance.h"

#include "data/sample/order.h"

#include <stdlib.h>

struct gn_balance {
	uint64_t seed, count;
	uint32_t classes; /* with samples */
	uint64_t *first;  /* [classes + 1] places in members */
	uint32_t *members; /* [count] samples by class */
};

/* Counts samples by label and leaves out what has none: *first gets places, places [classes] the next one of each label. */
static uint32_t lay_out(const uint32_t *labels, uint64_t count, uint32_t classes, uint64_t *first, uint64_t *places)
{
	uint32_t used = 0;
	uint64_t at = 0;

	for (uint64_t i = 0; i < count; i++)
		places[labels[i]]++;
	for (uint32_t k = 0; k < classes; k++) {
		uint64_t here = places[k];

		places[k] = at;
		if (here)
			first[used++] = at;
		at += here;
	}
	first[used] = at;
	return used;
}

enum gn_status gn_balance_create(uint64_t seed, const uint32_t *labels, uint64_t count, uint32_t classes, struct gn_balance **out,
				 struct gn_err *err)
{
	struct gn_balance *b = calloc(1, sizeof *b);
	uint64_t *places = calloc(classes, sizeof *places);

	if (b) {
		b->first = calloc((size_t)classes + 1, sizeof *b->first);
		b->members = calloc(count, sizeof *b->members);
	}
	if (!b || !places || !b->first || !b->members) {
		free(places);
		gn_balance_destroy(b);
		return gn_err_set(err, GN_ERR_NO_MEMORY, "no memory to balance %llu samples", (unsigned long long)count);
	}
	b->seed = seed;
	b->count = count;
	b->classes = lay_out(labels, count, classes, b->first, places);
	for (uint64_t i = 0; i < count; i++)
		b->members[places[labels[i]]++] = (uint32_t)i;
	free(places);
	*out = b;
	return GN_OK;
}

void gn_balance_destroy(struct gn_balance *b)
{
	if (!b)
		return;
	free(b->first);
	free(b->members);
	free(b);
}

uint64_t gn_balance_sample(const struct gn_balance *b, uint32_t epoch, uint64_t draw)
{
	/* where classes do not divide the samples, each epoch gives the rest to others */
	uint64_t class = (draw + epoch) % b->classes, turn = draw / b->classes;
	uint64_t size = b->first[class + 1] - b->first[class], round = turn / size;
	/* a key of its own for each class and each round through it */
	const struct gn_order order = {.seed = b->seed + 0x9e3779b97f4a7c15u * (1 + class + round * b->classes), .count = size,
				       .shuffled = 1};

	return b->members[b->first[class] + gn_order_sample(&order, epoch, turn % size)];
}

uint32_t gn_balance_classes(const struct gn_balance *b)
{
	return b->classes;
}

uint64_t gn_balance_smallest(const struct gn_balance *b)
{
	uint64_t smallest = b->count;

	for (uint32_t k = 0; k < b->classes; k++)
		if (b->first[k + 1] - b->first[k] < smallest)
			smallest = b->first[k + 1] - b->first[k];
	return smallest;
}
