/* Stages a tree, or a file of a web server, on all nodes of a job and reads its source once in all.
 *
 * The first rank of each node is its leader; the other ranks wait. Rank 0 lists the source, sends the listing to one leader, from
 * which it spreads as in a binary tree, and hands out chunks: a leader that has one already reads it from its own disk, else one reads
 * it from the source, sends it to the leaders that lack it and writes it. Where only
 * some can, each chunk goes to as many leaders at first, which send it on to others: no node sends the tree several times. Rank 0
 * keeps the SHA-256 that the reader told when it had read the chunk, and compares it with what each leader has got: a wrong chunk is not
 * kept, its sender is named and reads no more, and another node reads the chunk from the source. What one node alone has read wrong,
 * before anybody digested it, is not found. A leader has at most GN_RELAY_WINDOW chunks in hand, so that memory is bounded; threads read, digest and
 * write beside the exchange.
 *
 * A node that is lost, or fails by itself (no space), leaves the others, which read its share; a node that cannot read the source gets
 * everything from the others. The loss of rank 0 ends all; what is verified stays for the next run. Needs a world with keep_going.
 */
#ifndef GN_DATA_STAGE_RELAY_H
#define GN_DATA_STAGE_RELAY_H

#include "src/base/progress_bar.h"
#include "transport/coll/comm.h"

#define GN_RELAY_WINDOW 4

struct gn_http_options; /* data/stage/http.h */

struct gn_relay_options {
	const char *from, *to;
	const struct gn_http_options *http; /* from is an address; NULL: a path */
	const char *sha256; /* an address: 64 hexadecimal digits that the file must have on each node; NULL: it is not known */
	int threads; /* that read, digest and write, on each node, >= 1 */
	int check;   /* verify the digests of a complete copy */
	uint64_t quota_bytes; /* of gn_staged_make_room(), on each node; 0: none */
	struct gn_log *log;		  /* may be NULL */
	struct gn_progress_bar *progress; /* rank 0's: bytes written on all nodes */
};

/* Of all nodes; on rank 0. */
struct gn_relay_result {
	uint32_t nodes, failed;	 /* failed: lost, or without a copy for another reason, which was logged */
	uint64_t entries, data_bytes; /* of the tree; bytes without holes */
	uint32_t wrong_chunks;	 /* sent by a node that was named in the log, and refused */
	uint64_t source_bytes;	 /* read from the source */
	uint64_t written_bytes, kept_bytes;
	double seconds;
};

/* Collective over the communicator of a world; comm NULL: alone. Blocks. Returns this node's failure, or one that concerns all: the
 * source cannot be listed or read. Ranks that are no leader have no failure of their own. */
enum gn_status gn_relay(const struct gn_relay_options *options, struct gn_comm *comm, struct gn_relay_result *out, struct gn_err *err);

#endif
