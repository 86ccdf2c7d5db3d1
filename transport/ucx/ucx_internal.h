/* What a fabric is made of. Private to fabric*.c. */
#ifndef GN_TRANSPORT_UCX_UCX_INTERNAL_H
#define GN_TRANSPORT_UCX_UCX_INTERNAL_H

#include "transport/ucx/ucx.h"
#include "transport/ucx/ucx_common.h"

#include <ucp/api/ucp.h>

/* A message of fewer bytes goes by its sender's own rail, a longer one by any. */
#define GN_STRIPE_BYTES ((size_t)16384)

/* The way to one rank over one rail. */
struct gn_ucx_end {
	struct gn_ucx_rail *rail;
	ucp_ep_h ep;
	const void *address; /* into fabric->told */
	int same_node;
	uint32_t send_flags;
};

struct gn_ucx_rail {
	struct gn_ucx *fabric;
	ucp_context_h context;
	ucp_worker_h worker;
	int event_fd;		       /* the worker's */
	struct gn_ucx_end *ends;    /* one for each rank; all but the first rail only reach other nodes */
	char device[GN_RAIL_NAME_MAX]; /* "": what UCX likes */
	uint64_t sent_bytes;	       /* to other nodes, where there are several rails */
	unsigned parts, quiet;	       /* of messages under way; see gn_ucx_progress() */
};

/* Where a rank's messages to other nodes begin: at the rail nearest to it; with fewer ranks than rails it has the next ones, too. */
struct gn_ucx_home {
	uint8_t rail, span;
};

#define GN_UCX_TLS_MAX 64

struct gn_stripe;

struct gn_ucx {
	struct gn_world *world;
	char transport[8]; /* what UCX's choice is held to; "": UCX_TLS says what may be used */
	uint64_t tag_key; /* what a stranger would have to guess to slip a message in */
	struct gn_ucx_rail rails[GN_RAILS_MAX];
	int rail_count;
	int event_fd; /* of all rails; the only one's own */
	struct gn_ucx_home *homes; /* of each rank; with several rails */
	int *groups; /* of node n by rail i, at n * rail_count + i: those of one number reach each other; NULL: all do */
	int probing; /* an endpoint's end is an answer */
	unsigned probe_failed; /* bits: by rail */
	uint64_t probe_word;
	struct gn_gathered told; /* each rank's addresses as they came */
	int shm_allowed;
	int may_hold; /* see gn_ucx_may_hold() */
	int abandoned;
	struct gn_ucx_end *broken;
	ucs_status_t broken_status;
	uint64_t broken_ns, broken_sent; /* when, and what had been sent until then */
	uint64_t ended_ns;		 /* the last end of a connection */
	struct gn_ucx_traffic traffic;

	struct gn_stripe *stripes, *free_stripes; /* all there are; those not in use */
	unsigned turn;				  /* see gn_ucx_progress() */
};

enum gn_status gn_ucx_fail(struct gn_err *err, const char *what, ucs_status_t rc);
/* A connection has ended. Only kept for whoever asks: a peer that has finished and left is no failure. */
void gn_ucx_note_end(struct gn_ucx_end *e, ucs_status_t rc);

/* --- fabric_rail.c --- */

/* Of a new one only fabric and device are set. tls may be NULL. */
enum gn_status gn_ucx_rail_open(struct gn_ucx_rail *r, const char *tls, struct gn_err *err);
/* Closes the endpoints in good order until the time (gn_clock_ns) is over. */
void gn_ucx_rail_disconnect(struct gn_ucx_rail *r, uint64_t until_ns);
/* Ends worker and context, unless forget; frees the rest. */
void gn_ucx_rail_close(struct gn_ucx_rail *r, int forget);
enum gn_status gn_ucx_rail_connect(struct gn_ucx_rail *r, int rank, struct gn_err *err);
/* Closes an endpoint to a rank of another node, whatever is on its way by it. */
void gn_ucx_rail_drop(struct gn_ucx_rail *r, int rank);
/* Everyone's worker addresses into the ends of all rails. Collective. */
enum gn_status gn_ucx_exchange_addresses(struct gn_ucx *f, struct gn_err *err);

/* --- fabric_lanes.c --- */

/* The UCX_TLS value for a name of ours, in place; *tls is that, or UCX_TLS in the environment, which goes before it. */
enum gn_status gn_ucx_tls(const char *transport, char place[GN_UCX_TLS_MAX], const char **tls, struct gn_err *err);
/* Is it shared memory alone? */
int gn_ucx_end_is_shm(const struct gn_ucx_end *e);
int gn_ucx_end_is_tcp(const struct gn_ucx_end *e);

/* --- fabric_reach.c --- */

/* Where this rank's messages begin, and by how many rails more they may. */
int gn_ucx_nearest_rail(const struct gn_ucx *f);
int gn_ucx_span(const struct gn_ucx *f);

/* Tries each rail between neighbouring nodes, and remembers which reach each other. Collective; waits for as long as a peer may
 * be silent where one does not. */
enum gn_status gn_ucx_probe(struct gn_ucx *f, struct gn_err *err);
/* The rails by which this rank and a rank of another node reach each other, ascending; how many. */
int gn_ucx_ways(const struct gn_ucx *f, int rank, uint8_t ways[GN_RAILS_MAX]);
/* Of a ring of nodes, reached[n] saying whether node n hears the one before it: group[n] at step n * stride. Between groups it is not
 * known, and so not used. Returns how many groups. */
int gn_ucx_group(const unsigned char *reached, int nodes, int *groups, int stride);

/* --- fabric_message.c --- */

void gn_ucx_free_stripes(struct gn_ucx *f);

#endif
