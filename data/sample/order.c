#include "data/sample/order.h"

#include "src/base/philox.h"

#include <math.h>

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
