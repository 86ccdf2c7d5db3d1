#include "data/stage/relay_internal.h"

#include <stdlib.h>
#include <string.h>

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

struct gn_relay_outgoing *gn_relay_send_chunk(struct gn_relay *r, uint32_t chunk, void *data, const unsigned char *lacking)
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

void gn_relay_sent_chunk(struct gn_relay_outgoing *o)
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
