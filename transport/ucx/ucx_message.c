#include "transport/ucx/ucx_internal.h"

#include <stdlib.h>

/* A message between nodes with several rails: one part or more, each by a rail. Sender and receiver cut alike, by sender, tag and
 * length. */
struct gn_stripe {
	struct gn_stripe *next, *next_free;
	struct gn_ucx *fabric;
	struct gn_request *request;
	int count, left;
	ucs_status_t status;
	struct gn_stripe_part {
		struct gn_stripe *stripe;
		struct gn_ucx_rail *rail;
		size_t len;
		int done;
	} parts[GN_RAILS_MAX];
};

static enum gn_status status_of(ucs_status_t rc)
{
	switch (rc) {
	case UCS_OK:
		return GN_OK;
	case UCS_ERR_MESSAGE_TRUNCATED:
		return GN_ERR_MISMATCH;
	case UCS_ERR_NO_MEMORY:
		return GN_ERR_NO_MEMORY;
	case UCS_ERR_CANCELED:
	case UCS_ERR_CONNECTION_RESET:
	case UCS_ERR_ENDPOINT_TIMEOUT:
	case UCS_ERR_NOT_CONNECTED:
	case UCS_ERR_UNREACHABLE:
		return GN_ERR_PEER_LOST;
	default:
		return GN_ERR_FAILED;
	}
}

enum gn_status gn_ucx_fail(struct gn_err *err, const char *what, ucs_status_t rc)
{
	return gn_err_set(err, rc == UCS_ERR_NO_MEMORY ? GN_ERR_NO_MEMORY : GN_ERR_FAILED, "%s: %s (UCX)", what,
			  ucs_status_string(rc));
}

static void finish(struct gn_request *r, ucs_status_t rc)
{
	r->active = 0;
	r->handle = NULL;
	r->status = status_of(rc);
	r->complete(r);
}

/* A message shorter than its buffer is as wrong as one longer, which UCX finds by itself. */
static ucs_status_t whole(size_t wanted, ucs_status_t rc, size_t length)
{
	return rc == UCS_OK && length != wanted ? UCS_ERR_MESSAGE_TRUNCATED : rc;
}

/* --- messages in parts --- */

static struct gn_stripe *take_stripe(struct gn_ucx *f)
{
	struct gn_stripe *s = f->free_stripes;

	if (s) {
		f->free_stripes = s->next_free;
		return s;
	}
	s = calloc(1, sizeof *s);
	if (!s)
		return NULL;
	s->fabric = f;
	for (int i = 0; i < GN_RAILS_MAX; i++)
		s->parts[i].stripe = s;
	s->next = f->stripes;
	f->stripes = s;
	return s;
}

void gn_ucx_free_stripes(struct gn_ucx *f)
{
	struct gn_stripe *next;

	for (struct gn_stripe *s = f->stripes; s; s = next) {
		next = s->next;
		free(s);
	}
	f->stripes = f->free_stripes = NULL;
}

/* The first failure of a part is the message's, told when no part is under way any more. */
static void finish_part(struct gn_stripe_part *part, ucs_status_t rc)
{
	struct gn_stripe *s = part->stripe;
	struct gn_request *r = s->request;

	part->done = 1;
	part->rail->parts--;
	if (s->status == UCS_OK)
		s->status = rc;
	if (--s->left)
		return;
	s->next_free = s->fabric->free_stripes;
	s->fabric->free_stripes = s;
	finish(r, s->status);
}

static void part_sent(void *request, ucs_status_t rc, void *argument)
{
	ucp_request_free(request);
	finish_part(argument, rc);
}

static void part_received(void *request, ucs_status_t rc, const ucp_tag_recv_info_t *info, void *argument)
{
	struct gn_stripe_part *part = argument;

	ucp_request_free(request);
	finish_part(part, whole(part->len, rc, info->length));
}

static void part_begun(struct gn_stripe_part *part, void *request)
{
	if (!UCS_PTR_IS_PTR(request))
		finish_part(part, UCS_PTR_STATUS(request));
}

static void send_part(struct gn_ucx_end *e, uint64_t tag, const void *data, struct gn_stripe_part *part)
{
	ucp_request_param_t param = {.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA | e->send_flags,
				     .cb.send = part_sent,
				     .user_data = part};

	e->rail->sent_bytes += part->len;
	part_begun(part, ucp_tag_send_nbx(e->ep, data, part->len, tag, &param));
}

/* For probing see gn_ucx_receive(). */
static void receive_part(struct gn_ucx_rail *rail, uint64_t tag, void *data, struct gn_stripe_part *part)
{
	ucp_request_param_t param = {.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA,
				     .cb.recv = part_received,
				     .user_data = part};
	ucp_tag_recv_info_t info;
	ucp_tag_message_h message = ucp_tag_probe_nb(rail->worker, tag, UINT64_MAX, 1, &info);

	if (message && info.length != part->len)
		finish_part(part, UCS_ERR_MESSAGE_TRUNCATED);
	else if (message)
		part_begun(part, ucp_tag_msg_recv_nbx(rail->worker, data, part->len, message, &param));
	else
		part_begun(part, ucp_tag_recv_nbx(rail->worker, data, part->len, tag, UINT64_MAX, &param));
}

/* For messages that are too small for all rails. Multiples of the golden ratio spread evenly, whatever the step between a
 * schedule's message numbers, which are the tag's low bits. */
static int rail_of(uint64_t tag, int rails)
{
	return (int)((uint64_t)((uint32_t)tag * 2654435769u) * (uint64_t)rails >> 32);
}

/* By which of count ways, which are rails, a message of fewer parts begins: from the sender's own rail on, where that is left. */
static int first_way(const struct gn_ucx *f, int sender, uint64_t tag, size_t len_bytes, const uint8_t *ways, int count)
{
	const struct gn_ucx_home *h = &f->homes[sender];
	int home = 0;

	while (home < count && ways[home] != h->rail)
		home++;
	return ((home < count ? home : h->rail) + (len_bytes < GN_STRIPE_BYTES ? 0 : rail_of(tag, h->span))) % count;
}

/* One part for each rail, unless that made them too small. What is sent, or received, may be
 * nothing, at NULL. */
static enum gn_status stripe(struct gn_ucx *f, int rank, uint64_t tag, int sends, const char *from, char *into, struct gn_request *r,
			     struct gn_err *err)
{
	size_t most = r->len_bytes < 2 * GN_PART_BYTES ? 1 : r->len_bytes / GN_PART_BYTES, each, at = 0;
	uint8_t ways[GN_RAILS_MAX];
	int rails = gn_ucx_ways(f, rank, ways), parts = most < (size_t)rails ? (int)most : rails;
	int first = parts < rails ? first_way(f, sends ? gn_world_rank(f->world) : rank, tag, r->len_bytes, ways, rails) : 0;
	struct gn_stripe *s = rails ? take_stripe(f) : NULL;

	if (!s) {
		r->active = 0;
		return rails ? gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for a message in parts")
			     : gn_err_set(err, GN_ERR_FAILED, "rank %d is reached by no network device", rank);
	}
	s->request = r;
	s->status = UCS_OK;
	s->left = s->count = parts;
	for (int i = 0; i < parts; i++) {
		s->parts[i].done = 0;
		s->parts[i].rail = &f->rails[ways[(first + i) % rails]];
		s->parts[i].rail->parts++;
	}
	r->handle = s;
	/* whole cache lines, and the rest */
	each = r->len_bytes / (size_t)parts & ~(size_t)63;
	for (int i = 0; i < parts; i++, at += each) {
		struct gn_ucx_rail *rail = s->parts[i].rail;

		s->parts[i].len = i < parts - 1 ? each : r->len_bytes - at;
		if (sends)
			send_part(&rail->ends[rank], tag ^ f->tag_key, from ? from + at : NULL, &s->parts[i]);
		else
			receive_part(rail, tag ^ f->tag_key, into ? into + at : NULL, &s->parts[i]);
	}
	return GN_OK;
}

int gn_ucx_waits_by(const struct gn_ucx *f, int rank, const struct gn_request *r)
{
	const struct gn_stripe *s = r->handle;
	int rail = -1;

	if (f->rail_count == 1 || f->rails[0].ends[rank].same_node || !r->active)
		return -1;
	for (int i = 0; i < s->count; i++) {
		if (s->parts[i].done)
			continue;
		if (rail >= 0)
			return -1;
		rail = (int)(s->parts[i].rail - f->rails);
	}
	return rail;
}

/* --- messages in one --- */

static void sent(void *request, ucs_status_t rc, void *argument)
{
	ucp_request_free(request);
	finish(argument, rc);
}

static void received(void *request, ucs_status_t rc, const ucp_tag_recv_info_t *info, void *argument)
{
	const struct gn_request *r = argument;

	ucp_request_free(request);
	finish(argument, whole(r->len_bytes, rc, info->length));
}

static enum gn_status begun(struct gn_request *r, void *request, const char *what, struct gn_err *err)
{
	if (UCS_PTR_IS_ERR(request)) {
		r->active = 0;
		gn_ucx_fail(err, what, UCS_PTR_STATUS(request));
		if (err)
			err->status = status_of(UCS_PTR_STATUS(request));
		return status_of(UCS_PTR_STATUS(request));
	}
	if (request)
		r->handle = r->active ? request : NULL;
	else
		finish(r, UCS_OK);
	return GN_OK;
}

enum gn_status gn_ucx_send(struct gn_ucx *f, int rank, uint64_t tag, const void *data, size_t len_bytes,
			      struct gn_request *r, struct gn_err *err)
{
	ucp_request_param_t param = {.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA,
				     .cb.send = sent,
				     .user_data = r};
	struct gn_ucx_end *e = &f->rails[0].ends[rank];

	param.op_attr_mask |= e->send_flags;
	*(e->same_node ? &f->traffic.same_node_bytes : &f->traffic.other_node_bytes) += len_bytes;
	r->len_bytes = len_bytes;
	r->active = 1;
	if (f->rail_count > 1 && !e->same_node)
		return stripe(f, rank, tag, 1, data, NULL, r, err);
	return begun(r, ucp_tag_send_nbx(e->ep, data, len_bytes, tag ^ f->tag_key, &param), "sending", err);
}

/* A message that is here already is taken by probing: UCX 1.13 does not tell its length when a reception completes at once,
 * and freeing the request in a callback that runs inside of the call (UCP_OP_ATTR_FLAG_NO_IMM_CMPL) is a path few take. */
enum gn_status gn_ucx_receive(struct gn_ucx *f, int rank, uint64_t tag, void *data, size_t len_bytes,
				 struct gn_request *r, struct gn_err *err)
{
	ucp_request_param_t param = {.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA,
				     .cb.recv = received,
				     .user_data = r};
	ucp_worker_h worker = f->rails[0].worker;
	ucp_tag_message_h message;
	ucp_tag_recv_info_t info;

	r->len_bytes = len_bytes;
	r->active = 1;
	if (f->rail_count > 1 && !f->rails[0].ends[rank].same_node)
		return stripe(f, rank, tag, 0, NULL, data, r, err);
	message = ucp_tag_probe_nb(worker, tag ^ f->tag_key, UINT64_MAX, 1, &info);
	if (message && info.length != len_bytes) {
		finish(r, UCS_ERR_MESSAGE_TRUNCATED);
		return GN_OK;
	}
	if (message)
		return begun(r, ucp_tag_msg_recv_nbx(worker, data, len_bytes, message, &param), "receiving", err);
	return begun(r, ucp_tag_recv_nbx(worker, data, len_bytes, tag ^ f->tag_key, UINT64_MAX, &param), "receiving", err);
}
