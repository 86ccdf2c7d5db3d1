/* Rank 0's part: which leader reads which chunk. A chunk that is assigned is done when no leader lacks it any more. */
#include "data/stage/relay_lead_internal.h"

#include "src/base/clock.h"

#include <stdlib.h>
#include <string.h>

#define LINE_S 10.0

enum gn_status gn_relay_lead_create(struct gn_relay *r, struct gn_err *err)
{
	struct gn_relay_lead *l = calloc(1, sizeof *l);

	r->lead = l;
	if (!l || !(l->nodes = calloc((size_t)r->nodes, sizeof *l->nodes)))
		return gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for %d nodes", r->nodes);
	for (int n = 0; n < r->nodes; n++)
		l->nodes[n].missing = UINT64_MAX;
	return GN_OK;
}

void gn_relay_lead_destroy(struct gn_relay_lead *l)
{
	if (!l)
		return;
	if (l->nodes)
		free(l->nodes[0].have);
	free(l->nodes);
	for (struct gn_relay_early *e = l->early, *next; e; e = next) {
		next = e->next;
		free(e);
	}
	free(l->reader);
	free(l->receivers);
	free(l->digests);
	free(l->origin);
	free(l);
}

static void end(struct gn_relay *r, const struct gn_err *why)
{
	const struct gn_relay_header h = {.status = why ? why->status : GN_OK};
	const char *text = why ? why->text : "";

	for (int rank = r->size - 1; rank >= 0; rank--)
		gn_relay_post(r, rank, GN_RELAY_END, &h, text, strlen(text) + 1, 0);
}

static enum gn_status allocate(struct gn_relay *r, struct gn_err *err)
{
	struct gn_relay_lead *l = r->lead;
	size_t bytes = r->tree.chunks / 8 + 1;
	unsigned char *bits = calloc((size_t)r->nodes, bytes);

	l->nodes[0].have = bits;
	l->reader = malloc(((size_t)r->tree.chunks + 1) * sizeof *l->reader);
	l->receivers = calloc((size_t)r->tree.chunks + 1, (size_t)r->nodes / 8 + 1);
	l->digests = calloc((size_t)r->tree.chunks + 1, sizeof *l->digests);
	l->origin = calloc((size_t)r->tree.chunks + 1, sizeof *l->origin);
	if (!bits || !l->reader || !l->receivers || !l->digests || !l->origin)
		return gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for %u chunks on %d nodes", r->tree.chunks, r->nodes);
	for (int n = 0; n < r->nodes; n++)
		l->nodes[n].have = bits + (size_t)n * bytes;
	for (uint32_t c = 0; c < r->tree.chunks; c++)
		l->reader[c] = -1;
	return GN_OK;
}

void gn_relay_lead_begin(struct gn_relay *r)
{
	const struct gn_relay_header h = {0};
	struct gn_err err;
	int everywhere;

	if (gn_relay_source_list(r->source, r->options->log, &r->tree, &everywhere, &err) || allocate(r, &err)) {
		end(r, &err);
		return;
	}
	if (!everywhere && r->nodes > 1)
		gn_log_info(r->options->log, "the server has no ranges: one node reads the file and sends it to the others");
	for (int n = 1; n < r->nodes && !everywhere; n++)
		r->lead->nodes[n].cannot_read = 1;
	gn_err_set(&r->lead->unread, GN_ERR_IO, "no node that can read the source is left");
	r->lead->begun = 1;
	gn_relay_post(r, 0, GN_RELAY_LISTING, &h, r->tree.block, r->tree.block_bytes, 1);
}

static void take_state(struct gn_relay *r, struct gn_relay_node *n, const struct gn_relay_header *h, const void *bits, size_t len_bytes)
{
	if (n->state != GN_RELAY_NODE_WAITING || len_bytes != r->tree.chunks / 8 + 1)
		return;
	memcpy(n->have, bits, len_bytes);
	n->state = GN_RELAY_NODE_READY;
	if (h->status) {
		n->cannot_read = 1;
		gn_err_set(&r->lead->unread, (enum gn_status)h->status, "no node that is left can read %s", r->options->from);
	}
	n->missing = 0;
	for (uint32_t c = 0; c < r->tree.chunks; c++)
		n->missing += !gn_relay_bit(n->have, c);
}

void gn_relay_lead_handle(struct gn_relay *r, int node, int kind, const struct gn_relay_header *h, const void *data, size_t len_bytes)
{
	struct gn_relay_lead *l = r->lead;
	struct gn_relay_node *n = &l->nodes[node];

	if (kind == GN_RELAY_STATE) {
		take_state(r, n, h, data, len_bytes);
	} else if (kind == GN_RELAY_GOT) {
		gn_relay_lead_take_got(r, node, h);
	} else if (kind == GN_RELAY_BUSY) {
		if (l->reader[h->chunk] == node)
			gn_relay_lead_release(r, h->chunk);
		l->busy = 1;
	} else if (kind == GN_RELAY_UNREAD) {
		gn_err_set(&l->unread, (enum gn_status)h->status, "%s", (const char *)data);
		if (!n->cannot_read && r->comm)
			gn_log_warn(r->options->log, "%s: %s; gets everything from other nodes", gn_world_host_of(r->world, r->leaders[node]),
				    l->unread.text);
		n->cannot_read = 1;
		if (l->reader[h->chunk] == node)
			gn_relay_lead_release(r, h->chunk);
		gn_relay_lead_offer(r, 0);
	} else {
		n->source_bytes = h->source_bytes;
		n->kept_bytes = h->kept_bytes;
		if (h->status)
			gn_relay_lead_leave(r, node, data);
		else
			n->state = GN_RELAY_NODE_COMPLETE;
	}
}

static int may_send(const struct gn_relay_node *n)
{
	return n->state == GN_RELAY_NODE_READY && !n->avoided;
}

/* The nodes that can send a chunk: those that have it; without one those that can read the source. */
static int count_senders(const struct gn_relay *r, uint32_t chunk, int *have)
{
	int readers = 0;

	*have = 0;
	for (int i = 0; i < r->nodes; i++) {
		const struct gn_relay_node *n = &r->lead->nodes[i];

		*have += may_send(n) && gn_relay_bit(n->have, chunk);
		readers += may_send(n) && !n->cannot_read;
	}
	return *have ? *have : readers;
}

/* Whether a node that cannot read the source has the chunk: one that can has other chunks to send, which only it can. */
static int is_for_others(const struct gn_relay *r, const struct gn_relay_node *n, uint32_t chunk)
{
	for (int i = 0; i < r->nodes && !n->cannot_read; i++) {
		const struct gn_relay_node *other = &r->lead->nodes[i];

		if (other->cannot_read && may_send(other) && gn_relay_bit(other->have, chunk))
			return 1;
	}
	return 0;
}

/* The next chunk for a node to read, from its own disk if a node has it there, else from the source; chunks: none. */
static uint32_t next_chunk(struct gn_relay *r, struct gn_relay_node *n)
{
	uint32_t c = n->cursor;
	int have;

	for (; c < r->tree.chunks; c++) {
		if (r->lead->reader[c] >= 0 || !gn_relay_is_lacked(r, c))
			continue;
		if (gn_relay_bit(n->have, c) ? !is_for_others(r, n, c) : !n->cannot_read && (count_senders(r, c, &have), !have))
			break;
	}
	n->cursor = c < r->tree.chunks ? c + 1 : c;
	return c;
}

/* All nodes that lack the chunk, but no more than can send it: who gets it then sends it on, so that of k nodes with the source each sends
 * it once in all, not once to each other node. They come in turn, so that all have something to send on. */
static void choose_receivers(struct gn_relay *r, int node, uint32_t chunk, unsigned char *receivers)
{
	struct gn_relay_lead *l = r->lead;
	int have, left = count_senders(r, chunk, &have), begin = l->next_receiver;

	memset(receivers, 0, (size_t)r->nodes / 8 + 1);
	if (!gn_relay_bit(l->nodes[node].have, chunk))
		receivers[node / 8] |= (unsigned char)(1u << (node % 8));
	for (int i = 0; i < r->nodes && left; i++) {
		int n = (begin + i) % r->nodes;

		if (n == node || l->nodes[n].state != GN_RELAY_NODE_READY || gn_relay_bit(l->nodes[n].have, chunk))
			continue;
		receivers[n / 8] |= (unsigned char)(1u << (n % 8));
		l->next_receiver = (n + 1) % r->nodes;
		left--;
	}
}

static void assign(struct gn_relay *r, int node, uint32_t chunk)
{
	const struct gn_relay_header h = {.chunk = chunk};
	unsigned char *receivers = gn_relay_receivers(r, chunk);

	choose_receivers(r, node, chunk, receivers);
	r->lead->reader[chunk] = node;
	r->lead->nodes[node].assigned++;
	r->lead->in_hand++;
	gn_relay_post(r, r->leaders[node], GN_RELAY_READ, &h, receivers, (size_t)r->nodes / 8 + 1, 0);
}

/* One chunk to each node in turn, so that all begin with neighbouring ones. */
static void hand_out(struct gn_relay *r)
{
	int more = 1;

	while (more) {
		more = 0;
		for (int i = 0; i < r->nodes; i++) {
			struct gn_relay_node *n = &r->lead->nodes[i];
			uint32_t chunk = r->tree.chunks;

			if (n->state == GN_RELAY_NODE_READY && !n->avoided && n->assigned < GN_RELAY_WINDOW)
				chunk = next_chunk(r, n);
			if (chunk == r->tree.chunks)
				continue;
			assign(r, i, chunk);
			more = 1;
		}
	}
}

static int count(const struct gn_relay *r, enum gn_relay_node_state state)
{
	int found = 0;

	for (int n = 0; n < r->nodes; n++)
		found += r->lead->nodes[n].state == state;
	return found;
}

static void find_lost(struct gn_relay *r)
{
	unsigned losses = r->comm ? gn_world_losses(r->world) : 0;

	if (losses == r->lead->losses)
		return;
	r->lead->losses = losses;
	for (int n = 1; n < r->nodes; n++)
		if (gn_world_is_lost(r->world, r->leaders[n]))
			gn_relay_lead_leave(r, n, "its leader was lost");
}

static void begin_progress(struct gn_relay *r)
{
	uint64_t bytes = 0;

	for (int n = 0; n < r->nodes; n++)
		for (uint32_t c = 0; r->lead->nodes[n].state == GN_RELAY_NODE_READY && c < r->tree.chunks; c++)
			bytes += gn_relay_bit(r->lead->nodes[n].have, c) ? 0 : gn_tree_chunk_len(&r->tree, c);
	r->lead->to_write_bytes = bytes;
	r->lead->next_line_s = gn_clock_s() + LINE_S;
	gn_progress_bar_begin(r->options->progress, "staging", "B", bytes);
}

/* For steps without a terminal. */
static void log_progress(struct gn_relay *r)
{
	struct gn_relay_lead *l = r->lead;
	double rate = gn_progress_bar_rate(r->options->progress);

	if (r->options->progress->terminal || gn_clock_s() < l->next_line_s || rate <= 0)
		return;
	l->next_line_s = gn_clock_s() + LINE_S;
	gn_log_info(r->options->log, "staging: %.1f of %.1f MB written on %d of %d nodes, %.1f MB/s, %.0f s left", (double)l->written_bytes * 1e-6,
		    (double)l->to_write_bytes * 1e-6, count(r, GN_RELAY_NODE_READY), r->nodes, rate * 1e-6,
		    l->to_write_bytes > l->written_bytes ? (double)(l->to_write_bytes - l->written_bytes) / rate : 0.0);
}

void gn_relay_lead_step(struct gn_relay *r)
{
	const struct gn_relay_header h = {0};
	struct gn_relay_lead *l = r->lead;
	uint64_t missing = 0;

	find_lost(r);
	if (count(r, GN_RELAY_NODE_WAITING))
		return;
	if (!l->told)
		begin_progress(r);
	l->told = 1;
	log_progress(r);
	if (l->busy)
		gn_relay_lead_offer(r, 0);
	l->busy = 0;
	hand_out(r);
	for (int n = 0; n < r->nodes; n++)
		missing += l->nodes[n].state == GN_RELAY_NODE_READY ? l->nodes[n].missing : 0;
	if (missing && !l->in_hand && !l->busy && !r->over) {
		gn_progress_bar_end(r->options->progress);
		end(r, &l->unread);
		return;
	}
	for (int n = 0; !missing && n < r->nodes; n++)
		if (l->nodes[n].state == GN_RELAY_NODE_READY) {
			l->nodes[n].state = GN_RELAY_NODE_FINISHING;
			gn_relay_post(r, r->leaders[n], GN_RELAY_FINISH, &h, NULL, 0, 0);
		}
	if (!count(r, GN_RELAY_NODE_READY) && !count(r, GN_RELAY_NODE_FINISHING)) {
		gn_progress_bar_end(r->options->progress);
		end(r, NULL);
	}
}

void gn_relay_lead_result(const struct gn_relay *r, struct gn_relay_result *out)
{
	const struct gn_relay_lead *l = r->lead;

	*out = (struct gn_relay_result){.nodes = (uint32_t)r->nodes, .entries = r->tree.count, .data_bytes = r->tree.data_bytes,
					.written_bytes = l->written_bytes, .wrong_chunks = l->wrong, .failed = (uint32_t)(r->nodes - count(r, GN_RELAY_NODE_COMPLETE))};
	for (int n = 0; n < r->nodes; n++) {
		out->source_bytes += l->nodes[n].source_bytes;
		out->kept_bytes += l->nodes[n].kept_bytes;
	}
}
