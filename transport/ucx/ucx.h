/* UCX: one context and worker for each rail, an endpoint per peer, tagged messages between host buffers.
 *
 * A rail is one network device (transport/topology/rails.h says which). The first also carries what stays within a node. Messages to
 * other nodes below 16 KiB go by the rail nearest to their sender, so that those of a node's ranks spread over its rails. Longer
 * ones go by a rail that their tag decides, among those that are the sender's share, or, from 64 KiB up, are cut into one part for
 * each rail as long as that leaves parts of 32 KiB, and are complete when all parts are. Both ends follow the same rule, from
 * sender, tag and length.
 *
 * A rail is used between two nodes when a message by it has come through at start: fabrics that are apart look alike where both
 * have InfiniBand's default prefix, and names alone pair their ports. Where it has not, it is left out between them, and
 * gn_ucx_left_out says so. Where there is one rail, UCX chooses devices itself unless there were several to choose
 * from, and nothing is ever cut.
 *
 * A rail that fails is not gone round, since nobody can tell what it has delivered: messages by it stand still, and the world's
 * watch ends the job within its limit and names peer and rail (gn_ucx_waits_by), or the transport reports it broken first
 * (gn_ucx_check). What a rail takes up again after a short interruption is delivered as if nothing had been. A rail that is
 * cut while nothing goes by it is no stall: tcp finds out a second before the world's limit is over, and the job ends within it;
 * RDMA, which has no cheap way of asking, at the next message, which stalls. Until then nobody waits for it.
 *
 * Never aborts because a peer died: endpoints report errors where the transport can, and where it cannot (UCX 1.13's shared
 * memory) the world's watch does. Requests belong to the caller and complete from inside gn_ucx_progress() or at once.
 *
 * Strangers: a message is taken only under its tag, and tags are mixed with a word derived from the job's secret, so whoever
 * cannot read the job's packets has to guess 64 bits to slip one in. More is not to be had: UCX 1.13's tcp transport listens on
 * every network interface in use, and cannot be told to ask who connects. Bytes that are not its protocol are dropped without
 * harm; someone who speaks its protocol can make it abort the rank (the others then learn that this rank is lost, and why is
 * in its output), or fill its memory with messages that nobody takes. Keep a cluster's nodes behind a firewall; shared memory,
 * which is all that ranks of one node open (transport/coll/comm.c), and verbs have no such port. See src/man/security.md.
 *
 * Lifecycle: create (collective), send and receive, destroy. After a failure: abandon, then destroy.
 * Thread safety: one thread at a time.
 */
#ifndef GN_TRANSPORT_UCX_UCX_H
#define GN_TRANSPORT_UCX_UCX_H

#include "src/base/strbuf.h"
#include "transport/topology/rails.h"
#include "transport/bootstrap/world.h"

#include <stddef.h>
#include <stdint.h>

/* Of twice as many on a message is cut where there are several rails, into parts of at least so many. */
#define GN_PART_BYTES ((size_t)32768)

struct gn_ucx;

/* One message under way. Zeroed by the caller before its first use; must stay in place until complete was called. */
struct gn_request {
	void (*complete)(struct gn_request *r); /* set by the caller; may not call the fabric */
	enum gn_status status;			/* on completion; GN_ERR_MISMATCH: the message had another length */
	int active;
	size_t len_bytes;
	void *handle; /* the fabric's */
};

struct gn_ucx_traffic {
	uint64_t same_node_bytes, other_node_bytes; /* payload sent since creation */
	uint64_t rail_bytes[GN_RAILS_MAX];	    /* other_node_bytes by rail */
};

/* Collective (addresses are exchanged through the world). transport: "auto", "tcp", "shm", "rc", "ud", or "net" for auto
 * without shared memory; UCX_TLS in the environment goes before it. What UCX then chooses is held to the name, see
 * gn_ucx_connect. rails: how many at most; 0: as many as there are. */
enum gn_status gn_ucx_create(struct gn_world *world, const char *transport, int rails, struct gn_ucx **out,
				struct gn_err *err);
/* Whether UCX was built for CUDA and may use it here: then messages may lie in a GPU's memory. */
int gn_ucx_takes_gpu_memory(const struct gn_ucx *f);
/* Closes in good order unless abandoned; never waits for long. NULL is fine. */
void gn_ucx_destroy(struct gn_ucx *f);
/* Makes the endpoint to rank unless it is there. Others need not take part. GN_ERR_FAILED: no way, or one by another transport
 * than was asked for by name. */
enum gn_status gn_ucx_connect(struct gn_ucx *f, int rank, struct gn_err *err);

/* Starts one message to, or from, rank; r->complete may be called before this returns. The peer must be connected when it is
 * sent to. */
enum gn_status gn_ucx_send(struct gn_ucx *f, int rank, uint64_t tag, const void *data, size_t len_bytes,
			      struct gn_request *r, struct gn_err *err);
enum gn_status gn_ucx_receive(struct gn_ucx *f, int rank, uint64_t tag, void *data, size_t len_bytes,
				 struct gn_request *r, struct gn_err *err);
/* Of several rails the one by which all comes, or goes, that an active message from or to rank still lacks; -1: there are
 * several such, or none to choose from. */
int gn_ucx_waits_by(const struct gn_ucx *f, int rank, const struct gn_request *r);
/* Non-zero when something happened. */
unsigned gn_ucx_progress(struct gn_ucx *f);
/* Whether what has happened of late may be a connection's end, and none of a message's doing. */
int gn_ucx_is_ending(const struct gn_ucx *f);
/* Whether what was sent may need turns after its request is done: over TCP its end may lie in UCX's queue until the socket has
 * room. */
int gn_ucx_may_hold(const struct gn_ucx *f);
/* For those who would rather sleep than look: after gn_ucx_arm() has returned non-zero the descriptor becomes readable as
 * soon as gn_ucx_progress() might find something. Zero: it might right now, or there is no telling. */
int gn_ucx_arm(struct gn_ucx *f);
int gn_ucx_event_fd(const struct gn_ucx *f);
/* After a failure: requests still active never complete and may be forgotten; the fabric can only be destroyed. Does not
 * block. */
void gn_ucx_abandon(struct gn_ucx *f);
/* GN_ERR_PEER_LOST naming rank and rail when an endpoint has been broken for after_ns; else GN_OK. When its transport had given
 * the peer up and nobody has left the job, it takes half a second at most if this rank has sent something since, and so does
 * not wait for that peer, or 3.5 s, in which the watch says who waits for whom. */
enum gn_status gn_ucx_check(const struct gn_ucx *f, uint64_t after_ns, struct gn_err *err);

void gn_ucx_traffic(const struct gn_ucx *f, struct gn_ucx_traffic *out);
/* The lanes of all rails' endpoints to rank as "posix/memory cma/memory" or "tcp/eth0 tcp/eth1"; "" when not connected. */
void gn_ucx_lanes(const struct gn_ucx *f, int rank, struct gn_strbuf *out);
/* Whether these lanes of an endpoint ("rc_mlx5/mlx5_0:1 cma/memory") are what transport, a name of ours, stands for: rc may be dc,
 * and nothing but it may be tcp. Lanes of which nothing is known fit. */
int gn_ucx_lanes_fit(const char *lanes, const char *transport);
int gn_ucx_rails(const struct gn_ucx *f);
/* Appends between which hosts which rails are left out, for a warning; nothing when all are used. */
void gn_ucx_left_out(const struct gn_ucx *f, struct gn_strbuf *out);
/* Its device in UCX's words ("eth0", "mlx5_0:1"); "" when UCX chose. Borrowed. */
const char *gn_ucx_rail_device(const struct gn_ucx *f, int rail);

#endif
