#include "transport/coll/coll_device_internal.h"
#include "transport/coll/comm_internal.h"

#include <stdlib.h>

#define CHUNK_BYTES (1u << 20)
#define SLOTS 4
#define SLOTS_MAX 64

/* The slots of a communicator. A slot belongs to one chunk at a time. */
struct gn_stager {
	struct gn_comm *comm;
	struct gn_device *device;
	struct gn_stream *down, *up; /* copies to the host, and back */
	struct gn_event *copied[SLOTS_MAX];
	int busy[SLOTS_MAX];
	size_t chunk_bytes;
	int slots, pinned, next_slot;
	char *memory; /* slots * chunk_bytes */
};

/* Chunks go through four stages, each in order: `downs` copies to the host have been queued, `sums` allreduces started, `ups` copies
 * back queued, `finished` copies back are complete. */
struct gn_staged {
	struct gn_stager *stager;
	size_t bytes, chunks, chunk_bytes; /* chunk_bytes: whole elements */
	int first_slot;
	struct gn_coll *whole[SLOTS_MAX]; /* by slot, of a whole chunk; NULL: none needed */
	struct gn_coll *last;		  /* of the last chunk, if it is shorter */
	size_t downs, sums, ups, finished;
};

/* --- slots --- */

static enum gn_status make_slots(struct gn_stager *s, struct gn_err *err)
{
	size_t bytes = (size_t)s->slots * s->chunk_bytes;
	void *memory = NULL;
	enum gn_status status = gn_comm_alloc(s->comm, bytes, &memory, err);

	if (status)
		return status;
	s->memory = memory;
	status = gn_device_pin(s->device, memory, bytes, err);
	s->pinned = !status;
	return status == GN_ERR_UNSUPPORTED ? GN_OK : status;
}

enum gn_status gn_stager_create(struct gn_comm *comm, const struct gn_comm_device *options, struct gn_stager **out, struct gn_err *err)
{
	size_t chunk = options->chunk_bytes ? options->chunk_bytes : CHUNK_BYTES;
	int slots = options->slots ? options->slots : SLOTS;
	struct gn_stager *s;
	enum gn_status status;

	if (slots < 1 || slots > SLOTS_MAX || chunk < sizeof(double) || chunk > (size_t)1 << 40)
		return gn_err_set(err, GN_ERR_USAGE, "cannot stage in %d slots of %zu bytes: 1 to %d slots of at least 8 bytes", slots, chunk,
				  SLOTS_MAX);
	s = calloc(1, sizeof *s);
	if (!s)
		return gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for staging");
	s->comm = comm;
	s->device = options->device;
	s->chunk_bytes = (chunk + 63) / 64 * 64;
	s->slots = slots;
	status = make_slots(s, err);
	if (!status)
		status = gn_stream_create(s->device, &s->down, err);
	if (!status)
		status = gn_stream_create(s->device, &s->up, err);
	for (int i = 0; i < slots && !status; i++)
		status = gn_event_create(s->device, &s->copied[i], err);
	if (status)
		gn_stager_destroy(s);
	else
		*out = s;
	return status;
}

void gn_stager_destroy(struct gn_stager *s)
{
	if (!s)
		return;
	gn_stream_destroy(s->down);
	gn_stream_destroy(s->up);
	for (int i = 0; i < s->slots; i++)
		gn_event_destroy(s->copied[i]);
	if (s->pinned)
		gn_device_unpin(s->device, s->memory);
	gn_comm_free(s->comm, s->memory);
	free(s);
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

static char *host_of(const struct gn_staged *op, size_t chunk)
{
	return op->stager->memory + (size_t)slot_of(op, chunk) * op->stager->chunk_bytes;
}

static struct gn_coll **coll_of(struct gn_staged *op, size_t chunk)
{
	return bytes_of(op, chunk) == op->chunk_bytes ? &op->whole[slot_of(op, chunk)] : &op->last;
}

/* One collective for each slot used, and one for the last chunk. */
static enum gn_status prepare_colls(struct gn_coll *c, struct gn_staged *op, struct gn_err *err)
{
	struct gn_coll_args args = {.what = GN_COLLECTIVE_ALLREDUCE, .type = c->args.type, .reduction = c->args.reduction,
				    .algorithm = c->args.algorithm};
	enum gn_status status = GN_OK;

	for (size_t i = 0; i < op->chunks && !status; i++) {
		struct gn_coll **at = coll_of(op, i);

		if (*at) {
			/* the other whole chunks have a collective, too; skip to the last chunk */
			i = i + 1 < op->chunks ? op->chunks - 2 : i;
			continue;
		}
		args.out = host_of(op, i);
		args.count = bytes_of(op, i) / gn_dtype_bytes(args.type);
		status = gn_coll_prepare_inside(c->comm, &args, at, err);
	}
	return status;
}

enum gn_status gn_staged_prepare(struct gn_coll *c, struct gn_err *err)
{
	struct gn_stager *s = c->comm->device->stager;
	size_t each = gn_dtype_bytes(c->args.type);
	struct gn_staged *op = calloc(1, sizeof *op);

	if (!op)
		return gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for an operation");
	op->stager = s;
	op->bytes = c->args.count * each;
	op->chunk_bytes = s->chunk_bytes / each * each;
	op->chunks = (op->bytes + op->chunk_bytes - 1) / op->chunk_bytes;
	op->first_slot = s->next_slot;
	s->next_slot = slot_of(op, op->chunks);
	c->staged = op;
	c->ops = &gn_coll_staged;
	c->numbers = (uint32_t)op->chunks;
	return prepare_colls(c, op, err);
}

static enum gn_status staged_start(struct gn_coll *c, struct gn_err *err)
{
	(void)err;
	c->staged->downs = c->staged->sums = c->staged->ups = c->staged->finished = 0;
	return GN_OK;
}

/* Queues a copy between the slot of a chunk and the device. */
static enum gn_status copy(struct gn_coll *c, size_t chunk, int up, struct gn_err *err)
{
	struct gn_staged *op = c->staged;
	struct gn_stager *s = op->stager;
	char *there = (char *)c->args.out + chunk * op->chunk_bytes, *here = host_of(op, chunk);
	enum gn_status status = gn_stream_copy(up ? s->up : s->down, up ? there : here, up ? here : there, bytes_of(op, chunk), err);

	return status ? status : gn_event_record(s->copied[slot_of(op, chunk)], up ? s->up : s->down, err);
}

static enum gn_status finish_ups(struct gn_coll *c, struct gn_err *err)
{
	struct gn_staged *op = c->staged;
	enum gn_status status = GN_OK;
	int done = 1;

	while (op->finished < op->ups && !status && done) {
		status = gn_event_done(op->stager->copied[slot_of(op, op->finished)], &done, err);
		if (!status && done)
			op->stager->busy[slot_of(op, op->finished++)] = 0;
	}
	return status;
}

static enum gn_status start_ups(struct gn_coll *c, struct gn_err *err)
{
	struct gn_staged *op = c->staged;
	enum gn_status status = GN_OK;

	while (op->ups < op->sums && !status) {
		struct gn_coll *sum = *coll_of(op, op->ups);
		int done;

		status = gn_coll_inner_done(sum, &done, err);
		if (status || !done)
			return status;
		status = copy(c, op->ups, 1, err);
		c->failed_alone |= status != GN_OK;
		op->ups += !status;
	}
	return status;
}

/* In order, the same on all ranks. With the last one the operation's turn ends. */
static enum gn_status start_sums(struct gn_coll *c, struct gn_err *err)
{
	struct gn_staged *op = c->staged;
	enum gn_status status = GN_OK;
	int done = 1;

	while (op->sums < op->downs && !status && done) {
		status = gn_event_done(op->stager->copied[slot_of(op, op->sums)], &done, err);
		c->failed_alone |= status != GN_OK;
		if (!status && done) {
			gn_coll_start_inner(*coll_of(op, op->sums), c->sequence + (uint32_t)op->sums);
			op->sums++;
		}
	}
	if (!status && op->sums == op->chunks)
		gn_coll_end_turn(c);
	return status;
}

static enum gn_status start_downs(struct gn_coll *c, struct gn_err *err)
{
	struct gn_staged *op = c->staged;
	enum gn_status status = GN_OK;

	while (op->downs < op->chunks && !op->stager->busy[slot_of(op, op->downs)] && !status) {
		status = copy(c, op->downs, 0, err);
		c->failed_alone |= status != GN_OK;
		op->stager->busy[slot_of(op, op->downs)] = 1;
		op->downs += !status;
	}
	return status;
}

static enum gn_status staged_advance(struct gn_coll *c, int *moved, int *done, struct gn_err *err)
{
	struct gn_staged *op = c->staged;
	size_t before = op->downs + op->sums + op->ups + op->finished;
	enum gn_status status = finish_ups(c, err);

	if (status)
		c->failed_alone = 1;
	if (!status)
		status = start_ups(c, err);
	if (!status)
		status = start_sums(c, err);
	if (!status)
		status = start_downs(c, err);
	*moved = op->downs + op->sums + op->ups + op->finished != before;
	*done = op->finished == op->chunks;
	return status;
}

/* What the oldest allreduce in flight waits for. */
static void staged_waits_for(const struct gn_coll *c, struct gn_exec_wait *out)
{
	if (c->staged->ups < c->staged->sums) {
		struct gn_coll *sum = *coll_of(c->staged, c->staged->ups);

		sum->ops->waits_for(sum, out);
	}
}

static void staged_free(struct gn_coll *c)
{
	struct gn_staged *op = c->staged;

	if (c->in_flight) {
		(void)gn_stream_wait(op->stager->down, NULL);
		(void)gn_stream_wait(op->stager->up, NULL);
	}
	for (int i = 0; i < op->stager->slots; i++)
		if (op->whole[i])
			gn_coll_free_inside(op->whole[i]);
	if (op->last)
		gn_coll_free_inside(op->last);
	free(op);
}

const struct gn_coll_ops gn_coll_staged = {.name = "ucx", .long_turn = 1, .start = staged_start, .advance = staged_advance,
					   .waits_for = staged_waits_for, .free = staged_free};
