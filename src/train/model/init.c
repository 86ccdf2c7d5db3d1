#include "src/train/model/init.h"
#include "src/base/option.h"
#include "src/base/philox.h"

#include <math.h>
#include <string.h>

static uint64_t fnv1a64(const char *text)
{
	uint64_t h = 0xcbf29ce484222325;

	for (; *text; text++)
		h = (h ^ (unsigned char)*text) * 0x100000001b3;
	return h;
}

static uint64_t mixed(uint64_t name, uint64_t i)
{
	uint64_t z = name + (i + 1) * 0x9e3779b97f4a7c15;

	z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
	z = (z ^ z >> 27) * 0x94d049bb133111eb;
	return z ^ z >> 31;
}

static double unit(uint64_t name, uint64_t i)
{
	return (double)(mixed(name, i) >> 40) / 8388608 - 1;
}

double gn_init_formula(const char *name, uint64_t i)
{
	return unit(fnv1a64(name), i);
}

void gn_init_formula_batch(int batch, int channels, int side, int classes, float *images, int32_t *labels)
{
	uint64_t input = fnv1a64("input"), label = fnv1a64("label");
	size_t count = (size_t)batch * channels * side * side;

	for (size_t i = 0; i < count; i++)
		images[i] = (float)unit(input, i);
	for (int i = 0; i < batch; i++)
		labels[i] = (int32_t)(mixed(label, i) % classes);
}

static void formula(const struct gn_param *p, float *out)
{
	double scale = 0.01, shift = 0;
	uint64_t name = fnv1a64(p->name);

	if (p->dims > 1)
		scale = sqrt(6 / ((double)p->count / (double)p->shape[0]));
	/* batch norms are known by torchvision's names of residual networks */
	if (p->kind == GN_PARAM_BN_WEIGHT || (p->kind == GN_PARAM_BN_BIAS && (strstr(p->name, "bn") || strstr(p->name, "downsample.1"))))
		scale = 0.1;
	if (p->kind == GN_PARAM_BN_WEIGHT)
		shift = 1;
	for (size_t i = 0; i < p->count; i++)
		out[i] = (float)(shift + scale * unit(name, i));
}

static void normal(const struct gn_param *p, double deviation, struct gn_rng *r, float *out)
{
	double some[256];

	for (size_t i = 0, n; i < p->count; i += n) {
		n = p->count - i < 256 ? p->count - i : 256;
		gn_rng_normals(r, n, some);
		for (size_t k = 0; k < n; k++)
			out[i + k] = (float)(deviation * some[k]);
	}
}

static void uniform(size_t count, double fan_in, struct gn_rng *r, float *out)
{
	double bound = 1 / sqrt(fan_in);

	for (size_t i = 0; i < count; i++)
		out[i] = (float)(bound * (2 * gn_rng_uniform(r) - 1));
}

/* torchvision's VisionTransformer: the head is 0, the rest of linear layers Xavier-uniform but out_proj, which is PyTorch's Linear. */
static void vit(const struct gn_param *p, struct gn_rng *r, float *out)
{
	int is_mlp = strstr(p->name, ".mlp.") != NULL;

	if (p->kind == GN_PARAM_WEIGHT && p->dims == 4)
		normal(p, 1 / sqrt((double)(p->count / (size_t)p->shape[0])), r, out);
	else if (p->kind == GN_PARAM_WEIGHT && strstr(p->name, ".out_proj."))
		uniform(p->count, (double)p->shape[1], r, out);
	else if (p->kind == GN_PARAM_WEIGHT && !strstr(p->name, "heads."))
		uniform(p->count, (double)(p->shape[0] + p->shape[1]) / 6, r, out); /* Glorot and Bengio 2010 */
	else if (p->kind == GN_PARAM_POSITION)
		normal(p, 0.02, r, out);
	else if (p->kind == GN_PARAM_BIAS && is_mlp)
		normal(p, 1e-6, r, out);
	else
		memset(out, 0, p->count * sizeof *out);
}

void gn_init_param(const struct gn_model *m, int index, uint64_t seed, float *out)
{
	const struct gn_param *p = gn_model_param(m, index);
	enum gn_init_rule rule = gn_model_init_rule(m);
	uint64_t name = fnv1a64(p->name);
	struct gn_rng r;

	gn_rng_init(&r, seed, GN_RNG_INIT, (uint32_t)(name >> 32), (uint32_t)name);
	if (p->kind == GN_PARAM_BN_WEIGHT)
		for (size_t i = 0; i < p->count; i++)
			out[i] = 1;
	else if (p->kind == GN_PARAM_LAYER_SCALE)
		for (size_t i = 0; i < p->count; i++)
			out[i] = 1e-6f;
	else if (rule == GN_INIT_VIT)
		vit(p, &r, out);
	else if (p->kind == GN_PARAM_WEIGHT && rule == GN_INIT_CONVNEXT)
		normal(p, 0.02, &r, out);
	else if (p->dims == 4)
		/* He et al. 2015, "Delving deep into rectifiers": variance 2 / fan-out preserves the variance of gradients through relu */
		normal(p, sqrt(2 / (double)(p->shape[0] * p->shape[2] * p->shape[3])), &r, out);
	else if (p->dims == 2 && rule == GN_INIT_VGG)
		normal(p, 0.01, &r, out);
	else if (p->dims == 2)
		uniform(p->count, (double)p->shape[rule == GN_INIT_EFFICIENTNET ? 0 : 1], &r, out);
	else if (p->kind == GN_PARAM_BIAS && gn_model_node(m, p->node)->kind == GN_LAYER_LINEAR && rule == GN_INIT_RESNET)
		uniform(p->count, (double)gn_model_param(m, index - 1)->shape[1], &r,
			out); /* the weight precedes the bias */
	else
		memset(out, 0, p->count * sizeof *out);
}

static enum gn_status parse(const char *spec, int *is_formula, uint64_t *seed, struct gn_err *err)
{
	int64_t n;

	*is_formula = !strcmp(spec, "formula");
	*seed = 0;
	if (*is_formula)
		return GN_OK;
	if (strncmp(spec, "seed:", 5) || gn_parse_int(spec + 5, &n, NULL) || n < 0)
		return gn_err_set(err, GN_ERR_USAGE, "initial values '%s': must be 'formula' or 'seed:N' with N >= 0",
				  spec);
	*seed = (uint64_t)n;
	return GN_OK;
}

int gn_init_is_file(const char *spec)
{
	return spec && strcmp(spec, "formula") && strncmp(spec, "seed:", 5);
}

enum gn_status gn_init_params(const struct gn_model *m, const char *spec, float *params, float *buffers,
			      struct gn_err *err)
{
	uint64_t seed;
	int is_formula, count = gn_model_param_count(m);
	enum gn_status s = parse(spec, &is_formula, &seed, err);

	if (s)
		return s;
	memset(params, 0, gn_model_param_elements(m) * sizeof *params);
	memset(buffers, 0, gn_model_buffer_elements(m) * sizeof *buffers);
#pragma omp parallel for schedule(dynamic)
	for (int i = 0; i < count; i++) {
		const struct gn_param *p = gn_model_param(m, i);

		if (is_formula)
			formula(p, params + p->offset);
		else
			gn_init_param(m, i, seed, params + p->offset);
	}
	for (int i = 0; i < gn_model_buffer_count(m); i++) {
		const struct gn_param *b = gn_model_buffer(m, i);

		for (size_t k = 0; b->kind == GN_BUFFER_VAR && k < b->count; k++)
			buffers[b->offset + k] = 1;
	}
	return GN_OK;
}

/* The first input of an addition is the residual branch, the second the shortcut (resnet.c). */
void gn_init_zero_gamma(const struct gn_model *m, float *params)
{
	for (int i = 0; i < gn_model_param_count(m); i++) {
		const struct gn_param *p = gn_model_param(m, i);

		for (int k = 0; p->kind == GN_PARAM_BN_WEIGHT && k < gn_model_node_count(m); k++)
			if (gn_model_node(m, k)->kind == GN_LAYER_ADD && gn_model_node(m, k)->input[0] == p->node)
				memset(params + p->offset, 0, p->count * sizeof *params);
	}
}
