#include "transport/shm/shm_internal.h"

#include "src/base/vector.h"

#include <string.h>

/* The accumulator and one input fit the L1 cache. */
#define BLOCK_BYTES 8192
/* Large enough for memcpy to use string instructions, which overwrite cache lines that another processor holds without reading them
 * first: storing sums one by one took twice the time on processors that do not share a cache. */
#define COPIED_BYTES 16384

/* Inputs and outputs are the same or do not overlap: no result depends on the input of another, as GN_INDEPENDENT asserts. */
GN_VECTOR static void sum_two(const float *a, const float *b, float *x, float *y, size_t count)
{
	GN_INDEPENDENT
	for (size_t i = 0; i < count; i++) {
		float sum = a[i] + b[i];

		x[i] = sum;
		y[i] = sum;
	}
}

GN_VECTOR static void sum_four(char *const *in, char *const *out, size_t offset, size_t count)
{
	const float *a = (void *)(in[0] + offset), *b = (void *)(in[1] + offset), *c = (void *)(in[2] + offset),
		    *d = (void *)(in[3] + offset);
	float *w = (void *)(out[0] + offset), *x = (void *)(out[1] + offset), *y = (void *)(out[2] + offset),
	      *z = (void *)(out[3] + offset);

	GN_INDEPENDENT
	for (size_t i = 0; i < count; i++) {
		float sum = ((a[i] + b[i]) + c[i]) + d[i];

		w[i] = sum;
		x[i] = sum;
		y[i] = sum;
		z[i] = sum;
	}
}

GN_VECTOR static void add_two(float *restrict out, const float *restrict a, const float *restrict b, size_t count)
{
	for (size_t i = 0; i < count; i++)
		out[i] = a[i] + b[i];
}

/* Reduces n elements of all parts, from byte `at` on, into block. */
static void combine_block(char *block, char *const *parts, int ranks, size_t at, size_t n, size_t element_bytes, gn_reduce_fn reduce)
{
	if (ranks == 2 && reduce == gn_reduce_sum(GN_F32)) {
		add_two((float *)(void *)block, (const float *)(const void *)(parts[0] + at),
			(const float *)(const void *)(parts[1] + at), n);
		return;
	}
	memcpy(block, parts[0] + at, n * element_bytes);
	for (int i = 1; i < ranks; i++)
		reduce(block, parts[i] + at, n);
}

static void reduce_by_blocks(char *const *in, char *const *out, int ranks, size_t offset, size_t count, size_t element_bytes,
		      gn_reduce_fn reduce)
{
	_Alignas(64) char block[BLOCK_BYTES];
	size_t each = BLOCK_BYTES / element_bytes;

	for (size_t done = 0; done < count; done += each) {
		size_t n = count - done < each ? count - done : each, at = offset + done * element_bytes;

		combine_block(block, in, ranks, at, n, element_bytes, reduce);
		for (int i = 0; i < ranks; i++)
			memcpy(out[i] + at, block, n * element_bytes);
	}
}

void gn_multi_reduce(char *const *in, char *const *out, int ranks, size_t offset_bytes, size_t count, size_t element_bytes,
		      gn_reduce_fn reduce)
{
	if (ranks == 2 && reduce == gn_reduce_sum(GN_F32))
		sum_two((void *)(in[0] + offset_bytes), (void *)(in[1] + offset_bytes), (void *)(out[0] + offset_bytes),
			(void *)(out[1] + offset_bytes), count);
	else if (ranks == 4 && reduce == gn_reduce_sum(GN_F32))
		sum_four(in, out, offset_bytes, count);
	else if (ranks > 1)
		reduce_by_blocks(in, out, ranks, offset_bytes, count, element_bytes, reduce);
}

/* out[i] = parts[0][i] op parts[1][i] op ...; out is none of the parts. */
static void multi_combine(char *out, char *const *parts, int ranks, size_t count, size_t element_bytes, gn_reduce_fn reduce)
{
	size_t each = BLOCK_BYTES / element_bytes;

	for (size_t done = 0; done < count; done += each) {
		size_t n = count - done < each ? count - done : each, at = done * element_bytes;

		combine_block(out + at, parts, ranks, at, n, element_bytes, reduce);
	}
}

/* The same, written to a and b. a may be one of the parts, b may not; b is memory that other processors have read last and is
 * written by memcpy of whole blocks, see COPIED_BYTES. */
static void multi_combine_both(char *a, char *b, char *const *parts, int ranks, size_t count, size_t element_bytes, gn_reduce_fn reduce)
{
	_Alignas(64) char block[COPIED_BYTES];
	size_t each = COPIED_BYTES / element_bytes;

	for (size_t done = 0; done < count; done += each) {
		size_t n = count - done < each ? count - done : each, at = done * element_bytes;

		combine_block(block, parts, ranks, at, n, element_bytes, reduce);
		memcpy(b + at, block, n * element_bytes);
		memcpy(a + at, block, n * element_bytes);
	}
}

static struct gn_bounce *bounce_of(const struct gn_shm *n, int local)
{
	return &gn_shm_control_of(n, local)->bounce;
}

static char *buffer_of(const struct gn_shm *n, int local, uint64_t slice)
{
	return bounce_of(n, local)->bytes[slice % GN_BOUNCE_BUFFERS];
}

static atomic_uint_fast64_t *counter_of(struct gn_bounce *s, enum gn_bounce_step step)
{
	return step == GN_BOUNCE_FILLED ? &s->filled : step == GN_BOUNCE_REDUCED ? &s->reduced : &s->read;
}

/* Whether all ranks have done this step for the slices below `until`; else r->waiting_for is one that has not. */
static int all_did_step(const struct gn_shm *n, struct gn_bounce_op *r, enum gn_bounce_step step, uint64_t until)
{
	for (int i = 0; i < n->local_size; i++)
		if (atomic_load_explicit(counter_of(bounce_of(n, i), step), memory_order_acquire) < until) {
			r->waiting_for = i;
			return 0;
		}
	return 1;
}

static void set_step(struct gn_shm *n, enum gn_bounce_step step, uint64_t until)
{
	atomic_store_explicit(counter_of(bounce_of(n, n->local_rank), step), until, memory_order_release);
	gn_shm_notify(n, -1);
}

/* The slice's offset in the buffers, and its length. */
static size_t slice_at(const struct gn_bounce_op *r, uint64_t slice, size_t *len)
{
	size_t at = (size_t)(slice - r->first) * r->slice_bytes, rest = r->bytes - at;

	*len = rest < r->slice_bytes ? rest : r->slice_bytes;
	return at;
}

/* The share of a slice that a local rank reduces: whole cache lines, so that no line is written by two ranks. */
static size_t share_at(const struct gn_shm *n, int local, size_t slice_len, size_t *len)
{
	size_t lines = (slice_len + GN_ALIGN_BYTES - 1) / GN_ALIGN_BYTES, ranks = (size_t)n->local_size;
	size_t from = lines * (size_t)local / ranks * GN_ALIGN_BYTES, end = lines * ((size_t)local + 1) / ranks * GN_ALIGN_BYTES;

	if (end > slice_len)
		end = slice_len;
	*len = end - from;
	return from;
}

/* Copies the part of this rank's input that other ranks need: the whole slice, or all shares or blocks but its own. */
static void fill_slice(struct gn_shm *n, struct gn_bounce_op *r)
{
	size_t len, at = slice_at(r, r->filled, &len), mine = 0, from = 0;
	char *place = buffer_of(n, n->local_rank, r->filled);
	const char *in = r->in + at;

	if (r->way == GN_BOUNCE_SHARES)
		from = share_at(n, n->local_rank, len, &mine);
	if (r->way == GN_BOUNCE_SCATTER) {
		for (int i = 0; i < n->local_size; i++)
			if (i != n->local_rank)
				memcpy(place + (size_t)i * r->slice_bytes, in + (size_t)i * r->bytes, len);
	} else {
		memcpy(place, in, from);
		memcpy(place + from + mine, in + from + mine, len - from - mine);
	}
	set_step(n, GN_BOUNCE_FILLED, ++r->filled);
}

static void reduce_slice(struct gn_shm *n, struct gn_bounce_op *r)
{
	size_t len, at = slice_at(r, r->reduced, &len), mine = len, from = 0;
	char *parts[GN_BOUNCE_RANKS], *out = r->out + at, *shared;

	if (r->way == GN_BOUNCE_SHARES)
		from = share_at(n, n->local_rank, len, &mine);
	if (r->way == GN_BOUNCE_SCATTER)
		from = (size_t)n->local_rank * r->slice_bytes;
	for (int i = 0; i < n->local_size; i++)
		parts[i] = buffer_of(n, i, r->reduced) + from;
	if (r->way == GN_BOUNCE_SCATTER)
		parts[n->local_rank] = (char *)r->in + (size_t)n->local_rank * r->bytes + at;
	if (r->way != GN_BOUNCE_SHARES) {
		multi_combine(out, parts, n->local_size, mine / r->element_bytes, r->element_bytes, r->reduce);
		r->reduced++;
		return;
	}
	/* this rank's share of its own input was not copied to the bounce buffer; its result takes that place */
	shared = parts[n->local_rank];
	parts[n->local_rank] = (char *)r->in + at + from;
	multi_combine_both(out + from, shared, parts, n->local_size, mine / r->element_bytes, r->element_bytes, r->reduce);
	set_step(n, GN_BOUNCE_REDUCED, ++r->reduced);
}

/* Copies the other ranks' results or blocks, beginning with the next rank's, so that not all ranks read from the same one. */
static void read_slice(struct gn_shm *n, struct gn_bounce_op *r)
{
	size_t len, at = slice_at(r, r->read, &len);
	char *own = r->out + (size_t)n->local_rank * r->bytes + at;

	for (int k = 1; k < n->local_size && r->way == GN_BOUNCE_SHARES; k++) {
		int i = (n->local_rank + k) % n->local_size;
		size_t theirs, from = share_at(n, i, len, &theirs);

		memcpy(r->out + at + from, buffer_of(n, i, r->read) + from, theirs);
	}
	for (int k = 1; k < n->local_size && r->way == GN_BOUNCE_GATHER; k++) {
		int i = (n->local_rank + k) % n->local_size;

		memcpy(r->out + (size_t)i * r->bytes + at, buffer_of(n, i, r->read), len);
	}
	if (r->way == GN_BOUNCE_GATHER && own != r->in + at)
		memcpy(own, r->in + at, len);
	set_step(n, GN_BOUNCE_READ, ++r->read);
}

enum gn_status gn_bounce_commit(struct gn_shm *n, struct gn_err *err)
{
	enum gn_status status = GN_OK;

	if (!n->bounce_committed)
		status = gn_segment_commit(n->control, offsetof(struct gn_shm_control, bounce), sizeof(struct gn_bounce), err);
	n->bounce_committed |= !status;
	return status;
}

void gn_bounce_begin(struct gn_shm *n, struct gn_bounce_op *r)
{
	r->slice_bytes = GN_BOUNCE_BYTES;
	if (r->way == GN_BOUNCE_WHOLE && r->bytes >= GN_BOUNCE_SHARES_BYTES)
		r->way = GN_BOUNCE_SHARES;
	if (r->way == GN_BOUNCE_SCATTER)
		r->slice_bytes = GN_BOUNCE_BYTES / (size_t)n->local_size / GN_ALIGN_BYTES * GN_ALIGN_BYTES;
	r->first = r->filled = r->reduced = r->read = n->bounce_slices;
	r->end = n->bounce_slices += (r->bytes + r->slice_bytes - 1) / r->slice_bytes;
	r->waiting_for = -1;
}

static int may_fill(const struct gn_shm *n, struct gn_bounce_op *r)
{
	return r->filled < r->end && r->filled < r->read + GN_BOUNCE_AHEAD &&
	       (r->filled < GN_BOUNCE_BUFFERS || all_did_step(n, r, GN_BOUNCE_READ, r->filled - GN_BOUNCE_BUFFERS + 1));
}

static int may_reduce(const struct gn_shm *n, struct gn_bounce_op *r)
{
	return r->reduced < r->filled && all_did_step(n, r, GN_BOUNCE_FILLED, r->reduced + 1);
}

static int may_read(const struct gn_shm *n, struct gn_bounce_op *r)
{
	return r->read < r->reduced && (r->way != GN_BOUNCE_SHARES || all_did_step(n, r, GN_BOUNCE_REDUCED, r->read + 1));
}

int gn_bounce_advance(struct gn_shm *n, struct gn_bounce_op *r)
{
	int moved = 1;

	/* operations use the bounce buffers one after the other */
	if (atomic_load_explicit(&bounce_of(n, n->local_rank)->read, memory_order_relaxed) < r->first)
		return 0;
	while (moved && r->read < r->end) {
		moved = 0;
		/* first what other ranks wait for */
		if (may_fill(n, r)) {
			fill_slice(n, r);
			moved = 1;
		}
		if (may_reduce(n, r)) {
			if (r->way == GN_BOUNCE_GATHER)
				r->reduced++; /* nothing, but the others have filled it */
			else
				reduce_slice(n, r);
			moved = 1;
		}
		if (may_read(n, r)) {
			read_slice(n, r);
			moved = 1;
		}
	}
	return r->read == r->end;
}
