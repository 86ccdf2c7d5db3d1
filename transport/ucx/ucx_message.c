#include "transport/ucx/ucx_internal.h"

enum gn_status gn_ucx_status_of(ucs_status_t rc)
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

void gn_ucx_end_request(struct gn_ucx_request *r, enum gn_status status)
{
	r->active = 0;
	r->handle = NULL;
	r->status = gn_ucx_unseal(&r->sealed, status);
	r->complete(r);
}

ucs_status_t gn_ucx_check_length(size_t wanted, ucs_status_t rc, size_t length)
{
	return rc == UCS_OK && length != wanted ? UCS_ERR_MESSAGE_TRUNCATED : rc;
}

enum gn_status gn_ucx_not_connected(const struct gn_ucx *f, int rank, struct gn_ucx_request *r, struct gn_err *err)
{
	r->active = 0;
	return gn_err_set(err, GN_ERR_PEER_LOST, "rank %d on %s is lost", rank, gn_world_host_of(f->world, rank));
}

/* --- messages on one rail --- */

static void complete_request(struct gn_ucx_request *r, ucs_status_t rc)
{
	gn_ucx_end_request(r, gn_ucx_status_of(rc));
}

static void message_sent(void *request, ucs_status_t rc, void *argument)
{
	ucp_request_free(request);
	complete_request(argument, rc);
}

static void message_received(void *request, ucs_status_t rc, const ucp_tag_recv_info_t *info, void *argument)
{
	const struct gn_ucx_request *r = argument;

	ucp_request_free(request);
	complete_request(argument, gn_ucx_check_length(gn_ucx_wire_bytes(r->sealed, r->len_bytes), rc, info->length));
}

/* Of a message that does not go by gn_ucx_stripe(): prepares its encryption, if it is encrypted. *data and *count become what UCX is given. */
static enum gn_status seal(struct gn_ucx *f, int rank, const struct gn_ucx_part *part, void **data, size_t *count, ucp_request_param_t *param,
			   struct gn_ucx_request *r, struct gn_err *err)
{
	enum gn_status status = GN_OK;

	*data = part->data;
	*count = part->len_bytes;
	if (!f->cipher || f->rails[0].endpoints[rank].same_node)
		return GN_OK;
	status = gn_ucx_seal(f, rank, part, &r->sealed, err);
	if (status)
		r->active = 0;
	else
		*data = gn_ucx_sealed_buffer(r->sealed, count, param);
	return status;
}

/* Takes over what UCX returned for it. */
static enum gn_status request_posted(struct gn_ucx_request *r, void *request, const char *what, struct gn_err *err)
{
	if (UCS_PTR_IS_ERR(request)) {
		r->active = 0;
		gn_ucx_fail(err, what, UCS_PTR_STATUS(request));
		if (err)
			err->status = gn_ucx_status_of(UCS_PTR_STATUS(request));
		return gn_ucx_status_of(UCS_PTR_STATUS(request));
	}
	if (request)
		r->handle = r->active ? request : NULL;
	else
		complete_request(r, UCS_OK);
	return GN_OK;
}

/* After a failure to post: gives its ciphertext's buffer back. Returns status. */
static enum gn_status not_posted(struct gn_ucx_request *r, enum gn_status status)
{
	return gn_ucx_unseal(&r->sealed, status);
}

enum gn_status gn_ucx_send(struct gn_ucx *f, int rank, uint64_t tag, const void *data, size_t len_bytes,
			      struct gn_ucx_request *r, struct gn_err *err)
{
	ucp_request_param_t param = {.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA,
				     .cb.send = message_sent,
				     .user_data = r};
	struct gn_ucx_part part = {1, tag, (void *)(uintptr_t)data, len_bytes, 0, len_bytes};
	struct gn_ucx_endpoint *e = &f->rails[0].endpoints[rank];
	enum gn_status status;
	void *buffer;
	size_t count;

	*(e->same_node ? &f->traffic.same_node_bytes : &f->traffic.other_node_bytes) += len_bytes;
	param.op_attr_mask |= e->send_flags;
	r->len_bytes = len_bytes;
	r->active = 1;
	r->striped = 0;
	if (f->rail_count > 1 && !e->same_node)
		return gn_ucx_stripe(f, rank, tag, 1, data, NULL, r, err);
	if (!e->ep)
		return gn_ucx_not_connected(f, rank, r, err);
	status = seal(f, rank, &part, &buffer, &count, &param, r, err);
	if (!status)
		status = request_posted(r, ucp_tag_send_nbx(e->ep, buffer, count, tag ^ f->tag_key, &param), "sending", err);
	return status ? not_posted(r, status) : GN_OK;
}

/* A message that has already arrived is found by probing, because UCX 1.13 does not return its length when ucp_tag_recv_nbx()
 * completes immediately. UCP_OP_ATTR_FLAG_NO_IMM_CMPL would, but frees the request in a callback inside of the call, a path that
 * few programs exercise. */
static enum gn_status post_receive(struct gn_ucx *f, uint64_t tag, void *data, size_t count, ucp_request_param_t *param,
				   struct gn_ucx_request *r, struct gn_err *err)
{
	ucp_worker_h worker = f->rails[0].worker;
	ucp_tag_recv_info_t info;
	ucp_tag_message_h message = ucp_tag_probe_nb(worker, tag, UINT64_MAX, 1, &info);

	if (message && info.length != gn_ucx_wire_bytes(r->sealed, r->len_bytes)) {
		complete_request(r, UCS_ERR_MESSAGE_TRUNCATED);
		return GN_OK;
	}
	if (message)
		return request_posted(r, ucp_tag_msg_recv_nbx(worker, data, count, message, param), "receiving", err);
	return request_posted(r, ucp_tag_recv_nbx(worker, data, count, tag, UINT64_MAX, param), "receiving", err);
}

enum gn_status gn_ucx_receive(struct gn_ucx *f, int rank, uint64_t tag, void *data, size_t len_bytes,
				 struct gn_ucx_request *r, struct gn_err *err)
{
	ucp_request_param_t param = {.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA,
				     .cb.recv = message_received,
				     .user_data = r};
	struct gn_ucx_part part = {0, tag, data, len_bytes, 0, len_bytes};
	enum gn_status status;
	void *buffer;
	size_t count;

	r->len_bytes = len_bytes;
	r->active = 1;
	r->striped = 0;
	if (f->rail_count > 1 && !f->rails[0].endpoints[rank].same_node)
		return gn_ucx_stripe(f, rank, tag, 0, NULL, data, r, err);
	status = seal(f, rank, &part, &buffer, &count, &param, r, err);
	if (!status)
		status = post_receive(f, tag ^ f->tag_key, buffer, count, &param, r, err);
	return status ? not_posted(r, status) : GN_OK;
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

/* UCX's number for all messages of Gannet; the header says more. */
enum { AM_ID = 1 };

static ucs_status_t arrived(void *argument, const void *header, size_t header_bytes, void *data, size_t len_bytes,
			    const ucp_am_recv_param_t *param)
{
	struct gn_ucx *f = argument;
	struct gn_ucx_am m = {
		.header = header,
		.header_bytes = header_bytes,
		.data = data,
		.data_bytes = len_bytes,
		.is_rendezvous = (param->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV) != 0,
		.may_keep = (param->recv_attr & (UCP_AM_RECV_ATTR_FLAG_RNDV | UCP_AM_RECV_ATTR_FLAG_DATA)) != 0,
	};

	unsigned char text[GN_UCX_AM_HEADER_MAX + GN_AEAD_TAG_BYTES];
	int is_kept;

	if (!f->am_received || f->abandoned || (f->cipher && !gn_ucx_unseal_am(f, &m, text)))
		return UCS_OK;
	is_kept = f->am_received(f->am_context, &m);
	if (f->cipher && !is_kept && m.is_rendezvous)
		gn_ucx_forget_am(f, data);
	return is_kept ? UCS_INPROGRESS : UCS_OK;
}

enum gn_status gn_ucx_am_listen(struct gn_ucx *f, gn_ucx_am_fn received, void *context, struct gn_err *err)
{
	ucp_am_handler_param_t param = {.field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_FLAGS |
						      UCP_AM_HANDLER_PARAM_FIELD_CB | UCP_AM_HANDLER_PARAM_FIELD_ARG,
					.id = AM_ID,
					.flags = UCP_AM_FLAG_WHOLE_MSG | UCP_AM_FLAG_PERSISTENT_DATA,
					.cb = arrived,
					.arg = f};
	ucs_status_t rc;

	f->am_received = received;
	f->am_context = context;
	if (!received)
		return GN_OK;
	rc = ucp_worker_set_am_recv_handler(f->rails[0].worker, &param);
	return rc == UCS_OK ? GN_OK : gn_ucx_fail(err, "listening for active messages", rc);
}

static void complete(struct gn_ucx_request *r, ucs_status_t rc)
{
	if (r->ended)
		*r->ended = 1;
	r->ended = NULL;
	complete_request(r, rc);
}

/* UCX may call back while it posts, and return the request all the same: r is then its owner's again, who may have freed it. */
static enum gn_status posted(struct gn_ucx_request *r, const int *ended, void *request, const char *what, struct gn_err *err)
{
	enum gn_status status;

	if (*ended)
		return GN_OK;
	r->ended = NULL;
	status = request_posted(r, request, what, err);
	return status ? not_posted(r, status) : GN_OK;
}

static void sent(void *request, ucs_status_t rc, void *argument)
{
	ucp_request_free(request);
	complete(argument, rc);
}

static void received(void *request, ucs_status_t rc, size_t len_bytes, void *argument)
{
	struct gn_ucx_request *r = argument;

	ucp_request_free(request);
	complete(r, rc == UCS_OK && len_bytes != r->len_bytes + (r->sealed ? GN_AEAD_TAG_BYTES : 0) ? UCS_ERR_MESSAGE_TRUNCATED : rc);
}

enum gn_status gn_ucx_am_send(struct gn_ucx *f, int rank, const void *header, size_t header_bytes, const void *data, size_t len_bytes,
			      struct gn_ucx_request *r, struct gn_err *err)
{
	ucp_request_param_t param = {.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA | UCP_OP_ATTR_FIELD_FLAGS,
				     .cb.send = sent,
				     .user_data = r,
				     .flags = len_bytes > GN_UCX_AM_EAGER_BYTES ? UCP_AM_SEND_FLAG_RNDV : UCP_AM_SEND_FLAG_EAGER};
	struct gn_ucx_endpoint *e = &f->rails[0].endpoints[rank];
	int ended = 0;
	enum gn_status status;

	*(e->same_node ? &f->traffic.same_node_bytes : &f->traffic.other_node_bytes) += header_bytes + len_bytes;
	r->len_bytes = len_bytes;
	if (!e->ep)
		return gn_err_set(err, GN_ERR_PEER_LOST, "rank %d on %s is lost", rank, gn_world_host_of(f->world, rank));
	status = f->cipher ? gn_ucx_seal_am(f, rank, &header, &header_bytes, &data, &len_bytes, r, err) : GN_OK;
	if (status)
		return not_posted(r, status);
	r->active = 1;
	r->ended = &ended;
	return posted(r, &ended, ucp_am_send_nbx(e->ep, AM_ID, header, header_bytes, data, len_bytes, &param), "sending", err);
}

enum gn_status gn_ucx_am_receive(struct gn_ucx *f, void *descriptor, void *into, size_t len_bytes, struct gn_ucx_request *r,
				 struct gn_err *err)
{
	ucp_request_param_t param = {.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA,
				     .cb.recv_am = received,
				     .user_data = r};
	int ended = 0;
	enum gn_status status;

	r->len_bytes = len_bytes;
	status = f->cipher ? gn_ucx_expect_am(f, descriptor, &into, &len_bytes, r, err) : GN_OK;
	if (status)
		return not_posted(r, status);
	r->active = 1;
	r->ended = &ended;
	return posted(r, &ended, ucp_am_recv_data_nbx(f->rails[0].worker, descriptor, into, len_bytes, &param), "receiving", err);
}

void gn_ucx_am_release(struct gn_ucx *f, void *data)
{
	if (f->cipher)
		gn_ucx_forget_am(f, data);
	if (!f->abandoned)
		ucp_am_data_release(f->rails[0].worker, data);
}
