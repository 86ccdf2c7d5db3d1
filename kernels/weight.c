#include "kernels/weight.h"

int gn_weight_layout_equal(struct gn_weight_layout a, struct gn_weight_layout b)
{
	return a.order == b.order && a.block == b.block;
}

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

/* Where the weight from channel i to channel o at place k of the window lies. */
static size_t place(const struct gn_weight_shape *s, struct gn_weight_layout l, size_t o, size_t i, size_t k)
{
	size_t b = (size_t)l.block;

	switch (l.order) {
	case GN_WEIGHT_OI_BLOCKS:
		return (((o / b * (s->in / b) + i / b) * s->window + k) * b + i % b) * b + o % b;
	case GN_WEIGHT_O_BLOCKS:
		return ((o / b * s->window + k) * s->in + i) * b + o % b;
	case GN_WEIGHT_OHWI:
		return (o * s->window + k) * s->in + i;
	case GN_WEIGHT_PLAIN:
	case GN_WEIGHT_ANY:
		break;
	}
	return (o * s->in + i) * s->window + k;
}

void gn_weight_reorder(const struct gn_weight_shape *s, struct gn_weight_layout l, int to_plain, const float *from,
		       float *to)
{
#pragma omp parallel for schedule(static) if (s->out * s->in * s->window > 1 << 14)
	for (size_t o = 0; o < s->out; o++) {
		for (size_t i = 0; i < s->in; i++) {
			for (size_t k = 0; k < s->window; k++) {
				size_t plain = (o * s->in + i) * s->window + k, other = place(s, l, o, i, k);

				to[to_plain ? plain : other] = from[to_plain ? other : plain];
			}
		}
	}
}
