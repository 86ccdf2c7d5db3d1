/* UCX active messages of a fabric: one receive function for all that arrive, over the first rail.
 *
 * A message is a header of at most GN_UCX_AM_HEADER_MAX bytes and data. Data of up to GN_UCX_AM_EAGER_BYTES travel with the header;
 * longer data stay with the sender until the receiver has said where they go (rendezvous), so that a receiver never holds what it
 * has not asked for. Messages of one sender may arrive in another order than they were sent in; coll/messages.h restores it.
 *
 * Nothing here authenticates a sender: the header's user checks a token (transport/ucx/ucx.h, "Unauthenticated peers").
 * Thread safety: as gn_ucx, one thread at a time. The receive function runs inside gn_ucx_progress() and may not call the fabric.
 */
#ifndef GN_TRANSPORT_UCX_UCX_AM_H
#define GN_TRANSPORT_UCX_UCX_AM_H

#include "transport/ucx/ucx.h"

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
