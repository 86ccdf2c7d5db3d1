/* Point to point: a message from one rank of a communicator to another, matched by tag.
 *
 * An operation is prepared once, for one buffer, peer and tag, and started as often as wanted. It takes no part in the order of
 * collectives, and needs no call on other ranks than the two. Messages of one sender with one tag arrive in the order in which their sends
 * were started, in receives in the order of theirs; those of different tags in any order. A receive takes a message of exactly its length.
 * A receive from GN_P2P_ANY takes the first that has arrived of any rank; it and other receives with its tag take messages in their order.
 *
 * Host memory is sent by UCX (also between ranks of one node), device memory (coll_device.h) by UCX where it can, else whole through
 * pinned host memory.
 *
 * Failures are those of collectives: GN_ERR_PEER_LOST, naming rank and host, when a rank is lost; GN_ERR_MISMATCH when a message has
 * another length. While a wait blocks, the flight recorder knows rank, tag and group that it is for.
 *
 * Thread safety: one thread at a time, the communicator's.
 */
#ifndef GN_TRANSPORT_COLL_P2P_H
#define GN_TRANSPORT_COLL_P2P_H

#include "transport/coll/comm.h"

/* Tags are below this. */
#define GN_P2P_TAGS (1u << 20)
/* A peer of receives: any rank of the communicator. */
#define GN_P2P_ANY (-1)

struct gn_p2p;

struct gn_p2p_args {
	int peer;      /* rank in the communicator, not this one; of a receive also GN_P2P_ANY */
	uint32_t tag;
	void *data;    /* of a send it is read only; the caller's, until gn_p2p_free() */
	size_t len_bytes; /* 0: a message without data */
	enum gn_memory memory;
};

/* Local. GN_ERR_USAGE: invalid rank or tag, or device memory without a device. A send connects to the peer. */
enum gn_status gn_p2p_prepare_send(struct gn_comm *c, const struct gn_p2p_args *args, struct gn_p2p **out, struct gn_err *err);
enum gn_status gn_p2p_prepare_receive(struct gn_comm *c, const struct gn_p2p_args *args, struct gn_p2p **out, struct gn_err *err);
/* Nonblocking. after: as for gn_coll_start(): the data are read, or overwritten, when this is done. GN_ERR_USAGE: the previous run was not
 * completed by a test or wait. */
enum gn_status gn_p2p_start(struct gn_p2p *p, const struct gn_event *after, struct gn_err *err);
/* Nonblocking; makes progress. Sets *done when a receive has its message, or the data of a send may change. */
enum gn_status gn_p2p_test(struct gn_p2p *p, int *done, struct gn_err *err);
/* Blocks until then. A send may need its receive to be started. */
enum gn_status gn_p2p_wait(struct gn_p2p *p, struct gn_err *err);
/* The communicator's rank that sent what the last complete run received, or that a run is for; GN_P2P_ANY: none is known yet. */
int gn_p2p_peer(const struct gn_p2p *p);
/* Freeing an operation in flight fails the communicator. NULL is fine. */
void gn_p2p_free(struct gn_p2p *p);
/* Block: prepare, start, wait, free; in host memory. */
enum gn_status gn_p2p_send(struct gn_comm *c, int peer, uint32_t tag, const void *data, size_t len_bytes, struct gn_err *err);
enum gn_status gn_p2p_receive(struct gn_comm *c, int peer, uint32_t tag, void *data, size_t len_bytes, struct gn_err *err);

#endif
