/* A parameter server: has a part of the parameters and the optimizer's state of it, adds or applies the gradients that workers push, and
 * answers with parameters (struct gn_server_spec says when). Messages come to it in gn_messages_progress() and gn_messages_wait(). With
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

#include "src/base/status.h"
#include "src/train/checkpoint/checkpoint.h"
#include "src/train/optim/optimizer.h"
#include "src/train/plan/device.h"
#include "transport/coll/messages.h"

#include <stddef.h>
#include <stdint.h>

/* What parameter servers follow: which server has which part of the parameters, and which worker may go on when.
 *
 * Modes. sync: a step's gradients of all workers are added in rank order and applied once. async: every worker's gradients are applied
 * as they come (Dean et al. 2012, "Large scale distributed deep networks"). ssp: the same, and a worker is at most `bound` clocks ahead of
 * the slowest one (Ho et al. 2013, "More effective distributed ML via a stale synchronous parallel parameter server"). A clock is one
 * step of one worker.
 *
 * Pure functions. */

enum gn_update_mode { GN_UPDATE_ALLREDUCE, GN_UPDATE_SYNC, GN_UPDATE_ASYNC, GN_UPDATE_SSP };

struct gn_server_spec {
	enum gn_update_mode mode;
	uint64_t bound; /* of ssp */
	int servers;	/* the last so many ranks; 0 with is_shared: every rank serves a part and trains, too */
	int is_shared;
};

/* update: "allreduce", "sync", "async", "ssp:N"; servers: "none", "shared", or a number from 1 on; NULL: the first of each.
 * GN_ERR_USAGE: anything else, and one of them without the other. */
enum gn_status gn_server_parse(const char *update, const char *servers, struct gn_server_spec *out, struct gn_err *err);
/* Of so many ranks; without servers all of them. At most 0: there are none. */
int gn_server_workers(const struct gn_server_spec *s, int ranks);
/* The world ranks of servers are first .. first + count - 1. */
int gn_server_count(const struct gn_server_spec *s, int ranks);
int gn_server_first(const struct gn_server_spec *s, int ranks);

/* Elements begin to end. */
struct gn_server_part {
	size_t begin, end;
};

/* Of server number index of `servers`: parts lie one behind the other, cover all elements, begin at multiples of 16 elements (a line of
 * memory), and differ by at most 16. One may be empty. */
struct gn_server_part gn_server_part(size_t elements, int servers, int index);
/* Whether a worker that has finished `clock` steps may begin the next one when the slowest that counts has finished `slowest`. Not of
 * sync. */
int gn_server_may_go(const struct gn_server_spec *s, uint64_t clock, uint64_t slowest);

/* The messages between workers and parameter servers, in the sender's byte order, as everything between ranks.
 *
 *   open    call     worker -> server   which data and layouts it has; the first worker's makes the server's arrays. Answered, for the
 *                                       first at once, for others when the state is there, with the run's state and parameters
 *   put     call     first worker       an array: parameters (0), or slot k - 1
 *   push    message  worker             a range of gradients of its present clock
 *   commit  call     worker             the clock's gradients are complete. Answered, when the mode lets the worker go on, with parameters
 *   fetch   call     first worker       parameters and slots; or also: when all other workers have left
 *   leave   call     worker             it has ended; or also: the others are to stop. Answered when all workers have left or are lost, so
 *                                       that no process says that the run went well before the first worker has saved it */

enum gn_server_kind { GN_SERVER_OPEN, GN_SERVER_PUT, GN_SERVER_PUSH, GN_SERVER_COMMIT, GN_SERVER_FETCH, GN_SERVER_LEAVE, GN_SERVER_KINDS };

#define GN_SERVER_DIGEST 20

struct gn_server_open {
	int32_t classes, channels, side;
	struct gn_run_state state; /* of the first worker */
	char data[GN_SERVER_DIGEST], layouts[GN_SERVER_DIGEST];
};

/* What an open is answered with; parameters follow unless there is a text. */
struct gn_server_opened {
	struct gn_run_state state;
	char problem[72]; /* "": none */
};

struct gn_server_put {
	int32_t array, is_last;
};

struct gn_server_push {
	uint64_t begin, count; /* elements of all parameters */
};

struct gn_server_commit {
	uint64_t updates;
	double lr, grad_scale;
	int32_t skip; /* the gradients are dropped */
	int32_t stop; /* the worker was asked to stop */
};

/* Staleness of a push: updates that were applied between the answer that its parameters came with and itself. The last is for more. */
enum { GN_STALENESS_MAX = 15 };

struct gn_server_state {
	double norm2; /* of this push's part times its scale; sync: of the sum */
	uint32_t staleness_most, ahead_most; /* ahead: clocks, of the slowest worker, when an answer left */
	uint32_t histogram[GN_STALENESS_MAX + 2];
	uint32_t pushes;      /* in it */
	double staleness_sum; /* of them */
	int32_t stop, workers; /* some worker was asked to stop; workers that are not lost */
};

struct gn_server_fetch {
	int32_t drains;
};

struct gn_server_leave {
	int32_t stop;
};

_Static_assert(sizeof(struct gn_server_open) <= GN_MESSAGE_HEADER_MAX && sizeof(struct gn_server_opened) <= GN_MESSAGE_HEADER_MAX &&
		       sizeof(struct gn_server_commit) <= GN_MESSAGE_HEADER_MAX && sizeof(struct gn_server_state) <= GN_MESSAGE_HEADER_MAX,
	       "headers fit into a message");

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
