#include "data/stage/relay_internal.h"

#include "src/base/clock.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

/* No other process has to be looked at. */
#define ALONE_MS 100
#define PHASE_MS 86400000

/* --- messages --- */

static void take_listing(struct gn_relay *r, const void *data, size_t len_bytes)
{
	const struct gn_relay_job open = {.what = GN_RELAY_JOB_OPEN};
	void *block;
	struct gn_err err;

	/* the second one, of rank 0 when the node was lost that was to send it */
	if (r->rank && r->tree.block)
		return;
	if (r->rank) {
		block = malloc(len_bytes);
		if (!block) {
			gn_relay_no_memory(r);
			return;
		}
		memcpy(block, data, len_bytes);
		if (gn_tree_take(block, len_bytes, &r->tree, &err)) {
			gn_relay_fail(r, &err);
			return;
		}
	}
	gn_relay_send_listing(r);
	gn_relay_start(r, &open);
}

static void take_read(struct gn_relay *r, const struct gn_relay_header *h, const void *data, size_t len_bytes)
{
	struct gn_relay_job job = {.what = GN_RELAY_JOB_READ, .chunk = h->chunk};

	/* two threads must not write the same part of a file */
	if (r->judged[h->chunk]) {
		gn_relay_post(r, 0, GN_RELAY_BUSY, h, NULL, 0, 0);
		return;
	}
	job.lacking = malloc(len_bytes);
	if (!job.lacking) {
		gn_relay_no_memory(r);
		return;
	}
	memcpy(job.lacking, data, len_bytes);
	r->judged[h->chunk] = !gn_tree_target_has(r->target, h->chunk);
	gn_relay_start(r, &job);
}

static void take_chunk(struct gn_relay *r, const struct gn_relay_header *h, struct gn_message *m)
{
	const struct gn_relay_job job = {.what = GN_RELAY_JOB_WRITE, .chunk = h->chunk, .message = m};
	struct gn_relay_header got = {.chunk = h->chunk, .sender = (uint32_t)r->node};

	/* sent twice, by a reader that was lost and its successor */
	if (r->judged[h->chunk])
		return;
	gn_tree_target_digest(r->target, h->chunk, got.digest);
	if (*got.digest) {
		gn_relay_post(r, 0, GN_RELAY_GOT, &got, NULL, 0, 0);
		return;
	}
	r->judged[h->chunk] = 1;
	gn_message_keep(m);
	gn_relay_start(r, &job);
}

static void take_verdict(struct gn_relay *r, const struct gn_relay_header *h)
{
	enum gn_status status = GN_OK;
	struct gn_err err;

	if (h->status)
		status = gn_tree_target_forget(r->target, h->chunk, &err);
	else if (!gn_tree_target_has(r->target, h->chunk))
		status = gn_tree_target_mark(r->target, h->chunk, h->digest, &err);
	r->judged[h->chunk] = 0;
	if (status)
		gn_relay_fail(r, &err);
}

static void take_end(struct gn_relay *r, const struct gn_relay_header *h, const char *why)
{
	r->over = r->told = 1;
	if (!h->status || r->failed)
		return;
	r->failed = 1;
	gn_err_set(&r->failure, (enum gn_status)h->status, "%s", why);
}

void gn_relay_handle(struct gn_relay *r, int from, int kind, const struct gn_relay_header *h, const void *data, size_t len_bytes,
		     struct gn_message *message)
{
	const struct gn_relay_job finish = {.what = GN_RELAY_JOB_FINISH};

	if (kind == GN_RELAY_END)
		take_end(r, h, data);
	else if (kind == GN_RELAY_STATE || kind == GN_RELAY_GOT || kind == GN_RELAY_BUSY || kind == GN_RELAY_UNREAD || kind == GN_RELAY_DONE)
		gn_relay_lead_handle(r, r->comm ? gn_world_node_of(r->world, from) : 0, kind, h, data, len_bytes);
	else if (r->failed)
		return;
	else if (kind == GN_RELAY_LISTING)
		take_listing(r, data, len_bytes);
	else if (kind == GN_RELAY_READ)
		take_read(r, h, data, len_bytes);
	else if (kind == GN_RELAY_CHUNK)
		take_chunk(r, h, message);
	else if (kind == GN_RELAY_VERDICT)
		take_verdict(r, h);
	else
		gn_relay_start(r, &finish);
}

static void receive(void *context, struct gn_message *m)
{
	struct gn_relay *r = context;
	struct gn_relay_header h;

	if (m->header_bytes != sizeof h)
		return;
	memcpy(&h, m->header, sizeof h);
	h.digest[sizeof h.digest - 1] = '\0';
	if (!gn_relay_is_well_formed(r, &h, m))
		return;
	gn_relay_handle(r, m->from, m->kind, &h, m->data, m->data_bytes, m);
}

/* --- the whole --- */

static void wait_for_work(struct gn_relay *r)
{
	struct pollfd wake = {.fd = r->wake, .events = POLLIN};

	if (r->messages)
		gn_messages_rest(r->messages, r->wake);
	else
		poll(&wake, 1, ALONE_MS);
}

static enum gn_status run(struct gn_relay *r, struct gn_err *err)
{
	const int first = 0;
	enum gn_status status = GN_OK;

	if (r->lead)
		gn_relay_lead_begin(r);
	while (!status && (!r->over || r->sending || r->working)) {
		int busy = r->messages && gn_messages_progress(r->messages);

		busy |= gn_relay_take_finished(r);
		if (r->lead && !r->over)
			gn_relay_lead_step(r);
		if (r->comm && (!r->over || r->sending))
			status = gn_world_check_ranks(r->world, &first, 1, 0, err);
		/* a slow server is not waited for */
		if (status || r->over || r->failed)
			gn_relay_source_stop(r->source);
		if (!busy && !status)
			wait_for_work(r);
	}
	/* what is taken back may start more */
	do
		gn_thread_pool_wait(r->pool);
	while (gn_relay_take_finished(r));
	if (!status && r->failed) {
		if (err)
			*err = r->failure;
		status = r->failure.status;
	}
	return status;
}

static enum gn_status connect_ranks(struct gn_relay *r, struct gn_err *err)
{
	const struct gn_message_kind how = {.handle = receive, .context = r};
	enum gn_status status;

	if (!r->comm)
		return GN_OK;
	gn_world_set_phase(r->world, "staging", PHASE_MS);
	status = gn_messages_create(r->comm, &r->messages, err);
	for (int k = 0; k < GN_RELAY_KINDS && !status; k++)
		gn_messages_handle(r->messages, k, &how);
	return status;
}

static enum gn_status find_leaders(struct gn_relay *r, struct gn_err *err)
{
	r->leaders = calloc((size_t)r->nodes, sizeof *r->leaders);
	if (!r->leaders)
		return gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for %d nodes", r->nodes);
	for (int rank = r->size - 1; rank > 0; rank--)
		r->leaders[gn_world_node_of(r->world, rank)] = rank;
	r->leaders[0] = 0;
	return GN_OK;
}

enum gn_status gn_relay(const struct gn_relay_options *options, struct gn_comm *comm, struct gn_relay_result *out, struct gn_err *err)
{
	struct gn_relay r = {.options = options, .comm = comm, .size = 1, .nodes = 1};
	double started = gn_clock_s();
	enum gn_status status;

	if (comm) {
		r.world = gn_comm_world(comm);
		r.rank = gn_comm_rank(comm);
		r.size = gn_comm_size(comm);
		r.nodes = gn_world_nodes(r.world);
		r.node = gn_world_node_of(r.world, r.rank);
	}
	pthread_mutex_init(&r.mutex, NULL);
	r.wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	status = r.wake < 0 ? gn_err_errno(err, errno, "cannot create an eventfd") : find_leaders(&r, err);
	if (!status)
		status = gn_relay_source_create(options->from, options->http, &r.source, err);
	if (!status && !r.rank)
		status = gn_relay_lead_create(&r, err);
	if (!status)
		status = gn_thread_pool_create(options->threads, (size_t)r.nodes * GN_RELAY_WINDOW + 16, &r.pool, err);
	if (!status)
		status = connect_ranks(&r, err);
	if (!status)
		status = run(&r, err);
	/* the others would wait for this rank */
	if (status && comm && !r.told)
		gn_world_abort(r.world, GN_OK, "it cannot go on staging");
	if (r.pool)
		gn_thread_pool_destroy(r.pool);
	gn_messages_destroy(r.messages);
	gn_relay_source_destroy(r.source);
	gn_tree_target_destroy(r.target);
	if (r.lead)
		gn_relay_lead_result(&r, out);
	out->seconds = gn_clock_s() - started;
	gn_relay_lead_destroy(r.lead);
	gn_tree_release(&r.tree);
	free(r.judged);
	free(r.leaders);
	if (r.wake >= 0)
		close(r.wake);
	pthread_mutex_destroy(&r.mutex);
	return status;
}
