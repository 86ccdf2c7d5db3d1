/* What a fabric is made of. Private to fabric*.c. */
#ifndef GN_TRANSPORT_FABRIC_INTERNAL_H
#define GN_TRANSPORT_FABRIC_INTERNAL_H

#include "transport/fabric.h"

#include <ucp/api/ucp.h>

/* A message of fewer bytes goes by rail 0, a longer one by any. */
#define GN_STRIPE_BYTES ((size_t)16384)
/* Of twice as many on it is cut, into parts of at least so many. */
#define GN_PART_BYTES ((size_t)32768)

/* The way to one rank over one rail. */
struct gn_fabric_end {
	struct gn_fabric_rail *rail;
	ucp_ep_h ep;
	const void *address; /* into fabric->told */
	int same_node;
	uint32_t send_flags;
};

struct gn_fabric_rail {
	struct gn_fabric *fabric;
	ucp_context_h context;
	ucp_worker_h worker;
	int event_fd;		       /* the worker's */
	struct gn_fabric_end *ends;    /* one for each rank; all but the first rail only reach other nodes */
	char device[GN_RAIL_NAME_MAX]; /* "": what UCX likes */
	uint64_t sent_bytes;	       /* of messages in parts */
};

struct gn_stripe;

struct gn_fabric {
	struct gn_world *world;
	uint64_t tag_key; /* what a stranger would have to guess to slip a message in */
	struct gn_fabric_rail rails[GN_RAILS_MAX];
	int rail_count;
	int event_fd; /* of all rails; the only one's own */
	size_t stripe_bytes; /* messages of so many bytes and more may use any rail; SIZE_MAX: there is one */
	struct gn_told told; /* each rank's addresses as they came */
	int shm_allowed;
	int may_hold; /* see gn_fabric_may_hold() */
	int abandoned;
	struct gn_fabric_end *broken;
	ucs_status_t broken_status;
	uint64_t broken_ns, broken_sent; /* when, and what had been sent until then */
	uint64_t ended_ns;		 /* the last end of a connection */
	struct gn_fabric_traffic traffic;

	struct gn_stripe *stripes, *free_stripes; /* all there are; those not in use */
	unsigned striped;			  /* messages in parts under way */
	unsigned quiet, turn;			  /* see gn_fabric_progress() */
};

enum gn_status gn_fabric_fail(struct gn_err *err, const char *what, ucs_status_t rc);
/* A connection has ended. Only kept for whoever asks: a peer that has finished and left is no failure. */
void gn_fabric_note_end(struct gn_fabric_end *e, ucs_status_t rc);

/* --- fabric_rail.c --- */

/* Of a new one only fabric and device are set. tls may be NULL. */
enum gn_status gn_fabric_rail_open(struct gn_fabric_rail *r, const char *tls, struct gn_err *err);
/* Closes the endpoints in good order until the time (gn_clock_ns) is over. */
void gn_fabric_rail_disconnect(struct gn_fabric_rail *r, uint64_t until_ns);
/* Ends worker and context, unless forget; frees the rest. */
void gn_fabric_rail_close(struct gn_fabric_rail *r, int forget);
enum gn_status gn_fabric_rail_connect(struct gn_fabric_rail *r, int rank, struct gn_err *err);
/* Everyone's worker addresses into the ends of all rails. Collective. */
enum gn_status gn_fabric_exchange_addresses(struct gn_fabric *f, struct gn_err *err);

/* --- fabric_lanes.c --- */

/* The UCX_TLS value for a name of ours; NULL leaves UCX's own choice. */
enum gn_status gn_fabric_tls(const char *transport, const char **tls, struct gn_err *err);
/* Does such a value (NULL: all) let shared memory, tcp, verbs in? */
int gn_fabric_tls_has_shm(const char *tls);
int gn_fabric_tls_has_tcp(const char *tls);
int gn_fabric_tls_has_rdma(const char *tls);
/* Appends the lanes of one end that out does not hold yet from `before` on. */
void gn_fabric_end_lanes(const struct gn_fabric_end *e, size_t before, struct gn_strbuf *out);
/* Is it shared memory alone? */
int gn_fabric_end_is_shm(const struct gn_fabric_end *e);
int gn_fabric_end_is_tcp(const struct gn_fabric_end *e);

/* --- fabric_message.c --- */

void gn_fabric_free_stripes(struct gn_fabric *f);

#endif
