#include "transport/schedule/schedule.h"

#include "src/base/alloc.h"

#include <stdint.h>
#include <stdlib.h>

/* --- history: the last writer of each chunk and its readers since, while a schedule is built; the dependencies of a step come from these ---
 *
 * Adjacent chunks with the same history are one run, so that a step over thousands of chunks costs as much as a step over one. The
 * cost of a step is O(runs touched) plus a scan of a bitmap.
 */
#define WORD 64u

/* A list of the steps that have read a run since it was last written. Runs that were split share the tails of their lists. */
struct reader {
	uint32_t step, next;
};

/* Step and list numbers are stored plus one: zero means none, and untouched pages of calloc() cost no memory. */
struct chunk_history {
	uint32_t chunks;
	uint64_t *starts; /* bit c: a run starts at chunk c */
	uint32_t *writer, *readers; /* valid where a run starts */
	struct reader *pool;
	size_t pool_count, pool_room;
};

static void chunk_history_destroy(struct chunk_history *t)
{
	if (!t)
		return;
	free(t->starts);
	free(t->writer);
	free(t->readers);
	free(t->pool);
	free(t);
}

/* NULL when memory is exhausted. */
static struct chunk_history *chunk_history_create(uint32_t chunks)
{
	struct chunk_history *t = calloc(1, sizeof *t);

	if (!t)
		return NULL;
	t->chunks = chunks;
	t->starts = calloc(chunks / WORD + 1, sizeof *t->starts);
	t->writer = calloc(chunks + (size_t)1, sizeof *t->writer);
	t->readers = calloc(chunks + (size_t)1, sizeof *t->readers);
	if (!t->starts || !t->writer || !t->readers) {
		chunk_history_destroy(t);
		return NULL;
	}
	t->starts[0] = 1;
	return t;
}

/* The first start of a run in [chunk, end), or end. */
static uint32_t next_start(const struct chunk_history *t, uint32_t chunk, uint32_t end)
{
	while (chunk < end) {
		uint64_t bits = t->starts[chunk / WORD] >> chunk % WORD;

		if (bits) {
			chunk += (uint32_t)__builtin_ctzll(bits);
			return chunk < end ? chunk : end;
		}
		chunk = (chunk / WORD + 1) * WORD;
	}
	return end;
}

/* Splits the run around chunk, so that a run starts there. */
static void start_run(struct chunk_history *t, uint32_t chunk)
{
	uint32_t word = chunk / WORD, source;
	uint64_t before;

	if (chunk >= t->chunks || t->starts[word] >> chunk % WORD & 1)
		return;
	before = t->starts[word] & (((uint64_t)1 << chunk % WORD) - 1);
	while (!before)
		before = t->starts[--word];
	source = word * WORD + WORD - 1 - (uint32_t)__builtin_clzll(before);
	t->writer[chunk] = t->writer[source];
	t->readers[chunk] = t->readers[source];
	t->starts[chunk / WORD] |= (uint64_t)1 << chunk % WORD;
}

static int add_reader(struct chunk_history *t, uint32_t run, uint32_t step)
{
	if (gn_array_grow(&t->pool, &t->pool_room, t->pool_count, sizeof *t->pool))
		return -1;
	t->pool[t->pool_count++] = (struct reader){step, t->readers[run]};
	t->readers[run] = (uint32_t)t->pool_count;
	return 0;
}

/* Calls visit() for each step that a step over [chunk, chunk + count) depends on, perhaps several times for one, then records the
 * step as reader or writer of these chunks. Returns 0, or -1 when memory is exhausted. */
static int chunk_history_add(struct chunk_history *t, uint32_t step, uint32_t chunk, uint32_t count, int writes,
			 void (*visit)(void *context, uint32_t on), void *context)
{
	uint32_t end = chunk + count;

	start_run(t, chunk);
	start_run(t, end);
	for (uint32_t run = chunk; run < end; run = next_start(t, run + 1, end)) {
		if (t->writer[run])
			visit(context, t->writer[run] - 1);
		if (!writes) {
			if (add_reader(t, run, step))
				return -1;
			continue;
		}
		for (uint32_t r = t->readers[run]; r; r = t->pool[r - 1].next)
			visit(context, t->pool[r - 1].step);
		if (run > chunk)
			t->starts[run / WORD] &= ~((uint64_t)1 << run % WORD);
	}
	if (writes) {
		t->writer[chunk] = step + 1;
		t->readers[chunk] = 0;
	}
	return 0;
}

/* How many of a step's last dependencies are searched for a duplicate; a duplicate that remains is harmless. */
#define LOOK_BACK 64u

struct gn_schedule {
	int rank, size;
	uint32_t chunks;
	struct gn_step *steps;
	uint32_t *dependencies;
	size_t step_count, step_room, dependency_count, dependency_room;
	struct chunk_history *history; /* while building */
	int failed;
};

enum gn_status gn_schedule_create(int rank, int size, uint32_t chunks, struct gn_schedule **out, struct gn_err *err)
{
	struct gn_schedule *s = calloc(1, sizeof *s);

	if (s)
		s->history = chunk_history_create(chunks);
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
	chunk_history_destroy(s->history);
	free(s);
}

/* Called by chunk_history_add() for the step that is being appended, which is stored at step_count already. */
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
	if (!step.from_input && chunk_history_add(s->history, (uint32_t)s->step_count, step.chunk, step.chunk_count,
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
	chunk_history_destroy(s->history);
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
