/* What staged.c (operations) and staged_progress.c share. */
#ifndef GN_TRANSPORT_COLL_STAGED_INTERNAL_H
#define GN_TRANSPORT_COLL_STAGED_INTERNAL_H

#include "transport/coll/staged.h"

enum gn_staged_phase { GN_STAGED_DOWN, GN_STAGED_READY, GN_STAGED_SUM, GN_STAGED_UP, GN_STAGED_OVER };

/* A chunk under way. */
struct gn_staged_piece {
	struct gn_staged *op;
	size_t chunk;
	enum gn_staged_phase phase;
};

struct gn_stager {
	struct gn_comm *comm;
	struct gn_copy_engine *copier;
	size_t chunk_bytes;
	int slots, pinned;
	char *memory;	 /* slots * chunk_bytes */
	int *busy;	 /* by slot */
	int *copying;	 /* by slot */
	struct gn_staged_piece *pieces; /* a ring of slots, the oldest at first */
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
	return gn_staged_bytes_of(op, chunk) == op->chunk_bytes ? op->whole[gn_staged_slot_of(op, chunk)] : op->rest;
}

#endif
