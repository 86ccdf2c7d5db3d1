/* A parameter server: has a part of the parameters and the optimizer's state of it, adds or applies the gradients that workers push, and
 * answers with parameters (server_rule.h says when). Messages come to it in gn_messages_progress() and gn_messages_wait(). With
 * --servers shared a rank has a server and a client (server_client.h) of it in one process.
 *
 * Memory: parameters, a gradient, optimizer state, and for each worker one array as long as the part: what it pushes, and then what it is
 * answered with; when a checkpoint was asked for, a copy of parameters and state.
 *
 * Failures: sync ends with the first lost rank. async and ssp go on without lost workers, of which rank 0 is not one that may be lost.
 * The loss of another server ends all. What a worker sends against the rules is GN_ERR_MISMATCH. A server that fails has to tell:
 * gn_world_abort(). Thread safety: one thread, the messages'. Internal to src/train.
 */
#ifndef GN_TRAIN_PARALLEL_SERVER_H
#define GN_TRAIN_PARALLEL_SERVER_H

#include "src/train/optim/optimizer.h"
#include "src/train/parallel/server_rule.h"
#include "src/train/parallel/server_wire.h"
#include "src/train/plan/device.h"

struct gn_server;

struct gn_server_options {
	struct gn_comm *comm; /* of the world; borrowed, as the next */
	struct gn_messages *messages;
	struct gn_server_spec spec;
	int index;	      /* which of the servers it is */
	const char *model;    /* its name; classes and side come from the first worker */
	struct gn_optimizer_options optimizer;
	struct gn_plan_options device; /* the host */
};

/* Local: workers may send from then on. Its arrays are made when the first worker opens it. */
enum gn_status gn_server_create(const struct gn_server_options *options, struct gn_server **out, struct gn_err *err);
/* After it is done, and before the messages are destroyed. NULL is fine. */
void gn_server_destroy(struct gn_server *s);
/* Deals with lost ranks. Whether all workers have left or are lost and their answers are sent, or the server has failed. */
int gn_server_is_done(struct gn_server *s);
/* Of a server that is done. */
enum gn_status gn_server_status(const struct gn_server *s, struct gn_err *err);
/* How often the state was fetched. */
uint64_t gn_server_fetches(const struct gn_server *s);
/* Blocks until it is done. */
enum gn_status gn_server_wait(struct gn_server *s, struct gn_err *err);

/* --- for the worker of the same process, in place of messages --- */

/* What a call is answered with. */
struct gn_server_local {
	void *answer; /* answer_bytes or less */
	size_t answer_bytes;
	unsigned char header[GN_MESSAGE_HEADER_MAX];
	int is_done;
};

/* local: NULL for a push; else borrowed until it is done. */
void gn_server_take_local(struct gn_server *s, enum gn_server_kind kind, const void *header, const void *data, size_t data_bytes,
			  struct gn_server_local *local);

#endif
