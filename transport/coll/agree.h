/* Agreement between all ranks of a communicator: allgather of small records, a common status, comparison of digests.
 *
 * Calls are collective and block unless said otherwise; with a dead peer they return GN_ERR_PEER_LOST. An allgather takes ranks x
 * record bytes on every rank: use these at start, checkpoint and stop, not in each step.
 *
 * Thread safety: the communicator's.
 */
#ifndef GN_TRANSPORT_COLL_AGREE_H
#define GN_TRANSPORT_COLL_AGREE_H

#include "transport/coll/comm.h"

/* Allgather. all: room for ranks x record_bytes, filled in rank order. */
enum gn_status gn_agree_gather(struct gn_comm *comm, const void *mine, size_t record_bytes, void *all,
			       struct gn_err *err);
/* A common status: each rank passes its own (with err's text when it is not GN_OK). If any rank failed, all return the status of
 * the lowest failing rank, with a text that names that rank and host and is rank 0's to tell. If no agreement is possible (gn_agree_is_over) the rank's own
 * status is returned without communication. */
enum gn_status gn_agree_status(struct gn_comm *comm, enum gn_status mine, struct gn_err *err);

/* Local; blocks for limit_ns at most. Replaces *why, a failure of this rank, by the world's failure reason: the heartbeat knows which rank
 * died first and what all ranks started, a broken connection only its other end. Without one aborts the world with *why, because other
 * ranks would wait for this one. Returns why->status. library: a library has failed, which says nothing of other ranks; no stall is
 * detected meanwhile. */
enum gn_status gn_agree_explain(struct gn_comm *comm, uint64_t limit_ns, int library, struct gn_err *why);

/* Local. Whether no agreement is possible any more: a peer is lost, which all ranks know of, or this rank has aborted. */
int gn_agree_is_over(struct gn_comm *comm, enum gn_status status);

struct gn_agree_item {
	const char *what;    /* "program", "options" */
	char digest[65];     /* text of at most 64 characters */
};
/* GN_ERR_MISMATCH, with the same text on all ranks, if the digests of any item differ: names the lowest rank that differs from the
 * majority, its host, and the item. All ranks pass the same number of items. */
enum gn_status gn_agree_digests(struct gn_comm *comm, const struct gn_agree_item *items, size_t count,
				struct gn_err *err);

/* This program as an item: release, commit, and the digest of the sources: copies of one release may have been built in different folders. */
struct gn_agree_item gn_agree_program(void);
/* options: a line of gn_options_describe(). GN_ERR_MISMATCH, as gn_agree_status() reports it, of the lowest rank with others than rank 0:
 * names them, and both values. */
enum gn_status gn_agree_options(struct gn_comm *comm, const char *options, struct gn_err *err);

/* The majority value, and the first rank with another one. */
struct gn_agree_odd {
	int odd;   /* the lowest rank with another value; -1: none */
	int usual; /* the lowest rank with the majority value; of equally frequent values, that of the lowest rank */
	int same;  /* how many ranks have the majority value */
};
/* Local. The value of rank r is all[r * stride]. Takes O(ranks log(ranks)) comparisons. */
enum gn_status gn_agree_find_odd(const struct gn_agree_item *all, size_t stride, int ranks, struct gn_agree_odd *out,
				 struct gn_err *err);

#endif
