#include "transport/ucx/ucx_am.h"

#include "transport/ucx/ucx_internal.h"

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
	gn_ucx_complete_request(r, rc);
}

/* UCX may call back while it posts, and return the request all the same: r is then its owner's again, who may have freed it. */
static enum gn_status posted(struct gn_ucx_request *r, const int *ended, void *request, const char *what, struct gn_err *err)
{
	enum gn_status status;

	if (*ended)
		return GN_OK;
	r->ended = NULL;
	status = gn_ucx_request_posted(r, request, what, err);
	return status ? gn_ucx_not_posted(r, status) : GN_OK;
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
		return gn_ucx_not_posted(r, status);
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
		return gn_ucx_not_posted(r, status);
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
