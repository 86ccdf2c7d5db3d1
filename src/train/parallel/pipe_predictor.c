#include "src/train/parallel/pipe_predictor.h"

#include "src/base/half.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { SLOTS = GN_PIPE_LAG + 1, BIAS_MAX = 1 << 20, DENSE_MAX = 2048 };
#define RATE 0.2f

/* A micro-batch whose gradient has not come. */
struct slot {
	float *h, *prediction; /* [images * pixels][channels] */
	int32_t *labels;       /* [2][images]: of the image, and of its pair or -1 */
	float *weights;	       /* [2][images] */
};

struct gn_pipe_predictor {
	struct gn_layout layout;
	int classes, pixels, spots; /* spots: pixels, or 1 where b has one number a channel */
	size_t elements;	    /* of an output without padding */
	int is_dense;
	float *a;		    /* [channels in][channels out], or the diagonal */
	float *b;		    /* [classes][spots][channels] */
	float *error;		    /* of the gradient that is learnt */
	float *count;		    /* [classes] */
	size_t *channel_at;	    /* [channels]: in the layout, from a pixel's first one */
	void *gradient;		    /* in the layout */
	struct slot slots[SLOTS];
};

static size_t bias_elements(const struct gn_pipe_predictor *p)
{
	return (size_t)p->classes * (size_t)p->spots * (size_t)p->layout.c;
}

/* --- layouts --- */

/* Of the first channel of a pixel of an image, and of another channel from there. */
static size_t pixel_at(const struct gn_layout *l, int image, int pixel)
{
	return (size_t)image * (gn_layout_elements(l) / (size_t)l->n) + (size_t)pixel * (size_t)(l->block ? l->block : l->c);
}

static size_t channel_at(const struct gn_layout *l, int channel)
{
	size_t pixels = (size_t)l->h * (size_t)l->w, block = (size_t)l->block, c = (size_t)channel;

	return l->block == 0 ? c : c / block * block * pixels + c % block;
}

static size_t matrix_elements(const struct gn_pipe_predictor *p)
{
	return (size_t)p->layout.c * (p->is_dense ? (size_t)p->layout.c : 1);
}

/* --- creation --- */

enum gn_status gn_pipe_predictor_create(const struct gn_layout *layout, int classes, struct gn_pipe_predictor **out, struct gn_err *err)
{
	struct gn_pipe_predictor *p = calloc(1, sizeof *p);
	size_t images = (size_t)layout->n, channels = (size_t)layout->c;
	int ok = p != NULL;

	if (!p)
		return gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for a predictor of gradients");
	p->layout = *layout;
	p->classes = classes;
	p->pixels = p->spots = layout->h * layout->w;
	p->elements = images * channels * (size_t)p->pixels;
	if (bias_elements(p) > BIAS_MAX)
		p->spots = 1;
	p->is_dense = layout->c <= DENSE_MAX;
	ok &= (p->a = calloc(matrix_elements(p), sizeof *p->a)) != NULL;
	ok &= (p->b = calloc(bias_elements(p), sizeof *p->b)) != NULL;
	ok &= (p->error = calloc(p->elements, sizeof *p->error)) != NULL;
	ok &= (p->count = calloc((size_t)classes, sizeof *p->count)) != NULL;
	ok &= (p->channel_at = calloc(channels, sizeof *p->channel_at)) != NULL;
	ok &= (p->gradient = calloc(1, gn_layout_bytes(layout))) != NULL;
	for (int i = 0; i < SLOTS; i++) {
		struct slot *s = &p->slots[i];

		ok &= (s->h = calloc(p->elements, sizeof *s->h)) != NULL;
		ok &= (s->prediction = calloc(p->elements, sizeof *s->prediction)) != NULL;
		ok &= (s->labels = calloc(2 * images, sizeof *s->labels)) != NULL;
		ok &= (s->weights = calloc(2 * images, sizeof *s->weights)) != NULL;
	}
	if (!ok) {
		gn_pipe_predictor_destroy(p);
		return gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for a predictor of gradients of %d channels", layout->c);
	}
	for (int c = 0; c < layout->c; c++)
		p->channel_at[c] = channel_at(layout, c);
	*out = p;
	return GN_OK;
}

void gn_pipe_predictor_destroy(struct gn_pipe_predictor *p)
{
	if (!p)
		return;
	for (int i = 0; i < SLOTS; i++) {
		free(p->slots[i].h);
		free(p->slots[i].prediction);
		free(p->slots[i].labels);
		free(p->slots[i].weights);
	}
	free(p->a);
	free(p->b);
	free(p->error);
	free(p->count);
	free(p->channel_at);
	free(p->gradient);
	free(p);
}

size_t gn_pipe_predictor_bytes(const struct gn_pipe_predictor *p)
{
	return (matrix_elements(p) + bias_elements(p) + p->elements * (2 * SLOTS + 1)) * sizeof(float) + gn_layout_bytes(&p->layout);
}

/* --- rows --- */

static float value_at(const struct gn_layout *l, const void *values, size_t i)
{
	switch (l->element_bytes) {
	case 2:
		return gn_f32_of_bf16(((const uint16_t *)values)[i]);
	case 8:
		return (float)((const double *)values)[i];
	default:
		return ((const float *)values)[i];
	}
}

static void set_value(const struct gn_layout *l, void *values, size_t i, float v)
{
	switch (l->element_bytes) {
	case 2:
		((uint16_t *)values)[i] = gn_bf16_of_f32(v);
		break;
	case 8:
		((double *)values)[i] = v;
		break;
	default:
		((float *)values)[i] = v;
	}
}

/* From the layout to rows of channels. */
static void take(const struct gn_pipe_predictor *p, const void *from, float *rows)
{
	const struct gn_layout *l = &p->layout;

#pragma omp parallel for
	for (int r = 0; r < l->n * p->pixels; r++) {
		size_t at = pixel_at(l, r / p->pixels, r % p->pixels);

		for (int c = 0; c < l->c; c++)
			rows[(size_t)r * (size_t)l->c + (size_t)c] = value_at(l, from, at + p->channel_at[c]);
	}
}

static void give(const struct gn_pipe_predictor *p, const float *rows, void *to)
{
	const struct gn_layout *l = &p->layout;

#pragma omp parallel for
	for (int r = 0; r < l->n * p->pixels; r++) {
		size_t at = pixel_at(l, r / p->pixels, r % p->pixels);

		for (int c = 0; c < l->c; c++)
			set_value(l, to, at + p->channel_at[c], rows[(size_t)r * (size_t)l->c + (size_t)c]);
	}
}

/* --- prediction --- */

static void note_targets(const struct gn_pipe_predictor *p, struct slot *s, const struct gn_targets *t)
{
	int images = p->layout.n;

	for (int n = 0; n < images; n++) {
		float weight = t->pair_labels ? t->lambdas[n] : 1;

		s->labels[n] = t->labels[n] < p->classes ? t->labels[n] : -1; /* the last stage reports it */
		s->labels[images + n] = t->pair_labels && t->pair_labels[n] < p->classes ? t->pair_labels[n] : -1;
		s->weights[n] = weight;
		s->weights[images + n] = 1 - weight;
	}
}

/* The part of b for a label at a pixel; NULL: there is none. */
static float *bias_at(const struct gn_pipe_predictor *p, int32_t label, int pixel)
{
	size_t spot = p->spots > 1 ? (size_t)pixel : 0;

	return label < 0 ? NULL : p->b + ((size_t)label * (size_t)p->spots + spot) * (size_t)p->layout.c;
}

static void predict_row(const struct gn_pipe_predictor *p, struct slot *s, int r)
{
	int channels = p->layout.c, images = p->layout.n, image = r / p->pixels;
	const float *h = s->h + (size_t)r * (size_t)channels;
	float *out = s->prediction + (size_t)r * (size_t)channels;

	memset(out, 0, (size_t)channels * sizeof *out);
	for (int pair = 0; pair < 2; pair++) {
		int i = pair * images + image;
		const float *b = bias_at(p, s->labels[i], r % p->pixels);

		for (int c = 0; b && c < channels; c++)
			out[c] += s->weights[i] * b[c];
	}
	for (int c = 0; c < channels && !p->is_dense; c++)
		out[c] += h[c] * p->a[c];
	for (int k = 0; k < channels && p->is_dense; k++) {
		const float *a = p->a + (size_t)k * (size_t)channels, x = h[k];

		for (int c = 0; c < channels; c++)
			out[c] += x * a[c];
	}
}

void gn_pipe_predictor_predict(struct gn_pipe_predictor *p, int k, const void *output, const struct gn_targets *targets)
{
	struct slot *s = &p->slots[k % SLOTS];

	note_targets(p, s, targets);
	take(p, output, s->h);
#pragma omp parallel for
	for (int r = 0; r < p->layout.n * p->pixels; r++)
		predict_row(p, s, r);
	give(p, s->prediction, p->gradient);
}

const void *gn_pipe_predictor_gradient(const struct gn_pipe_predictor *p)
{
	return p->gradient;
}

/* --- learning --- */

static double square(const float *values, size_t count)
{
	double sum = 0;

	for (size_t i = 0; i < count; i++)
		sum += (double)values[i] * values[i];
	return sum;
}

/* Row k of A: what channel k of the output says of all channels of the gradient. */
static void learn_channel(const struct gn_pipe_predictor *p, const struct slot *s, int k, float rate)
{
	size_t channels = (size_t)p->layout.c, rows = p->elements / channels;
	float *a = p->a + (size_t)k * channels;

	for (size_t r = 0; r < rows; r++) {
		const float x = rate * s->h[r * channels + (size_t)k], *e = p->error + r * channels;

		for (size_t c = 0; c < channels; c++)
			a[c] += x * e[c];
	}
}

/* A channel of the diagonal. */
static void learn_alone(const struct gn_pipe_predictor *p, const struct slot *s, int k)
{
	size_t channels = (size_t)p->layout.c, rows = p->elements / channels;
	double squares = 0, products = 0;

	for (size_t r = 0; r < rows; r++) {
		double x = s->h[r * channels + (size_t)k];

		squares += x * x;
		products += x * p->error[r * channels + (size_t)k];
	}
	p->a[k] += squares > 0 ? (float)(RATE * products / squares) : 0;
}

static void learn_bias(const struct gn_pipe_predictor *p, const struct slot *s)
{
	int images = p->layout.n, channels = p->layout.c;
	float share = RATE * (float)p->spots / (float)p->pixels;

	memset(p->count, 0, (size_t)p->classes * sizeof *p->count);
	for (int i = 0; i < 2 * images; i++)
		if (s->labels[i] >= 0)
			p->count[s->labels[i]] += s->weights[i];
	for (int i = 0; i < 2 * images; i++)
		for (int pixel = 0; pixel < p->pixels && s->labels[i] >= 0; pixel++) {
			const float *e = p->error + ((size_t)(i % images) * (size_t)p->pixels + (size_t)pixel) * (size_t)channels;
			float *b = bias_at(p, s->labels[i], pixel), rate = share * s->weights[i] / fmaxf(1, p->count[s->labels[i]]);

			for (int c = 0; c < channels; c++)
				b[c] += rate * e[c];
		}
}

void gn_pipe_predictor_learn(struct gn_pipe_predictor *p, int k, const void *gradient, double *missed, double *wanted)
{
	struct slot *s = &p->slots[k % SLOTS];
	double squares = square(s->h, p->elements);

	take(p, gradient, p->error);
	*wanted = square(p->error, p->elements);
	for (size_t i = 0; i < p->elements; i++)
		p->error[i] -= s->prediction[i];
	*missed = square(p->error, p->elements);
	if (!isfinite(*missed) || !isfinite(squares)) {
		*missed = *wanted = 0;
		return;
	}
#pragma omp parallel for
	for (int c = 0; c < p->layout.c; c++) {
		if (p->is_dense)
			learn_channel(p, s, c, squares > 0 ? (float)(RATE / squares) : 0);
		else
			learn_alone(p, s, c);
	}
	learn_bias(p, s);
}
