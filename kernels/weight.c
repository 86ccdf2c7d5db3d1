#include "kernels/weight.h"

int gn_weight_fits(const struct gn_weight_shape *s, struct gn_weight_layout l)
{
	switch (l.order) {
	case GN_WEIGHT_PLAIN:
	case GN_WEIGHT_OHWI:
		return l.block == 0;
	case GN_WEIGHT_OI_BLOCKS:
		return l.block > 1 && s->out % (size_t)l.block == 0 && s->in % (size_t)l.block == 0;
	case GN_WEIGHT_O_BLOCKS:
		return l.block > 1 && s->out % (size_t)l.block == 0;
	case GN_WEIGHT_ANY:
		break;
	}
	return 0;
}

/* Offsets: the weights of output channel o start at to_out(o), that of input channel i is to_in(i) further, and window positions
 * are position_stride() apart. */
static size_t to_out(const struct gn_weight_shape *s, struct gn_weight_layout l, size_t o)
{
	size_t b = l.block ? (size_t)l.block : 1;

	return o / b * b * s->in * s->window + o % b;
}

static size_t to_in(const struct gn_weight_shape *s, struct gn_weight_layout l, size_t i)
{
	size_t b = (size_t)l.block;

	switch (l.order) {
	case GN_WEIGHT_OI_BLOCKS:
		return i / b * b * b * s->window + i % b * b;
	case GN_WEIGHT_O_BLOCKS:
		return i * b;
	case GN_WEIGHT_OHWI:
		return i;
	case GN_WEIGHT_PLAIN:
	case GN_WEIGHT_ANY:
		break;
	}
	return i * s->window;
}

static size_t position_stride(const struct gn_weight_shape *s, struct gn_weight_layout l)
{
	size_t b = (size_t)l.block;

	switch (l.order) {
	case GN_WEIGHT_OI_BLOCKS:
		return b * b;
	case GN_WEIGHT_O_BLOCKS:
		return s->in * b;
	case GN_WEIGHT_OHWI:
		return s->in;
	case GN_WEIGHT_PLAIN:
	case GN_WEIGHT_ANY:
		break;
	}
	return 1;
}

/* Some input channels of an output channel. Their weights are input_step apart, those of an input channel step. */
static inline void reorder_row(const float *from, float *to, int to_plain, size_t channels, size_t window, size_t input_step, size_t step)
{
	for (size_t i = 0; i < channels; i++)
		for (size_t k = 0; k < window; k++)
			if (to_plain)
				to[i * window + k] = from[i * input_step + k * step];
			else
				to[i * input_step + k * step] = from[i * window + k];
}

void gn_weight_reorder(const struct gn_weight_shape *s, struct gn_weight_layout l, int to_plain, const float *from,
		       float *to)
{
	/* a block of output by one of input channels at a time, which stays in the first cache */
	const size_t block = l.block ? (size_t)l.block : 1, inputs = l.order == GN_WEIGHT_OI_BLOCKS ? block : s->in;
	const size_t step = position_stride(s, l), input_step = to_in(s, l, 1);

#pragma omp parallel for schedule(static) if (s->out * s->in * s->window > 1 << 14)
	for (size_t first = 0; first < s->out; first += block) {
		for (size_t i = 0; i < s->in; i += inputs) {
			for (size_t o = first; o < first + block; o++) {
				size_t plain = (o * s->in + i) * s->window, other = to_out(s, l, o) + to_in(s, l, i);
				const float *a = from + (to_plain ? other : plain);
				float *b = to + (to_plain ? plain : other);

				/* most weights are of windows of one position */
				if (s->window == 1)
					reorder_row(a, b, to_plain, inputs, 1, input_step, step);
				else
					reorder_row(a, b, to_plain, inputs, s->window, input_step, step);
			}
		}
	}
}
