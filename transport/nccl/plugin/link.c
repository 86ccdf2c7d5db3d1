#include "transport/nccl/plugin/worker.h"

#include "src/base/clock.h"
#include "transport/ucx/ucx_common.h"

#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#define CLOSING 'B'
#define CLOSE_NS 1000000000u

struct gn_closing {
	struct gn_closing *next;
	void *request;
};

/* --- creation --- */

/* Called inside ucp_worker_progress(), where the endpoint must not be closed. */
static void endpoint_broke(void *argument, ucp_ep_h ep, ucs_status_t rc)
{
	struct gn_link *link = argument;

	(void)ep;
	if (link->broken)
		return;
	snprintf(link->why, sizeof link->why, "the connection broke (%s)", ucs_status_string(rc));
	link->broken = 1;
	link->worker->link_broke = 1;
}

static ucs_status_t open_endpoint(struct gn_link *link, const void *address)
{
	ucp_ep_params_t params = {
		.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE |
			      UCP_EP_PARAM_FIELD_ERR_HANDLER,
		.address = address,
		.err_mode = UCP_ERR_HANDLING_MODE_PEER,
		.err_handler = {.cb = endpoint_broke, .arg = link},
	};

	return ucp_ep_create(link->worker->ucp_worker, &params, &link->ep);
}

/* Logs the link's lanes and sets the flags for sends over them. */
static void describe(struct gn_link *link)
{
	struct gn_strbuf lanes = {0};

	gn_ucx_endpoint_lanes(link->ep, 0, &lanes);
	if (strstr(gn_strbuf_text(&lanes), "tcp/"))
		link->send_flags = UCP_OP_ATTR_FLAG_FAST_CMPL;
	gn_plugin_log_info(&link->worker->log, "link to %s over %s", link->host, gn_strbuf_text(&lanes));
	gn_strbuf_release(&lanes);
}

enum gn_status gn_link_get(struct gn_worker *w, const struct gn_worker_name *peer, const void *address, const char *host,
			   struct gn_link **out, struct gn_err *err)
{
	struct gn_link *link;
	ucs_status_t rc;

	for (link = w->links; link; link = link->next)
		if (!link->broken && !link->peer_left_ns && !memcmp(link->peer.id, peer->id, sizeof peer->id)) {
			*out = link;
			return GN_OK;
		}
	link = calloc(1, sizeof *link);
	if (!link)
		return gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for a link");
	link->worker = w;
	link->peer = *peer;
	link->sockets[0] = link->sockets[1] = -1;
	snprintf(link->host, sizeof link->host, "%s", host);
	rc = open_endpoint(link, address);
	if (rc != UCS_OK) {
		free(link);
		return gn_err_set(err, GN_ERR_FAILED, "cannot reach %s with the transports allowed: %s (UCX); see UCX_TLS and "
				  "UCX_NET_DEVICES on both ends", host, ucs_status_string(rc));
	}
	describe(link);
	if (link->send_flags && gn_progress_thread_start(w, err))
		gn_plugin_log_warn(&w->log, "%s", err->text);
	link->next = w->links;
	w->links = link;
	*out = link;
	return GN_OK;
}

void gn_link_add_socket(struct gn_link *link, int fd)
{
	struct epoll_event event = {.events = EPOLLIN | EPOLLRDHUP, .data.ptr = link};
	int i = link->sockets[0] < 0 ? 0 : 1;

	if (link->broken || link->sockets[i] >= 0 || epoll_ctl(link->worker->epoll, EPOLL_CTL_ADD, fd, &event)) {
		close(fd);
		return;
	}
	link->sockets[i] = fd;
}

/* --- end --- */

static void close_sockets(struct gn_link *link)
{
	for (int i = 0; i < 2; i++)
		if (link->sockets[i] >= 0) {
			close(link->sockets[i]);
			link->sockets[i] = -1;
		}
}

/* The close request is kept until UCX has completed it. */
static void close_endpoint(struct gn_link *link, int force)
{
	ucp_request_param_t param = {.op_attr_mask = force ? UCP_OP_ATTR_FIELD_FLAGS : 0,
				     .flags = force ? UCP_EP_CLOSE_FLAG_FORCE : 0};
	struct gn_closing *closing;
	void *request;

	if (!link->ep)
		return;
	request = ucp_ep_close_nbx(link->ep, &param);
	link->ep = NULL;
	if (!UCS_PTR_IS_PTR(request))
		return;
	closing = malloc(sizeof *closing);
	if (!closing) {
		ucp_request_free(request);
		return;
	}
	*closing = (struct gn_closing){.next = link->worker->closing, .request = request};
	link->worker->closing = closing;
}

void gn_link_break(struct gn_link *link, const char *why)
{
	if (!link->broken)
		snprintf(link->why, sizeof link->why, "%s", why);
	link->broken = 1;
	close_sockets(link);
	close_endpoint(link, 1);
}

static void unlink_and_free(struct gn_link *link)
{
	struct gn_link **at = &link->worker->links;

	while (*at != link)
		at = &(*at)->next;
	*at = link->next;
	free(link);
}

void gn_link_release(struct gn_link *link)
{
	if (!--link->conns && link->broken && !link->ep)
		unlink_and_free(link);
}

void gn_links_close_broken(struct gn_worker *w)
{
	struct gn_link *next;

	w->link_broke = 0;
	for (struct gn_link *link = w->links; link; link = next) {
		next = link->next;
		if (!link->broken || !link->ep)
			continue;
		gn_plugin_log_info(&w->log, "link to %s: %s", link->host, link->why);
		gn_link_break(link, "");
		if (!link->conns)
			unlink_and_free(link);
	}
}

/* --- messages from peers --- */

/* Reads the link's sockets: an announcement of closing, or the end of the stream. */
static void read_sockets(struct gn_link *link)
{
	for (int i = 0; i < 2; i++) {
		char byte;
		ssize_t n = link->sockets[i] < 0 ? 1 : recv(link->sockets[i], &byte, 1, MSG_DONTWAIT);

		if (link->sockets[i] < 0 || (n < 0 && (errno == EAGAIN || errno == EINTR)))
			continue;
		if (n == 1 && byte == CLOSING) {
			link->peer_left_ns = gn_clock_ns();
		} else if (link->peer_left_ns) {
			close(link->sockets[i]);
			link->sockets[i] = -1;
		} else {
			link->broken = link->worker->link_broke = 1;
			snprintf(link->why, sizeof link->why, "the peer process has ended");
			return;
		}
	}
	/* no connection uses the link any more */
	if (link->peer_left_ns && !link->conns) {
		link->broken = link->worker->link_broke = 1;
		snprintf(link->why, sizeof link->why, "closed");
	}
}

static void free_closed(struct gn_worker *w)
{
	struct gn_closing **at = &w->closing, *c;

	while ((c = *at)) {
		if (ucp_request_check_status(c->request) == UCS_INPROGRESS) {
			at = &c->next;
			continue;
		}
		ucp_request_free(c->request);
		*at = c->next;
		free(c);
	}
}

void gn_links_poll(struct gn_worker *w)
{
	struct epoll_event events[16];
	int n = epoll_wait(w->epoll, events, 16, 0);

	for (int i = 0; i < n; i++)
		read_sockets(events[i].data.ptr);
	if (w->link_broke)
		gn_links_close_broken(w);
	free_closed(w);
}

/* --- closing all links --- */

static void announce_closing(struct gn_link *link)
{
	const char byte = CLOSING;

	for (int i = 0; i < 2; i++)
		if (link->sockets[i] >= 0)
			send(link->sockets[i], &byte, 1, MSG_NOSIGNAL | MSG_DONTWAIT);
}

/* Waits up to CLOSE_NS for peers that are alive; links to dead peers are closed by force at once. */
void gn_links_close(struct gn_worker *w)
{
	uint64_t until = gn_clock_ns() + CLOSE_NS;
	struct gn_closing *c;
	struct gn_link *link;

	for (link = w->links; link; link = link->next) {
		announce_closing(link);
		close_endpoint(link, link->broken || link->peer_left_ns);
	}
	while (w->closing && gn_clock_ns() < until) {
		for (int i = 0; i < 64 && !w->frozen; i++)
			ucp_worker_progress(w->ucp_worker);
		gn_links_poll(w);
		if (w->closing)
			sched_yield();
	}
	/* ucp_worker_destroy() completes the remaining close requests, if they have been freed */
	while ((c = w->closing)) {
		w->closing = c->next;
		ucp_request_free(c->request);
		free(c);
	}
	while ((link = w->links)) {
		w->links = link->next;
		close_sockets(link);
		free(link);
	}
}
