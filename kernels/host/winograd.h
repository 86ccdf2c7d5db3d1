/* Convolutions of 3 x 3, stride 1 and padding 1 by Winograd's minimal filtering F(4 x 4, 3 x 3): Lavin and Gray, "Fast algorithms for
 * convolutional neural networks", 2015, with the points 0, +-a, +-b and infinity of kernels/host/winograd_loops.h. A tile of 4 x 4 outputs
 * takes 36 multiplications a pair of channels in place of 144:
 *
 *	Y = At [ (G g Gt) . (Bt d B) ] A		d: 6 x 6 inputs, g: 3 x 3 weights; in 36 places a product of matrices over channels
 *	dg = Gt [ (A dY At) . (Bt d B) ] G		over tiles
 *
 * The gradient of the input is the same convolution of the gradient of the output with turned and transposed weights.
 *
 * Tensors are float, in blocks of `lanes` channels (nChw16c with AVX-512, nChw8c with AVX2); weights are OIhw16i16o or OIhw8i8o. All
 * numbers of channels are multiples of lanes. Sums over channels have one order, whatever the number of threads, and are of sums of 128
 * each, which keeps their rounding small; those over tiles are divided among the threads.
 *
 * Thread safety: functions of their arguments; each runs gn_winograd.threads OpenMP threads. Private to kernels/host. */
#ifndef GN_KERNELS_HOST_WINOGRAD_H
#define GN_KERNELS_HOST_WINOGRAD_H

#include "kernels/op.h"

/* Tiles of the outputs of a tensor. */
struct gn_winograd_map {
	int images, blocks, h, w, tiles_h, tiles_w; /* blocks of channels; tiles of one image */
};

/* The inner loops of an instruction set. A transformed matrix has 36 places, place elements apart. */
struct gn_winograd_loops {
	int lanes;
	int rows; /* of products, in registers at once */
	/* Tiles first, first + 1, ... of a block of channels, step elements apart in `to`: Bt d B of the inputs, A dY At of gradients. */
	void (*input)(const struct gn_winograd_map *m, const float *x, int block, int first, int count, float *to, size_t place, size_t step);
	void (*gradient)(const struct gn_winograd_map *m, const float *dy, int block, int first, int count, float *to, size_t place,
			 size_t step);
	/* y = At M A + bias, plus y, then relu as gn_dnnl_post_relu() */
	void (*output)(const struct gn_winograd_map *m, float *y, int block, int first, int count, const float *from, size_t place,
		       size_t step, const float *bias, int add, int relu);
	/* G g Gt of a block of weights, a row of lanes for each input channel, step elements apart; turned: for the gradient of the input,
	 * a row for each output channel. */
	void (*weight)(const float *w, int turned, float *to, size_t place, size_t step);
	/* dw = Gt D G, plus dw if add */
	void (*weight_gradient)(const float *from, size_t place, size_t step, float *dw, int add);
	/* For count <= rows tiles: out[t] = sum over channels of a[channel / lanes * block + t * lanes + channel % lanes] * b[channel], rows
	 * of width = 1 or 2 times lanes, plus out if add. */
	void (*multiply)(int count, int width, int blocks, const float *a, size_t block, const float *b, float *out, int add);
	/* For the lanes of a block of channels: out[c] = sum over tiles of a[t * lanes + c] * b[t], plus out if add. */
	void (*multiply_tiles)(int width, int tiles, const float *a, const float *b, float *out, int add);
};
extern const struct gn_winograd_loops gn_winograd_loops_avx2, gn_winograd_loops_avx512;

/* Those of so many lanes; NULL: this processor has none. */
const struct gn_winograd_loops *gn_winograd_loops(int lanes);

enum gn_winograd_pass { GN_WINOGRAD_FORWARD, GN_WINOGRAD_OF_INPUT, GN_WINOGRAD_OF_WEIGHTS, GN_WINOGRAD_PASSES };

struct gn_winograd {
	const struct gn_winograd_loops *loops;
	enum gn_winograd_pass pass;
	struct gn_winograd_map in, out; /* of the pass: of gradients of the input, in is the gradient of the output */
	int threads;
	int tiles;  /* in a block */
	int shared; /* all threads work on one block of tiles, each on its output channels; else each on its own block of tiles */
	int width;  /* output channels in a panel: 1 or 2 times lanes */
	int add, relu; /* forward: y is added to; negative values become 0, as gn_dnnl_post_relu() has it */
	size_t scratch_bytes;
};

/* Whether it is faster than oneDNN's direct convolution of that input. The rule, which is the same for all passes and instruction sets, is
 * read off `bench/convs table 16`; another one needs another name in gn_convolution_name(). */
int gn_winograd_pays(const struct gn_layout *in, int channels_out);
/* Sets all but loops, pass, add and relu, for a convolution of that input. */
void gn_winograd_init(struct gn_winograd *w, const struct gn_layout *in, int channels_out);
/* scratch_bytes, after changes of threads, tiles or shared. */
void gn_winograd_sizes(struct gn_winograd *w);
/* Forward and the gradient of the input. bias may be NULL. */
void gn_winograd_run(const struct gn_winograd *w, const float *x, const float *weight, const float *bias, float *y, void *scratch);
/* dw; db may be NULL. */
void gn_winograd_run_weights(const struct gn_winograd *w, const float *x, const float *dy, float *dw, float *db, void *scratch);

#endif
