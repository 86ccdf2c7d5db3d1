/* State shared by staged.c (operations) and staged_progress.c. A chunk goes through the phases of enum gn_staged_phase in its
 * slot. */
#ifndef GN_TRANSPORT_COLL_STAGED_INTERNAL_H
#define GN_TRANSPORT_COLL_STAGED_INTERNAL_H

#include "transport/coll/staged.h"

enum gn_staged_phase { GN_STAGED_DOWN, GN_STAGED_READY, GN_STAGED_SUM, GN_STAGED_UP, GN_STAGED_DONE };

/* A chunk in flight. */
struct gn_staged_chunk {
	struct gn_staged *op;
	size_t chunk;
	enum gn_staged_phase phase;
};

struct gn_stager {
	struct gn_comm *comm;
	struct gn_copy_engine *engine;
	size_t chunk_bytes;
	int slots, pinned;
	char *memory;		      /* slots * chunk_bytes */
	int *busy;		      /* by slot */
	int *copying;		      /* by slot: a copy is in flight */
	struct gn_staged_chunk *ring; /* `slots` entries; `count` chunks in flight from `first`, the oldest, on */
	int first, count;
	struct gn_staged *queue; /* operations with chunks left to start, in order of start */
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
	struct gn_coll **whole; /* by slot, of a whole chunk; NULL: none needed */
	struct gn_coll *last;	/* of the last chunk, if it is shorter */
	void *after;
	size_t started, finished; /* chunks */
	int in_flight;
};

static inline char *gn_stager_slot(const struct gn_stager *s, int slot)
{
	return s->memory + (size_t)slot * s->chunk_bytes;
}

static inline int gn_staged_slot_of(const struct gn_staged *op, size_t chunk)
{
	return (int)(((size_t)op->first_slot + chunk) % (size_t)op->stager->slots);
}

static inline size_t gn_staged_bytes_of(const struct gn_staged *op, size_t chunk)
{
	return chunk + 1 < op->chunks ? op->chunk_bytes : op->bytes - chunk * op->chunk_bytes;
}

static inline struct gn_coll *gn_staged_coll_of(const struct gn_staged *op, size_t chunk)
{
	return gn_staged_bytes_of(op, chunk) == op->chunk_bytes ? op->whole[gn_staged_slot_of(op, chunk)] : op->last;
}

#endif
