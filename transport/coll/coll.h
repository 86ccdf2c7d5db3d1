/* What a communicator and its operations are made of. Private to comm.c and coll*.c.
 *
 * An operation is a schedule under execution (exec.h), or an allreduce in the memory of a node (node.h); around it: work
 * memory, what is left to do at the end, and its place among those in flight.
 */
#ifndef GN_TRANSPORT_COLL_COLL_H
#define GN_TRANSPORT_COLL_COLL_H

#include "transport/schedule/algo.h"
#include "transport/coll/comm.h"
#include "transport/select/cost.h"
#include "transport/coll/exec.h"
#include "transport/ucx/ucx.h"
#include "transport/shm/shm.h"
#include "transport/health/recorder.h"

#include <stdatomic.h>

/* What was chosen for buffers of up to so many bytes. */
struct gn_coll_choice {
	const char *algorithm; /* NULL: nothing yet */
	uint32_t pieces;       /* 0: by the algorithm itself ("shared") */
	int any;	       /* it was free to be another algorithm */
	size_t piece_bytes;    /* what pieces had to be; 0: free, too */
};
#define GN_COLL_SIZES 48 /* powers of two */

struct gn_comm {
	struct gn_world *world;
	struct gn_ucx *fabric;
	struct gn_shm *node; /* shared memory of this node's ranks; NULL where there is none, or it was not wanted */
	struct gn_shm_map *map;
	struct gn_log *log;
	struct gn_recorder *recorder; /* the world's */
	struct gn_comm_progress *progress; /* the thread that makes it; NULL: callers do */
	uint64_t noted_ns;	      /* when it last heard whom an operation waits for */
	struct gn_coll *active;	 /* those in flight, the most urgent first */
	struct gn_coll *barrier; /* kept ready */
	int32_t barrier_word;
	uint32_t sequence;
	int failed;
	int unsaid; /* something happened at the last look, and the recorder does not know yet */
	int crowded; /* crowd.h: whoever waits should give way */
	char *transport; /* what was asked for */
	struct gn_cost cost; /* alike on all ranks */
	struct gn_coll_choice chosen[GN_COLLECTIVE_COUNT][GN_COLL_SIZES];
};

struct gn_coll {
	struct gn_comm *comm;
	struct gn_coll *next_active;
	struct gn_coll_args args;
	struct gn_coll_info info;
	/* one of the two; none when there is nothing to do */
	struct gn_exec *exec;
	struct gn_shm_op *shared;

	void *work;	     /* the buffer of the schedule, when the caller's is too small or not to be used up */
	size_t *block_first; /* of blocks of different sizes */
	/* at the end: bytes from the work memory to the caller's, and elements to divide */
	const void *result_from;
	void *result;
	size_t result_count;
	int divide;

	struct gn_recorder_op op; /* what all ranks must start alike */
	uint32_t kind;		  /* the same for the recorder */
	uint64_t record;	  /* the number of the present run */
	uint32_t sequence;
	int in_flight;
	atomic_int complete, settled; /* settled: or failed. Anyone may look at them */
	enum gn_status status;
	struct gn_err why;
};

/* All ranks in one place can do without messages. */
static inline int gn_comm_all_share(const struct gn_comm *c)
{
	return c->node && gn_world_nodes(c->world) == 1;
}

/* For whoever waits for something else. comm: struct gn_comm. */
void gn_coll_progress(void *comm);

static inline int gn_coll_is_complete(const struct gn_coll *c)
{
	return atomic_load_explicit(&c->complete, memory_order_acquire);
}

/* Takes all in flight as far as they go. Returns non-zero when something happened. */
unsigned gn_comm_progress(struct gn_comm *c);
/* What to tell the recorder after such a call, events being whether it returned non-zero: what happened at the call before. A
 * connection's end is not seen to be one before the next call. */
int gn_comm_moved(struct gn_comm *c, int events);
/* How many in flight are neither complete nor failed, and whether any of them waits for neighbours' memory, or messages. */
int gn_comm_awaits(const struct gn_comm *c, int *by_memory, int *by_message);
/* For those who have entered the communicator (progress.h): what gn_coll_start, wait and free do. */
enum gn_status gn_coll_start_inside(struct gn_coll *c, struct gn_err *err);
enum gn_status gn_coll_wait_inside(struct gn_coll *c, struct gn_err *err);
void gn_coll_free_inside(struct gn_coll *c);

/* Algorithm and pieces for a buffer of so many bytes: a function of what all ranks give alike. algo NULL or "auto": any.
 * GN_ERR_USAGE: no algorithm of that name. */
enum gn_status gn_coll_choose(struct gn_comm *c, const struct gn_coll_args *args, size_t bytes,
			      struct gn_coll_choice *out, struct gn_err *err);

#endif
