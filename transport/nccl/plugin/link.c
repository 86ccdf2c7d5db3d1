#include "transport/nccl/plugin/worker.h"

#include "src/base/clock.h"
#include "src/base/thread.h"
#include "transport/ucx/ucx_common.h"

#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define CLOSING 'B'
#define CLOSE_NS 1000000000u

struct gn_closing {
	struct gn_closing *next;
	void *request;
};

/* A thread that progresses a worker while NCCL does not.
 *
 * NCCL's proxy thread sleeps when all its requests are complete. Over TCP that is too early: UCX completes a send once its last
 * part is in UCX's own queue, which is sent only when the socket has room and the worker is progressed; UCX's flush, which would
 * wait for that, needs the receiver to progress, too, which may sleep as well. So a worker with a link over TCP has this thread. It
 * checks the worker every 2 ms, progresses it only if no other thread has since the last check, and extends the interval to 32 ms
 * while nothing happens. Other transports pass completed sends to hardware or to the receiver's memory and need no thread.
 *
 * The thread ends with the context, so that the library may be unloaded then; connections that outlive the context have none.
 *
 * While operations on GPU memory are in progress the thread does nothing: UCX's copies need a thread with a CUDA context, which is
 * NCCL's.
 */

#define SHORT_NS 2000000u
#define LONG_NS 32000000u
/* Progress calls before the lock is released. */
#define CALLS 16

struct gn_progress_thread {
	struct gn_worker *worker;
	pthread_t thread;
	pthread_mutex_t lock; /* of stop */
	pthread_cond_t wake;
	int stop;
};

/* Whether there was progress. */
static int progress(struct gn_worker *w)
{
	unsigned moved = 0;

	for (int i = 0; i < CALLS; i++)
		moved += gn_worker_progress(w);
	return moved > 0;
}

/* Progresses the worker unless another thread has. Returns whether the worker is in use. */
static int check_worker(struct gn_worker *w, unsigned *seen)
{
	int busy;

	if (pthread_mutex_trylock(&w->lock))
		return 1;
	busy = w->progress_calls != *seen;
	if (!busy && !(w->gpu_memory && w->active))
		busy = progress(w);
	*seen = w->progress_calls;
	pthread_mutex_unlock(&w->lock);
	return busy;
}

/* Lock held, released while it waits. */
static void wait_ns(struct gn_progress_thread *t, uint64_t ns)
{
	uint64_t until = gn_clock_ns() + ns;
	struct timespec deadline = {.tv_sec = (time_t)(until / 1000000000u), .tv_nsec = (long)(until % 1000000000u)};

	pthread_cond_timedwait(&t->wake, &t->lock, &deadline);
}

static void *run_thread(void *argument)
{
	struct gn_progress_thread *t = argument;
	uint64_t period_ns = SHORT_NS;
	unsigned seen = 0;

	pthread_setname_np(pthread_self(), "gannet-progress");
	pthread_mutex_lock(&t->lock);
	while (!t->stop) {
		wait_ns(t, period_ns);
		pthread_mutex_unlock(&t->lock);
		if (check_worker(t->worker, &seen))
			period_ns = SHORT_NS;
		else if (period_ns < LONG_NS)
			period_ns *= 2;
		pthread_mutex_lock(&t->lock);
	}
	pthread_mutex_unlock(&t->lock);
	return NULL;
}

static void release(struct gn_progress_thread *t)
{
	pthread_cond_destroy(&t->wake);
	pthread_mutex_destroy(&t->lock);
	free(t);
}

/* Starts the progress thread unless the worker has one. */
static enum gn_status progress_thread_start(struct gn_worker *w, struct gn_err *err)
{
	pthread_condattr_t clock;
	struct gn_progress_thread *t;
	int rc;

	if (atomic_load(&w->progress_thread))
		return GN_OK;
	t = calloc(1, sizeof *t);
	if (!t)
		return gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for a thread");
	t->worker = w;
	pthread_mutex_init(&t->lock, NULL);
	pthread_condattr_init(&clock);
	pthread_condattr_setclock(&clock, CLOCK_MONOTONIC);
	pthread_cond_init(&t->wake, &clock);
	pthread_condattr_destroy(&clock);
	rc = gn_thread_start(&t->thread, run_thread, t);
	if (!rc) {
		atomic_store(&w->progress_thread, t);
		return GN_OK;
	}
	release(t);
	return gn_err_errno(err, rc, "cannot start the progress thread, which completes sends while NCCL's proxy sleeps (see "
			    "ulimit -u)");
}

void gn_progress_thread_stop(struct gn_worker *w)
{
	struct gn_progress_thread *t = atomic_exchange(&w->progress_thread, NULL);

	if (!t)
		return;
	pthread_mutex_lock(&t->lock);
	t->stop = 1;
	pthread_cond_signal(&t->wake);
	pthread_mutex_unlock(&t->lock);
	pthread_join(t->thread, NULL);
	release(t);
}

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
	if (link->send_flags && progress_thread_start(w, err))
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
