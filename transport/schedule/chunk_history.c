#include "transport/schedule/chunk_history.h"

#include "src/base/alloc.h"

#include <stdlib.h>

#define WORD 64u

/* A list of the steps that have read a run since it was last written. Runs that were split share the tails of their lists. */
struct reader {
	uint32_t step, next;
};

/* Step and list numbers are stored plus one: zero means none, and untouched pages of calloc() cost no memory. */
struct gn_chunk_history {
	uint32_t chunks;
	uint64_t *starts; /* bit c: a run starts at chunk c */
	uint32_t *writer, *readers; /* valid where a run starts */
	struct reader *pool;
	size_t pool_count, pool_room;
};

struct gn_chunk_history *gn_chunk_history_create(uint32_t chunks)
{
	struct gn_chunk_history *t = calloc(1, sizeof *t);

	if (!t)
		return NULL;
	t->chunks = chunks;
	t->starts = calloc(chunks / WORD + 1, sizeof *t->starts);
	t->writer = calloc(chunks + (size_t)1, sizeof *t->writer);
	t->readers = calloc(chunks + (size_t)1, sizeof *t->readers);
	if (!t->starts || !t->writer || !t->readers) {
		gn_chunk_history_destroy(t);
		return NULL;
	}
	t->starts[0] = 1;
	return t;
}

void gn_chunk_history_destroy(struct gn_chunk_history *t)
{
	if (!t)
		return;
	free(t->starts);
	free(t->writer);
	free(t->readers);
	free(t->pool);
	free(t);
}

/* The first start of a run in [chunk, end), or end. */
static uint32_t next_start(const struct gn_chunk_history *t, uint32_t chunk, uint32_t end)
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
static void start_run(struct gn_chunk_history *t, uint32_t chunk)
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

static int add_reader(struct gn_chunk_history *t, uint32_t run, uint32_t step)
{
	if (gn_array_grow(&t->pool, &t->pool_room, t->pool_count, sizeof *t->pool))
		return -1;
	t->pool[t->pool_count++] = (struct reader){step, t->readers[run]};
	t->readers[run] = (uint32_t)t->pool_count;
	return 0;
}

int gn_chunk_history_add(struct gn_chunk_history *t, uint32_t step, uint32_t chunk, uint32_t count, int writes,
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
