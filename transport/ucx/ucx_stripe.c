/* Messages over several rails. */
#include "transport/ucx/ucx_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <uct/api/uct.h>

/* A message to or from another node with several rails: one fragment or more, each on a rail of its own. Sender and receiver
 * fragment it alike, by sender, tag and length. */
struct gn_stripe {
	struct gn_stripe *next, *next_free;
	struct gn_ucx *ucx;
	struct gn_ucx_request *request;
	int count, left;
	enum gn_status status;
	struct gn_stripe_fragment {
		struct gn_stripe *stripe;
		struct gn_ucx_rail *rail;
		size_t len;
		void *handle; /* UCX's request; NULL: none */
		struct gn_ucx_sealed *sealed; /* NULL: it is plain */
		int done;
	} fragments[GN_RAILS_MAX];
};

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
	enum gn_status status;

	fragment->done = 1;
	fragment->handle = NULL;
	fragment->rail->in_flight--;
	status = gn_ucx_unseal(&fragment->sealed, gn_ucx_status_of(rc));
	if (!s->status)
		s->status = status;
	if (--s->left)
		return;
	s->next_free = s->ucx->free_stripes;
	s->ucx->free_stripes = s;
	gn_ucx_end_request(r, s->status);
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
	finish_fragment(fragment, gn_ucx_check_length(gn_ucx_wire_bytes(fragment->sealed, fragment->len), rc, info->length));
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

void gn_ucx_disown_stripe(struct gn_ucx_request *r)
{
	struct gn_stripe *s = r->handle;

	for (int i = 0; i < s->count; i++)
		if (!s->fragments[i].done && s->fragments[i].sealed)
			gn_ucx_disown_sealed(s->fragments[i].sealed);
}

static void send_fragment(struct gn_ucx_endpoint *e, uint64_t tag, const void *data, struct gn_stripe_fragment *fragment)
{
	ucp_request_param_t param = {.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA | e->send_flags,
				     .cb.send = fragment_sent,
				     .user_data = fragment};
	size_t count = fragment->len;

	e->rail->sent_bytes += fragment->len;
	if (fragment->sealed)
		data = gn_ucx_sealed_buffer(fragment->sealed, &count, &param);
	fragment_posted(fragment, ucp_tag_send_nbx(e->ep, data, count, tag, &param));
}

/* Probes first for the reason given at gn_ucx_receive(). */
static void receive_fragment(struct gn_ucx_rail *rail, uint64_t tag, void *data, struct gn_stripe_fragment *fragment)
{
	ucp_request_param_t param = {.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA,
				     .cb.recv = fragment_received,
				     .user_data = fragment};
	ucp_tag_recv_info_t info;
	ucp_tag_message_h message = ucp_tag_probe_nb(rail->worker, tag, UINT64_MAX, 1, &info);
	size_t count = fragment->len;

	if (fragment->sealed)
		data = gn_ucx_sealed_buffer(fragment->sealed, &count, &param);
	if (message && info.length != gn_ucx_wire_bytes(fragment->sealed, fragment->len))
		finish_fragment(fragment, UCS_ERR_MESSAGE_TRUNCATED);
	else if (message)
		fragment_posted(fragment, ucp_tag_msg_recv_nbx(rail->worker, data, count, message, &param));
	else
		fragment_posted(fragment, ucp_tag_recv_nbx(rail->worker, data, count, tag, UINT64_MAX, &param));
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

/* One fragment of r, `at` bytes after its begin. */
static void post_fragment(struct gn_ucx *f, int rank, uint64_t tag, int sends, const char *from, char *into, size_t at,
			  const struct gn_ucx_request *r, struct gn_stripe_fragment *fragment)
{
	struct gn_ucx_part part = {sends, tag, into ? into + at : NULL, fragment->len, at, r->len_bytes};

	if (from)
		part.data = (void *)(uintptr_t)(from + at);
	if (f->cipher && gn_ucx_seal(f, rank, &part, &fragment->sealed, NULL))
		finish_fragment(fragment, UCS_ERR_NO_MEMORY);
	else if (sends)
		send_fragment(&fragment->rail->endpoints[rank], tag ^ f->tag_key, part.data, fragment);
	else
		receive_fragment(fragment->rail, tag ^ f->tag_key, part.data, fragment);
}

enum gn_status gn_ucx_stripe(struct gn_ucx *f, int rank, uint64_t tag, int sends, const char *from, char *into, struct gn_ucx_request *r,
			     struct gn_err *err)
{
	size_t most = r->len_bytes < 2 * GN_FRAGMENT_BYTES ? 1 : r->len_bytes / GN_FRAGMENT_BYTES, each, at = 0;
	uint8_t usable[GN_RAILS_MAX];
	int rails = gn_ucx_usable_rails(f, rank, usable), fragments = most < (size_t)rails ? (int)most : rails;
	int first = fragments < rails ? first_usable(f, sends ? gn_world_rank(f->world) : rank, tag, r->len_bytes, usable, rails) : 0;
	struct gn_stripe *s;

	if (rails && sends && !f->rails[usable[0]].endpoints[rank].ep)
		return gn_ucx_not_connected(f, rank, r, err);
	s = rails ? get_stripe(f) : NULL;
	if (!s) {
		r->active = 0;
		return rails ? gn_err_set(err, GN_ERR_NO_MEMORY, "no memory to send a message over several rails")
			     : gn_err_set(err, GN_ERR_FAILED, "no rail (network device) connects this rank to rank %d", rank);
	}
	s->request = r;
	s->status = GN_OK;
	s->left = s->count = fragments;
	for (int i = 0; i < fragments; i++) {
		s->fragments[i].done = 0;
		s->fragments[i].handle = NULL;
		s->fragments[i].sealed = NULL;
		s->fragments[i].rail = &f->rails[usable[(first + i) % rails]];
		s->fragments[i].rail->in_flight++;
	}
	r->handle = s;
	r->striped = 1;
	/* fragments of whole cache lines; the last one takes the remainder */
	each = r->len_bytes / (size_t)fragments & ~(size_t)63;
	for (int i = 0; i < fragments; i++, at += each) {
		s->fragments[i].len = i < fragments - 1 ? each : r->len_bytes - at;
		post_fragment(f, rank, tag, sends, from, into, at, r, &s->fragments[i]);
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

/* UCX_TLS by transport name. sysv is excluded: its segments can be attached by the user's group (UCX 1.13 creates them with mode
 * 0660); posix segments, which are unlinked at once, only by processes that may trace the owner. */
static const struct {
	const char *name, *tls;
	int with_cuda; /* add UCX's CUDA component, if it is built in (UCX warns about unknown names) */
} transports[] = {
	{"auto", "^sysv", 0}, {"net", "^sm", 0}, {"tcp", "tcp,self", 1}, {"shm", "posix,cma,self", 1}, {"rc", "rc,dc,ud,self", 1},
	{"ud", "ud,self", 1},
};

/* Whether UCX has the component; with_devices: and can use it on this host. */
static int has_component(const char *name, int with_devices)
{
	uct_component_attr_t attr = {.field_mask = UCT_COMPONENT_ATTR_FIELD_NAME | UCT_COMPONENT_ATTR_FIELD_MD_RESOURCE_COUNT};
	uct_component_h *all;
	unsigned count;
	int found = 0;

	if (uct_query_components(&all, &count) != UCS_OK)
		return 0;
	for (unsigned i = 0; i < count; i++)
		found |= uct_component_query(all[i], &attr) == UCS_OK && !strncmp(attr.name, name, strlen(name)) &&
			 (!with_devices || attr.md_resource_count);
	uct_release_component_list(all);
	return found;
}

enum gn_status gn_ucx_tls(const char *transport, char place[GN_UCX_TLS_MAX], const char **tls, struct gn_err *err)
{
	int shm = !strcmp(transport, "shm");

	*tls = getenv("UCX_TLS");
	if (*tls)
		return GN_OK;
	for (size_t i = 0; i < sizeof transports / sizeof *transports; i++) {
		if (strcmp(transports[i].name, transport))
			continue;
		snprintf(place, GN_UCX_TLS_MAX, "%s%s%s%s", transports[i].tls,
			 transports[i].with_cuda && has_component("cuda", 0) ? ",cuda" : "",
			 shm && has_component("xpmem", 1) ? ",xpmem" : "", shm && has_component("knem", 1) ? ",knem" : "");
		*tls = place;
		return GN_OK;
	}
	return gn_err_set(err, GN_ERR_USAGE, "no transport '%s': auto, tcp, shm, rc or ud", transport);
}

/* Whether one of the lanes, "rc_mlx5/mlx5_0:1 tcp/eth0", has one of the prefixes. */
static int has_lane(const char *lanes, const char *const *prefixes, size_t count)
{
	for (const char *at = lanes; *at; at += *at == ' ') {
		for (size_t i = 0; i < count; i++)
			if (!strncmp(at, prefixes[i], strlen(prefixes[i])))
				return 1;
		at += strcspn(at, " ");
	}
	return 0;
}

int gn_ucx_lanes_match(const char *lanes, const char *transport)
{
	static const char *const rc[] = {"rc_", "dc_"}, *const ud[] = {"ud_"}, *const tcp[] = {"tcp/"};
	static const char *const shm[] = {"posix/", "sysv/", "cma/", "knem/", "xpmem/"};
	int connected = has_lane(lanes, rc, 2), datagrams = has_lane(lanes, ud, 1), sockets = has_lane(lanes, tcp, 1);

	if (!connected && !datagrams && !sockets && !has_lane(lanes, shm, 5))
		return 1;
	if (!strcmp(transport, "rc"))
		return connected && !sockets;
	if (!strcmp(transport, "ud"))
		return datagrams && !connected && !sockets;
	if (!strcmp(transport, "tcp"))
		return sockets && !connected && !datagrams;
	return strcmp(transport, "shm") || (!sockets && !connected && !datagrams);
}

void gn_ucx_lanes(const struct gn_ucx *f, int rank, struct gn_strbuf *out)
{
	size_t before = out->len;

	for (int i = 0; i < f->rail_count; i++)
		gn_ucx_endpoint_lanes(f->rails[i].endpoints[rank].ep, before, out);
}

int gn_ucx_endpoint_is_shm(const struct gn_ucx_endpoint *e)
{
	struct gn_strbuf lanes = {0};
	int shm;

	gn_ucx_endpoint_lanes(e->ep, 0, &lanes);
	shm = gn_ucx_lanes_match(gn_strbuf_text(&lanes), "shm");
	gn_strbuf_release(&lanes);
	return shm;
}

int gn_ucx_endpoint_is_tcp(const struct gn_ucx_endpoint *e)
{
	struct gn_strbuf lanes = {0};
	int tcp;

	gn_ucx_endpoint_lanes(e->ep, 0, &lanes);
	tcp = strstr(gn_strbuf_text(&lanes), "tcp/") != NULL;
	gn_strbuf_release(&lanes);
	return tcp;
}
