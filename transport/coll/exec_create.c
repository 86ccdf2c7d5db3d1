#include "transport/coll/exec_internal.h"

#include "src/base/alloc.h"
#include "transport/coll/coll_device_internal.h"

#include <stdlib.h>
#include <string.h>

/* block_first: of the input or the output. */
static size_t chunk_start(const struct gn_exec *e, const size_t *block_first, uint32_t chunk)
{
	uint32_t chunks = gn_schedule_chunks(e->schedule), slices;
	size_t first, within, len;

	if (!block_first) {
		gn_schedule_range(e->buffers.count, chunks, chunk, &first, &len);
		return first;
	}
	if (chunk == chunks)
		return block_first[e->buffers.blocks];
	slices = chunks / e->buffers.blocks;
	first = block_first[chunk / slices];
	gn_schedule_range(block_first[chunk / slices + 1] - first, slices, chunk % slices, &within, &len);
	return first + within;
}

static void set_step_range(const struct gn_exec *e, const struct gn_step *step, struct gn_step_state *s)
{
	const size_t *out = e->buffers.block_first, *in = e->buffers.in_first ? e->buffers.in_first : out;
	const size_t *sized = step->from_input ? in : out;
	uint32_t end = step->chunk + step->chunk_count;
	size_t first = chunk_start(e, sized, step->chunk), element = e->buffers.element_bytes;
	size_t last = end < gn_schedule_chunks(e->schedule) || sized ? chunk_start(e, sized, end) : e->buffers.count;

	s->len = (last - first) * element;
	s->offset = chunk_start(e, out, step->chunk) * element;
	s->in_offset = chunk_start(e, in, step->chunk) * element - e->buffers.in_shift_bytes;
}

static void invert_dependencies(struct gn_exec *e, const uint32_t *dependencies)
{
	uint32_t *at = e->first_dependent;

	for (size_t i = 0; i < e->step_count; i++)
		for (uint32_t d = 0; d < e->steps[i].dependency_count; d++)
			at[dependencies[e->steps[i].first_dependency + d] + 1]++;
	for (size_t i = 0; i < e->step_count; i++)
		at[i + 1] += at[i];
	/* filling advances each start to its end, which is the next one's start; shift back afterwards */
	for (size_t i = 0; i < e->step_count; i++)
		for (uint32_t d = 0; d < e->steps[i].dependency_count; d++)
			e->dependents[at[dependencies[e->steps[i].first_dependency + d]]++] = (uint32_t)i;
	memmove(at + 1, at, sizeof *at * e->step_count);
	at[0] = 0;
}

static size_t set_up_steps(struct gn_exec *e)
{
	size_t longest = 0;

	for (size_t i = 0; i < e->step_count; i++) {
		const struct gn_step *step = &e->steps[i];
		struct gn_step_state *s = &e->states[i];

		s->request.complete = gn_exec_message_done;
		s->exec = e;
		s->index = (uint32_t)i;
		s->shm_peer = (int16_t)(e->flags && step->op != GN_STEP_COPY ? gn_shm_flags_peer(e->flags, gn_exec_world_rank(e, step->peer)) : -1);
		set_step_range(e, step, s);
		e->by_memory |= s->shm_peer >= 0;
		e->by_message |= s->shm_peer < 0 && step->op != GN_STEP_COPY;
		if (step->op != GN_STEP_RECV_REDUCE)
			continue;
		e->reductions[e->reduction_count++] = (uint32_t)i;
		longest = s->len > longest ? s->len : longest;
	}
	return longest;
}

/* Sets e->scratch. free: blocks until queued work is complete. */
static enum gn_status alloc_scratch(struct gn_exec *e, size_t bytes, struct gn_err *err)
{
	enum gn_status status = gn_buffer_alloc(e->buffers.device->options.device, bytes, &e->device_scratch, err);

	e->scratch = e->device_scratch.address;
	return status;
}

static enum gn_status allocate(struct gn_exec *e, struct gn_err *err)
{
	size_t n = e->step_count + 1, dependency_count, longest;
	const uint32_t *dependencies = gn_schedule_dependencies(e->schedule, &dependency_count);

	e->states = calloc(n, sizeof *e->states);
	e->dependents = calloc(dependency_count + 1, sizeof *e->dependents);
	e->first_dependent = calloc(n + 1, sizeof *e->first_dependent);
	e->reductions = calloc(n, sizeof *e->reductions);
	e->queue = calloc(n, sizeof *e->queue);
	e->completed = calloc(n, sizeof *e->completed);
	e->polled = calloc(n, sizeof *e->polled);
	if (!e->states || !e->dependents || !e->first_dependent || !e->reductions || !e->queue || !e->completed || !e->polled)
		return gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for %zu steps", e->step_count);
	invert_dependencies(e, dependencies);
	longest = set_up_steps(e);
	e->by_memory |= e->buffers.device != NULL;
	e->works = e->buffers.device ? calloc(n, sizeof *e->works) : NULL;
	if (e->buffers.device && !e->works)
		return gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for %zu steps", e->step_count);
	if (!e->reduction_count)
		return GN_OK;
	e->slot_bytes = (longest + GN_ALIGN_BYTES - 1) / GN_ALIGN_BYTES * GN_ALIGN_BYTES;
	e->slot_count = gn_schedule_slots(e->slot_bytes);
	if (e->reduction_count < e->slot_count)
		e->slot_count = (uint32_t)e->reduction_count;
	if (e->buffers.device)
		return alloc_scratch(e, e->slot_bytes * e->slot_count, err);
	e->scratch = gn_alloc_aligned(e->slot_bytes * e->slot_count + GN_ALIGN_BYTES);
	return e->scratch ? GN_OK : gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for reductions");
}

static enum gn_status connect_peers(struct gn_exec *e, struct gn_err *err)
{
	enum gn_status status = GN_OK;

	for (size_t i = 0; i < e->step_count && !status; i++) {
		if (e->steps[i].op == GN_STEP_SEND && e->states[i].shm_peer < 0)
			status = gn_ucx_connect(e->ucx, gn_exec_world_rank(e, e->steps[i].peer), err);
		if (!status && e->steps[i].message >> GN_MESSAGE_BITS)
			status = gn_err_set(err, GN_ERR_UNSUPPORTED, "%s: too many messages between two ranks", e->name);
	}
	return status;
}

static void free_scratch(struct gn_exec *e)
{
	/* what was queued may still work on it, or on the caller's buffer */
	(void)gn_stream_wait(e->buffers.device->work, NULL);
	gn_buffer_free(&e->device_scratch);
}

void gn_exec_destroy(struct gn_exec *e)
{
	if (!e)
		return;
	gn_shm_flags_destroy(e->flags);
	gn_schedule_destroy(e->schedule);
	free(e->states);
	free(e->dependents);
	free(e->first_dependent);
	free(e->reductions);
	free(e->queue);
	free(e->completed);
	free(e->polled);
	free(e->works);
	if (e->buffers.device)
		free_scratch(e);
	else
		free(e->scratch);
	free(e);
}

enum gn_status gn_exec_create(const struct gn_exec_where *where, struct gn_schedule *schedule,
			      const struct gn_exec_buffers *buffers, struct gn_exec **out, struct gn_err *err)
{
	struct gn_exec *e = calloc(1, sizeof *e);
	enum gn_status status;

	if (!e) {
		gn_schedule_destroy(schedule);
		gn_shm_flags_destroy(where->flags);
		return gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for a collective");
	}
	e->world = where->world;
	e->ucx = where->ucx;
	e->flags = where->flags;
	e->name = where->name;
	e->signature = where->signature;
	e->group = where->group;
	e->ranks = where->ranks;
	if (e->flags)
		gn_shm_flags_sign(e->flags, where->signature);
	e->schedule = schedule;
	e->steps = gn_schedule_steps(schedule, &e->step_count);
	e->buffers = *buffers;
	status = allocate(e, err);
	if (!status)
		status = connect_peers(e, err);
	if (status)
		gn_exec_destroy(e);
	else
		*out = e;
	return status;
}

/* Steps in device memory: work is queued in the device's stream, and a step is complete when the mark behind its work is reached. */

static void fail_alone(struct gn_exec *e, enum gn_status status, const struct gn_err *why)
{
	e->failed_alone |= !e->status;
	gn_exec_fail(e, status, why);
}

int gn_exec_failed_alone(const struct gn_exec *e)
{
	return e->failed_alone;
}

/* Ignores from_left: the built-in reductions are commutative. */
static enum gn_status queue(struct gn_exec *e, uint32_t index, const void *from, struct gn_err *why)
{
	const struct gn_exec_buffers *b = &e->buffers;
	const struct gn_step_state *s = &e->states[index];
	char *to = (char *)b->out + s->offset;

	return e->steps[index].op == GN_STEP_COPY
		       ? gn_stream_copy(b->device->work, to, from, s->len, why)
		       : b->device->options.reduce(b->device->work, b->type, b->reduction, to, from, s->len / b->element_bytes, why);
}

void gn_exec_queue_work(struct gn_exec *e, uint32_t index, const void *from)
{
	struct gn_exec_work *work = &e->works[e->work_tail];
	struct gn_err why;
	enum gn_status status = queue(e, index, from, &why);

	if (!status)
		status = gn_coll_device_mark(e->buffers.device, &work->mark, &why);
	if (status) {
		fail_alone(e, status, &why);
		return;
	}
	work->index = index;
	e->work_tail++;
}

int gn_exec_take_work(struct gn_exec *e, uint32_t *index)
{
	struct gn_err why;
	enum gn_status status;
	int yes = 0;

	if (e->work_head == e->work_tail || e->status)
		return 0;
	status = gn_coll_device_reached(e->buffers.device, e->works[e->work_head].mark, &yes, &why);
	if (status)
		fail_alone(e, status, &why);
	if (status || !yes)
		return 0;
	*index = e->works[e->work_head++].index;
	return 1;
}
