/* Endpoints that break, ranks that are lost, and requests that nobody waits for any more. */
#include "transport/ucx/ucx_internal.h"

#include "src/base/clock.h"

#include <stdlib.h>

/* Delay before a transport timeout is an error while this rank still sends to other peers: the failed link carried no message. Rank 0
 * tells of a loss once it has asked the others for their states, 0.3 s after it noticed, and may be asleep before. */
#define IDLE_LINK_NS 2000000000u
/* The same while this rank sends nothing: the heartbeat compares all ranks and is about to report more. */
#define STALLED_NS 3500000000u
/* UCX needs several progress calls to tear down a connection; events within this time may be part of that. */
#define DISCONNECTING_NS 100000000u

struct gn_ucx_kept {
	struct gn_ucx_kept *next;
	void *memory;
};

void gn_ucx_abandon(struct gn_ucx *f)
{
	/* callbacks run only inside of progress calls, so without them requests may be freed */
	f->abandoned = 1;
}

/* --- broken endpoints --- */

static uint64_t sent_bytes(const struct gn_ucx *f)
{
	return f->traffic.same_node_bytes + f->traffic.other_node_bytes;
}

void gn_ucx_note_disconnect(struct gn_ucx_endpoint *e, ucs_status_t rc)
{
	struct gn_ucx *f = e->rail->ucx;

	if (f->probing) {
		f->probe_failed |= 1u << (e->rail - f->rails);
		return;
	}
	/* an endpoint dropped after probing, or after the loss of its rank, may report its end at any time */
	if (!e->ep && (f->groups || gn_world_losses(f->world)))
		return;
	f->disconnected_ns = gn_clock_ns();
	if (e->broken)
		return;
	e->broken = 1;
	e->broken_status = rc;
	e->broken_ns = f->disconnected_ns;
	e->broken_sent = sent_bytes(f);
	f->broken++;
}

int gn_ucx_is_disconnecting(const struct gn_ucx *f)
{
	return f->disconnected_ns && gn_clock_ns() - f->disconnected_ns < DISCONNECTING_NS;
}

static enum gn_status check_endpoint(const struct gn_ucx_endpoint *e, int rank, uint64_t after_ns, struct gn_err *err)
{
	const struct gn_ucx *f = e->rail->ucx;
	uint64_t delay_ns = UINT64_MAX;

	if (!e->broken)
		return GN_OK;
	/* The heartbeat reports a peer whose process ended at once, one whose link failed when the transport does, and one that
	 * left in good order a little later. */
	if (e->broken_status == UCS_ERR_ENDPOINT_TIMEOUT && !gn_world_anyone_left(f->world))
		delay_ns = sent_bytes(f) > e->broken_sent ? IDLE_LINK_NS : STALLED_NS;
	if (delay_ns < after_ns)
		after_ns = delay_ns;
	if (gn_clock_ns() - e->broken_ns < after_ns)
		return GN_OK;
	/* which of the two is cut off is known to neither */
	return gn_err_set(err, GN_ERR_PEER_LOST, "rank %d on %s is lost: the connection to it%s%s broke (%s at rank %d on %s)", rank,
			  gn_world_host_of(f->world, rank), *e->rail->device ? " by " : "", e->rail->device,
			  ucs_status_string(e->broken_status), gn_world_rank(f->world), gn_world_host_of(f->world, gn_world_rank(f->world)));
}

enum gn_status gn_ucx_check(const struct gn_ucx *f, const int *ranks, int count, uint64_t after_ns, struct gn_err *err)
{
	enum gn_status status = gn_ucx_cipher_check(f, err);

	for (int i = 0; f->broken && i < count && !status; i++) {
		int rank = ranks ? ranks[i] : i;

		for (int k = 0; k < f->rail_count && !status; k++)
			status = check_endpoint(&f->rails[k].endpoints[rank], rank, after_ns, err);
	}
	return status;
}

/* --- lost ranks --- */

void gn_ucx_drop(struct gn_ucx *f, int rank)
{
	for (int i = 0; i < f->rail_count && !f->abandoned; i++)
		if (f->rails[i].endpoints[rank].ep && f->rails[i].endpoints[rank].reports_errors)
			gn_ucx_rail_drop(&f->rails[i], rank);
}

int gn_ucx_sends_eagerly(const struct gn_ucx *f, int rank)
{
	return f->rails[0].endpoints[rank].send_flags != 0;
}

/* --- requests that nobody waits for --- */

void gn_ucx_cancel(struct gn_ucx *f, struct gn_ucx_request *r)
{
	if (f->abandoned || !r->active || !r->handle)
		return;
	if (r->striped)
		gn_ucx_cancel_stripe(r);
	else
		ucp_request_cancel(f->rails[0].worker, r->handle);
}

static void ignore(struct gn_ucx_request *r)
{
	(void)r;
}

void gn_ucx_disown(struct gn_ucx *f, struct gn_ucx_request *r)
{
	f->disowned = 1;
	if (r->active && r->striped)
		gn_ucx_disown_stripe(r);
	else if (r->sealed)
		gn_ucx_disown_sealed(r->sealed);
	r->complete = ignore;
}

int gn_ucx_keep(struct gn_ucx *f, void *memory)
{
	struct gn_ucx_kept *k = malloc(sizeof *k);

	if (!k)
		return 0;
	*k = (struct gn_ucx_kept){f->kept, memory};
	f->kept = k;
	return 1;
}

void gn_ucx_free_kept(struct gn_ucx *f)
{
	for (struct gn_ucx_kept *k = f->kept, *next; k; k = next) {
		next = k->next;
		free(k->memory);
		free(k);
	}
	f->kept = NULL;
}
