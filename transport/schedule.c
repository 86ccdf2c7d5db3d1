#include "transport/schedule.h"

#include <stdlib.h>
#include <string.h>

#define NONE UINT32_MAX

/* Steps that touched a chunk since it was last written: a linked list in a growing pool. */
struct reader {
	uint32_t step, next;
};

struct gn_schedule {
	int rank, size;
	uint32_t chunks;
	struct gn_step *steps;
	uint32_t *dependencies;
	struct reader *readers;
	size_t step_count, step_room, dependency_count, dependency_room, reader_count, reader_room;
	uint32_t *writer;      /* per chunk: the last step that wrote it */
	uint32_t *last_reader; /* per chunk: head in readers */
	int failed;
};

enum gn_status gn_schedule_create(int rank, int size, uint32_t chunks, struct gn_schedule **out, struct gn_err *err)
{
	struct gn_schedule *s = calloc(1, sizeof *s);

	if (s) {
		s->writer = malloc(sizeof *s->writer * (chunks + (size_t)1));
		s->last_reader = malloc(sizeof *s->last_reader * (chunks + (size_t)1));
	}
	if (!s || !s->writer || !s->last_reader) {
		gn_schedule_destroy(s);
		return gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for a schedule of %u chunks", chunks);
	}
	memset(s->writer, 0xff, sizeof *s->writer * chunks);
	memset(s->last_reader, 0xff, sizeof *s->last_reader * chunks);
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
	free(s->readers);
	free(s->writer);
	free(s->last_reader);
	free(s);
}

/* Room for one more item; the array may move. Returns 0, or -1. */
static int grow(void **items, size_t item_size, size_t count, size_t *room)
{
	size_t wanted = *room ? *room * 2 : 64;
	void *moved;

	if (count < *room)
		return 0;
	moved = realloc(*items, wanted * item_size);
	if (!moved)
		return -1;
	*items = moved;
	*room = wanted;
	return 0;
}

static void depend(struct gn_schedule *s, struct gn_step *step, uint32_t on)
{
	void *items = s->dependencies;

	for (uint32_t i = 0; i < step->dependency_count; i++)
		if (s->dependencies[step->first_dependency + i] == on)
			return;
	if (grow(&items, sizeof *s->dependencies, s->dependency_count, &s->dependency_room)) {
		s->failed = 1;
		return;
	}
	s->dependencies = items;
	s->dependencies[s->dependency_count++] = on;
	step->dependency_count++;
}

static void note_reader(struct gn_schedule *s, uint32_t chunk, uint32_t step)
{
	void *items = s->readers;

	if (grow(&items, sizeof *s->readers, s->reader_count, &s->reader_room)) {
		s->failed = 1;
		return;
	}
	s->readers = items;
	s->readers[s->reader_count] = (struct reader){step, s->last_reader[chunk]};
	s->last_reader[chunk] = (uint32_t)s->reader_count++;
}

static void append(struct gn_schedule *s, struct gn_step step)
{
	uint32_t index = (uint32_t)s->step_count;
	void *items = s->steps;

	if (s->failed || step.chunk >= s->chunks || grow(&items, sizeof *s->steps, s->step_count, &s->step_room)) {
		s->failed = 1;
		return;
	}
	s->steps = items;
	step.first_dependency = (uint32_t)s->dependency_count;
	step.dependency_count = 0;
	if (s->writer[step.chunk] != NONE)
		depend(s, &step, s->writer[step.chunk]);
	if (step.op == GN_STEP_SEND) {
		note_reader(s, step.chunk, index);
	} else {
		for (uint32_t r = s->last_reader[step.chunk]; r != NONE; r = s->readers[r].next)
			depend(s, &step, s->readers[r].step);
		s->last_reader[step.chunk] = NONE;
		s->writer[step.chunk] = index;
	}
	s->steps[s->step_count++] = step;
}

void gn_schedule_copy(struct gn_schedule *s, uint32_t chunk)
{
	append(s, (struct gn_step){.op = GN_STEP_COPY, .peer = s->rank, .chunk = chunk});
}

void gn_schedule_send(struct gn_schedule *s, int peer, uint32_t chunk, uint32_t message)
{
	append(s, (struct gn_step){.op = GN_STEP_SEND, .peer = peer, .chunk = chunk, .message = message});
}

void gn_schedule_recv(struct gn_schedule *s, int peer, uint32_t chunk, uint32_t message)
{
	append(s, (struct gn_step){.op = GN_STEP_RECV, .peer = peer, .chunk = chunk, .message = message});
}

void gn_schedule_recv_reduce(struct gn_schedule *s, int peer, uint32_t chunk, uint32_t message, int from_left)
{
	append(s, (struct gn_step){.op = GN_STEP_RECV_REDUCE, .from_left = from_left != 0, .peer = peer, .chunk = chunk,
				   .message = message});
}

enum gn_status gn_schedule_finish(const struct gn_schedule *s, struct gn_err *err)
{
	return s->failed ? gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for a schedule of %d ranks and %u chunks", s->size,
				      s->chunks)
			 : GN_OK;
}

int gn_schedule_rank(const struct gn_schedule *s)
{
	return s->rank;
}

int gn_schedule_size(const struct gn_schedule *s)
{
	return s->size;
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
