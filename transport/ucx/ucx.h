/* UCX: one context and worker for each rail, an endpoint for each peer, tagged messages between buffers.
 *
 * A rail is one network device (transport/topology/rails.h). The first rail also carries messages within a node. Which rails carry
 * a message to another node is a function of sender, tag and length, which both ends evaluate alike:
 *   below 16 KiB       the rail nearest to the sender, so that the ranks of a node spread over its rails
 *   below 64 KiB       one of the rails that are the sender's share, by the tag
 *   from 64 KiB on     one fragment of at least 32 KiB for each rail; the message is complete when all its fragments are
 * With one rail UCX selects the devices itself, unless there were several to select from, and no message is fragmented.
 *
 * A rail is used between two nodes only if a probe message passed it at creation: separate InfiniBand fabrics cannot be told apart
 * when both have the default subnet prefix. Rails that do not connect two nodes are excluded between them
 * (gn_ucx_describe_excluded).
 *
 * There is no failover: what a failed rail has delivered is unknown. Its messages stall, and the world's heartbeat ends the job
 * within its limit and names peer and rail (gn_ucx_blocking_rail), or the transport reports a broken connection first
 * (gn_ucx_check). After a short interruption the transport resumes and nothing is lost. A rail that fails while it carries no
 * message: tcp keepalive detects that one second before the world's limit; RDMA has no cheap keepalive and detects it at the next
 * message, which stalls.
 *
 * A dead peer never aborts the process, nor does it harm the endpoints to others: endpoints report errors where the transport can,
 * and where it cannot (shared memory in UCX 1.13) the world's heartbeat does. Requests belong to the caller and complete inside of
 * gn_ucx_progress(), or at once.
 *
 * Security: tags are mixed with 64 bits derived from the job's secret, so that a process that cannot read the job's packets has to
 * guess them to inject a message that matches. UCX 1.13's tcp transport listens on every network interface in use and does not
 * authenticate connections. It drops bytes that are not its protocol; an unauthenticated peer that speaks the protocol can make it
 * abort the rank (the other ranks then report that rank as lost; the reason is in its output) or fill its memory with unmatched
 * messages. Keep the nodes of a cluster behind a firewall. Shared memory, the only transport when all ranks are on one node
 * (transport/coll/comm.c), and verbs have no such port. See src/man/security.md.
 *
 * With gn_world_encrypts() messages between nodes, and all active messages, are encrypted and authenticated by AES-256-GCM (ucx_cipher.c),
 * and none is in GPU memory. Messages are encrypted in fragments while they are sent and decrypted in place while they arrive: a buffer that
 * is received into holds anything until its message is complete. Active messages go through a buffer that is as long as they are. What does
 * not authenticate, or was received before, is GN_ERR_DATA, and gn_ucx_check() names the rank that it claims to come from. After the loss
 * of a rank that is no failure of the whole job: who sent it may have given it up.
 *
 * Lifecycle: create (collective), connect, send and receive, destroy. After a failure: abandon, then destroy.
 * Thread safety: one thread at a time.
 */
#ifndef GN_TRANSPORT_UCX_UCX_H
#define GN_TRANSPORT_UCX_UCX_H

#include "src/base/strbuf.h"
#include "transport/bootstrap/world.h"
#include "transport/topology/rails.h"

#include <stddef.h>
#include <stdint.h>

/* The smallest fragment; with several rails messages of at least twice as much are fragmented. */
#define GN_FRAGMENT_BYTES ((size_t)32768)

struct gn_ucx;

/* One message in flight. The caller zeroes it before its first use and keeps it in place until `complete` was called. */
struct gn_ucx_request {
	void (*complete)(struct gn_ucx_request *r); /* set by the caller; must not call functions of this header */
	/* on completion; GN_ERR_MISMATCH: the message has another length than the receive; GN_ERR_DATA: it fails its authentication */
	enum gn_status status;
	int active;
	size_t len_bytes;
	void *handle; /* internal */
	int striped;  /* internal: handle is not UCX's */
	struct gn_ucx_sealed *sealed; /* internal: its ciphertext; NULL: it is plain */
	int *ended;   /* internal: set when it completes while it is being posted */
};

struct gn_ucx_traffic {
	uint64_t same_node_bytes, other_node_bytes; /* payload sent since creation */
	uint64_t rail_bytes[GN_RAILS_MAX];	    /* other_node_bytes by rail */
};

/* Collective: exchanges worker addresses over the bootstrap; blocks. transport: "auto", "tcp", "shm", "rc", "ud", or "net" for auto
 * without shared memory. UCX_TLS in the environment takes precedence; without it gn_ucx_connect checks that UCX selected the named
 * transport. rails: at most that many; 0: all. */
enum gn_status gn_ucx_create(struct gn_world *world, const char *transport, int rails, struct gn_ucx **out,
				struct gn_err *err);
/* Whether messages may be in GPU memory: UCX is built with CUDA support and allowed to use it. */
int gn_ucx_takes_gpu_memory(const struct gn_ucx *f);
/* Flushes and closes the endpoints unless abandoned; blocks for at most a second. NULL is fine. */
void gn_ucx_destroy(struct gn_ucx *f);
/* Local. Creates the endpoint to rank unless it exists. GN_ERR_FAILED: no allowed transport reaches the peer, or UCX selected
 * another transport than the named one. */
enum gn_status gn_ucx_connect(struct gn_ucx *f, int rank, struct gn_err *err);

/* Nonblocking. Start one message to, or from, rank; r->complete may be called before they return. The buffer is the caller's and
 * must not change until then. To send, the peer must be connected. */
enum gn_status gn_ucx_send(struct gn_ucx *f, int rank, uint64_t tag, const void *data, size_t len_bytes,
			      struct gn_ucx_request *r, struct gn_err *err);
enum gn_status gn_ucx_receive(struct gn_ucx *f, int rank, uint64_t tag, void *data, size_t len_bytes,
				 struct gn_ucx_request *r, struct gn_err *err);
/* Nonblocking. Whether a message has arrived that no receive has taken, whose tag differs from `tag` in the bits of `any` at most: *found. */
int gn_ucx_find_arrived(const struct gn_ucx *f, uint64_t tag, uint64_t any, uint64_t *found);
/* With several rails: the one rail that carries all fragments still missing of an active message from or to rank. -1: several do,
 * or there is one rail. */
int gn_ucx_blocking_rail(const struct gn_ucx *f, int rank, const struct gn_ucx_request *r);
/* Progresses all workers; does not block. Returns non-zero when there were events. */
unsigned gn_ucx_progress(struct gn_ucx *f);
/* Whether recent events may come from a connection that is closing rather than from messages. */
int gn_ucx_is_disconnecting(const struct gn_ucx *f);
/* Whether completed sends may need further progress: over TCP the tail of a message may be queued in UCX until the socket is
 * writable. */
int gn_ucx_may_queue(const struct gn_ucx *f);
/* For blocking waits: after gn_ucx_arm() has returned non-zero, gn_ucx_event_fd() becomes readable when gn_ucx_progress() may find
 * events. Zero: there are events already, or UCX cannot arm its descriptor; call gn_ucx_progress() instead. */
int gn_ucx_arm(struct gn_ucx *f);
int gn_ucx_event_fd(const struct gn_ucx *f);
/* After the loss of a rank: ends the endpoints to it, where the transport can (not over shared memory), with what is under way on
 * them; other endpoints are not affected. Later messages to it are GN_ERR_PEER_LOST. Again for the same rank: no effect. Does not
 * block. */
void gn_ucx_drop(struct gn_ucx *f, int rank);
/* Whether messages to a rank leave without waiting for its receive: an active send completes when the rank makes progress. */
int gn_ucx_sends_eagerly(const struct gn_ucx *f, int rank);
/* Cancels an active receive: it completes with GN_ERR_PEER_LOST, at once unless its message is partly through. */
void gn_ucx_cancel(struct gn_ucx *f, struct gn_ucx_request *r);
/* Ends the caller's interest in an active request: complete is not called. The request stays in place until gn_ucx_destroy(), for
 * example in memory that is given to gn_ucx_keep(), which frees it then. keep returns 0 when there is no memory to note that. */
void gn_ucx_disown(struct gn_ucx *f, struct gn_ucx_request *r);
int gn_ucx_keep(struct gn_ucx *f, void *memory);
/* After a failure: active requests never complete and may be freed; only destroy may follow. Does not block. */
void gn_ucx_abandon(struct gn_ucx *f);
/* GN_ERR_PEER_LOST, naming rank and rail, when an endpoint to one of `count` ranks (NULL: 0 .. count - 1) has been broken for
 * after_ns; else GN_OK. The delay gives the heartbeat time to report who was lost and why. When the transport timed out and no rank
 * has left the job, the delay is at most 2 s if this rank has sent bytes since (so it is not waiting for that peer), else at most
 * 3.5 s. */
enum gn_status gn_ucx_check(const struct gn_ucx *f, const int *ranks, int count, uint64_t after_ns, struct gn_err *err);

void gn_ucx_traffic(const struct gn_ucx *f, struct gn_ucx_traffic *out);
/* Appends the lanes of the endpoints to rank on all rails, "posix/memory cma/memory" or "tcp/eth0 tcp/eth1"; nothing when not
 * connected. */
void gn_ucx_lanes(const struct gn_ucx *f, int rank, struct gn_strbuf *out);
/* Whether the lanes of an endpoint ("rc_mlx5/mlx5_0:1 cma/memory") are of the named transport: "rc" allows rc and dc, "tcp" nothing
 * but tcp. Unknown lanes match. */
int gn_ucx_lanes_match(const char *lanes, const char *transport);
int gn_ucx_rails(const struct gn_ucx *f);
/* Collective: "eth0,eth1", the devices of the rails that a probe has passed between all nodes, also of a single one, which creation does
 * not probe; "" where UCX selected the devices. Blocks as creation does. */
enum gn_status gn_ucx_tried_devices(struct gn_ucx *f, char *out, size_t size_bytes, struct gn_err *err);
/* Appends which rails are excluded between which hosts, for a warning; nothing when all are used. */
void gn_ucx_describe_excluded(const struct gn_ucx *f, struct gn_strbuf *out);
/* UCX's name of the rail's device ("eth0", "mlx5_0:1"); "" when UCX selected the devices. Borrowed. */
const char *gn_ucx_rail_device(const struct gn_ucx *f, int rail);

/* UCX active messages of a fabric: one receive function for all that arrive, over the first rail.
 *
 * A message is a header of at most GN_UCX_AM_HEADER_MAX bytes and data. Data of up to GN_UCX_AM_EAGER_BYTES travel with the header;
 * longer data stay with the sender until the receiver has said where they go (rendezvous), so that a receiver never holds what it
 * has not asked for. Messages of one sender may arrive in another order than they were sent in; coll/messages.h restores it.
 *
 * Nothing here authenticates a sender: the header's user checks a token (transport/ucx/ucx.h, "Unauthenticated peers").
 * Thread safety: as gn_ucx, one thread at a time. The receive function runs inside gn_ucx_progress() and may not call the fabric. */

#define GN_UCX_AM_HEADER_MAX 256
#define GN_UCX_AM_EAGER_BYTES ((size_t)4096)

struct gn_ucx_am {
	const void *header; /* valid during the call */
	size_t header_bytes;
	void *data; /* the bytes, or with is_rendezvous a descriptor for gn_ucx_am_receive */
	size_t data_bytes;
	int is_rendezvous;
	int may_keep; /* data may be kept beyond the call */
};

/* Returns non-zero to keep m->data (only if may_keep): gn_ucx_am_release, or for a rendezvous gn_ucx_am_receive, follows later. A
 * rendezvous that is not kept is dropped; its sender's request then fails. */
typedef int (*gn_ucx_am_fn)(void *context, const struct gn_ucx_am *m);

/* Local. From now on received is called for each message that arrives; NULL: messages are dropped. */
enum gn_status gn_ucx_am_listen(struct gn_ucx *f, gn_ucx_am_fn received, void *context, struct gn_err *err);
/* Starts one message to a connected rank. header and data are kept by the caller until r->complete, which may come before this
 * returns. Data longer than GN_UCX_AM_EAGER_BYTES complete when the receiver has taken them. */
enum gn_status gn_ucx_am_send(struct gn_ucx *f, int rank, const void *header, size_t header_bytes, const void *data, size_t len_bytes,
			      struct gn_ucx_request *r, struct gn_err *err);
/* Takes the data of a kept rendezvous into memory of len_bytes, its whole length. Ends the descriptor. */
enum gn_status gn_ucx_am_receive(struct gn_ucx *f, void *descriptor, void *into, size_t len_bytes, struct gn_ucx_request *r,
				 struct gn_err *err);
/* Ends kept eager data, or refuses a kept rendezvous. */
void gn_ucx_am_release(struct gn_ucx *f, void *data);

#endif
