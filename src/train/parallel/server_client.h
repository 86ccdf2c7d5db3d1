/* What a worker does with parameter servers: pushes gradients while backward runs, commits a step and gets parameters, fetches the state
 * for a checkpoint. Calls block, and meanwhile serve the worker's own part where ranks both train and serve.
 *
 * Failures: GN_ERR_PEER_LOST with a lost server, and in sync with any lost rank; other workers that are lost are no failure. After one
 * the client can only be destroyed. Thread safety: one thread, the messages'. Internal to src/train.
 */
#ifndef GN_TRAIN_PARALLEL_SERVER_CLIENT_H
#define GN_TRAIN_PARALLEL_SERVER_CLIENT_H

#include "src/train/parallel/server.h"

struct gn_server_client;
struct gn_server_pushes;

struct gn_server_client_options {
	struct gn_comm *comm; /* of the world; borrowed, as the next two */
	struct gn_messages *messages;
	struct gn_server *own; /* in this process; NULL: there is none */
	struct gn_server_spec spec;
};

enum gn_status gn_server_client_create(const struct gn_server_client_options *options, struct gn_server_client **out, struct gn_err *err);
/* After the messages are destroyed. NULL is fine. */
void gn_server_client_destroy(struct gn_server_client *c);
/* This worker's number, and how many there are, lost ones as well. */
int gn_server_client_worker(const struct gn_server_client *c);
int gn_server_client_workers(const struct gn_server_client *c);
/* Whether all workers take each step together. */
int gn_server_client_is_sync(const struct gn_server_client *c);

/* A run's state: what the first worker gives to the servers, and what the others get. params [elements] and slots as the parameters. */
struct gn_server_arrays {
	float *params;
	float *slots[GN_OPTIM_SLOTS_MAX]; /* the first worker's */
	int slot_count;
	size_t elements;
};

/* Blocks until the first worker has given its arrays to all servers. open.state is set to its state on the others, and params. */
enum gn_status gn_server_client_open(struct gn_server_client *c, struct gn_server_open *open, const struct gn_server_arrays *a,
				     struct gn_err *err);
/* Ends a clock: all of its gradients have been pushed. Blocks until this worker may begin the next one, with params [elements].
 * commit.stop: set when any worker was asked to stop. */
enum gn_status gn_server_client_commit(struct gn_server_client *c, struct gn_server_commit *commit, float *params, size_t elements,
				       struct gn_err *err);
/* The first worker: parameters and slots. drains: first waits until all others have left. In sync all workers call it together: the
 * others serve their own parts meanwhile. */
enum gn_status gn_server_client_fetch(struct gn_server_client *c, int drains, const struct gn_server_arrays *a, struct gn_err *err);
/* The last call. stop: the others are to end, too. Blocks until all workers have left. */
enum gn_status gn_server_client_leave(struct gn_server_client *c, int stop, struct gn_err *err);
/* What the first server said with the last commit; norm2 is of all servers. */
const struct gn_server_state *gn_server_client_state(const struct gn_server_client *c);

/* --- gradients; for share_served.c --- */

/* For gradients [count] at data, which begin with element `begin` of all `elements`. */
enum gn_status gn_server_pushes_create(struct gn_server_client *c, const float *data, size_t elements, size_t begin, size_t count,
				       struct gn_server_pushes **out, struct gn_err *err);
/* When they are done, or the messages are destroyed. NULL is fine. */
void gn_server_pushes_free(struct gn_server_pushes *p);
/* Does not block. The data stay as they are until it is done. */
enum gn_status gn_server_pushes_start(struct gn_server_pushes *p, struct gn_err *err);
/* Makes progress; does not block. */
enum gn_status gn_server_pushes_test(struct gn_server_pushes *p, int *done, struct gn_err *err);
/* Blocks until is_done(context), which is called again and again, or a failure. */
enum gn_status gn_server_client_wait(struct gn_server_client *c, int (*is_done)(void *context), void *context, struct gn_err *err);

#endif
