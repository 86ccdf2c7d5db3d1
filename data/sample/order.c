#include "data/sample/order.h"

#include "src/base/philox.h"

#include <math.h>
#include <stdlib.h>

/* Four rounds make a large domain look random; a domain of few elements has few round function values and needs more. */
enum { rounds = 12 };
/* Separates these counters from those of gn_rng streams with a small b. */
static const uint32_t domain = 0x6f726400u;

/* Samples of a step, of all ranks. */
static uint64_t step_samples(const struct gn_order *o)
{
	return (uint64_t)(o->step_batches ? o->step_batches : o->ranks) * o->batch;
}

/* Batches of a step, of this rank. */
static uint64_t own_batches(const struct gn_order *o)
{
	return o->step_batches ? o->step_batches / o->ranks + (o->rank < o->step_batches % o->ranks) : 1;
}

enum gn_status gn_order_check(const struct gn_order *o, struct gn_err *err)
{
	uint64_t global = step_samples(o);

	if (!o->ranks || o->rank >= o->ranks)
		return gn_err_set(err, GN_ERR_USAGE, "rank %u of %u does not exist", o->rank, o->ranks);
	if (!o->batch)
		return gn_err_set(err, GN_ERR_USAGE, "a batch of 0 samples: it takes at least 1");
	if (!o->count)
		return gn_err_set(err, GN_ERR_DATA, "the dataset holds no samples");
	if (o->count > UINT32_MAX)
		return gn_err_set(err, GN_ERR_UNSUPPORTED, "%llu samples in one dataset; %u are the limit",
				  (unsigned long long)o->count, UINT32_MAX);
	if (o->step_batches && (o->step_batches < o->ranks || !o->drops))
		return gn_err_set(err, GN_ERR_USAGE, "a step of %u batches has none for some of %u ranks", o->step_batches, o->ranks);
	if (o->drops && o->count < global)
		return gn_err_set(err, GN_ERR_DATA,
				  "the dataset holds %llu samples, fewer than a step takes: %llu in batches of %u on %u rank%s; "
				  "use fewer ranks or smaller or fewer batches",
				  (unsigned long long)o->count, (unsigned long long)global, o->batch, o->ranks, o->ranks == 1 ? "" : "s");
	return GN_OK;
}

uint64_t gn_order_batches(const struct gn_order *o)
{
	uint64_t global = step_samples(o), left = o->count - o->done;

	return o->drops ? left / global * own_batches(o) : left / global + (left % global > 0);
}

uint32_t gn_order_slice(const struct gn_order *o, uint64_t batch, uint64_t *first)
{
	uint64_t global = step_samples(o), own = own_batches(o);
	uint64_t start = o->done + batch / own * global;
	uint64_t size = o->count - start < global ? o->count - start : global;
	/* quotient and remainder instead of size * rank / ranks, which can overflow */
	uint64_t share = size / o->ranks, left = size % o->ranks;

	if (o->step_batches) {
		*first = start + (batch % own * o->ranks + o->rank) * o->batch;
		return o->batch;
	}
	*first = start + share * o->rank + (o->rank < left ? o->rank : left);
	return (uint32_t)(share + (o->rank < left));
}

/* The round function: Philox. The bias of 64 bits modulo a 17-bit number is negligible. */
static uint64_t round_value(const struct gn_order *o, uint32_t epoch, uint32_t round, uint32_t half)
{
	uint32_t key[2] = {(uint32_t)o->seed, (uint32_t)(o->seed >> 32)};
	uint32_t counter[4] = {half, domain + round, epoch, GN_RNG_SHUFFLE};

	gn_philox(counter, key, counter);
	return (uint64_t)counter[1] << 32 | counter[0];
}

uint64_t gn_order_sample(const struct gn_order *o, uint32_t epoch, uint64_t position)
{
	uint64_t a, b, x = position;

	if (!o->shuffled)
		return position;
	a = (uint64_t)ceil(sqrt((double)o->count));
	b = (o->count - 1) / a + 1;
	/* A bijection of 0 .. a*b-1. Cycle walking (repeating while the value is >= count) makes it one of 0 .. count-1. */
	do {
		uint64_t left = x / b, right = x % b;

		for (uint32_t r = 0; r < rounds; r += 2) {
			left = (left + round_value(o, epoch, r, (uint32_t)right) % a) % a;
			right = (right + round_value(o, epoch, r + 1, (uint32_t)left) % b) % b;
		}
		x = left * b + right;
	} while (x >= o->count);
	return x;
}

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
