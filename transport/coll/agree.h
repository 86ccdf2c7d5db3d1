/* Small agreements between all ranks of a communicator: everyone's record, everyone's status, everyone's digest.
 *
 * All calls are collective and go over the communicator, so that a dead peer ends them with GN_ERR_PEER_LOST. A record costs
 * ranks x record bytes on every rank: these are for start, checkpoint and stop, not for the step.
 */
#ifndef GN_TRANSPORT_COLL_AGREE_H
#define GN_TRANSPORT_COLL_AGREE_H

#include "transport/coll/comm.h"

/* all: ranks x record_bytes, filled in rank order. */
enum gn_status gn_agree_gather(struct gn_comm *comm, const void *mine, size_t record_bytes, void *all,
			       struct gn_err *err);
/* Each rank gives its own status (with err's text when it is not GN_OK). When any failed, all get the status of the lowest
 * failing rank, and a text that names that rank and host. Where it is over (below) a rank gets its own back, at once. */
enum gn_status gn_agree_status(struct gn_comm *comm, enum gn_status mine, struct gn_err *err);

/* Whether this rank has to tell its error by itself, if anybody does, for nothing can be agreed on any more: a peer is lost, which
 * all know of, or this rank gave up. */
int gn_agree_is_over(struct gn_comm *comm, enum gn_status status);

struct gn_agree_item {
	const char *what;    /* "program", "options" */
	char digest[65];     /* text of at most 64 characters */
};
/* All ranks must give the same items. GN_ERR_MISMATCH, the same text everywhere, names the rank and host that differ from
 * the majority and in what. */
enum gn_status gn_agree_digests(struct gn_comm *comm, const struct gn_agree_item *items, size_t count,
				struct gn_err *err);

/* Which value most ranks have, and who has another. */
struct gn_agree_odd {
	int odd;   /* the lowest rank with another one; -1: none */
	int usual; /* the lowest rank that has it; of values that equally many have, the one of the lowest rank */
	int same;  /* how many have it */
};
/* Local. The value of rank r is all[r * stride]. Takes ranks x log(ranks) comparisons. */
enum gn_status gn_agree_find_odd(const struct gn_agree_item *all, size_t stride, int ranks, struct gn_agree_odd *out,
				 struct gn_err *err);

#endif
