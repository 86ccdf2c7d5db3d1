#include "data/stage/relay_internal.h"

#include "src/base/clock.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define IDLE_NS 300000
#define PHASE_MS 86400000

enum job_kind { JOB_OPEN, JOB_READ, JOB_WRITE, JOB_FINISH };

/* Work of a thread; taken back by the rank's own one. */
struct gn_relay_job {
	struct gn_relay_job *next;
	struct gn_relay *r;
	enum job_kind what;
	uint32_t chunk;
	void *data;		    /* a chunk that was read */
	unsigned char *lacking;	    /* nodes that it is for */
	struct gn_message *message; /* a chunk that was received */
	char digest[GN_SHA256_HEX];
	int from_source, unread;
	enum gn_status status;
	struct gn_err err;
};

/* --- threads --- */

static void read_chunk(struct gn_relay_job *job)
{
	struct gn_relay *r = job->r;
	size_t len = gn_tree_chunk_len(&r->tree, job->chunk);

	job->data = malloc(len);
	job->from_source = !gn_tree_target_has(r->target, job->chunk);
	if (!job->data)
		job->status = gn_err_set(&job->err, GN_ERR_NO_MEMORY, "no memory for a chunk");
	else if (!job->from_source)
		job->status = gn_tree_target_get(r->target, job->chunk, job->data, &job->err);
	else
		job->status = gn_tree_chunk_read(&r->tree, r->options->from, job->chunk, job->data, &job->err);
	job->unread = job->from_source && job->status;
	if (!job->status)
		job->status = gn_sha256_buffer(job->data, len, job->digest, &job->err);
	if (!job->status && job->from_source)
		job->status = gn_tree_target_put(r->target, job->chunk, job->data, job->digest, &job->err);
}

static void write_chunk(struct gn_relay_job *job)
{
	const struct gn_message *m = job->message;
	char digest[GN_SHA256_HEX];

	job->status = gn_sha256_buffer(m->data, m->data_bytes, digest, &job->err);
	if (!job->status && (strcmp(digest, job->digest) || m->data_bytes != gn_tree_chunk_len(&job->r->tree, job->chunk)))
		job->status = gn_err_set(&job->err, GN_ERR_DATA, "chunk %u from rank %d was damaged on the way", job->chunk, m->from);
	if (!job->status)
		job->status = gn_tree_target_put(job->r->target, job->chunk, m->data, digest, &job->err);
}

static void run_job(void *argument)
{
	struct gn_relay_job *job = argument;
	struct gn_relay *r = job->r;
	const struct gn_tree_target_options how = {.from = r->options->from, .to = r->options->to, .check = r->options->check,
						   .wait = !r->comm, .log = r->options->log};

	if (job->what == JOB_OPEN)
		job->status = gn_tree_target_create(&how, &r->tree, &r->target, &job->err);
	else if (job->what == JOB_READ)
		read_chunk(job);
	else if (job->what == JOB_WRITE)
		write_chunk(job);
	else
		job->status = gn_tree_target_finish(r->target, &job->err);
	pthread_mutex_lock(&r->mutex);
	job->next = r->finished;
	r->finished = job;
	pthread_cond_signal(&r->wake);
	pthread_mutex_unlock(&r->mutex);
}

static void start(struct gn_relay *r, const struct gn_relay_job *job)
{
	struct gn_relay_job *copy = malloc(sizeof *copy);

	if (!copy) {
		free(job->lacking);
		gn_relay_no_memory(r);
		return;
	}
	*copy = *job;
	copy->r = r;
	r->working++;
	gn_thread_pool_submit(r->pool, run_job, copy);
}

static void fail(struct gn_relay *r, const struct gn_err *err)
{
	const struct gn_relay_header h = {.status = err->status, .source_bytes = r->source_bytes};

	if (r->failed)
		return;
	r->failed = 1;
	r->failure = *err;
	gn_relay_post(r, 0, GN_RELAY_DONE, &h, err->text, strlen(err->text) + 1, 0);
}

static void opened(struct gn_relay *r)
{
	const struct gn_relay_header h = {0};
	unsigned char *bits = calloc(r->tree.chunks / 8 + 1, 1);

	if (!bits) {
		gn_relay_no_memory(r);
		return;
	}
	for (uint32_t c = 0; c < r->tree.chunks; c++) {
		if (!gn_tree_target_has(r->target, c))
			continue;
		bits[c / 8] |= (unsigned char)(1u << (c % 8));
		r->kept_bytes += gn_tree_chunk_len(&r->tree, c);
	}
	gn_relay_post(r, 0, GN_RELAY_STATE, &h, bits, r->tree.chunks / 8 + 1, 0);
	free(bits);
}

static void take_back(struct gn_relay *r, struct gn_relay_job *job)
{
	struct gn_relay_header h = {.chunk = job->chunk};

	if (job->what == JOB_READ && job->from_source && !job->unread)
		r->source_bytes += gn_tree_chunk_len(&r->tree, job->chunk);
	if (job->status && job->unread) {
		h.status = job->status;
		gn_relay_post(r, 0, GN_RELAY_UNREAD, &h, job->err.text, strlen(job->err.text) + 1, 0);
	} else if (job->status) {
		fail(r, &job->err);
	} else if (job->what == JOB_OPEN) {
		opened(r);
	} else if (job->what == JOB_FINISH) {
		h.source_bytes = r->source_bytes;
		h.kept_bytes = r->kept_bytes;
		gn_relay_post(r, 0, GN_RELAY_DONE, &h, "", 1, 0);
	} else {
		if (job->what == JOB_READ) {
			gn_relay_send_chunk(r, job->chunk, job->digest, job->data, job->lacking);
			job->data = NULL;
		}
		gn_relay_post(r, 0, GN_RELAY_GOT, &h, NULL, 0, 0);
	}
	if (job->message)
		gn_message_done(job->message);
	free(job->data);
	free(job->lacking);
	free(job);
}

/* --- messages --- */

static void take_listing(struct gn_relay *r, const void *data, size_t len_bytes)
{
	const struct gn_relay_job open = {.what = JOB_OPEN};
	void *block;
	struct gn_err err;

	if (r->rank) {
		block = malloc(len_bytes);
		if (!block) {
			gn_relay_no_memory(r);
			return;
		}
		memcpy(block, data, len_bytes);
		if (gn_tree_take(block, len_bytes, &r->tree, &err)) {
			fail(r, &err);
			return;
		}
	}
	start(r, &open);
}

static void take_read(struct gn_relay *r, const struct gn_relay_header *h, const void *data, size_t len_bytes)
{
	struct gn_relay_job job = {.what = JOB_READ, .chunk = h->chunk, .lacking = malloc(len_bytes)};

	if (!job.lacking) {
		gn_relay_no_memory(r);
		return;
	}
	memcpy(job.lacking, data, len_bytes);
	start(r, &job);
}

static void take_chunk(struct gn_relay *r, const struct gn_relay_header *h, struct gn_message *m)
{
	struct gn_relay_job job = {.what = JOB_WRITE, .chunk = h->chunk, .message = m};

	/* sent twice, by a reader that was lost and its successor */
	if (gn_tree_target_has(r->target, h->chunk)) {
		gn_relay_post(r, 0, GN_RELAY_GOT, h, NULL, 0, 0);
		return;
	}
	memcpy(job.digest, h->digest, sizeof job.digest);
	job.digest[GN_SHA256_HEX - 1] = '\0';
	gn_message_keep(m);
	start(r, &job);
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
	const struct gn_relay_job finish = {.what = JOB_FINISH};

	if (kind == GN_RELAY_END)
		take_end(r, h, data);
	else if (kind == GN_RELAY_STATE || kind == GN_RELAY_GOT || kind == GN_RELAY_UNREAD || kind == GN_RELAY_DONE)
		gn_relay_lead_handle(r, r->comm ? gn_world_node_of(r->world, from) : 0, kind, h, data, len_bytes);
	else if (r->failed)
		return;
	else if (kind == GN_RELAY_LISTING)
		take_listing(r, data, len_bytes);
	else if (kind == GN_RELAY_READ)
		take_read(r, h, data, len_bytes);
	else if (kind == GN_RELAY_CHUNK)
		take_chunk(r, h, message);
	else
		start(r, &finish);
}

static void receive(void *context, struct gn_message *m)
{
	struct gn_relay *r = context;
	struct gn_relay_header h;

	if (m->header_bytes != sizeof h)
		return;
	memcpy(&h, m->header, sizeof h);
	if (!gn_relay_is_well_formed(r, &h, m))
		return;
	gn_relay_handle(r, m->from, m->kind, &h, m->data, m->data_bytes, m);
}

/* --- the whole --- */

/* Sleeps for a moment if there is nothing to do. */
static void wait_for_work(struct gn_relay *r)
{
	struct timespec until;

	clock_gettime(CLOCK_REALTIME, &until);
	until.tv_nsec += IDLE_NS;
	until.tv_sec += until.tv_nsec / 1000000000;
	until.tv_nsec %= 1000000000;
	pthread_mutex_lock(&r->mutex);
	if (!r->finished)
		pthread_cond_timedwait(&r->wake, &r->mutex, &until);
	pthread_mutex_unlock(&r->mutex);
}

static int take_finished(struct gn_relay *r)
{
	struct gn_relay_job *job, *next;

	pthread_mutex_lock(&r->mutex);
	job = r->finished;
	r->finished = NULL;
	pthread_mutex_unlock(&r->mutex);
	if (!job)
		return 0;
	for (; job; job = next) {
		next = job->next;
		r->working--;
		take_back(r, job);
	}
	return 1;
}

static enum gn_status run(struct gn_relay *r, struct gn_err *err)
{
	const int first = 0;
	enum gn_status status = GN_OK;

	if (r->lead)
		gn_relay_lead_begin(r);
	while (!status && (!r->over || r->sending || r->working)) {
		int busy = r->messages && gn_messages_progress(r->messages);

		busy |= take_finished(r);
		if (r->lead && !r->over)
			gn_relay_lead_step(r);
		if (r->comm && (!r->over || r->sending))
			status = gn_world_check_ranks(r->world, &first, 1, 0, err);
		if (!busy && !status)
			wait_for_work(r);
	}
	gn_thread_pool_wait(r->pool);
	take_finished(r);
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
	status = gn_messages_create(r->comm, NULL, &r->messages, err);
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
	pthread_cond_init(&r.wake, NULL);
	status = find_leaders(&r, err);
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
		gn_world_abort(r.world, "it cannot go on staging");
	if (r.pool)
		gn_thread_pool_destroy(r.pool);
	gn_messages_destroy(r.messages);
	gn_tree_target_destroy(r.target);
	if (r.lead)
		gn_relay_lead_result(&r, out);
	out->seconds = gn_clock_s() - started;
	gn_relay_lead_destroy(r.lead);
	gn_tree_release(&r.tree);
	free(r.leaders);
	pthread_cond_destroy(&r.wake);
	pthread_mutex_destroy(&r.mutex);
	return status;
}
