/* Rank 0's state: what the leaders have, which of them reads what, and whose chunks were wrong. Private to data/stage/relay_*.c. */
#ifndef GN_DATA_STAGE_RELAY_LEAD_INTERNAL_H
#define GN_DATA_STAGE_RELAY_LEAD_INTERNAL_H

#include "data/stage/relay_internal.h"

enum gn_relay_node_state { GN_RELAY_NODE_WAITING, GN_RELAY_NODE_READY, GN_RELAY_NODE_FINISHING, GN_RELAY_NODE_COMPLETE, GN_RELAY_NODE_FAILED };

struct gn_relay_node {
	enum gn_relay_node_state state;
	unsigned char *have; /* a bit for each chunk */
	uint64_t missing;
	uint32_t assigned, cursor; /* chunks in hand; no chunk before cursor is for this node */
	int cannot_read;	   /* the source */
	int avoided;		   /* has sent a wrong chunk: reads none any more */
	int blamer;		   /* the node that got it, GN_RELAY_BLAMERS: several */
	uint64_t source_bytes, kept_bytes;
};

#define GN_RELAY_BLAMERS (-1)

/* A chunk that a node got before its reader has told its digest. */
struct gn_relay_early {
	int node;
	struct gn_relay_header got;
	struct gn_relay_early *next;
};

struct gn_relay_lead {
	struct gn_relay_node *nodes;
	int *reader;			/* [chunks] node, -1: none */
	unsigned char *receivers;	/* [chunks] a bit for each node that gets the chunk of its reader, which may be one of them */
	int next_receiver;
	char (*digests)[GN_SHA256_HEX]; /* [chunks] what the reader told, before anybody else; "": nobody yet */
	int *origin;			/* [chunks] who told */
	struct gn_relay_early *early;
	unsigned losses;
	int busy; /* a chunk was refused for now: to be handed out in the next step, as rank 0's own node answers at once */
	uint32_t in_hand, wrong; /* wrong: chunks that were sent and refused */
	uint64_t written_bytes, to_write_bytes;
	double next_line_s; /* when the log is told how far it is */
	struct gn_err unread; /* the last */
	int begun, told; /* the listing was sent; all have said what they have, and the progress line shows how much is missing */
};

/* Whether a node that is waited for lacks the chunk. */
int gn_relay_is_lacked(const struct gn_relay *r, uint32_t chunk);
/* The bits of a chunk in receivers. */
unsigned char *gn_relay_receivers(const struct gn_relay *r, uint32_t chunk);
/* Nobody reads the chunk any more. What others got of a reader that told no digest is refused. */
void gn_relay_lead_release(struct gn_relay *r, uint32_t chunk);
/* Chunks from this one on that were not for a node may be now. */
void gn_relay_lead_offer(struct gn_relay *r, uint32_t chunk);
/* A node is no longer waited for, and reads no more. */
void gn_relay_lead_leave(struct gn_relay *r, int node, const char *why);
/* A node has a chunk, with the digest that h says: it is accepted, or refused and its sender avoided. */
void gn_relay_lead_take_got(struct gn_relay *r, int node, const struct gn_relay_header *h);

#endif
