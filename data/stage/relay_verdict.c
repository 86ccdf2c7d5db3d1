/* Rank 0 compares what the nodes got with the digest that the reader of the chunk told first. */
#include "data/stage/relay_lead_internal.h"

#include <stdlib.h>
#include <string.h>

int gn_relay_is_lacked(const struct gn_relay *r, uint32_t chunk)
{
	for (int n = 0; n < r->nodes; n++)
		if (r->lead->nodes[n].state == GN_RELAY_NODE_READY && !gn_relay_bit(r->lead->nodes[n].have, chunk))
			return 1;
	return 0;
}

unsigned char *gn_relay_receivers(const struct gn_relay *r, uint32_t chunk)
{
	return r->lead->receivers + (size_t)chunk * ((size_t)r->nodes / 8 + 1);
}

/* Whether a node has not yet got the chunk of its present reader. */
static int is_awaited(const struct gn_relay *r, uint32_t chunk)
{
	const unsigned char *receivers = gn_relay_receivers(r, chunk);

	for (int n = 0; n < r->nodes; n++)
		if (gn_relay_bit(receivers, (uint32_t)n) && r->lead->nodes[n].state == GN_RELAY_NODE_READY &&
		    !gn_relay_bit(r->lead->nodes[n].have, chunk))
			return 1;
	return 0;
}

static void tell(struct gn_relay *r, int node, uint32_t chunk, enum gn_status status)
{
	struct gn_relay_header h = {.chunk = chunk, .status = (int32_t)status};

	memcpy(h.digest, r->lead->digests[chunk], sizeof h.digest);
	gn_relay_post(r, r->leaders[node], GN_RELAY_VERDICT, &h, NULL, 0, 0);
}

/* Takes one of the chunk out of the list; NULL: there is none. */
static struct gn_relay_early *take_early(struct gn_relay_lead *l, uint32_t chunk)
{
	for (struct gn_relay_early **at = &l->early; *at; at = &(*at)->next) {
		struct gn_relay_early *e = *at;

		if (e->got.chunk != chunk)
			continue;
		*at = e->next;
		return e;
	}
	return NULL;
}

void gn_relay_lead_release(struct gn_relay *r, uint32_t chunk)
{
	struct gn_relay_lead *l = r->lead;
	struct gn_relay_early *e;

	if (l->reader[chunk] < 0)
		return;
	l->nodes[l->reader[chunk]].assigned--;
	l->reader[chunk] = -1;
	l->in_hand--;
	while (!l->digests[chunk][0] && (e = take_early(l, chunk))) {
		tell(r, e->node, chunk, GN_ERR_DATA);
		free(e);
	}
}

void gn_relay_lead_offer(struct gn_relay *r, uint32_t chunk)
{
	for (int n = 0; n < r->nodes; n++)
		if (r->lead->nodes[n].cursor > chunk)
			r->lead->nodes[n].cursor = chunk;
}

/* A node that was to send the listing on may not have: who waits for it gets it from here. */
static void send_listing_again(struct gn_relay *r)
{
	const struct gn_relay_header h = {0};

	for (int n = 1; n < r->nodes; n++)
		if (r->lead->nodes[n].state == GN_RELAY_NODE_WAITING)
			gn_relay_post(r, r->leaders[n], GN_RELAY_LISTING, &h, r->tree.block, r->tree.block_bytes, 1);
}

void gn_relay_lead_leave(struct gn_relay *r, int node, const char *why)
{
	struct gn_relay_lead *l = r->lead;

	if (l->nodes[node].state == GN_RELAY_NODE_FAILED || l->nodes[node].state == GN_RELAY_NODE_COMPLETE)
		return;
	l->nodes[node].state = GN_RELAY_NODE_FAILED;
	if (r->nodes > 1)
		gn_log_warn(r->options->log, "%s: not staged: %s; the others go on", gn_world_host_of(r->world, r->leaders[node]), why);
	for (uint32_t c = 0; l->begun && c < r->tree.chunks; c++)
		if (l->reader[c] == node || (l->reader[c] >= 0 && !is_awaited(r, c)))
			gn_relay_lead_release(r, c);
	if (l->begun) {
		send_listing_again(r);
		gn_relay_lead_offer(r, 0);
	}
}

static void accept(struct gn_relay *r, int node, uint32_t chunk)
{
	struct gn_relay_node *n = &r->lead->nodes[node];
	size_t len = gn_tree_chunk_len(&r->tree, chunk);

	if (!gn_relay_bit(n->have, chunk)) {
		n->have[chunk / 8] |= (unsigned char)(1u << (chunk % 8));
		n->missing--;
		r->lead->written_bytes += len;
		gn_progress_bar_add(r->options->progress, len);
	}
	tell(r, node, chunk, GN_OK);
	if (r->lead->reader[chunk] < 0 || is_awaited(r, chunk))
		return;
	gn_relay_lead_release(r, chunk);
	gn_relay_lead_offer(r, chunk);
}

static void refuse(struct gn_relay *r, int node, uint32_t chunk)
{
	struct gn_relay_node *n = &r->lead->nodes[node];

	if (gn_relay_bit(n->have, chunk)) {
		n->have[chunk / 8] &= (unsigned char)~(1u << (chunk % 8));
		n->missing++;
	}
	tell(r, node, chunk, GN_ERR_DATA);
}

/* A node that gets wrong chunks of several, about whom nobody else complains, damages them itself. */
static int is_at_fault(const struct gn_relay_lead *l, int nodes, int node)
{
	int blamed = 0;

	for (int i = 0; i < nodes; i++)
		blamed += l->nodes[i].avoided && i != node && l->nodes[i].blamer == node;
	return blamed > 1;
}

static void blame(struct gn_relay *r, int node, const struct gn_relay_header *h)
{
	struct gn_relay_lead *l = r->lead;
	struct gn_relay_node *sender = &l->nodes[h->sender];
	int rank = r->leaders[h->sender];

	l->wrong++;
	if (!sender->avoided)
		gn_log_warn(r->options->log, "%s (rank %d) sent a wrong chunk, %u, to %s (rank %d): it sends no more, and what it would have sent "
			    "is read from the source; test its memory, disk and network", r->comm ? gn_world_host_of(r->world, rank) : "this node",
			    rank, h->chunk, r->comm ? gn_world_host_of(r->world, r->leaders[node]) : "itself", r->leaders[node]);
	sender->blamer = sender->avoided && sender->blamer != node ? GN_RELAY_BLAMERS : node;
	sender->avoided = 1;
	gn_err_set(&l->unread, GN_ERR_DATA, "%s (rank %d) sent a wrong chunk, and no other node can read the source",
		   r->comm ? gn_world_host_of(r->world, rank) : "this node", rank);
	refuse(r, node, h->chunk);
	gn_relay_lead_release(r, h->chunk);
	if (is_at_fault(l, r->nodes, node)) {
		for (int i = 0; i < r->nodes; i++)
			l->nodes[i].avoided &= l->nodes[i].blamer != node;
		gn_relay_lead_leave(r, node, "it gets wrong chunks of several nodes, of which the others get right ones: test its memory and network");
	}
	gn_relay_lead_offer(r, 0);
}

static void judge(struct gn_relay *r, int node, const struct gn_relay_header *h)
{
	struct gn_relay_lead *l = r->lead;
	struct gn_relay_early *e;

	if (l->nodes[node].state != GN_RELAY_NODE_READY)
		return;
	if (!l->digests[h->chunk][0]) {
		e = malloc(sizeof *e);
		if (!e) {
			gn_relay_no_memory(r);
			return;
		}
		*e = (struct gn_relay_early){node, *h, l->early};
		l->early = e;
	} else if (!strcmp(l->digests[h->chunk], h->digest)) {
		accept(r, node, h->chunk);
	} else {
		blame(r, node, h);
	}
}

/* Of a chunk that a node has read itself. A reader that was found to be wrong may have read wrong, too: who has that gets it anew. */
static void take_reading(struct gn_relay *r, int node, const struct gn_relay_header *h)
{
	struct gn_relay_lead *l = r->lead;
	char *digest = l->digests[h->chunk];
	struct gn_relay_early *e;
	int is_first = !*digest;

	if (!is_first && strcmp(digest, h->digest) && h->from_source && l->nodes[l->origin[h->chunk]].avoided && !l->nodes[node].avoided) {
		for (int n = 0; n < r->nodes; n++)
			if (n != node && l->nodes[n].state == GN_RELAY_NODE_READY && gn_relay_bit(l->nodes[n].have, h->chunk))
				refuse(r, n, h->chunk);
		gn_relay_lead_offer(r, 0);
		is_first = 1;
	}
	if (is_first) {
		memcpy(digest, h->digest, GN_SHA256_HEX);
		l->origin[h->chunk] = node;
	}
	judge(r, node, h);
	while (is_first && (e = take_early(l, h->chunk))) {
		judge(r, e->node, &e->got);
		free(e);
	}
}

void gn_relay_lead_take_got(struct gn_relay *r, int node, const struct gn_relay_header *h)
{
	if (r->lead->nodes[node].state != GN_RELAY_NODE_READY)
		return;
	if (h->sender == (uint32_t)node)
		take_reading(r, node, h);
	else
		judge(r, node, h);
}
