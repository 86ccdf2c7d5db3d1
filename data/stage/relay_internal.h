/* What a leader and rank 0, which hands out the chunks, share. */
#ifndef GN_DATA_STAGE_RELAY_INTERNAL_H
#define GN_DATA_STAGE_RELAY_INTERNAL_H

#include "data/stage/http.h"
#include "data/stage/relay.h"
#include "data/stage/tree_target.h"
#include "src/base/thread_pool.h"
#include "transport/coll/messages.h"

#include <pthread.h>

/* Where a relay reads: a folder or a file of a file system, or a file of a web server. Private to data/stage/relay*.
 *
 * A file of a web server is a tree of one entry, whose modification time has in its nanoseconds what the server says of its version: a
 * copy of another version is another tree. Each leader reads ranges. From a server without ranges rank 0's leader reads the file once,
 * from its begin to its end, into the copy in the making, and chunks come from there when they are complete. */

struct gn_relay_source;

/* from and http (NULL: from is a path) are borrowed. Nothing is looked at yet. */
enum gn_status gn_relay_source_create(const char *from, const struct gn_http_options *http, struct gn_relay_source **out, struct gn_err *err);
/* What is being read from a server, or will be, fails with GN_ERR_STOPPED. Any thread. */
void gn_relay_source_stop(struct gn_relay_source *s);
/* Stops what still reads, which uses the target. NULL is fine. */
void gn_relay_source_destroy(struct gn_relay_source *s);
/* On rank 0. *everywhere: each node can read it, as far as is known; 0: this one alone. */
enum gn_status gn_relay_source_list(struct gn_relay_source *s, struct gn_log *log, struct gn_tree *out, int *everywhere, struct gn_err *err);
/* Reads a chunk, of gn_tree_chunk_len() bytes. GN_ERR_DATA: it is not what was listed. */
enum gn_status gn_relay_source_read(struct gn_relay_source *s, const struct gn_tree *tree, struct gn_tree_target *target, uint32_t chunk,
				    void *data, struct gn_err *err);

enum gn_relay_kind {
	GN_RELAY_LISTING, /* rank 0 to leaders; data: the listing */
	GN_RELAY_STATE,	  /* leader to rank 0; data: a bit for each chunk that it has; with status: it cannot read the source */
	GN_RELAY_READ,	  /* rank 0 to leader: read this chunk; data: a bit for each node that is to get it */
	GN_RELAY_CHUNK,	  /* leader to leader; data: the chunk */
	GN_RELAY_GOT,	  /* leader to rank 0: this chunk came from the node `sender`, itself if it has read it, with this digest */
	GN_RELAY_VERDICT, /* rank 0 to leader: the chunk that it got is right; with status: wrong, and to be forgotten */
	GN_RELAY_BUSY,	  /* leader to rank 0: cannot read this chunk yet, because it has one to be judged */
	GN_RELAY_UNREAD,  /* leader to rank 0: cannot read this chunk; data: why */
	GN_RELAY_FINISH,  /* rank 0 to leaders: all chunks are there */
	GN_RELAY_DONE,	  /* leader to rank 0: complete, or failed with status; data: why */
	GN_RELAY_END,	  /* rank 0 to all ranks; with status: nobody has a copy; data: why */
	GN_RELAY_KINDS
};

/* Of every message; each kind uses its part. */
struct gn_relay_header {
	uint32_t chunk, sender;
	int32_t status, from_source;
	uint64_t source_bytes, kept_bytes;
	char digest[GN_SHA256_HEX];
};

struct gn_relay_lead;
struct gn_relay_outgoing;

/* Work of a thread; taken back by the rank's own one. */
struct gn_relay_job {
	struct gn_relay_job *next;
	struct gn_relay *r;
	enum { GN_RELAY_JOB_OPEN, GN_RELAY_JOB_READ, GN_RELAY_JOB_WRITE, GN_RELAY_JOB_SYNC, GN_RELAY_JOB_FINISH } what;
	uint32_t chunk;
	void *data;		    /* a chunk that was read; of a write: belongs to outgoing */
	struct gn_relay_outgoing *outgoing;
	unsigned char *lacking;	    /* nodes that it is for */
	struct gn_message *message; /* a chunk that was received */
	char digest[GN_SHA256_HEX]; /* of what was read or received */
	int from_source, unread;
	enum gn_status status;
	struct gn_err err;
};

struct gn_relay {
	const struct gn_relay_options *options;
	struct gn_comm *comm; /* NULL: alone */
	struct gn_world *world;
	struct gn_messages *messages;
	struct gn_thread_pool *pool;
	int rank, size, nodes, node;
	int *leaders; /* [nodes] ranks */
	struct gn_relay_source *source;
	struct gn_tree tree;
	struct gn_tree_target *target;
	struct gn_relay_lead *lead; /* rank 0 */
	uint64_t source_bytes, kept_bytes;
	unsigned char *judged; /* [chunks] 1: written, and rank 0 has not said yet whether it is right */
	size_t sending; /* messages that are not complete */
	size_t working; /* jobs that are not taken back */
	struct gn_err failure; /* of this node, or of all */
	int failed, over, told; /* told: by rank 0 that all is over */
	pthread_mutex_t mutex;
	int wake; /* an eventfd, readable while something is finished */
	struct gn_relay_job *finished; /* under mutex */
};

static inline int gn_relay_bit(const unsigned char *bits, uint32_t i)
{
	return bits[i / 8] >> (i % 8) & 1;
}

/* Sends a message, or handles it here if it is to this rank. data is copied, unless it is `kept` until the end. */
void gn_relay_post(struct gn_relay *r, int to, int kind, const struct gn_relay_header *h, const void *data, size_t len_bytes, int kept);
/* Starts a copy of a job. */
void gn_relay_start(struct gn_relay *r, const struct gn_relay_job *job);
/* Goes on with what threads have finished; whether there was anything. */
int gn_relay_take_finished(struct gn_relay *r);
/* This node cannot go on. */
void gn_relay_fail(struct gn_relay *r, const struct gn_err *err);
/* Sends the listing on to those nodes that get it from this one: rank 0 sends it once. */
void gn_relay_send_listing(struct gn_relay *r);
/* This rank cannot go on. */
void gn_relay_no_memory(struct gn_relay *r);
/* Whether a message has the lengths that its kind says: nothing is read past its end, whatever another rank sends. */
int gn_relay_is_well_formed(const struct gn_relay *r, const struct gn_relay_header *h, const struct gn_message *m);
/* Handles a message of a rank; message NULL: of this one. */
void gn_relay_handle(struct gn_relay *r, int from, int kind, const struct gn_relay_header *h, const void *data, size_t len_bytes,
		     struct gn_message *message);
/* Handles a message to rank 0 of the leader of `node`. */
void gn_relay_lead_handle(struct gn_relay *r, int node, int kind, const struct gn_relay_header *h, const void *data, size_t len_bytes);
/* Rank 0: lists the source and tells the leaders. A failure ends all ranks. */
void gn_relay_lead_begin(struct gn_relay *r);
/* Rank 0, again and again: looks for lost nodes, hands out chunks, finds the end. */
void gn_relay_lead_step(struct gn_relay *r);
void gn_relay_lead_result(const struct gn_relay *r, struct gn_relay_result *out);
enum gn_status gn_relay_lead_create(struct gn_relay *r, struct gn_err *err);
void gn_relay_lead_destroy(struct gn_relay_lead *l);

#endif
