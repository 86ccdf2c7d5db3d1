#include "transport/schedule/schedule.h"

#include "src/base/alloc.h"
#include "transport/schedule/chunk_history.h"

#include <stdlib.h>

/* How many of a step's last dependencies are searched for a duplicate; a duplicate that remains is harmless. */
#define LOOK_BACK 64u

struct gn_schedule {
	int rank, size;
	uint32_t chunks;
	struct gn_step *steps;
	uint32_t *dependencies;
	size_t step_count, step_room, dependency_count, dependency_room;
	struct gn_chunk_history *history; /* while building */
	int failed;
};

enum gn_status gn_schedule_create(int rank, int size, uint32_t chunks, struct gn_schedule **out, struct gn_err *err)
{
	struct gn_schedule *s = calloc(1, sizeof *s);

	if (s)
		s->history = gn_chunk_history_create(chunks);
	if (!s || !s->history) {
		gn_schedule_destroy(s);
		return gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for a schedule of %u chunks", chunks);
	}
	s->rank = rank;
	s->size = size;
	s->chunks = chunks;
	*out = s;
	return GN_OK;
}

void gn_schedule_destroy(struct gn_schedule *s)
{
	if (!s)
		return;
	free(s->steps);
	free(s->dependencies);
	gn_chunk_history_destroy(s->history);
	free(s);
}

/* Called by gn_chunk_history_add() for the step that is being appended, which is stored at step_count already. */
static void add_dependency(void *context, uint32_t on)
{
	struct gn_schedule *s = context;
	struct gn_step *step = &s->steps[s->step_count];
	uint32_t recent = step->dependency_count < LOOK_BACK ? step->dependency_count : LOOK_BACK;

	for (uint32_t i = 1; i <= recent; i++)
		if (s->dependencies[s->dependency_count - i] == on)
			return;
	if (gn_array_grow(&s->dependencies, &s->dependency_room, s->dependency_count, sizeof *s->dependencies)) {
		s->failed = 1;
		return;
	}
	s->dependencies[s->dependency_count++] = on;
	step->dependency_count++;
}

void gn_schedule_add(struct gn_schedule *s, struct gn_step step)
{
	if (s->failed || !s->history || !step.chunk_count || step.chunk >= s->chunks ||
	    step.chunk_count > s->chunks - step.chunk || gn_array_grow(&s->steps, &s->step_room, s->step_count, sizeof *s->steps)) {
		s->failed = 1;
		return;
	}
	step.first_dependency = (uint32_t)s->dependency_count;
	step.dependency_count = 0;
	s->steps[s->step_count] = step;
	/* the input is never written, so reading it needs no dependency */
	if (!step.from_input && gn_chunk_history_add(s->history, (uint32_t)s->step_count, step.chunk, step.chunk_count,
						     step.op != GN_STEP_SEND, add_dependency, s))
		s->failed = 1;
	s->step_count++;
}

void gn_schedule_copy(struct gn_schedule *s, uint32_t chunk)
{
	gn_schedule_add(s, (struct gn_step){.op = GN_STEP_COPY, .peer = s->rank, .chunk = chunk, .chunk_count = 1});
}

void gn_schedule_send(struct gn_schedule *s, int peer, uint32_t chunk, uint32_t message)
{
	gn_schedule_add(s, (struct gn_step){.op = GN_STEP_SEND, .peer = peer, .chunk = chunk, .chunk_count = 1,
					    .message = message});
}

void gn_schedule_recv(struct gn_schedule *s, int peer, uint32_t chunk, uint32_t message)
{
	gn_schedule_add(s, (struct gn_step){.op = GN_STEP_RECV, .peer = peer, .chunk = chunk, .chunk_count = 1,
					    .message = message});
}

void gn_schedule_recv_reduce(struct gn_schedule *s, int peer, uint32_t chunk, uint32_t message, int from_left)
{
	gn_schedule_add(s, (struct gn_step){.op = GN_STEP_RECV_REDUCE, .from_left = from_left != 0, .peer = peer,
					    .chunk = chunk, .chunk_count = 1, .message = message});
}

enum gn_status gn_schedule_finish(struct gn_schedule *s, struct gn_err *err)
{
	gn_chunk_history_destroy(s->history);
	s->history = NULL;
	return s->failed ? gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for a schedule of %d ranks and %u chunks", s->size,
				      s->chunks)
			 : GN_OK;
}

uint32_t gn_schedule_chunks(const struct gn_schedule *s)
{
	return s->chunks;
}

const struct gn_step *gn_schedule_steps(const struct gn_schedule *s, size_t *count)
{
	*count = s->step_count;
	return s->steps;
}

const uint32_t *gn_schedule_dependencies(const struct gn_schedule *s, size_t *count)
{
	*count = s->dependency_count;
	return s->dependencies;
}

void gn_schedule_range(size_t count, uint32_t chunks, uint32_t chunk, size_t *first, size_t *len)
{
	size_t each = count / chunks, longer = count % chunks;

	*first = chunk * each + (chunk < longer ? chunk : longer);
	*len = each + (chunk < longer);
}

uint32_t gn_schedule_slots(size_t longest_bytes)
{
	size_t slots = longest_bytes ? ((size_t)8 << 20) / longest_bytes : GN_SLOTS_MAX;

	return slots < 2 ? 2 : slots > GN_SLOTS_MAX ? GN_SLOTS_MAX : (uint32_t)slots;
}
