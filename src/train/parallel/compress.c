#include "src/train/parallel/compress_internal.h"

#include "src/base/alloc.h"
#include "src/base/vector.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The kind of number after the colon. */
enum argument { NOTHING, FRACTION, RANK };
enum { RANK_MAX = 64 };

static const struct method {
	const char *name;
	enum argument argument;
	const struct gn_codec *codec;
	int arrays; /* of state, laid out as parameters */
} methods[] = {
	[GN_COMPRESS_NONE] = {"none", NOTHING, NULL, 0},
	[GN_COMPRESS_AUTO] = {"auto", NOTHING, NULL, 0},
	[GN_COMPRESS_BF16] = {"bf16", NOTHING, &gn_codec_half, 0},
	[GN_COMPRESS_FP16] = {"fp16", NOTHING, &gn_codec_half, 0},
	[GN_COMPRESS_INT8] = {"int8", NOTHING, &gn_codec_int8, 0},
	[GN_COMPRESS_TOPK] = {"topk", FRACTION, &gn_codec_sparse, 1},
	[GN_COMPRESS_DGC] = {"dgc", FRACTION, &gn_codec_sparse, 2},
	[GN_COMPRESS_POWERSGD] = {"powersgd", RANK, &gn_codec_powersgd, 1},
};

/* Whether text is a whole number of that kind. */
static int parse_argument(enum argument kind, const char *text, struct gn_compress_spec *out)
{
	char *end = NULL;
	double value = *text ? strtod(text, &end) : 0;

	if (!end || *end)
		return 0;
	if (kind == FRACTION)
		out->fraction = value;
	else
		out->rank = value >= 1 && value <= RANK_MAX ? (int)value : 0;
	return kind == FRACTION ? value > 0 && value <= 1 : out->rank > 0 && out->rank == value;
}

enum gn_status gn_compress_parse(const char *text, struct gn_compress_spec *out, struct gn_err *err)
{
	size_t len;

	text = text ? text : "none";
	len = strcspn(text, ":");
	for (size_t i = 0; i < sizeof methods / sizeof *methods; i++) {
		struct gn_compress_spec s = {.method = (enum gn_compress_method)i};
		int colon = text[len] == ':';

		if (strlen(methods[i].name) != len || strncmp(methods[i].name, text, len))
			continue;
		if (methods[i].argument == NOTHING ? colon : !colon || !parse_argument(methods[i].argument, text + len + 1, &s))
			break;
		*out = s;
		return GN_OK;
	}
	return gn_err_set(err, GN_ERR_USAGE, "--compress '%s' is none of none, auto, bf16, fp16, int8, topk:F and dgc:F with 0 < F <= 1, "
			  "powersgd:R with a whole R of 1 to %d", text, RANK_MAX);
}

void gn_compress_name(const struct gn_compress_spec *s, char out[GN_COMPRESS_NAME_MAX])
{
	const struct method *m = &methods[s->method];
	int used = snprintf(out, GN_COMPRESS_NAME_MAX, "%s", m->name);

	if (m->argument == FRACTION)
		snprintf(out + used, (size_t)(GN_COMPRESS_NAME_MAX - used), ":%.9g", s->fraction);
	else if (m->argument == RANK)
		snprintf(out + used, (size_t)(GN_COMPRESS_NAME_MAX - used), ":%d", s->rank);
}

int gn_compress_keeps_back(const char *name)
{
	struct gn_compress_spec s;

	return !gn_compress_parse(name, &s, NULL) && methods[s.method].arrays > 0;
}

double gn_compress_dense_bytes(size_t bytes, int ranks)
{
	return 2.0 * (ranks - 1) / ranks * (double)bytes;
}

static enum gn_status alloc_state(struct gn_compressor *c, struct gn_err *err)
{
	const struct gn_compress_options *o = &c->options;
	size_t bytes = gn_model_param_elements(o->model) * sizeof(float);
	int arrays = methods[o->spec.method].arrays;

	if (o->spec.method == GN_COMPRESS_POWERSGD)
		for (int i = 0; i < gn_model_param_count(o->model); i++)
			c->factor_count += gn_powersgd_factor_count(o->model, i, o->spec.rank);
	c->residual = arrays > 0 ? gn_alloc_aligned(bytes) : NULL;
	c->momentum = arrays > 1 ? gn_alloc_aligned(bytes) : NULL;
	c->factors = c->factor_count ? gn_alloc_aligned(c->factor_count * sizeof(float)) : NULL;
	if ((arrays > 0 && !c->residual) || (arrays > 1 && !c->momentum) || (c->factor_count && !c->factors))
		return gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for --compress: %d arrays of %zu bytes", arrays, bytes);
	if (c->factors)
		gn_powersgd_init_factors(c);
	return GN_OK;
}

enum gn_status gn_compressor_create(const struct gn_compress_options *options, struct gn_compressor **out, struct gn_err *err)
{
	struct gn_compressor *c = calloc(1, sizeof *c);
	struct gn_err why = {0};
	enum gn_status status = GN_OK, split = GN_OK;

	if (!c)
		status = gn_err_set(&why, GN_ERR_NO_MEMORY, "no memory for --compress");
	if (c) {
		c->options = *options;
		c->codec = methods[options->spec.method].codec;
		status = alloc_state(c, &why);
	}
	/* also where this rank has failed: it is collective */
	if (methods[options->spec.method].codec->rounds > 1)
		split = gn_comm_split(options->comm, 0, gn_comm_rank(options->comm), "compress", c ? &c->second : &(struct gn_comm *){0}, err);
	if (status && err)
		*err = why;
	status = status ? status : split;
	if (status)
		gn_compressor_destroy(c);
	else
		*out = c;
	return status;
}

void gn_compressor_destroy(struct gn_compressor *c)
{
	if (!c)
		return;
	gn_comm_destroy(c->second);
	free(c->residual);
	free(c->momentum);
	free(c->factors);
	free(c);
}

void gn_compressor_begin(struct gn_compressor *c, uint64_t step, uint64_t epoch)
{
	c->step = step;
	c->epoch = epoch;
	c->started = c->second_turn = 0;
}

const struct gn_compress_spec *gn_compressor_spec(const struct gn_compressor *c)
{
	return &c->options.spec;
}

double gn_compressor_sent_bytes(const struct gn_compressor *c)
{
	return c->sent_bytes;
}

void gn_compressor_state(struct gn_compressor *c, struct gn_compress_state *out)
{
	*out = (struct gn_compress_state){
		.count = methods[c->options.spec.method].arrays, .names = {"residual", "velocity"}, .arrays = {c->residual, c->momentum},
		.shared = c->factors, .shared_count = c->factor_count,
	};
}

enum gn_status gn_codec_coll(struct gn_codec_bucket *b, int round, struct gn_coll_args args, struct gn_err *err)
{
	struct gn_compressor *c = b->c;

	if (args.what == GN_COLLECTIVE_ALLREDUCE)
		args.algorithm = c->options.algo;
	return gn_coll_prepare(round ? c->second : c->options.comm, &args, &b->rounds[round], err);
}

GN_VECTOR static uint32_t max_bits(const uint32_t *x, size_t count)
{
	uint32_t max = 0;

	for (size_t i = 0; i < count; i++) {
		uint32_t bits = x[i] & 0x7fffffffu;

		max = bits > max ? bits : max;
	}
	return max;
}

uint32_t gn_codec_max_bits(const float *x, size_t count)
{
	uint32_t chunk[1024], max = 0;

	for (size_t i = 0; i < count; i += 1024) {
		size_t n = count - i < 1024 ? count - i : 1024;
		uint32_t here;

		memcpy(chunk, x + i, n * sizeof *chunk);
		here = max_bits(chunk, n);
		max = here > max ? here : max;
	}
	return max;
}

int gn_codec_is_finite(const float *x, size_t count)
{
	return gn_codec_max_bits(x, count) < 0x7f800000u;
}
