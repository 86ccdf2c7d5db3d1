/* The messages between workers and parameter servers, in the sender's byte order, as everything between ranks.
 *
 *   open    call     worker -> server   which data and layouts it has; the first worker's makes the server's arrays. Answered, for the
 *                                       first at once, for others when the state is there, with the run's state and parameters
 *   put     call     first worker       an array: parameters (0), or slot k - 1
 *   push    message  worker             a range of gradients of its present clock
 *   commit  call     worker             the clock's gradients are complete. Answered, when the mode lets the worker go on, with parameters
 *   fetch   call     first worker       parameters and slots; or also: when all other workers have left
 *   leave   call     worker             it has ended; or also: the others are to stop. Answered when all workers have left or are lost, so
 *                                       that no process says that the run went well before the first worker has saved it
 */
#ifndef GN_TRAIN_PARALLEL_SERVER_WIRE_H
#define GN_TRAIN_PARALLEL_SERVER_WIRE_H

#include "src/train/checkpoint/checkpoint.h"
#include "transport/coll/messages.h"

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

#endif
