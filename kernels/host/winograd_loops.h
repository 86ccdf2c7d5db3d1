/* The inner loops of Winograd convolutions for one instruction set, which defines LANES, the type vec, load, store, set (of one number) and
 * fma (x * y + z), ROWS and the name of the table. */
#include "kernels/host/winograd.h"

#define ALWAYS static inline __attribute__((always_inline))
#define UNROLL _Pragma("GCC unroll 16")

enum { TILE = 4, WINDOW = 3, SPAN = TILE + WINDOW - 1, PLACES = SPAN * SPAN };

/* Points 0, +-A, +-B, infinity. Of eleven pairs that were tried this one rounds best; with the usual 1 and 2 errors are twice as large. */
#define A 0.625f
#define B 1.5f
#define A2 (A * A)
#define B2 (B * B)
#define N0 (1 / (A2 * B2))
#define NA (1 / (2 * A2 * (A2 - B2)))
#define NB (1 / (2 * B2 * (B2 - A2)))

/* Bt, of a column or a row. */
ALWAYS void input_1d(const vec *x, vec *y, int step)
{
	const vec both = set(A2 + B2), product = set(A2 * B2);
	const vec a = set(A) * (x[3] - set(B2) * x[1]), b = set(B) * (x[3] - set(A2) * x[1]);
	const vec ea = x[4] - set(B2) * x[2], eb = x[4] - set(A2) * x[2];

	y[0] = fma(product, x[0], x[4] - both * x[2]);
	y[step] = ea + a;
	y[2 * step] = ea - a;
	y[3 * step] = eb + b;
	y[4 * step] = eb - b;
	y[5 * step] = fma(product, x[1], x[5] - both * x[3]);
}

/* At. */
ALWAYS void output_1d(const vec *m, vec *y, int step)
{
	const vec sa = m[1] + m[2], da = m[1] - m[2], sb = m[3] + m[4], db = m[3] - m[4];

	y[0] = m[0] + sa + sb;
	y[step] = fma(set(A), da, set(B) * db);
	y[2 * step] = fma(set(A2), sa, set(B2) * sb);
	y[3 * step] = fma(set(A2 * A), da, fma(set(B2 * B), db, m[5]));
}

/* A. */
ALWAYS void gradient_1d(const vec *g, vec *y, int step)
{
	const vec ea = fma(set(A2), g[2], g[0]), oa = set(A) * fma(set(A2), g[3], g[1]);
	const vec eb = fma(set(B2), g[2], g[0]), ob = set(B) * fma(set(B2), g[3], g[1]);

	y[0] = g[0];
	y[step] = ea + oa;
	y[2 * step] = ea - oa;
	y[3 * step] = eb + ob;
	y[4 * step] = eb - ob;
	y[5 * step] = g[3];
}

/* G. */
ALWAYS void weight_1d(const vec *g, vec *y, int step)
{
	const vec ea = set(NA) * fma(set(A2), g[2], g[0]), oa = set(NA * A) * g[1];
	const vec eb = set(NB) * fma(set(B2), g[2], g[0]), ob = set(NB * B) * g[1];

	y[0] = set(N0) * g[0];
	y[step] = ea + oa;
	y[2 * step] = ea - oa;
	y[3 * step] = eb + ob;
	y[4 * step] = eb - ob;
	y[5 * step] = g[2];
}

/* Gt. */
ALWAYS void weight_gradient_1d(const vec *u, vec *y, int step)
{
	const vec sa = set(NA) * (u[1] + u[2]), da = u[1] - u[2], sb = set(NB) * (u[3] + u[4]), db = u[3] - u[4];

	y[0] = fma(set(N0), u[0], sa + sb);
	y[step] = fma(set(NA * A), da, set(NB * B) * db);
	y[2 * step] = fma(set(A2), sa, fma(set(B2), sb, u[5]));
}

/* Where a tile begins, and how much of it is in the map. */
struct place_of_tile {
	size_t at;	    /* of pixel (0, 0) of the map of this image and block, in elements */
	int y, x;	    /* of the tile's first output */
};

ALWAYS struct place_of_tile find(const struct gn_winograd_map *m, int block, int tile)
{
	const int each = m->tiles_h * m->tiles_w, image = tile / each, rest = tile % each;

	return (struct place_of_tile){((size_t)image * (size_t)m->blocks + (size_t)block) * (size_t)m->h * (size_t)m->w * LANES,
				      rest / m->tiles_w * TILE, rest % m->tiles_w * TILE};
}

/* size x size pixels from (y, x); zero outside of the map. */
ALWAYS void load_pixels(const struct gn_winograd_map *m, const float *map, int y, int x, int size, vec *d)
{
	const int inside = y >= 0 && x >= 0 && y + size <= m->h && x + size <= m->w;
	const float *from = map + ((ptrdiff_t)y * m->w + x) * LANES;

	if (inside) {
		UNROLL for (int i = 0; i < size; i++)
			UNROLL for (int k = 0; k < size; k++)
				d[i * size + k] = load(from + ((ptrdiff_t)i * m->w + k) * LANES);
		return;
	}
	for (int i = 0; i < size; i++)
		for (int k = 0; k < size; k++)
			d[i * size + k] = y + i >= 0 && y + i < m->h && x + k >= 0 && x + k < m->w
						  ? load(from + ((ptrdiff_t)i * m->w + k) * LANES)
						  : set(0);
}

static void input(const struct gn_winograd_map *m, const float *x, int block, int first, int count, float *to, size_t place, size_t step)
{
	for (int t = 0; t < count; t++) {
		const struct place_of_tile p = find(m, block, first + t);
		vec d[PLACES], columns[PLACES], row[SPAN];

		load_pixels(m, x + p.at, p.y - 1, p.x - 1, SPAN, d);
		UNROLL for (int i = 0; i < SPAN; i++)
			input_1d(d + i * SPAN, columns + i, SPAN); /* columns[k * SPAN + i]: place k of row i */
		UNROLL for (int k = 0; k < SPAN; k++) {
			input_1d(columns + k * SPAN, row, 1);
			UNROLL for (int i = 0; i < SPAN; i++)
				store(to + (size_t)t * step + (size_t)(i * SPAN + k) * place, row[i]);
		}
	}
}

static void gradient(const struct gn_winograd_map *m, const float *dy, int block, int first, int count, float *to, size_t place,
		     size_t step)
{
	for (int t = 0; t < count; t++) {
		const struct place_of_tile p = find(m, block, first + t);
		vec d[TILE * TILE], columns[SPAN * TILE], row[SPAN];

		load_pixels(m, dy + p.at, p.y, p.x, TILE, d);
		UNROLL for (int i = 0; i < TILE; i++)
			gradient_1d(d + i * TILE, columns + i, TILE);
		UNROLL for (int k = 0; k < SPAN; k++) {
			gradient_1d(columns + k * TILE, row, 1);
			UNROLL for (int i = 0; i < SPAN; i++)
				store(to + (size_t)t * step + (size_t)(i * SPAN + k) * place, row[i]);
		}
	}
}

/* NaN stays, minus infinity, too: gn_dnnl_post_relu(). */
ALWAYS vec cut(vec x)
{
	return larger(x, x * set(0x1p-100f));
}

ALWAYS void output(const struct gn_winograd_map *m, float *y, int block, int first, int count, const float *from, size_t place,
		   size_t step, const float *bias, int add, int relu)
{
	const vec b = bias ? load(bias + (ptrdiff_t)block * LANES) : set(0);

	for (int t = 0; t < count; t++, from += step) {
		const struct place_of_tile p = find(m, block, first + t);
		const int rows = m->h - p.y < TILE ? m->h - p.y : TILE, pixels = m->w - p.x < TILE ? m->w - p.x : TILE;
		float *to = y + p.at + ((size_t)p.y * (size_t)m->w + (size_t)p.x) * LANES;
		vec columns[TILE * SPAN], part[SPAN], row[TILE];

		UNROLL for (int i = 0; i < SPAN; i++) {
			UNROLL for (int k = 0; k < SPAN; k++)
				part[k] = load(from + (size_t)(k * SPAN + i) * place); /* column i */
			output_1d(part, columns + i, SPAN);
		}
		for (int i = 0; i < rows; i++, to += (size_t)m->w * LANES) {
			output_1d(columns + i * SPAN, row, 1);
			for (int k = 0; k < pixels; k++) {
				vec v = row[k] + b;

				if (add)
					v += load(to + k * LANES);
				if (relu)
					v = cut(v);
				store(to + k * LANES, v);
			}
		}
	}
}

static void output_any(const struct gn_winograd_map *m, float *y, int block, int first, int count, const float *from, size_t place,
		       size_t step, const float *bias, int add, int relu)
{
	if (!add && !relu)
		output(m, y, block, first, count, from, place, step, bias, 0, 0);
	else
		output(m, y, block, first, count, from, place, step, bias, add, relu);
}

/* Row r of a block of weights: of input channel r over the output channels; turned, of output channel r over the input channels. */
ALWAYS void weight_row(const float *w, int turned, int r, vec *g)
{
	UNROLL for (int k = 0; k < WINDOW * WINDOW; k++) {
		const float *from = w + (size_t)k * LANES * LANES;

		if (!turned) {
			g[k] = load(from + (size_t)r * LANES);
			continue;
		}
		for (int i = 0; i < LANES; i++)
			g[WINDOW * WINDOW - 1 - k][i] = from[i * LANES + r];
	}
}

static void weight(const float *w, int turned, float *to, size_t place, size_t step)
{
	for (int r = 0; r < LANES; r++) {
		vec g[WINDOW * WINDOW], columns[SPAN * WINDOW], row[SPAN];

		if (turned)
			weight_row(w, 1, r, g);
		else
			weight_row(w, 0, r, g);
		UNROLL for (int i = 0; i < WINDOW; i++)
			weight_1d(g + i * WINDOW, columns + i, WINDOW);
		UNROLL for (int k = 0; k < SPAN; k++) {
			weight_1d(columns + k * WINDOW, row, 1);
			UNROLL for (int i = 0; i < SPAN; i++)
				store(to + (size_t)r * step + (size_t)(i * SPAN + k) * place, row[i]);
		}
	}
}

static void weight_gradient(const float *from, size_t place, size_t step, float *dw, int add)
{
	for (int r = 0; r < LANES; r++) {
		vec columns[WINDOW * SPAN], part[SPAN], row[WINDOW];

		UNROLL for (int i = 0; i < SPAN; i++) {
			UNROLL for (int k = 0; k < SPAN; k++)
				part[k] = load(from + (size_t)r * step + (size_t)(k * SPAN + i) * place);
			weight_gradient_1d(part, columns + i, SPAN);
		}
		UNROLL for (int i = 0; i < WINDOW; i++) {
			weight_gradient_1d(columns + i * SPAN, row, 1);
			UNROLL for (int k = 0; k < WINDOW; k++) {
				float *to = dw + ((size_t)(i * WINDOW + k) * LANES + (size_t)r) * LANES;

				if (add)
					row[k] += load(to);
				store(to, row[k]);
			}
		}
	}
}

/* sums[r][v] of rows times a row of one or two vectors; element r of the column at step s of block k is
 * a[k * block + s * step + r * stride]. */
ALWAYS void products(int rows, int vectors, int blocks, int steps, const float *a, size_t block, size_t step, size_t stride,
		     const float *b, float *out, int add)
{
	vec sums[16][2];

	UNROLL for (int r = 0; r < rows; r++)
		UNROLL for (int v = 0; v < vectors; v++)
			sums[r][v] = set(0);
	for (int k = 0; k < blocks; k++, a += block) {
		const float *column = a;

		for (int s = 0; s < steps; s++, column += step, b += vectors * LANES) {
			const vec b0 = load(b), b1 = vectors == 2 ? load(b + LANES) : b0;

			UNROLL for (int r = 0; r < rows; r++) {
				const vec x = set(column[(size_t)r * stride]);

				sums[r][0] = fma(x, b0, sums[r][0]);
				if (vectors == 2)
					sums[r][1] = fma(x, b1, sums[r][1]);
			}
		}
	}
	UNROLL for (int r = 0; r < rows && add; r++)
		UNROLL for (int v = 0; v < vectors; v++)
			sums[r][v] += load(out + (r * vectors + v) * LANES);
	UNROLL for (int r = 0; r < rows; r++)
		UNROLL for (int v = 0; v < vectors; v++)
			store(out + (r * vectors + v) * LANES, sums[r][v]);
}

#define ROWS_OF(n)                                                                                                                  \
	static void multiply_##n(int vectors, int blocks, const float *a, size_t block, const float *b, float *out, int add)         \
	{                                                                                                                           \
		if (vectors == 2)                                                                                                   \
			products(n, 2, blocks, LANES, a, block, 1, LANES, b, out, add);                                             \
		else                                                                                                                \
			products(n, 1, blocks, LANES, a, block, 1, LANES, b, out, add);                                             \
	}
ROWS_OF(1)
ROWS_OF(2)
ROWS_OF(3)
ROWS_OF(4)
ROWS_OF(5)
ROWS_OF(6)
#if ROWS > 6
ROWS_OF(7)
ROWS_OF(8)
ROWS_OF(9)
ROWS_OF(10)
ROWS_OF(11)
ROWS_OF(12)
ROWS_OF(13)
ROWS_OF(14)
#endif

static void multiply(int count, int width, int blocks, const float *a, size_t block, const float *b, float *out, int add)
{
	static void (*const by_rows[])(int, int, const float *, size_t, const float *, float *, int) = {
		multiply_1, multiply_2, multiply_3, multiply_4, multiply_5, multiply_6,
#if ROWS > 6
		multiply_7, multiply_8, multiply_9, multiply_10, multiply_11, multiply_12, multiply_13, multiply_14,
#endif
	};

	by_rows[count - 1](width / LANES, blocks, a, block, b, out, add);
}

static void multiply_tiles(int width, int tiles, const float *a, const float *b, float *out, int add)
{
	enum { HALF = LANES / 2 };

	for (int c = 0; c < LANES; c += HALF, out += HALF * width) {
		if (width == 2 * LANES)
			products(HALF, 2, 1, tiles, a + c, 0, LANES, 1, b, out, add);
		else
			products(HALF, 1, 1, tiles, a + c, 0, LANES, 1, b, out, add);
	}
}

const struct gn_winograd_loops TABLE = {
	.lanes = LANES,
	.rows = ROWS,
	.input = input,
	.gradient = gradient,
	.output = output_any,
	.weight = weight,
	.weight_gradient = weight_gradient,
	.multiply = multiply,
	.multiply_tiles = multiply_tiles,
};
