/* What the threads of a leader do, and what follows. */
#include "data/stage/relay_internal.h"

#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

/* A chunk on its way to several leaders, or another message to one. */
struct gn_relay_outgoing {
	struct gn_relay *r;
	struct gn_relay_header header;
	void *data; /* owned */
	size_t left;
	struct gn_message_send sends[];
};

static void drop(struct gn_relay_outgoing *o)
{
	if (--o->left)
		return;
	free(o->data);
	free(o);
}

static void sent(struct gn_message_send *s)
{
	struct gn_relay_outgoing *o = s->context;

	o->r->sending--;
	drop(o);
}

/* What cannot be sent was for a rank that is lost, which rank 0 learns. */
static void send_one(struct gn_relay_outgoing *o, struct gn_message_send *s, int to, int kind, const void *data, size_t len_bytes)
{
	*s = (struct gn_message_send){.to = to, .kind = kind, .header = &o->header, .header_bytes = sizeof o->header, .data = data,
				      .data_bytes = len_bytes, .complete = sent, .context = o};
	o->r->sending++;
	if (gn_message_send(o->r->messages, s, NULL))
		sent(s);
}

void gn_relay_no_memory(struct gn_relay *r)
{
	r->failed = r->over = 1;
	gn_err_set(&r->failure, GN_ERR_NO_MEMORY, "no memory for a message");
}

void gn_relay_post(struct gn_relay *r, int to, int kind, const struct gn_relay_header *h, const void *data, size_t len_bytes, int kept)
{
	struct gn_relay_outgoing *o;

	if (to == r->rank) {
		gn_relay_handle(r, r->rank, kind, h, data, len_bytes, NULL);
		return;
	}
	o = calloc(1, sizeof *o + sizeof o->sends[0]);
	if (o && len_bytes && !kept && (o->data = malloc(len_bytes)))
		memcpy(o->data, data, len_bytes);
	if (!o || (len_bytes && !kept && !o->data)) {
		free(o);
		gn_relay_no_memory(r);
		return;
	}
	o->r = r;
	o->header = *h;
	o->left = 1;
	send_one(o, &o->sends[0], to, kind, kept ? data : o->data, len_bytes);
}

/* Sends a chunk to the nodes that lack it, but for this one; takes the malloc'ed data, which stay at least until relay_sent_chunk(). NULL:
 * no memory, and the data are freed. */
static struct gn_relay_outgoing *relay_send_chunk(struct gn_relay *r, uint32_t chunk, void *data, const unsigned char *lacking)
{
	struct gn_relay_outgoing *o = calloc(1, sizeof *o + (size_t)r->nodes * sizeof o->sends[0]);

	if (!o) {
		free(data);
		gn_relay_no_memory(r);
		return NULL;
	}
	o->r = r;
	o->header.chunk = chunk;
	o->data = data;
	o->left = 1;
	for (int n = 0; n < r->nodes; n++) {
		if (n == r->node || !gn_relay_bit(lacking, (uint32_t)n))
			continue;
		o->left++;
		send_one(o, &o->sends[n], r->leaders[n], GN_RELAY_CHUNK, o->data, gn_tree_chunk_len(&r->tree, chunk));
	}
	return o;
}

/* The caller does not need the data any more. */
static void relay_sent_chunk(struct gn_relay_outgoing *o)
{
	drop(o);
}

void gn_relay_send_listing(struct gn_relay *r)
{
	const struct gn_relay_header h = {0};
	int first = r->node ? 2 * r->node : 1, last = 2 * r->node + 1;

	for (int n = first; n <= last && n < r->nodes; n++)
		gn_relay_post(r, r->leaders[n], GN_RELAY_LISTING, &h, r->tree.block, r->tree.block_bytes, 1);
}

int gn_relay_is_well_formed(const struct gn_relay *r, const struct gn_relay_header *h, const struct gn_message *m)
{
	const char *text = m->data;
	int is_text = m->data_bytes > 0 && !text[m->data_bytes - 1], is_chunk = h->chunk < r->tree.chunks;

	switch (m->kind) {
	case GN_RELAY_READ:
		return is_chunk && r->judged && m->data_bytes == (size_t)r->nodes / 8 + 1;
	case GN_RELAY_CHUNK:
	case GN_RELAY_VERDICT:
		return is_chunk && r->judged;
	case GN_RELAY_BUSY:
	case GN_RELAY_GOT:
		return is_chunk && h->sender < (uint32_t)r->nodes;
	case GN_RELAY_UNREAD:
		return is_chunk && is_text;
	case GN_RELAY_DONE:
	case GN_RELAY_END:
		return is_text;
	default:
		return 1;
	}
}

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
		job->status = gn_relay_source_read(r->source, &r->tree, r->target, job->chunk, job->data, &job->err);
	job->unread = job->from_source && job->status;
	if (!job->status)
		job->status = gn_sha256_buffer(job->data, len, job->digest, &job->err);
}

static void write_chunk(struct gn_relay_job *job)
{
	const struct gn_message *m = job->message;

	if (!m) {
		job->status = gn_tree_target_write(job->r->target, job->chunk, job->data, &job->err);
		return;
	}
	job->status = gn_sha256_buffer(m->data, m->data_bytes, job->digest, &job->err);
	/* of another length it has another digest, which rank 0 finds */
	if (!job->status && m->data_bytes == gn_tree_chunk_len(&job->r->tree, job->chunk))
		job->status = gn_tree_target_write(job->r->target, job->chunk, m->data, &job->err);
}

static void finish(struct gn_relay_job *job)
{
	const struct gn_relay_options *o = job->r->options;

	if (o->sha256)
		job->status = gn_tree_target_check_file(job->r->target, o->sha256, &job->err);
	if (!job->status)
		job->status = gn_tree_target_finish(job->r->target, &job->err);
}

static void run_job(void *argument)
{
	struct gn_relay_job *job = argument;
	struct gn_relay *r = job->r;
	const struct gn_tree_target_options how = {.from = r->options->from, .to = r->options->to, .check = r->options->check, .quota_bytes = r->options->quota_bytes,
						   .wait = !r->comm, .log = r->options->log};

	if (job->what == GN_RELAY_JOB_OPEN)
		job->status = gn_tree_target_create(&how, &r->tree, &r->target, &job->err);
	else if (job->what == GN_RELAY_JOB_READ)
		read_chunk(job);
	else if (job->what == GN_RELAY_JOB_WRITE)
		write_chunk(job);
	else if (job->what == GN_RELAY_JOB_SYNC)
		job->status = gn_tree_target_sync(r->target, &job->err);
	else
		finish(job);
	pthread_mutex_lock(&r->mutex);
	job->next = r->finished;
	r->finished = job;
	(void)eventfd_write(r->wake, 1);
	pthread_mutex_unlock(&r->mutex);
}

void gn_relay_start(struct gn_relay *r, const struct gn_relay_job *job)
{
	struct gn_relay_job *copy = malloc(sizeof *copy);

	if (!copy) {
		free(job->lacking);
		if (job->outgoing)
			relay_sent_chunk(job->outgoing);
		gn_relay_no_memory(r);
		return;
	}
	*copy = *job;
	copy->r = r;
	r->working++;
	gn_thread_pool_submit(r->pool, run_job, copy);
}

void gn_relay_fail(struct gn_relay *r, const struct gn_err *err)
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
	/* asked at once, so that rank 0 need not try; an address is for all */
	const struct gn_relay_header h = {.status = !r->options->http && access(r->options->from, R_OK) ? GN_ERR_NOT_FOUND : GN_OK};
	unsigned char *bits = calloc(r->tree.chunks / 8 + 1, 1);

	r->judged = calloc((size_t)r->tree.chunks + 1, 1);
	if (!bits || !r->judged) {
		free(bits);
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

static void tell_got(struct gn_relay *r, const struct gn_relay_job *job)
{
	const struct gn_relay_job sync = {.what = GN_RELAY_JOB_SYNC};
	struct gn_relay_header h = {.chunk = job->chunk, .sender = (uint32_t)r->node, .from_source = job->from_source};

	memcpy(h.digest, job->digest, sizeof h.digest);
	if (job->message)
		h.sender = (uint32_t)gn_world_node_of(r->world, job->message->from);
	gn_relay_post(r, 0, GN_RELAY_GOT, &h, NULL, 0, 0);
	/* the disk works while chunks are under way; not where it keeps the only thread from them */
	if (job->what == GN_RELAY_JOB_WRITE && r->options->threads > 1 && gn_tree_target_wants_sync(r->target))
		gn_relay_start(r, &sync);
}

/* Others get a chunk before it is written here. */
static void take_read_chunk(struct gn_relay *r, struct gn_relay_job *job)
{
	struct gn_relay_job write = {.what = GN_RELAY_JOB_WRITE, .chunk = job->chunk, .data = job->data, .from_source = 1};

	write.outgoing = relay_send_chunk(r, job->chunk, job->data, job->lacking);
	job->data = NULL;
	if (!write.outgoing)
		return;
	memcpy(write.digest, job->digest, sizeof write.digest);
	if (job->from_source) {
		r->source_bytes += gn_tree_chunk_len(&r->tree, job->chunk);
		gn_relay_start(r, &write);
	} else {
		tell_got(r, job);
		relay_sent_chunk(write.outgoing);
	}
}

static void release(struct gn_relay_job *job)
{
	if (job->message)
		gn_message_done(job->message);
	if (job->outgoing)
		relay_sent_chunk(job->outgoing);
	else
		free(job->data);
	free(job->lacking);
	free(job);
}

static void take_back(struct gn_relay *r, struct gn_relay_job *job)
{
	struct gn_relay_header h = {.chunk = job->chunk, .status = job->status, .source_bytes = r->source_bytes, .kept_bytes = r->kept_bytes};

	if (job->status && job->unread) {
		r->judged[job->chunk] = 0;
		gn_relay_post(r, 0, GN_RELAY_UNREAD, &h, job->err.text, strlen(job->err.text) + 1, 0);
	} else if (job->status) {
		gn_relay_fail(r, &job->err);
	} else if (job->what == GN_RELAY_JOB_OPEN) {
		opened(r);
	} else if (job->what == GN_RELAY_JOB_FINISH) {
		gn_relay_post(r, 0, GN_RELAY_DONE, &h, "", 1, 0);
	} else if (job->what == GN_RELAY_JOB_READ) {
		take_read_chunk(r, job);
	} else if (job->what == GN_RELAY_JOB_WRITE) {
		tell_got(r, job);
	}
	release(job);
}

int gn_relay_take_finished(struct gn_relay *r)
{
	struct gn_relay_job *job, *next;
	eventfd_t ignored;

	pthread_mutex_lock(&r->mutex);
	job = r->finished;
	r->finished = NULL;
	if (job)
		(void)eventfd_read(r->wake, &ignored);
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
