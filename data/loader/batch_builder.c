#include "data/loader/batch_builder.h"

#include "data/loader/sample_pipeline.h"
#include "data/sample/mixup.h"
#include "src/base/alloc.h"
#include "src/base/half.h"
#include "src/base/vector.h"

#include <stdlib.h>
#include <string.h>

struct gn_batch_builder {
	const struct gn_loader_options *options;
	const struct gn_order *order;
	struct gn_sample_pipeline *pipeline;
	size_t sample_bytes, built_bytes; /* of a sample in the batch, and where it is built */
	float *built;	/* where samples are converted when all of a run are there; NULL: they are built in the batch */
	uint32_t begin; /* the run's first sample */
	float *spare; /* with mixup or cutmix: the other sample of a pair as it was */
};

enum gn_status gn_batch_builder_create(const struct gn_dataset *dataset, const struct gn_loader_options *options,
				const struct gn_order *order, uint32_t most, struct gn_batch_builder **out, struct gn_err *err)
{
	const int converts = options->type == GN_SAMPLE_BF16 || (options->type == GN_SAMPLE_F32 && options->channels_last && options->channels > 1);
	struct gn_batch_builder *f = calloc(1, sizeof *f);
	enum gn_status status;

	if (!f)
		return gn_err_set(err, GN_ERR_NO_MEMORY, "loader: no memory for a worker");
	f->options = options;
	f->order = order;
	f->sample_bytes = f->built_bytes = gn_loader_sample_bytes(options);
	if (converts)
		f->built_bytes = (size_t)options->channels * options->height * options->width * sizeof(float);
	status = gn_sample_pipeline_create(dataset, options, &f->pipeline, err);
	if (!status && ((converts && !(f->built = gn_alloc_aligned(most * f->built_bytes))) ||
			(gn_loader_mixes(options) && !(f->spare = gn_alloc_aligned(f->built_bytes)))))
		status = gn_err_set(err, GN_ERR_NO_MEMORY, "loader: no memory for a worker");
	if (status)
		gn_batch_builder_destroy(f);
	else
		*out = f;
	return status;
}

void gn_batch_builder_destroy(struct gn_batch_builder *f)
{
	if (!f)
		return;
	gn_sample_pipeline_destroy(f->pipeline);
	free(f->spare);
	free(f->built);
	free(f);
}

static void *image_at(const struct gn_batch_builder *f, const struct gn_batch_task *batch, uint32_t i)
{
	return f->built ? (char *)f->built + (i - f->begin) * f->built_bytes : (char *)batch->images + i * f->sample_bytes;
}

GN_VECTOR static void interleave(const float *restrict red, const float *restrict green, const float *restrict blue, size_t count, float *restrict out)
{
	for (size_t i = 0; i < count; i++) {
		out[3 * i] = red[i];
		out[3 * i + 1] = green[i];
		out[3 * i + 2] = blue[i];
	}
}

GN_VECTOR static void round_bf16(const float *restrict in, size_t count, uint16_t *restrict out)
{
	for (size_t i = 0; i < count; i++)
		out[i] = gn_bf16_of_f32(in[i]);
}

GN_VECTOR static void interleave_bf16(const float *restrict red, const float *restrict green, const float *restrict blue, size_t count,
				      uint16_t *restrict out)
{
	for (size_t i = 0; i < count; i++) {
		out[3 * i] = gn_bf16_of_f32(red[i]);
		out[3 * i + 1] = gn_bf16_of_f32(green[i]);
		out[3 * i + 2] = gn_bf16_of_f32(blue[i]);
	}
}

static void convert(const struct gn_batch_builder *f, const struct gn_batch_task *batch, uint32_t i)
{
	const struct gn_loader_options *o = f->options;
	const size_t plane = (size_t)o->height * o->width;
	const float *in = image_at(f, batch, i);
	void *out = (char *)batch->images + i * f->sample_bytes;

	if (o->type == GN_SAMPLE_F32)
		interleave(in, in + plane, in + 2 * plane, plane, out);
	else if (o->channels_last && o->channels == 3)
		interleave_bf16(in, in + plane, in + 2 * plane, plane, out);
	else
		round_bf16(in, o->channels * plane, out);
}

static uint32_t decode_samples(struct gn_batch_builder *f, uint32_t epoch, const struct gn_batch_task *batch, uint32_t begin,
			       uint32_t end, struct gn_err *err)
{
	uint32_t failed_at = end;

	for (uint32_t i = begin; i < end; i++) {
		void *image = image_at(f, batch, i);
		struct gn_err failure;

		batch->labels[i] = -1;
		batch->indices[i] = UINT64_MAX;
		if (i >= batch->count) {
			if (f->options->crops)
				batch->crops[i] = (struct gn_crop){0};
			else
				memset(image, 0, f->built_bytes);
			continue;
		}
		batch->indices[i] = gn_order_sample(f->order, epoch, batch->first + i);
		if (gn_sample_pipeline_run(f->pipeline, epoch, batch->indices[i], image, &batch->crops[i], &batch->labels[i],
				    &failure) && failed_at == end) {
			failed_at = i;
			*err = failure;
		}
	}
	return failed_at;
}

/* Mixes sample i with one that this call does not decode: it is decoded into spare. */
static enum gn_status mix_alone(struct gn_batch_builder *f, uint32_t epoch, const struct gn_batch_task *batch, uint32_t i,
				uint64_t pair, const struct gn_mix *m, struct gn_err *err)
{
	uint64_t index = gn_order_sample(f->order, epoch, pair);
	enum gn_status status = gn_sample_pipeline_run(f->pipeline, epoch, index, f->spare, NULL, &batch->pair_labels[i], err);

	if (!status)
		gn_mix_apply(m, f->options, image_at(f, batch, i), f->spare);
	return status;
}

/* Mixes samples i and i + 1 with each other. */
static void mix_both(struct gn_batch_builder *f, const struct gn_batch_task *batch, uint32_t i, const struct gn_mix *first,
		     const struct gn_mix *second)
{
	float *a = image_at(f, batch, i), *b = image_at(f, batch, i + 1);

	batch->pair_labels[i] = batch->labels[i + 1];
	batch->pair_labels[i + 1] = batch->labels[i];
	memcpy(f->spare, a, f->built_bytes);
	gn_mix_apply(first, f->options, a, b);
	gn_mix_apply(second, f->options, b, f->spare);
}

/* Sets the weight of sample i. */
static void draw_mix(const struct gn_batch_builder *f, uint32_t epoch, const struct gn_batch_task *batch, uint32_t i, struct gn_mix *out)
{
	gn_mix_draw(f->options, epoch, batch->indices[i], out);
	batch->lambdas[i] = (float)out->lambda;
}

/* Runs after decode_samples(): it needs the unmixed samples. */
static uint32_t mix(struct gn_batch_builder *f, uint32_t epoch, const struct gn_batch_task *batch, uint32_t begin, uint32_t end,
		    struct gn_err *err)
{
	uint32_t valid = end < batch->count ? end : batch->count;

	for (uint32_t i = begin; i < end; i++) {
		batch->pair_labels[i] = batch->labels[i];
		batch->lambdas[i] = 1;
	}
	for (uint32_t i = begin; i < valid; i++) {
		uint64_t position = batch->first + i, pair = gn_mixup_pair(f->order, position);
		struct gn_mix m, next;

		if (pair == position)
			continue;
		draw_mix(f, epoch, batch, i, &m);
		if (pair == position + 1 && i + 1 < valid) {
			draw_mix(f, epoch, batch, i + 1, &next);
			mix_both(f, batch, i, &m, &next);
			i++;
		} else if (mix_alone(f, epoch, batch, i, pair, &m, err)) {
			return i;
		}
	}
	return end;
}

uint32_t gn_batch_builder_run(struct gn_batch_builder *f, uint32_t epoch, const struct gn_batch_task *batch, uint32_t begin,
			      uint32_t end, struct gn_err *err)
{
	uint32_t done;

	f->begin = begin;
	done = decode_samples(f, epoch, batch, begin, end, err);
	if (done == end && gn_loader_mixes(f->options))
		done = mix(f, epoch, batch, begin, end, err);
	for (uint32_t i = begin; f->built && done == end && i < end; i++)
		convert(f, batch, i);
	return done;
}

uint64_t gn_batch_builder_read_ns(const struct gn_batch_builder *f)
{
	return gn_sample_pipeline_read_ns(f->pipeline);
}
