/* What a walk of schedules consists of. Private to critical_path*.c. */
#ifndef GN_TRANSPORT_SELECT_CRITICAL_PATH_INTERNAL_H
#define GN_TRANSPORT_SELECT_CRITICAL_PATH_INTERNAL_H

#include "transport/select/critical_path.h"

/* Serves one request at a time. A request that comes when the resource is planned to be idle does not wait for those that come
 * later, though they were met before it. The idle times in ascending order; the first is forgotten when there are too many. */
#define GN_PATH_GAPS_MAX 16
struct gn_path_gap {
	double from, to;
};
struct gn_path_resource {
	double free_at, busy_s;
	int count;
	struct gn_path_gap gaps[GN_PATH_GAPS_MAX];
};

/* The steps of a rank that are alike are walked in about their order. Those of different lines overtake each other: what goes up a
 * tree and what goes down, and in hierarchical algorithms the phases within nodes (even lines) and between them (odd lines). */
enum { GN_PATH_LINE_SEND_REDUCED = 0, GN_PATH_LINE_SEND = 2, GN_PATH_LINE_REDUCE = 4, GN_PATH_LINE_RECEIVE = 6, GN_PATH_LINES = 8 };
#define GN_PATH_END UINT32_MAX

struct gn_path_rank {
	struct gn_schedule *schedule;
	const struct gn_step *steps;
	const uint32_t *dependencies;
	size_t count, first;	/* first: the index of its first step among all */
	uint32_t line[GN_PATH_LINES], next[GN_PATH_LINES]; /* the first step of each line, and the next one to visit; GN_PATH_END: none */
	int rank, port;
	int may_send, may_receive; /* a step may have become ready since it was last looked for */
	double messages, connect_s;
	struct gn_path_resource processor, in_node;
};

/* Of a step. Times are valid once the walk has passed it. */
struct gn_path_step {
	double done_at;
	double arrived_at; /* send: the last byte is through the receiver's port; GN_PATH_REQUESTED: its request is there */
	int walked;	/* the walked rank it is a step of */
	size_t partner; /* the step at the message's other end */
	uint32_t next;	/* step of the rank in its line */
	unsigned char between_nodes, waits; /* waits: a long message is sent when the receiver is ready */
	unsigned char state;		    /* enum below */
};

enum { GN_PATH_NOT_VISITED, GN_PATH_VISITED, GN_PATH_REQUESTED }; /* GN_PATH_REQUESTED: a send waits for its receiver */

/* A message in a byte stream that shares its output port. */
struct gn_path_message {
	struct gn_path_step *visit;
	int port, from, to;
	double at, begin, bytes, latency_s; /* at: it comes to the port; begin: after those before it */
};

/* How the walked ranks stand for the others. */
enum gn_path_mirror { GN_PATH_MIRROR_NONE, GN_PATH_MIRROR_ROTATE, GN_PATH_MIRROR_EXCHANGE, GN_PATH_MIRROR_NODE };

struct gn_critical_path {
	const struct gn_algorithm *algorithm;
	const struct gn_node_map *map;
	const struct gn_cost *cost;
	enum gn_path_mirror mirror;
	int count, node; /* walked ranks; the node they are on, unless all are walked */
	struct gn_path_rank *ranks;
	struct gn_path_step *visits;
	struct gn_path_resource *port_out, *port_in;
	struct gn_path_message *shared; /* messages in streams that were sent since the last sharing; room for one a step */
	size_t shared_count;
	size_t steps, ports;
	uint32_t chunks;
	int streams;
};

#endif
