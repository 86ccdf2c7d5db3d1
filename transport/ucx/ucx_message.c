#include "transport/ucx/ucx_internal.h"

#include <stdlib.h>

/* A message to or from another node with several rails: one fragment or more, each on a rail of its own. Sender and receiver
 * fragment it alike, by sender, tag and length. */
struct gn_stripe {
	struct gn_stripe *next, *next_free;
	struct gn_ucx *ucx;
	struct gn_ucx_request *request;
	int count, left;
	ucs_status_t status;
	struct gn_stripe_fragment {
		struct gn_stripe *stripe;
		struct gn_ucx_rail *rail;
		size_t len;
		void *handle; /* UCX's request; NULL: none */
		int done;
	} fragments[GN_RAILS_MAX];
};

static enum gn_status status_of_ucs(ucs_status_t rc)
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
	case UCS_ERR_IO_ERROR: /* reading the memory of a process that has ended */
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

void gn_ucx_complete_request(struct gn_ucx_request *r, ucs_status_t rc)
{
	r->active = 0;
	r->handle = NULL;
	r->status = status_of_ucs(rc);
	if (r->sealed)
		gn_ucx_unseal(r);
	r->complete(r);
}

/* UCX reports a message longer than the buffer; a shorter one is an error, too. */
static ucs_status_t check_length(size_t wanted, ucs_status_t rc, size_t length)
{
	return rc == UCS_OK && length != wanted ? UCS_ERR_MESSAGE_TRUNCATED : rc;
}

/* --- striped messages --- */

static struct gn_stripe *get_stripe(struct gn_ucx *f)
{
	struct gn_stripe *s = f->free_stripes;

	if (s) {
		f->free_stripes = s->next_free;
		return s;
	}
	s = calloc(1, sizeof *s);
	if (!s)
		return NULL;
	s->ucx = f;
	for (int i = 0; i < GN_RAILS_MAX; i++)
		s->fragments[i].stripe = s;
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

/* The message completes with its last fragment, and fails with the first error of any. */
static void finish_fragment(struct gn_stripe_fragment *fragment, ucs_status_t rc)
{
	struct gn_stripe *s = fragment->stripe;
	struct gn_ucx_request *r = s->request;

	fragment->done = 1;
	fragment->handle = NULL;
	fragment->rail->in_flight--;
	if (s->status == UCS_OK)
		s->status = rc;
	if (--s->left)
		return;
	s->next_free = s->ucx->free_stripes;
	s->ucx->free_stripes = s;
	gn_ucx_complete_request(r, s->status);
}

static void fragment_sent(void *request, ucs_status_t rc, void *argument)
{
	ucp_request_free(request);
	finish_fragment(argument, rc);
}

static void fragment_received(void *request, ucs_status_t rc, const ucp_tag_recv_info_t *info, void *argument)
{
	struct gn_stripe_fragment *fragment = argument;

	ucp_request_free(request);
	finish_fragment(fragment, check_length(fragment->len, rc, info->length));
}

static void fragment_posted(struct gn_stripe_fragment *fragment, void *request)
{
	if (!UCS_PTR_IS_PTR(request))
		finish_fragment(fragment, UCS_PTR_STATUS(request));
	else if (!fragment->done)
		fragment->handle = request;
}

/* Each fragment that ends may be the last. */
void gn_ucx_cancel_stripe(struct gn_ucx_request *r)
{
	struct gn_stripe *s = r->handle;

	for (int i = 0; r->active && i < s->count; i++)
		if (!s->fragments[i].done && s->fragments[i].handle)
			ucp_request_cancel(s->fragments[i].rail->worker, s->fragments[i].handle);
}

static void send_fragment(struct gn_ucx_endpoint *e, uint64_t tag, const void *data, struct gn_stripe_fragment *fragment)
{
	ucp_request_param_t param = {.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA | e->send_flags,
				     .cb.send = fragment_sent,
				     .user_data = fragment};

	e->rail->sent_bytes += fragment->len;
	fragment_posted(fragment, ucp_tag_send_nbx(e->ep, data, fragment->len, tag, &param));
}

/* Probes first for the reason given at gn_ucx_receive(). */
static void receive_fragment(struct gn_ucx_rail *rail, uint64_t tag, void *data, struct gn_stripe_fragment *fragment)
{
	ucp_request_param_t param = {.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA,
				     .cb.recv = fragment_received,
				     .user_data = fragment};
	ucp_tag_recv_info_t info;
	ucp_tag_message_h message = ucp_tag_probe_nb(rail->worker, tag, UINT64_MAX, 1, &info);

	if (message && info.length != fragment->len)
		finish_fragment(fragment, UCS_ERR_MESSAGE_TRUNCATED);
	else if (message)
		fragment_posted(fragment, ucp_tag_msg_recv_nbx(rail->worker, data, fragment->len, message, &param));
	else
		fragment_posted(fragment, ucp_tag_recv_nbx(rail->worker, data, fragment->len, tag, UINT64_MAX, &param));
}

/* A rail for a message that is too short for all of them. The tag's low bits are the schedule's message numbers; Fibonacci hashing
 * spreads them evenly over the rails, whatever their stride. */
static int rail_of(uint64_t tag, int rails)
{
	return (int)((uint64_t)((uint32_t)tag * 2654435769u) * (uint64_t)rails >> 32);
}

/* The index in `usable` of the first rail of a message with fewer fragments than rails: the sender's nearest rail, if usable, or
 * for longer messages one of its share. */
static int first_usable(const struct gn_ucx *f, int sender, uint64_t tag, size_t len_bytes, const uint8_t *usable, int count)
{
	const struct gn_ucx_rail_share *h = &f->shares[sender];
	int nearest = 0;

	while (nearest < count && usable[nearest] != h->rail)
		nearest++;
	return ((nearest < count ? nearest : h->rail) + (len_bytes < GN_STRIPE_BYTES ? 0 : rail_of(tag, h->count))) % count;
}

/* A rank that was dropped, after its loss. */
static enum gn_status not_connected(const struct gn_ucx *f, int rank, struct gn_ucx_request *r, struct gn_err *err)
{
	r->active = 0;
	return gn_err_set(err, GN_ERR_PEER_LOST, "rank %d on %s is lost", rank, gn_world_host_of(f->world, rank));
}

/* Posts one fragment on each usable rail, or on fewer when fragments would be shorter than GN_FRAGMENT_BYTES. from, into: NULL for
 * an empty message. */
static enum gn_status stripe(struct gn_ucx *f, int rank, uint64_t tag, int sends, const char *from, char *into, struct gn_ucx_request *r,
			     struct gn_err *err)
{
	size_t most = r->len_bytes < 2 * GN_FRAGMENT_BYTES ? 1 : r->len_bytes / GN_FRAGMENT_BYTES, each, at = 0;
	uint8_t usable[GN_RAILS_MAX];
	int rails = gn_ucx_usable_rails(f, rank, usable), fragments = most < (size_t)rails ? (int)most : rails;
	int first = fragments < rails ? first_usable(f, sends ? gn_world_rank(f->world) : rank, tag, r->len_bytes, usable, rails) : 0;
	struct gn_stripe *s;

	if (rails && sends && !f->rails[usable[0]].endpoints[rank].ep)
		return not_connected(f, rank, r, err);
	s = rails ? get_stripe(f) : NULL;
	if (!s) {
		r->active = 0;
		return rails ? gn_err_set(err, GN_ERR_NO_MEMORY, "no memory to send a message over several rails")
			     : gn_err_set(err, GN_ERR_FAILED, "no rail (network device) connects this rank to rank %d", rank);
	}
	s->request = r;
	s->status = UCS_OK;
	s->left = s->count = fragments;
	for (int i = 0; i < fragments; i++) {
		s->fragments[i].done = 0;
		s->fragments[i].handle = NULL;
		s->fragments[i].rail = &f->rails[usable[(first + i) % rails]];
		s->fragments[i].rail->in_flight++;
	}
	r->handle = s;
	r->striped = 1;
	/* fragments of whole cache lines; the last one takes the remainder */
	each = r->len_bytes / (size_t)fragments & ~(size_t)63;
	for (int i = 0; i < fragments; i++, at += each) {
		struct gn_ucx_rail *rail = s->fragments[i].rail;

		s->fragments[i].len = i < fragments - 1 ? each : r->len_bytes - at;
		if (sends)
			send_fragment(&rail->endpoints[rank], tag ^ f->tag_key, from ? from + at : NULL, &s->fragments[i]);
		else
			receive_fragment(rail, tag ^ f->tag_key, into ? into + at : NULL, &s->fragments[i]);
	}
	return GN_OK;
}

int gn_ucx_blocking_rail(const struct gn_ucx *f, int rank, const struct gn_ucx_request *r)
{
	const struct gn_stripe *s = r->handle;
	int rail = -1;

	if (f->rail_count == 1 || f->rails[0].endpoints[rank].same_node || !r->active)
		return -1;
	for (int i = 0; i < s->count; i++) {
		if (s->fragments[i].done)
			continue;
		if (rail >= 0)
			return -1;
		rail = (int)(s->fragments[i].rail - f->rails);
	}
	return rail;
}

/* --- messages on one rail --- */

static void message_sent(void *request, ucs_status_t rc, void *argument)
{
	ucp_request_free(request);
	gn_ucx_complete_request(argument, rc);
}

static void message_received(void *request, ucs_status_t rc, const ucp_tag_recv_info_t *info, void *argument)
{
	const struct gn_ucx_request *r = argument;

	ucp_request_free(request);
	gn_ucx_complete_request(argument, check_length(r->len_bytes, rc, info->length));
}

enum gn_status gn_ucx_request_posted(struct gn_ucx_request *r, void *request, const char *what, struct gn_err *err)
{
	if (UCS_PTR_IS_ERR(request)) {
		r->active = 0;
		gn_ucx_fail(err, what, UCS_PTR_STATUS(request));
		if (err)
			err->status = status_of_ucs(UCS_PTR_STATUS(request));
		return status_of_ucs(UCS_PTR_STATUS(request));
	}
	if (request)
		r->handle = r->active ? request : NULL;
	else
		gn_ucx_complete_request(r, UCS_OK);
	return GN_OK;
}

enum gn_status gn_ucx_not_posted(struct gn_ucx_request *r, enum gn_status status)
{
	if (r->sealed) {
		r->status = status;
		gn_ucx_unseal(r);
	}
	return status;
}

static enum gn_status post_send(struct gn_ucx *f, int rank, uint64_t tag, const void *data, size_t len_bytes, struct gn_ucx_request *r,
				struct gn_err *err)
{
	ucp_request_param_t param = {.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA,
				     .cb.send = message_sent,
				     .user_data = r};
	struct gn_ucx_endpoint *e = &f->rails[0].endpoints[rank];

	param.op_attr_mask |= e->send_flags;
	r->len_bytes = len_bytes;
	r->active = 1;
	r->striped = 0;
	if (f->rail_count > 1 && !e->same_node)
		return stripe(f, rank, tag, 1, data, NULL, r, err);
	if (!e->ep)
		return not_connected(f, rank, r, err);
	return gn_ucx_request_posted(r, ucp_tag_send_nbx(e->ep, data, len_bytes, tag ^ f->tag_key, &param), "sending", err);
}

enum gn_status gn_ucx_send(struct gn_ucx *f, int rank, uint64_t tag, const void *data, size_t len_bytes,
			      struct gn_ucx_request *r, struct gn_err *err)
{
	int same_node = f->rails[0].endpoints[rank].same_node;
	enum gn_status status = GN_OK;

	*(same_node ? &f->traffic.same_node_bytes : &f->traffic.other_node_bytes) += len_bytes;
	if (f->cipher && !same_node)
		status = gn_ucx_seal(f, rank, tag, &data, &len_bytes, r, err);
	if (!status)
		status = post_send(f, rank, tag, data, len_bytes, r, err);
	return status ? gn_ucx_not_posted(r, status) : GN_OK;
}

/* A message that has already arrived is found by probing, because UCX 1.13 does not return its length when ucp_tag_recv_nbx()
 * completes immediately. UCP_OP_ATTR_FLAG_NO_IMM_CMPL would, but frees the request in a callback inside of the call, a path that
 * few programs exercise. */
static enum gn_status post_receive(struct gn_ucx *f, int rank, uint64_t tag, void *data, size_t len_bytes, struct gn_ucx_request *r,
				   struct gn_err *err)
{
	ucp_request_param_t param = {.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA,
				     .cb.recv = message_received,
				     .user_data = r};
	ucp_worker_h worker = f->rails[0].worker;
	ucp_tag_message_h message;
	ucp_tag_recv_info_t info;

	r->len_bytes = len_bytes;
	r->active = 1;
	r->striped = 0;
	if (f->rail_count > 1 && !f->rails[0].endpoints[rank].same_node)
		return stripe(f, rank, tag, 0, NULL, data, r, err);
	message = ucp_tag_probe_nb(worker, tag ^ f->tag_key, UINT64_MAX, 1, &info);
	if (message && info.length != len_bytes) {
		gn_ucx_complete_request(r, UCS_ERR_MESSAGE_TRUNCATED);
		return GN_OK;
	}
	if (message)
		return gn_ucx_request_posted(r, ucp_tag_msg_recv_nbx(worker, data, len_bytes, message, &param), "receiving", err);
	return gn_ucx_request_posted(r, ucp_tag_recv_nbx(worker, data, len_bytes, tag ^ f->tag_key, UINT64_MAX, &param), "receiving", err);
}

enum gn_status gn_ucx_receive(struct gn_ucx *f, int rank, uint64_t tag, void *data, size_t len_bytes,
				 struct gn_ucx_request *r, struct gn_err *err)
{
	enum gn_status status = GN_OK;

	if (f->cipher && !f->rails[0].endpoints[rank].same_node)
		status = gn_ucx_expect(f, rank, tag, &data, &len_bytes, r, err);
	if (!status)
		status = post_receive(f, rank, tag, data, len_bytes, r, err);
	return status ? gn_ucx_not_posted(r, status) : GN_OK;
}

int gn_ucx_find_arrived(const struct gn_ucx *f, uint64_t tag, uint64_t any, uint64_t *found)
{
	ucp_tag_recv_info_t info;

	for (int i = 0; i < f->rail_count; i++) {
		if (!ucp_tag_probe_nb(f->rails[i].worker, tag ^ f->tag_key, ~any, 0, &info))
			continue;
		*found = info.sender_tag ^ f->tag_key;
		return 1;
	}
	return 0;
}
