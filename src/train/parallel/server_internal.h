/* What taking messages and answering them share in a parameter server. */
#ifndef GN_TRAIN_PARALLEL_SERVER_INTERNAL_H
#define GN_TRAIN_PARALLEL_SERVER_INTERNAL_H

#include "src/train/parallel/server.h"

/* Of a worker. It waits for at most one call. */
struct gn_served_worker {
	struct gn_server *server;
	int is_lost, has_left;
	int waits;		       /* for the answer to a call */
	enum gn_server_kind waits_for;
	struct gn_message *message;    /* of it; NULL: of this process */
	struct gn_server_local *local;
	struct gn_server_open open;
	struct gn_server_commit commit;
	float *array;		       /* [part]: what it pushed, then what it gets */
	size_t pushed;		       /* elements of the present clock */
	uint64_t clock, version;       /* steps that it has finished; the version of the parameters that it has */
	double norm2;
	int answers;		       /* under way to it */
};

struct gn_server {
	struct gn_server_options options;
	int workers;
	struct gn_served_worker *list;
	struct gn_server_open first; /* what the first worker opened with */
	int is_open, is_ready;	     /* there are arrays; they are filled in */
	struct gn_model *model;
	struct gn_plan_device device;
	size_t elements, map_bytes;  /* of all parameters */
	struct gn_part part;
	struct gn_parts parts;
	float *params, *grads;	     /* as long as all parameters; of the part used */
	float *copy;		     /* for a fetch: parameters, then slots */
	struct gn_update_group alone;
	struct gn_optimizer *optimizer;
	uint64_t version;	     /* updates that were applied */
	const struct gn_message *handling; /* in its handler, which ends it; NULL: none */
	unsigned losses;
	uint64_t fetches;	     /* that were answered */
	struct gn_server_state state;
	struct gn_err err;
};

static inline size_t gn_server_part_bytes(const struct gn_server *s)
{
	return s->part.count * sizeof(float);
}

/* --- server_update.c --- */

/* The first failure counts; err is set in s->err. */
void gn_server_fail(struct gn_server *s, enum gn_status status);
/* Ends what the worker waits for. data: kept in place until the worker sends again. */
void gn_server_answer(struct gn_served_worker *w, const void *header, size_t header_bytes, const void *data, size_t data_bytes);
/* problem: a text that fits into struct gn_server_opened. */
void gn_server_answer_open(struct gn_served_worker *w, const char *problem);
void gn_server_answer_fetch(struct gn_served_worker *w);
/* Answers what can be answered now, but for commits of sync. */
void gn_server_release(struct gn_server *s);
/* Of async and ssp: a worker's gradients. */
void gn_server_apply_one(struct gn_served_worker *w);
/* Of sync, when all workers have committed: their gradients are added in rank order, and all are answered. */
void gn_server_apply_all(struct gn_server *s);

#endif
