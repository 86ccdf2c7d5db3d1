/* Blocks of tiles, threads and memory. Two schedules: with few channels each thread takes blocks of tiles of its own, small enough for its
 * second-level cache, and all read the same transformed weights; with many channels, where the weights take more than the tiles, all
 * threads transform the same tiles, and then each takes panels of output channels, whose weights it transforms just before. */
#include "kernels/host/winograd.h"

#include <omp.h>
#include <stdint.h>
#include <string.h>

enum { PLACES = 36, TILE = 4, WINDOW = 9, CHAIN = 128 };

const struct gn_winograd_loops *gn_winograd_loops(int lanes)
{
#if defined __x86_64__
	if (lanes == 16 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512bw") &&
	    __builtin_cpu_supports("avx512vl"))
		return &gn_winograd_loops_avx512;
	if (lanes == 8 && __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
		return &gn_winograd_loops_avx2;
#endif
	return NULL;
}

int gn_winograd_pays(const struct gn_layout *in, int channels_out)
{
	const int channels = in->c < channels_out ? in->c : channels_out;

	return (int64_t)channels * in->h * in->w >= 4000;
}

/* Sizes of the arrays in elements. Places are apart by an odd number of cache lines, so that they are in different sets. */
struct sizes {
	size_t input_place, input, product_place, product, weight_place, panel, gradient_place, gradient;
	int panels, panel_blocks, blocks_of_tiles, tiles;
};

static size_t odd_lines(size_t elements)
{
	return (elements / 16 | 1) * 16;
}

static struct sizes sizes_of(const struct gn_winograd *w)
{
	const size_t lanes = (size_t)w->loops->lanes, tiles = (size_t)w->tiles, width = (size_t)w->width;
	const size_t in = (size_t)w->in.blocks * lanes, out = (size_t)w->out.blocks * lanes;
	struct sizes s = {.panel_blocks = w->width / w->loops->lanes};

	s.panels = (w->out.blocks + s.panel_blocks - 1) / s.panel_blocks;
	s.tiles = w->in.images * w->in.tiles_h * w->in.tiles_w;
	s.blocks_of_tiles = (s.tiles + w->tiles - 1) / w->tiles;
	s.input_place = odd_lines(in * tiles + 16);
	s.input = PLACES * s.input_place;
	s.product_place = odd_lines(tiles * width + 16);
	s.product = PLACES * s.product_place;
	s.weight_place = odd_lines(in * width + 16);
	s.panel = PLACES * s.weight_place;
	s.gradient_place = odd_lines(out * tiles + 16);
	s.gradient = PLACES * s.gradient_place;
	return s;
}

/* Blocks of tiles and panels for the cores' caches: what a thread has of its own fits into half a megabyte, tiles for all are so many that
 * the weights of a panel are worth their transformation. */
enum { OWN_BYTES = 512 << 10, SHARED_TILES = 112, MANY_CHANNELS = 192 };

static void choose_schedule(struct gn_winograd *w, int tiles)
{
	const int lanes = w->loops->lanes, rows = w->loops->rows, pairs = w->out.blocks / 2;
	const int channels = (w->in.blocks + (w->pass == GN_WINOGRAD_OF_WEIGHTS ? w->out.blocks : 0)) * lanes;
	const int own = OWN_BYTES / (PLACES * (int)sizeof(float) * channels) / rows * rows;
	/* of about that size, and alike */
	const int blocks = tiles < SHARED_TILES ? 1 : (tiles + SHARED_TILES / 2) / SHARED_TILES;

	w->width = pairs ? 2 * lanes : lanes;
	w->tiles = own > rows ? own : rows;
	w->shared = w->in.blocks * w->out.blocks * lanes * lanes >= MANY_CHANNELS * MANY_CHANNELS;
	if (w->shared && pairs < w->threads)
		w->width = lanes;
	/* too few panels for so many threads */
	if (w->shared && w->out.blocks < w->threads && tiles / w->tiles > w->out.blocks)
		w->shared = 0;
	if (w->shared)
		w->tiles = (tiles + blocks - 1) / blocks;
	if (w->tiles > tiles)
		w->tiles = tiles;
}

void gn_winograd_init(struct gn_winograd *w, const struct gn_layout *in, int channels_out)
{
	const int turned = w->pass == GN_WINOGRAD_OF_INPUT;
	const struct gn_winograd_map map = {in->n, 0, in->h, in->w, (in->h + TILE - 1) / TILE, (in->w + TILE - 1) / TILE};

	w->in = w->out = map;
	w->in.blocks = (turned ? channels_out : in->c) / w->loops->lanes;
	w->out.blocks = (turned ? in->c : channels_out) / w->loops->lanes;
	w->threads = omp_get_max_threads();
	choose_schedule(w, map.images * map.tiles_h * map.tiles_w);
	gn_winograd_sizes(w);
}

void gn_winograd_sizes(struct gn_winograd *w)
{
	const struct sizes s = sizes_of(w);

	if (w->pass == GN_WINOGRAD_OF_WEIGHTS)
		w->scratch_bytes = w->shared ? s.input + s.gradient + (size_t)w->threads * s.panel
					     : (size_t)w->threads * (s.input + s.gradient + (size_t)s.panels * s.panel);
	else
		w->scratch_bytes = w->shared ? s.input + (size_t)w->threads * (s.panel + s.product)
					     : (size_t)s.panels * s.panel + (size_t)w->threads * (s.input + s.product);
	w->scratch_bytes *= sizeof(float);
}

static int count_of(const struct gn_winograd *w, const struct sizes *s, int block)
{
	return block + 1 == s->blocks_of_tiles ? s->tiles - block * w->tiles : w->tiles;
}

/* Blocks of output channels in a panel. */
static int blocks_in(const struct gn_winograd *w, const struct sizes *s, int panel)
{
	const int left = w->out.blocks - panel * s->panel_blocks;

	return left < s->panel_blocks ? left : s->panel_blocks;
}

/* Of one input block and one panel. */
static void transform_weights(const struct gn_winograd *w, const struct sizes *s, const float *weight, int panel, int block, float *to)
{
	const int lanes = w->loops->lanes, width = blocks_in(w, s, panel) * lanes, turned = w->pass == GN_WINOGRAD_OF_INPUT;
	const size_t square = (size_t)WINDOW * (size_t)lanes * (size_t)lanes;

	for (int v = 0; v < width / lanes; v++) {
		const size_t out = (size_t)(panel * s->panel_blocks + v), in = (size_t)block;
		const size_t at = turned ? in * (size_t)w->out.blocks + out : out * (size_t)w->in.blocks + in;

		w->loops->weight(weight + at * square, turned, to + (in * (size_t)width + (size_t)v) * (size_t)lanes, s->weight_place,
				 (size_t)width);
	}
}

struct run {
	const struct gn_winograd *w;
	struct sizes s;
	const float *x, *weight, *bias;
	float *y;
};

/* The outputs of a panel for a block of tiles. */
static void multiply(const struct run *r, int panel, int first, int count, const float *input, const float *weights, float *product)
{
	const struct gn_winograd *w = r->w;
	const int lanes = w->loops->lanes, blocks = blocks_in(w, &r->s, panel), width = blocks * lanes;
	const size_t block = (size_t)w->tiles * (size_t)lanes;
	const int chain = CHAIN / lanes, groups = (count + w->loops->rows - 1) / w->loops->rows, rows = (count + groups - 1) / groups;

	for (int p = 0; p < PLACES; p++)
		for (int b = 0; b < w->in.blocks; b += chain)
			for (int t = 0; t < count; t += rows)
				w->loops->multiply(count - t < rows ? count - t : rows, width, w->in.blocks - b < chain ? w->in.blocks - b : chain,
						   input + (size_t)p * r->s.input_place + (size_t)b * block + (size_t)(t * lanes), block,
						   weights + (size_t)p * r->s.weight_place + (size_t)(b * lanes) * (size_t)width,
						   product + (size_t)p * r->s.product_place + (size_t)(t * width), b > 0);
	for (int v = 0; v < blocks; v++)
		w->loops->output(&w->out, r->y, panel * r->s.panel_blocks + v, first, count, product + (ptrdiff_t)v * lanes,
				 r->s.product_place, (size_t)width, r->bias, w->add, w->relu);
}

static void run_private(const struct run *r, float *scratch)
{
	const struct gn_winograd *w = r->w;
	const struct sizes *s = &r->s;
	float *weights = scratch, *mine = scratch + (size_t)s->panels * s->panel;

#pragma omp parallel num_threads(w->threads)
	{
		float *input = mine + (size_t)omp_get_thread_num() * (s->input + s->product), *product = input + s->input;

#pragma omp for collapse(2) schedule(static)
		for (int p = 0; p < s->panels; p++)
			for (int b = 0; b < w->in.blocks; b++)
				transform_weights(w, s, r->weight, p, b, weights + (size_t)p * s->panel);
#pragma omp for schedule(dynamic)
		for (int k = 0; k < s->blocks_of_tiles; k++) {
			const int first = k * w->tiles, count = count_of(w, s, k);

			for (int b = 0; b < w->in.blocks; b++)
				w->loops->input(&w->in, r->x, b, first, count, input + (size_t)b * (size_t)w->tiles * (size_t)w->loops->lanes,
						s->input_place, (size_t)w->loops->lanes);
			for (int p = 0; p < s->panels; p++)
				multiply(r, p, first, count, input, weights + (size_t)p * s->panel, product);
		}
	}
}

enum { PIECE = 16 }; /* tiles that a thread transforms at once */

static void shared_input(const struct gn_winograd *w, const struct sizes *s, const float *x, int first, int count, float *to)
{
	const size_t lanes = (size_t)w->loops->lanes;

#pragma omp for collapse(2) schedule(static)
	for (int b = 0; b < w->in.blocks; b++)
		for (int t = 0; t < count; t += PIECE)
			w->loops->input(&w->in, x, b, first + t, count - t < PIECE ? count - t : PIECE,
					to + ((size_t)b * (size_t)w->tiles + (size_t)t) * lanes, s->input_place, lanes);
}

static void run_shared(const struct run *r, float *scratch)
{
	const struct gn_winograd *w = r->w;
	const struct sizes *s = &r->s;
	float *input = scratch, *mine = scratch + s->input;

#pragma omp parallel num_threads(w->threads)
	{
		float *weights = mine + (size_t)omp_get_thread_num() * (s->panel + s->product), *product = weights + s->panel;

		for (int k = 0; k < s->blocks_of_tiles; k++) {
			const int first = k * w->tiles, count = count_of(w, s, k);

			shared_input(w, s, r->x, first, count, input);
#pragma omp for schedule(dynamic)
			for (int p = 0; p < s->panels; p++) {
				for (int b = 0; b < w->in.blocks; b++)
					transform_weights(w, s, r->weight, p, b, weights);
				multiply(r, p, first, count, input, weights, product);
			}
		}
	}
}

void gn_winograd_run(const struct gn_winograd *w, const float *x, const float *weight, const float *bias, float *y, void *scratch)
{
	const struct run r = {w, sizes_of(w), x, weight, bias, y};

	if (w->shared)
		run_shared(&r, scratch);
	else
		run_private(&r, scratch);
}

/* Of a panel: [place][input channel][width], the sum over a block of tiles. */
static void multiply_tiles(const struct gn_winograd *w, const struct sizes *s, int panel, int count, const float *input,
			   const float *gradient, float *sums, int add)
{
	const int lanes = w->loops->lanes, width = blocks_in(w, s, panel) * lanes;
	const size_t tiles = (size_t)w->tiles, begin = (size_t)panel * (size_t)w->width * tiles;

	for (int p = 0; p < PLACES; p++)
		for (int b = 0; b < w->in.blocks; b++)
			w->loops->multiply_tiles(width, count, input + (size_t)p * s->input_place + (size_t)b * tiles * (size_t)lanes,
						 gradient + (size_t)p * s->gradient_place + begin,
						 sums + (size_t)p * s->weight_place + (size_t)(b * lanes) * (size_t)width, add);
}

static void gradient_of(const struct gn_winograd *w, const struct sizes *s, const float *dy, int block, int first, int count, int at,
			float *to)
{
	const int panel = block / s->panel_blocks, width = blocks_in(w, s, panel) * w->loops->lanes;

	w->loops->gradient(&w->out, dy, block, first, count,
			   to + (size_t)panel * (size_t)w->width * (size_t)w->tiles + (size_t)at * (size_t)width +
				   (size_t)(block % s->panel_blocks * w->loops->lanes),
			   s->gradient_place, (size_t)width);
}

/* dw of a block of output and of input channels, from the sums of a panel. */
static void finish(const struct gn_winograd *w, const struct sizes *s, int out, int in, const float *panel_sums, float *dw, int add)
{
	const int lanes = w->loops->lanes, width = blocks_in(w, s, out / s->panel_blocks) * lanes;

	w->loops->weight_gradient(panel_sums + (size_t)(in * lanes) * (size_t)width + (size_t)(out % s->panel_blocks * lanes), s->weight_place,
				  (size_t)width, dw + (size_t)(out * w->in.blocks + in) * (size_t)(WINDOW * lanes * lanes), add);
}

/* The first block of tiles of thread t of `threads`. */
static int first_block(const struct sizes *s, int t, int threads)
{
	return (int)((int64_t)s->blocks_of_tiles * t / threads);
}

static void weights_private(const struct gn_winograd *w, const float *x, const float *dy, float *dw, float *scratch)
{
	const struct sizes s = sizes_of(w);
	const size_t each = s.input + s.gradient + (size_t)s.panels * s.panel;

#pragma omp parallel num_threads(w->threads)
	{
		const int lanes = w->loops->lanes;
		float *input = scratch + (size_t)omp_get_thread_num() * each, *gradient = input + s.input, *sums = gradient + s.gradient;
		const int thread = omp_get_thread_num(), threads = omp_get_num_threads(), begin = first_block(&s, thread, threads);

		for (int k = begin; k < first_block(&s, thread + 1, threads); k++) {
			const int first = k * w->tiles, count = count_of(w, &s, k);

			for (int b = 0; b < w->in.blocks; b++)
				w->loops->input(&w->in, x, b, first, count, input + (size_t)b * (size_t)w->tiles * (size_t)lanes,
						s.input_place, (size_t)lanes);
			for (int b = 0; b < w->out.blocks; b++)
				gradient_of(w, &s, dy, b, first, count, 0, gradient);
			for (int p = 0; p < s.panels; p++)
				multiply_tiles(w, &s, p, count, input, gradient, sums + (size_t)p * s.panel, k > begin);
		}
#pragma omp barrier
#pragma omp for collapse(2) schedule(static)
		for (int o = 0; o < w->out.blocks; o++)
			for (int i = 0; i < w->in.blocks; i++)
				for (int t = 0, add = 0; t < threads; t++)
					if (first_block(&s, t, threads) < first_block(&s, t + 1, threads))
						finish(w, &s, o, i,
						       scratch + (size_t)t * each + s.input + s.gradient +
							       (size_t)(o / s.panel_blocks) * s.panel, dw, add++ > 0);
	}
}

static void weights_shared(const struct gn_winograd *w, const float *x, const float *dy, float *dw, float *scratch)
{
	const struct sizes s = sizes_of(w);
	float *input = scratch, *gradient = input + s.input;

#pragma omp parallel num_threads(w->threads)
	{
		float *sums = gradient + s.gradient + (size_t)omp_get_thread_num() * s.panel;

		for (int k = 0; k < s.blocks_of_tiles; k++) {
			const int first = k * w->tiles, count = count_of(w, &s, k);

			shared_input(w, &s, x, first, count, input);
#pragma omp for collapse(2) schedule(static)
			for (int b = 0; b < w->out.blocks; b++)
				for (int t = 0; t < count; t += PIECE)
					gradient_of(w, &s, dy, b, first + t, count - t < PIECE ? count - t : PIECE, t, gradient);
#pragma omp for schedule(dynamic)
			for (int p = 0; p < s.panels; p++) {
				multiply_tiles(w, &s, p, count, input, gradient, sums, 0);
				for (int v = 0; v < blocks_in(w, &s, p); v++)
					for (int i = 0; i < w->in.blocks; i++)
						finish(w, &s, p * s.panel_blocks + v, i, sums, dw, k > 0);
			}
		}
	}
}

/* Sums of dy over images and pixels. */
static void bias_gradient(const struct gn_winograd *w, const float *dy, float *db)
{
	const size_t lanes = (size_t)w->loops->lanes, pixels = (size_t)w->out.h * (size_t)w->out.w;

#pragma omp parallel for num_threads(w->threads) schedule(static)
	for (int b = 0; b < w->out.blocks; b++) {
		float *sums = db + (size_t)b * lanes;

		memset(sums, 0, lanes * sizeof *sums);
		for (int n = 0; n < w->out.images; n++) {
			const float *from = dy + ((size_t)n * (size_t)w->out.blocks + (size_t)b) * pixels * lanes;
			float image[16] = {0};

			for (size_t i = 0; i < pixels; i++)
				for (size_t c = 0; c < lanes; c++)
					image[c] += from[i * lanes + c];
			for (size_t c = 0; c < lanes; c++)
				sums[c] += image[c];
		}
	}
}

void gn_winograd_run_weights(const struct gn_winograd *w, const float *x, const float *dy, float *dw, float *db, void *scratch)
{
	if (w->shared)
		weights_shared(w, x, dy, dw, scratch);
	else
		weights_private(w, x, dy, dw, scratch);
	if (db)
		bias_gradient(w, dy, db);
}
