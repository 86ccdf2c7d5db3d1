#include "src/train/loop/kept_inputs.h"

#include "src/base/alloc.h"

#include <stdlib.h>
#include <string.h>

static size_t aligned(size_t bytes)
{
	return (bytes + GN_ALIGN_BYTES - 1) / GN_ALIGN_BYTES * GN_ALIGN_BYTES;
}

enum gn_status gn_kept_inputs_init(struct gn_kept_inputs *k, int count, size_t input_bytes, int images, size_t buffers, struct gn_err *err)
{
	size_t column = (size_t)images * 4, place = aligned(sizeof(struct gn_targets)) + aligned(input_bytes) + aligned(3 * column);

	*k = (struct gn_kept_inputs){.count = count, .input_bytes = input_bytes, .column_bytes = column, .place_bytes = place,
				     .bytes = (size_t)count * place + buffers * sizeof(float)};
	k->places = gn_alloc_aligned(k->bytes);
	if (k->places) {
		k->buffers = (float *)(void *)(k->places + (size_t)count * place);
		return GN_OK;
	}
	*k = (struct gn_kept_inputs){.count = 0};
	return gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for the inputs of %d micro-batches", count);
}

void gn_kept_inputs_release(struct gn_kept_inputs *k)
{
	free(k->places);
	*k = (struct gn_kept_inputs){.count = 0};
}

/* A place: the targets, the input, the targets' columns. */
static char *place_of(const struct gn_kept_inputs *k, int number, char **input, char **columns)
{
	char *place = k->places + (size_t)(number % k->count) * k->place_bytes;

	*input = place + aligned(sizeof(struct gn_targets));
	*columns = *input + aligned(k->input_bytes);
	return place;
}

void gn_kept_inputs_put(struct gn_kept_inputs *k, int number, const void *input, const struct gn_targets *targets)
{
	char *kept, *columns, *place = place_of(k, number, &kept, &columns), *pairs = columns + k->column_bytes, *lambdas = pairs + k->column_bytes;
	struct gn_targets own = {.labels = (const int32_t *)(const void *)columns};

	memcpy(kept, input, k->input_bytes);
	memcpy(columns, targets->labels, k->column_bytes);
	if (targets->pair_labels) {
		memcpy(pairs, targets->pair_labels, k->column_bytes);
		memcpy(lambdas, targets->lambdas, k->column_bytes);
		own.pair_labels = (const int32_t *)(const void *)pairs;
		own.lambdas = (const float *)(const void *)lambdas;
	}
	memcpy(place, &own, sizeof own);
}

const void *gn_kept_inputs_get(const struct gn_kept_inputs *k, int number, struct gn_targets *targets)
{
	char *input, *columns;

	memcpy(targets, place_of(k, number, &input, &columns), sizeof *targets);
	return input;
}
