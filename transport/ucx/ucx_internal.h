/* State shared by the files of ucx.h: ucx.c (create, destroy, progress), ucx_failure.c (broken
 * endpoints, lost ranks, ends of requests), ucx_rail.c (contexts, workers, endpoints,
 * address exchange), ucx_reach.c (which rails connect which nodes), ucx_message.c
 * (messages), ucx_stripe.c (messages over several rails), ucx_cipher.c (encryption).
 */
#ifndef GN_TRANSPORT_UCX_UCX_INTERNAL_H
#define GN_TRANSPORT_UCX_UCX_INTERNAL_H

#include "src/base/data_key.h"
#include "transport/ucx/ucx.h"
#include "transport/ucx/ucx_common.h"

#include <ucp/api/ucp.h>

/* A shorter message goes by its sender's nearest rail, a longer one by any of the sender's share. */
#define GN_STRIPE_BYTES ((size_t)16384)

/* The endpoint to one rank on one rail. */
struct gn_ucx_endpoint {
	struct gn_ucx_rail *rail;
	ucp_ep_h ep;
	const void *address; /* in ucx->addresses */
	int same_node;
	uint32_t send_flags;
	int reports_errors; /* created with UCX's error handling */
	int broken;
	ucs_status_t broken_status;
	uint64_t broken_ns, broken_sent; /* when it broke; bytes sent until then */
};

struct gn_ucx_rail {
	struct gn_ucx *ucx;
	ucp_context_h context;
	ucp_worker_h worker;
	int event_fd;			   /* the worker's */
	struct gn_ucx_endpoint *endpoints; /* by rank; only the first rail connects ranks of the same node */
	char device[GN_RAIL_NAME_MAX];	   /* "": UCX selects */
	uint64_t sent_bytes;		   /* to other nodes, where there are several rails */
	unsigned in_flight, quiet;	   /* fragments in flight; calls of gn_ucx_progress() since there were any */
};

/* The rails for a rank's short messages to other nodes: `count` rails from `rail` (the nearest) on. */
struct gn_ucx_rail_share {
	uint8_t rail, count;
};

#define GN_UCX_TLS_MAX 64

struct gn_stripe;
struct gn_ucx_am;
struct gn_ucx_kept;

struct gn_ucx {
	struct gn_world *world;
	char transport[8]; /* the name that UCX's selection has to match; "": UCX_TLS is set */
	uint64_t tag_key;  /* mixed into all tags; derived from the job's secret */
	struct gn_ucx_rail rails[GN_RAILS_MAX];
	int rail_count;
	int event_fd;			   /* of all rails; with one rail, its own */
	struct gn_ucx_rail_share *shares;  /* by rank */
	int *groups; /* of node n on rail i at n * rail_count + i; equal groups are connected. NULL: all are */
	int probing;			   /* gn_ucx_probe() runs: a failed endpoint is a result, not an error */
	unsigned probe_failed;		   /* bit i: rail i */
	uint64_t probe_word;
	struct gn_gathered addresses; /* allgather result: each rank's worker addresses */
	int shm_allowed;
	int may_queue; /* see gn_ucx_may_queue() */
	int abandoned;
	int broken; /* endpoints that broke */
	struct gn_ucx_kept *kept; /* memory to be freed at the end */
	int disowned; /* UCX may still hold requests when it is destroyed */
	uint64_t disconnected_ns;	 /* when the last connection ended */
	struct gn_ucx_traffic traffic;

	struct gn_stripe *stripes, *free_stripes; /* all; those not in use */
	unsigned progress_calls;
	struct gn_ucx_cipher *cipher; /* NULL: messages are plain */
	int (*am_received)(void *context, const struct gn_ucx_am *m); /* ucx.h; NULL: active messages are dropped */
	void *am_context;
};

/* Sets "WHAT: <UCX's text> (UCX)" and returns GN_ERR_NO_MEMORY or GN_ERR_FAILED. */
enum gn_status gn_ucx_fail(struct gn_err *err, const char *what, ucs_status_t rc);
/* After ucp_worker_create() has failed with rc: that, and what is wrong with /dev/shm or a limit of this process if it has to do with that. */
enum gn_status gn_ucx_explain_worker(const char *tls, ucs_status_t rc, struct gn_err *err);
/* ucx_failure.c: records that a connection ended, for gn_ucx_check(). It may be a peer that has finished, which is no failure. */
void gn_ucx_note_disconnect(struct gn_ucx_endpoint *e, ucs_status_t rc);

/* Frees what gn_ucx_keep() was given. */
void gn_ucx_free_kept(struct gn_ucx *f);

/* --- ucx_rail.c --- */

/* r: zeroed but for ucx and device. tls: a UCX_TLS value. */
enum gn_status gn_ucx_rail_open(struct gn_ucx_rail *r, const char *tls, struct gn_err *err);
/* Flushes and closes the endpoints to all ranks that are not lost; blocks until until_ns (gn_clock_ns) at most.
 * Returns whether all were closed by then; if not, the worker is not to be destroyed. */
int gn_ucx_rail_disconnect(struct gn_ucx_rail *r, uint64_t until_ns);
/* Destroys worker and context, unless keep_worker; frees the rest. */
void gn_ucx_rail_close(struct gn_ucx_rail *r, int keep_worker);
enum gn_status gn_ucx_rail_connect(struct gn_ucx_rail *r, int rank, struct gn_err *err);
/* Force-closes the endpoint to a rank of another node; messages in flight on it are lost. Does not block. */
void gn_ucx_rail_drop(struct gn_ucx_rail *r, int rank);
/* Collective: exchanges the worker addresses of all rails and stores them in the endpoints. opened: whether this rank's rails are open,
 * else with the error's text in err. GN_ERR_FAILED on all ranks, with the text of the first whose are not. */
enum gn_status gn_ucx_exchange_addresses(struct gn_ucx *f, enum gn_status opened, struct gn_err *err);

/* --- ucx_stripe.c: transport names and lanes --- */

/* The UCX_TLS value for a transport name of ucx.h: *tls is UCX_TLS of the environment when that is set, else a value written to
 * `place`. GN_ERR_USAGE: unknown name. */
enum gn_status gn_ucx_tls(const char *transport, char place[GN_UCX_TLS_MAX], const char **tls, struct gn_err *err);
/* Whether the endpoint uses shared memory alone; whether it uses tcp. */
int gn_ucx_endpoint_is_shm(const struct gn_ucx_endpoint *e);
int gn_ucx_endpoint_is_tcp(const struct gn_ucx_endpoint *e);

/* --- ucx_reach.c --- */

/* This rank's share of rails: the nearest one, and how many beyond it. */
int gn_ucx_nearest_rail(const struct gn_ucx *f);
int gn_ucx_extra_rails(const struct gn_ucx *f);

/* Collective: sends a probe message on each rail between neighbouring nodes of a ring and sets f->groups. Blocks until the probes
 * have arrived; where one does not, for as long as a peer may be silent (10 s at most), six times that for the first. */
enum gn_status gn_ucx_probe(struct gn_ucx *f, struct gn_err *err);
/* The rails that connect this rank to `rank`, ascending; returns how many. */
int gn_ucx_usable_rails(const struct gn_ucx *f, int rank, uint8_t usable[GN_RAILS_MAX]);
/* Groups the nodes of a ring: reached[n] says whether node n received the probe of the node before it. Writes the group of node n
 * to groups[n * stride] and returns the number of groups. Rails are not used between groups, whose connectivity is unknown. */
int gn_ucx_group(const unsigned char *reached, int nodes, int *groups, int stride);

/* The salt in a rank's record of addresses. */
const char *gn_ucx_salt_of(const struct gn_ucx *f, int rank);

/* --- ucx_cipher.c --- */

enum { GN_UCX_SALT_BYTES = GN_DATA_SALT_BYTES, GN_UCX_AM_SEAL_BYTES = 12 + GN_AEAD_TAG_BYTES };

/* A message, or the part of a striped one that is on one rail. */
struct gn_ucx_part {
	int sends;
	uint64_t tag;
	void *data; /* NULL: an empty message */
	size_t len_bytes, begin, whole_bytes;
};

/* Whether messages between nodes are to be encrypted: what all ranks were told, and there are several nodes. */
int gn_ucx_encrypts(const struct gn_ucx *f);
/* Sets f->cipher if gn_ucx_encrypts(), and salt, which is zeros without. */
enum gn_status gn_ucx_cipher_create(struct gn_ucx *f, uint8_t salt[GN_UCX_SALT_BYTES], struct gn_err *err);
void gn_ucx_cipher_destroy(struct gn_ucx *f);
/* Begins a message, which UCX encrypts while it sends, or decrypts while it receives. The part's data are used until gn_ucx_unseal(). */
enum gn_status gn_ucx_seal(struct gn_ucx *f, int rank, const struct gn_ucx_part *part, struct gn_ucx_sealed **out, struct gn_err *err);
/* What UCX is given instead of the data; sets the count and the data's type. Its length on the wire; s NULL: it is plain. */
void *gn_ucx_sealed_buffer(struct gn_ucx_sealed *s, size_t *count, ucp_request_param_t *param);
size_t gn_ucx_wire_bytes(const struct gn_ucx_sealed *s, size_t len_bytes);
/* Ends *s, unless it is NULL, which UCX has ended with status; sets it to NULL. Returns status, or GN_ERR_DATA if what was received is not
 * authentic. */
enum gn_status gn_ucx_unseal(struct gn_ucx_sealed **s, enum gn_status status);
/* Its memory is the caller's no more. */
void gn_ucx_disown_sealed(struct gn_ucx_sealed *s);
/* GN_ERR_FAILED after a message that was not authentic. */
enum gn_status gn_ucx_cipher_check(const struct gn_ucx *f, struct gn_err *err);
/* Active messages, which are encrypted whole: header, data and lengths become those to be sent, or received into. On a failure r may have a
 * buffer: gn_ucx_not_posted(). unseal: whether m is authentic; text, of GN_UCX_AM_HEADER_MAX + GN_AEAD_TAG_BYTES, becomes its header. */
enum gn_status gn_ucx_seal_am(struct gn_ucx *f, int rank, const void **header, size_t *header_bytes, const void **data, size_t *len,
			      struct gn_ucx_request *r, struct gn_err *err);
int gn_ucx_unseal_am(struct gn_ucx *f, struct gn_ucx_am *m, unsigned char *text);
enum gn_status gn_ucx_expect_am(struct gn_ucx *f, const void *descriptor, void **into, size_t *len, struct gn_ucx_request *r, struct gn_err *err);
/* A rendezvous that is not received. */
void gn_ucx_forget_am(struct gn_ucx *f, const void *descriptor);

/* --- ucx_message.c --- */

enum gn_status gn_ucx_status_of(ucs_status_t rc);
/* Completes a request; the same with UCX's result. */
void gn_ucx_end_request(struct gn_ucx_request *r, enum gn_status status);

/* A message of wanted bytes has the length that UCX reports. It reports a message longer than the buffer; a shorter one is an error, too. */
ucs_status_t gn_ucx_check_length(size_t wanted, ucs_status_t rc, size_t length);
/* GN_ERR_PEER_LOST: a rank that was dropped, after its loss. */
enum gn_status gn_ucx_not_connected(const struct gn_ucx *f, int rank, struct gn_ucx_request *r, struct gn_err *err);

/* --- ucx_stripe.c --- */

/* Posts one fragment on each usable rail, or on fewer when fragments would be shorter than GN_FRAGMENT_BYTES. from, into: NULL for
 * an empty message. */
enum gn_status gn_ucx_stripe(struct gn_ucx *f, int rank, uint64_t tag, int sends, const char *from, char *into, struct gn_ucx_request *r,
			     struct gn_err *err);
void gn_ucx_free_stripes(struct gn_ucx *f);
/* Cancels what is under way of an active receive that has several fragments. */
void gn_ucx_cancel_stripe(struct gn_ucx_request *r);
/* gn_ucx_disown_sealed() for all encrypted fragments that are under way. */
void gn_ucx_disown_stripe(struct gn_ucx_request *r);

#endif
