/* The loops of max pooling: a part of layer_loops.h. Vectors are of 16 channels, of which `lanes` are used. */
typedef float gn_pool_f __attribute__((vector_size(64)));
typedef int32_t gn_pool_i __attribute__((vector_size(64)));
typedef uint32_t gn_pool_u __attribute__((vector_size(64)));
typedef uint16_t gn_pool_h __attribute__((vector_size(32)));
typedef uint8_t gn_pool_b __attribute__((vector_size(16)));

INLINE void pool_load(int lanes, int is_bf16, const void *x, size_t at, gn_pool_f *out)
{
	gn_pool_f wide = {0};
	gn_pool_h half = {0};

	if (is_bf16)
		memcpy(&half, (const uint16_t *)x + at, (size_t)lanes * sizeof(uint16_t));
	else
		memcpy(&wide, (const float *)x + at, (size_t)lanes * sizeof(float));
	*out = is_bf16 ? (gn_pool_f)(__builtin_convertvector(half, gn_pool_u) << 16) : wide;
}

INLINE void pool_store(int lanes, int is_bf16, const gn_pool_f *v, void *y, size_t at)
{
	float values[GN_WIDE];

	memcpy(values, v, sizeof values);
	if (is_bf16)
		narrow((size_t)lanes, values, (uint16_t *)y + at);
	else
		memcpy((float *)y + at, values, (size_t)lanes * sizeof(float));
}

/* Windows are never outside: a pixel of them comes first. */
INLINE void pool_pixel(int lanes, int is_bf16, const struct gn_layer_pool *p, int top, int left, const void *x, gn_pool_f *best, gn_pool_b *where)
{
	const int first_y = top < 0 ? -top : 0, first_x = left < 0 ? -left : 0;
	const int end_y = p->kernel < p->h - top ? p->kernel : p->h - top, end_x = p->kernel < p->w - left ? p->kernel : p->w - left;
	gn_pool_i at = {0}, top_most = {0};

	at += first_y * p->kernel + first_x;
	top_most += (int32_t)0xff800000; /* minus infinity */
	for (int ky = first_y; ky < end_y; ky++)
		for (int kx = first_x; kx < end_x; kx++) {
			const gn_pool_i zero = {0};
			gn_pool_f v;
			gn_pool_i more;

			pool_load(lanes, is_bf16, x, ((size_t)(top + ky) * p->w + left + kx) * p->stride, &v);
			more = (v > (gn_pool_f)top_most) | (v != v);
			top_most = ((gn_pool_i)v & more) | (top_most & ~more);
			at = ((zero + (ky * p->kernel + kx)) & more) | (at & ~more);
		}
	*best = (gn_pool_f)top_most;
	*where = __builtin_convertvector(__builtin_convertvector(at, gn_pool_h), gn_pool_b);
}

INLINE void pool_map(int lanes, int is_bf16, const struct gn_layer_pool *p, const void *x, void *y, uint8_t *where)
{
	size_t to = 0;

	for (int oy = 0; oy < p->out_h; oy++)
		for (int ox = 0; ox < p->out_w; ox++, to += p->stride) {
			gn_pool_f best;
			gn_pool_b at;

			pool_pixel(lanes, is_bf16, p, oy * p->step - p->pad, ox * p->step - p->pad, x, &best, &at);
			pool_store(lanes, is_bf16, &best, y, to);
			memcpy(where + to, &at, (size_t)lanes);
		}
}

/* Sums the gradients of the windows from (top, left) on in which this pixel is the maximum, and rounds once. */
INLINE void pool_gather(int lanes, int is_bf16, const struct gn_layer_pool *p, int y, int x, int top, int left, const uint8_t *where,
			const void *dy, gn_pool_f *sum)
{
	for (int oy = top; oy < p->out_h && oy * p->step <= y + p->pad; oy++)
		for (int ox = left; ox < p->out_w && ox * p->step <= x + p->pad; ox++) {
			const int here = (y + p->pad - oy * p->step) * p->kernel + x + p->pad - ox * p->step;
			size_t from = ((size_t)oy * p->out_w + ox) * p->stride;
			gn_pool_b at = {0};
			gn_pool_f d;

			memcpy(&at, where + from, (size_t)lanes);
			pool_load(lanes, is_bf16, dy, from, &d);
			*sum += (gn_pool_f)((gn_pool_i)d & (__builtin_convertvector(__builtin_convertvector(at, gn_pool_h), gn_pool_i) == here));
		}
}

INLINE void pool_gradient_map(int lanes, int is_bf16, const struct gn_layer_pool *p, const uint8_t *where, const void *dy, void *dx)
{
	size_t to = 0;

	for (int y = 0, top = 0; y < p->h; y++) {
		while (top * p->step + p->kernel <= y + p->pad)
			top++;
		for (int x = 0, left = 0; x < p->w; x++, to += p->stride) {
			gn_pool_f sum = {0};

			while (left * p->step + p->kernel <= x + p->pad)
				left++;
			pool_gather(lanes, is_bf16, p, y, x, top, left, where, dy, &sum);
			pool_store(lanes, is_bf16, &sum, dx, to);
		}
	}
}

/* The same where windows cover each pixel once. */
INLINE void pool_spread_map(int lanes, int is_bf16, const struct gn_layer_pool *p, const uint8_t *where, const void *dy, void *dx)
{
	size_t from = 0;

	for (int oy = 0; oy < p->out_h; oy++)
		for (int ox = 0; ox < p->out_w; ox++, from += p->stride) {
			gn_pool_b at = {0};
			gn_pool_f d;
			int here = 0;

			memcpy(&at, where + from, (size_t)lanes);
			pool_load(lanes, is_bf16, dy, from, &d);
			for (int ky = 0; ky < p->kernel; ky++)
				for (int kx = 0; kx < p->kernel; kx++, here++) {
					const size_t to = ((size_t)(oy * p->kernel + ky) * p->w + ox * p->kernel + kx) * p->stride;
					gn_pool_f part = (gn_pool_f)((gn_pool_i)d & (__builtin_convertvector(__builtin_convertvector(at, gn_pool_h), gn_pool_i) == here));

					pool_store(lanes, is_bf16, &part, dx, to);
				}
		}
}

/* Calls FUNCTION by powers of two of lanes, so that loads are of known sizes: the channels from `at` on. */
#define POOL_PIECE(FUNCTION, LANES, ...)                                                                                           \
	if (p->lanes - at >= LANES) {                                                                                              \
		if (p->is_bf16)                                                                                                    \
			FUNCTION(LANES, 1, p, __VA_ARGS__);                                                                        \
		else                                                                                                               \
			FUNCTION(LANES, 0, p, __VA_ARGS__);                                                                        \
		at += LANES;                                                                                                       \
		continue;                                                                                                          \
	}
#define POOL_PIECES(FUNCTION, ...)                                                                                                 \
	for (int at = 0; at < p->lanes;) {                                                                                         \
		POOL_PIECE(FUNCTION, 16, __VA_ARGS__)                                                                              \
		POOL_PIECE(FUNCTION, 8, __VA_ARGS__)                                                                               \
		POOL_PIECE(FUNCTION, 4, __VA_ARGS__)                                                                               \
		POOL_PIECE(FUNCTION, 2, __VA_ARGS__)                                                                               \
		POOL_PIECE(FUNCTION, 1, __VA_ARGS__)                                                                               \
	}

static void max_pool(const struct gn_layer_pool *p, const void *x, void *y, uint8_t *where)
{
	const size_t bytes = p->is_bf16 ? sizeof(uint16_t) : sizeof(float);

	POOL_PIECES(pool_map, (const char *)x + (size_t)at * bytes, (char *)y + (size_t)at * bytes, where + at)
}

static void max_pool_gradient(const struct gn_layer_pool *p, const uint8_t *where, const void *dy, void *dx)
{
	const size_t bytes = p->is_bf16 ? sizeof(uint16_t) : sizeof(float);

	if (!p->pad && p->step == p->kernel && p->out_h * p->step == p->h && p->out_w * p->step == p->w) {
		POOL_PIECES(pool_spread_map, where + at, (const char *)dy + (size_t)at * bytes, (char *)dx + (size_t)at * bytes)
	} else {
		POOL_PIECES(pool_gradient_map, where + at, (const char *)dy + (size_t)at * bytes, (char *)dx + (size_t)at * bytes)
	}
}
