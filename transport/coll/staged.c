#include "transport/coll/staged.h"

#include "src/base/clock.h"
#include "transport/coll/staged_internal.h"

#include <stdlib.h>
#include <time.h>

#define CHUNK_BYTES (1u << 20)
#define SLOTS 4
#define PAUSE_NS 20000
/* The longest wait for a copy in flight: by then the device hangs. */
#define DRAIN_NS 10000000000u

/* --- the stager --- */

static enum gn_status make_slots(struct gn_stager *s, struct gn_err *err)
{
	size_t bytes = (size_t)s->slots * s->chunk_bytes;
	void *memory = NULL;
	enum gn_status status = gn_comm_alloc(s->comm, bytes, &memory, err);

	if (status)
		return status;
	s->memory = memory;
	status = s->engine->ops->pin(s->engine, memory, bytes, err);
	s->pinned = !status;
	return status == GN_ERR_UNSUPPORTED ? GN_OK : status;
}

enum gn_status gn_stager_create(struct gn_comm *comm, struct gn_copy_engine *engine, const struct gn_stager_options *options,
				struct gn_stager **out, struct gn_err *err)
{
	size_t chunk = options && options->chunk_bytes ? options->chunk_bytes : CHUNK_BYTES;
	int slots = options && options->slots ? options->slots : SLOTS;
	struct gn_stager *s;
	enum gn_status status;

	if (slots < 1 || slots > GN_COPY_ENGINE_SLOTS_MAX || chunk < sizeof(double) || chunk > (size_t)1 << 40)
		return gn_err_set(err, GN_ERR_USAGE, "cannot stage in %d slots of %zu bytes: 1 to %d slots of at least 8 bytes", slots, chunk,
				  GN_COPY_ENGINE_SLOTS_MAX);
	s = calloc(1, sizeof *s);
	if (s) {
		s->comm = comm;
		s->engine = engine;
		s->chunk_bytes = (chunk + 63) / 64 * 64;
		s->slots = slots;
		s->busy = calloc((size_t)slots, sizeof *s->busy);
		s->copying = calloc((size_t)slots, sizeof *s->copying);
		s->ring = calloc((size_t)slots, sizeof *s->ring);
	}
	if (!s || !s->busy || !s->copying || !s->ring)
		status = gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for staging");
	else
		status = make_slots(s, err);
	if (status) {
		gn_stager_destroy(s);
		return status;
	}
	*out = s;
	return GN_OK;
}

/* Blocks until no copy is in flight, because the device still accesses the slots. */
static void drain(struct gn_stager *s)
{
	uint64_t until = gn_clock_ns() + DRAIN_NS;
	struct timespec pause = {0, PAUSE_NS};

	for (int slot = 0; slot < s->slots; slot++) {
		int done = !s->copying[slot];

		while (!done && !s->engine->ops->poll(s->engine, slot, &done, NULL) && !done && gn_clock_ns() < until)
			nanosleep(&pause, NULL);
	}
}

void gn_stager_destroy(struct gn_stager *s)
{
	if (!s)
		return;
	if (s->copying)
		drain(s);
	if (s->pinned)
		s->engine->ops->unpin(s->engine, s->memory);
	gn_comm_free(s->comm, s->memory);
	free(s->busy);
	free(s->copying);
	free(s->ring);
	free(s);
}

int gn_stager_pinned(const struct gn_stager *s)
{
	return s->pinned;
}

void gn_stager_describe(const struct gn_stager *s, struct gn_strbuf *out)
{
	gn_strbuf_printf(out, "staged in %d %s slots of %zu KiB", s->slots, s->pinned ? "pinned" : "pageable (slow)",
			 s->chunk_bytes >> 10);
}

/* --- operations --- */

/* One collective for each slot used: a chunk takes a slot only when the previous chunk has left it. */
static enum gn_status prepare_colls(struct gn_staged *op, struct gn_coll_args *args, struct gn_err *err)
{
	struct gn_stager *s = op->stager;
	enum gn_status status = GN_OK;

	for (size_t i = 0; i < op->chunks && !status; i++) {
		int slot = gn_staged_slot_of(op, i), is_whole = gn_staged_bytes_of(op, i) == op->chunk_bytes;
		struct gn_coll **at = is_whole ? &op->whole[slot] : &op->last;

		if (*at) {
			/* the other whole chunks have a collective, too; skip to the last chunk */
			i = i + 1 < op->chunks ? op->chunks - 2 : i;
			continue;
		}
		args->out = gn_stager_slot(s, slot);
		args->count = gn_staged_bytes_of(op, i) / gn_dtype_bytes(args->type);
		status = gn_coll_prepare(s->comm, args, at, err);
	}
	return status;
}

enum gn_status gn_staged_prepare(struct gn_stager *s, void *device, size_t count, enum gn_dtype type,
				 enum gn_reduction reduction, const char *algorithm, struct gn_staged **out,
				 struct gn_err *err)
{
	struct gn_coll_args args = {.what = GN_COLLECTIVE_ALLREDUCE, .type = type, .reduction = reduction, .algorithm = algorithm};
	size_t each = gn_dtype_bytes(type);
	struct gn_staged *op;
	enum gn_status status;

	if (!gn_reduce_of(type, reduction) || count > SIZE_MAX / each)
		return gn_err_set(err, GN_ERR_USAGE, "cannot reduce by %s %zu elements of type %s", gn_reduction_name(reduction), count,
				  gn_dtype_name(type));
	op = calloc(1, sizeof *op);
	if (op)
		op->whole = calloc((size_t)s->slots, sizeof *op->whole);
	if (!op || !op->whole) {
		free(op);
		return gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for an operation");
	}
	op->stager = s;
	op->device = device;
	op->bytes = count * each;
	op->chunk_bytes = s->chunk_bytes / each * each;
	op->chunks = (op->bytes + op->chunk_bytes - 1) / op->chunk_bytes;
	op->first_slot = s->next_slot;
	s->next_slot = gn_staged_slot_of(op, op->chunks);
	status = prepare_colls(op, &args, err);
	if (status) {
		gn_staged_free(op);
		return status;
	}
	*out = op;
	return GN_OK;
}

enum gn_status gn_staged_start(struct gn_staged *op, void *after, struct gn_err *err)
{
	struct gn_staged **at = &op->stager->queue;

	if (op->in_flight)
		return gn_err_set(err, GN_ERR_USAGE, "an allreduce was started before its previous run was complete");
	if (op->stager->status)
		return gn_err_set(err, GN_ERR_FAILED, "allreduce: staging has failed");
	op->started = op->finished = 0;
	op->after = after;
	op->in_flight = op->chunks > 0;
	op->next = NULL;
	while (*at)
		at = &(*at)->next;
	if (op->chunks)
		*at = op;
	return GN_OK;
}

/* Fails the stager, so that the operation's chunks are not accessed again. */
static void abandon(struct gn_stager *s, struct gn_staged *op)
{
	if (!s->status)
		s->status = gn_err_set(&s->why, GN_ERR_FAILED, "an allreduce was freed before it was complete");
	s->queue = NULL;
	s->count = 0;
	drain(s);
	op->in_flight = 0;
}

void gn_staged_free(struct gn_staged *op)
{
	if (!op)
		return;
	if (op->in_flight)
		abandon(op->stager, op);
	for (int i = 0; i < op->stager->slots; i++)
		gn_coll_free(op->whole[i]);
	gn_coll_free(op->last);
	free(op->whole);
	free(op);
}
