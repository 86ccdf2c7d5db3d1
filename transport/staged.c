#include "transport/staged.h"

#include "src/base/clock.h"

#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define CHUNK_BYTES (1u << 20)
#define SLOTS 4
/* Looks before sleeping, and for how long then: a copy of a chunk takes tens of microseconds. */
#define LOOKS 64
#define PAUSE_NS 20000
#define CHECK_NS 2000000u
/* A device that has not ended a copy by then never will. */
#define DRAIN_NS 10000000000u

enum phase { DOWN, READY, SUM, UP, OVER };

/* A chunk under way. */
struct piece {
	struct gn_staged *op;
	size_t chunk;
	enum phase phase;
};

struct gn_stager {
	struct gn_comm *comm;
	struct gn_copier *copier;
	size_t chunk_bytes;
	int slots, pinned;
	char *memory;	 /* slots * chunk_bytes */
	int *busy;	 /* by slot */
	int *copying;	 /* by slot */
	struct piece *pieces; /* a ring of slots, the oldest at first */
	int first, count;
	struct gn_staged *queue; /* operations whose chunks have not all begun, in order of start */
	int next_slot;
	enum gn_status status;
	struct gn_err why;
};

struct gn_staged {
	struct gn_stager *stager;
	struct gn_staged *next;
	char *device;
	size_t bytes, chunks;
	size_t chunk_bytes;	/* whole elements */
	int first_slot;
	struct gn_coll **whole; /* by slot, of a whole chunk; NULL where none is needed */
	struct gn_coll *rest;	/* of the last chunk, when it is shorter */
	void *after;
	size_t begun, over;
	int in_flight;
};

/* --- the stager --- */

static char *slot_memory(const struct gn_stager *s, int slot)
{
	return s->memory + (size_t)slot * s->chunk_bytes;
}

static enum gn_status make_slots(struct gn_stager *s, struct gn_err *err)
{
	size_t bytes = (size_t)s->slots * s->chunk_bytes;
	void *memory = NULL;
	enum gn_status status = gn_comm_alloc(s->comm, bytes, &memory, err);

	if (status)
		return status;
	s->memory = memory;
	status = s->copier->ops->pin(s->copier, memory, bytes, err);
	s->pinned = !status;
	return status == GN_ERR_UNSUPPORTED ? GN_OK : status;
}

enum gn_status gn_stager_create(struct gn_comm *comm, struct gn_copier *copier, const struct gn_stager_options *options,
				struct gn_stager **out, struct gn_err *err)
{
	size_t chunk = options && options->chunk_bytes ? options->chunk_bytes : CHUNK_BYTES;
	int slots = options && options->slots ? options->slots : SLOTS;
	struct gn_stager *s;
	enum gn_status status;

	if (slots < 1 || slots > GN_COPIER_SLOTS_MAX || chunk < sizeof(double) || chunk > (size_t)1 << 40)
		return gn_err_set(err, GN_ERR_USAGE, "staging in %d slots of %zu bytes: 1 to %d of 8 bytes and more", slots, chunk,
				  GN_COPIER_SLOTS_MAX);
	s = calloc(1, sizeof *s);
	if (s) {
		s->comm = comm;
		s->copier = copier;
		s->chunk_bytes = (chunk + 63) / 64 * 64;
		s->slots = slots;
		s->busy = calloc((size_t)slots, sizeof *s->busy);
		s->copying = calloc((size_t)slots, sizeof *s->copying);
		s->pieces = calloc((size_t)slots, sizeof *s->pieces);
	}
	if (!s || !s->busy || !s->copying || !s->pieces)
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

/* Nothing may be freed that a device still writes to. */
static void drain(struct gn_stager *s)
{
	uint64_t until = gn_clock_ns() + DRAIN_NS;
	struct timespec pause = {0, PAUSE_NS};

	for (int slot = 0; slot < s->slots; slot++) {
		int done = !s->copying[slot];

		while (!done && !s->copier->ops->poll(s->copier, slot, &done, NULL) && !done && gn_clock_ns() < until)
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
		s->copier->ops->unpin(s->copier, s->memory);
	gn_comm_free(s->comm, s->memory);
	free(s->busy);
	free(s->copying);
	free(s->pieces);
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

static int slot_of(const struct gn_staged *op, size_t chunk)
{
	return (int)(((size_t)op->first_slot + chunk) % (size_t)op->stager->slots);
}

static size_t bytes_of(const struct gn_staged *op, size_t chunk)
{
	return chunk + 1 < op->chunks ? op->chunk_bytes : op->bytes - chunk * op->chunk_bytes;
}

static struct gn_coll *coll_of(const struct gn_staged *op, size_t chunk)
{
	return bytes_of(op, chunk) == op->chunk_bytes ? op->whole[slot_of(op, chunk)] : op->rest;
}

/* One for each slot is enough: whoever comes to it again finds it free. */
static enum gn_status prepare_colls(struct gn_staged *op, struct gn_coll_args *args, struct gn_err *err)
{
	struct gn_stager *s = op->stager;
	enum gn_status status = GN_OK;

	for (size_t i = 0; i < op->chunks && !status; i++) {
		int slot = slot_of(op, i), is_whole = bytes_of(op, i) == op->chunk_bytes;
		struct gn_coll **at = is_whole ? &op->whole[slot] : &op->rest;

		if (*at) {
			/* the rest of the whole ones are the same; the last may differ */
			i = i + 1 < op->chunks ? op->chunks - 2 : i;
			continue;
		}
		args->out = slot_memory(s, slot);
		args->count = bytes_of(op, i) / gn_dtype_bytes(args->type);
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
		return gn_err_set(err, GN_ERR_USAGE, "no %s of %zu elements of type %s", gn_reduction_name(reduction), count,
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
	s->next_slot = slot_of(op, op->chunks);
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
		return gn_err_set(err, GN_ERR_USAGE, "an allreduce was started again before it was complete");
	if (op->stager->status)
		return gn_err_set(err, GN_ERR_FAILED, "allreduce: staging has failed before");
	op->begun = op->over = 0;
	op->after = after;
	op->in_flight = op->chunks > 0;
	op->next = NULL;
	while (*at)
		at = &(*at)->next;
	if (op->chunks)
		*at = op;
	return GN_OK;
}

/* --- progress --- */

static enum gn_status begin_down(struct gn_stager *s, struct gn_err *err)
{
	struct gn_staged *op = s->queue;
	struct piece *p = &s->pieces[(s->first + s->count) % s->slots];
	int slot = slot_of(op, op->begun);
	enum gn_status status = s->copier->ops->down(s->copier, slot, slot_memory(s, slot), op->device + op->begun * op->chunk_bytes,
						     bytes_of(op, op->begun), op->begun ? NULL : op->after, err);

	if (status)
		return status;
	*p = (struct piece){op, op->begun++, DOWN};
	s->count++;
	s->busy[slot] = s->copying[slot] = 1;
	if (op->begun == op->chunks)
		s->queue = op->next;
	return GN_OK;
}

static enum gn_status poll_copy(struct gn_stager *s, struct piece *p, enum phase then, struct gn_err *err)
{
	int slot = slot_of(p->op, p->chunk), done = 0;
	enum gn_status status = s->copier->ops->poll(s->copier, slot, &done, err);

	if (status || !done)
		return status;
	s->copying[slot] = 0;
	p->phase = then;
	if (then == OVER) {
		s->busy[slot] = 0;
		p->op->in_flight = ++p->op->over < p->op->chunks;
	}
	return GN_OK;
}

static enum gn_status test_sum(struct gn_stager *s, struct piece *p, struct gn_err *err)
{
	struct gn_staged *op = p->op;
	int slot = slot_of(op, p->chunk), done = 0;
	enum gn_status status = gn_coll_test(coll_of(op, p->chunk), &done, err);

	if (status || !done)
		return status;
	status = s->copier->ops->up(s->copier, slot, op->device + p->chunk * op->chunk_bytes, slot_memory(s, slot),
				    bytes_of(op, p->chunk), err);
	if (status)
		return status;
	s->copying[slot] = 1;
	p->phase = UP;
	return GN_OK;
}

/* Sums start in the order of the ring, which is that of all ranks: may_start says that those before have. */
static enum gn_status advance_piece(struct gn_stager *s, struct piece *p, int may_start, struct gn_err *err)
{
	enum gn_status status = GN_OK;

	if (p->phase == DOWN)
		status = poll_copy(s, p, READY, err);
	if (!status && p->phase == READY && may_start) {
		status = gn_coll_start(coll_of(p->op, p->chunk), err);
		p->phase = status ? READY : SUM;
	}
	if (!status && p->phase == SUM)
		status = test_sum(s, p, err);
	if (!status && p->phase == UP)
		status = poll_copy(s, p, OVER, err);
	return status;
}

/* Takes everything as far as it goes now. *moved: something happened. */
static enum gn_status advance(struct gn_stager *s, int *moved, struct gn_err *err)
{
	int may_start = 1;

	*moved = 0;
	for (int i = 0; i < s->count; i++) {
		struct piece *p = &s->pieces[(s->first + i) % s->slots];
		enum phase before = p->phase;
		enum gn_status status = advance_piece(s, p, may_start, err);

		if (status)
			return status;
		may_start &= p->phase >= SUM;
		*moved |= p->phase != before;
	}
	while (s->count && s->pieces[s->first].phase == OVER) {
		s->first = (s->first + 1) % s->slots;
		s->count--;
	}
	while (s->queue && s->count < s->slots && !s->busy[slot_of(s->queue, s->queue->begun)]) {
		enum gn_status status = begin_down(s, err);

		if (status)
			return status;
		*moved = 1;
	}
	return GN_OK;
}

/* The first failure stays. */
static enum gn_status advance_or_fail(struct gn_stager *s, int *moved, struct gn_err *err)
{
	if (!s->status)
		s->status = advance(s, moved, &s->why);
	if (s->status && err)
		*err = s->why;
	return s->status;
}

enum gn_status gn_staged_test(struct gn_staged *op, int *done, struct gn_err *err)
{
	enum gn_status status = GN_OK;
	int moved;

	if (op->in_flight)
		status = advance_or_fail(op->stager, &moved, err);
	if (!status)
		*done = !op->in_flight;
	return status;
}

/* The sum that everything else waits for; NULL while a copy is under way, which has to be seen to end. */
static struct gn_coll *only_sum(const struct gn_stager *s)
{
	for (int i = 0; i < s->slots; i++)
		if (s->copying[i])
			return NULL;
	for (int i = 0; i < s->count; i++) {
		const struct piece *p = &s->pieces[(s->first + i) % s->slots];

		if (p->phase == SUM)
			return coll_of(p->op, p->chunk);
	}
	return NULL;
}

/* Nothing moves just now. */
static enum gn_status rest(struct gn_stager *s, unsigned idle, uint64_t *checked, struct gn_err *err)
{
	struct gn_coll *sum = only_sum(s);
	struct timespec pause = {0, PAUSE_NS};
	uint64_t now;

	if (sum)
		return gn_coll_wait(sum, err);
	if (idle % LOOKS)
		return GN_OK;
	if (idle > 4 * LOOKS)
		nanosleep(&pause, NULL);
	else
		sched_yield();
	now = gn_clock_ns();
	if (now - *checked < CHECK_NS)
		return GN_OK;
	*checked = now;
	return gn_world_check(gn_comm_world(s->comm), err);
}

enum gn_status gn_staged_wait(struct gn_staged *op, struct gn_err *err)
{
	struct gn_stager *s = op->stager;
	uint64_t checked = 0;
	unsigned idle = 0;
	int moved = 0;

	while (op->in_flight) {
		enum gn_status status = advance_or_fail(s, &moved, err);

		if (status)
			return status;
		idle = moved ? 0 : idle + 1;
		if (moved || !op->in_flight)
			continue;
		s->status = rest(s, idle, &checked, &s->why);
	}
	return GN_OK;
}

/* Its chunks must not be touched again. */
static void forget(struct gn_stager *s, struct gn_staged *op)
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
		forget(op->stager, op);
	for (int i = 0; i < op->stager->slots; i++)
		gn_coll_free(op->whole[i]);
	gn_coll_free(op->rest);
	free(op->whole);
	free(op);
}
