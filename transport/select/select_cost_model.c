#include "transport/select/select.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define ELEMENT_BYTES 4
/* Ranks of a node that are evaluated, as a sample of all. */
#define SAMPLED_RANKS 4

/* The work of one rank, or the largest of several. */
struct load {
	double link_out, link_in, node_in, reduced, messages; /* bytes; messages: sent and received */
	double link_receives, node_receives;		      /* messages */
	double longest_link, longest_node;		      /* bytes of the longest message */
	double connect_s;				      /* s, once */
};

struct rounds {
	double link, node;
	int tree; /* a round's messages are between other ranks and of equal length, and each slice passes all rounds */
};

static int is_tree(const struct gn_algorithm *a)
{
	return !strcmp(a->name, "double-tree") || !strcmp(a->name, "binomial") || !strcmp(a->name, "4-nomial");
}

/* The number of messages on the schedule's critical path. */
static struct rounds count_rounds(const struct gn_algorithm *a, const struct gn_node_map *map)
{
	double p = map->size, nodes = map->nodes, local = ceil(p / nodes), depth = ceil(log2(p)), flat;
	int power = (map->size & (map->size - 1)) == 0;

	if (!strcmp(a->name, "hierarchical-ring"))
		return (struct rounds){2 * (nodes - 1), 2 * (local - 1), 0};
	if (!strncmp(a->name, "hierarchical", 12))
		return (struct rounds){2 * ceil(log2(nodes)) + ((map->nodes & (map->nodes - 1)) ? 2 : 0), 2 * (local - 1), 0};
	if (!strcmp(a->name, "ring"))
		flat = a->what == GN_COLLECTIVE_ALLREDUCE ? 2 * (p - 1) : p - 1;
	else if (!strcmp(a->name, "recursive-doubling"))
		flat = depth + (power ? 0 : 1);
	else if (!strcmp(a->name, "direct"))
		flat = 1;
	else if (!strcmp(a->name, "4-nomial"))
		flat = ceil(depth / 2) * 2;
	else if (!strcmp(a->name, "binomial") || !strcmp(a->name, "bruck"))
		flat = depth;
	else if (!strcmp(a->name, "recursive-halving"))
		flat = power ? depth : depth + 1;
	else /* halving-doubling; trees up and down */
		flat = 2 * depth + (power ? 0 : 2);
	return map->nodes > 1 ? (struct rounds){flat, 0, is_tree(a)} : (struct rounds){0, flat, is_tree(a)};
}

static double bytes_of(size_t bytes, uint32_t chunks, const struct gn_step *step)
{
	size_t first, last, len;

	gn_schedule_range(bytes / ELEMENT_BYTES, chunks, step->chunk, &first, &len);
	gn_schedule_range(bytes / ELEMENT_BYTES, chunks, step->chunk + step->chunk_count - 1, &last, &len);
	return (double)(last + len - first) * ELEMENT_BYTES;
}

static void add_step(const struct gn_step *step, double bytes, int same_node, struct load *l)
{
	if (step->op == GN_STEP_COPY)
		return;
	l->messages++;
	*(same_node ? &l->longest_node : &l->longest_link) =
		fmax(same_node ? l->longest_node : l->longest_link, bytes);
	if (step->op == GN_STEP_SEND) {
		l->link_out += same_node ? 0 : bytes;
		return;
	}
	*(same_node ? &l->node_in : &l->link_in) += bytes;
	*(same_node ? &l->node_receives : &l->link_receives) += 1;
	if (step->op == GN_STEP_RECV_REDUCE)
		l->reduced += bytes;
}

/* By the schedule with one slice: slices change neither bytes nor peers. */
static enum gn_status count_load(const struct gn_select_args *args, const struct gn_algorithm *a, int rank, struct load *out,
			      struct gn_err *err)
{
	const struct gn_node_map *map = args->map;
	struct gn_algo_args how = {.rank = rank, .size = map->size, .pieces = 1, .map = map};
	unsigned char *connected = calloc((size_t)map->size, 1);
	struct gn_schedule *s;
	const struct gn_step *steps;
	struct load l = {0};
	size_t count;
	enum gn_status status = connected ? gn_algorithm_schedule(a, &how, &s, err)
				      : gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for %d peers", map->size);

	if (status) {
		free(connected);
		return status;
	}
	steps = gn_schedule_steps(s, &count);
	for (size_t i = 0; i < count; i++) {
		int same_node = steps[i].op != GN_STEP_COPY && map->node[steps[i].peer] == map->node[rank];

		add_step(&steps[i], bytes_of(args->bytes, gn_schedule_chunks(s), &steps[i]), same_node, &l);
		if (steps[i].op == GN_STEP_SEND && !connected[steps[i].peer]) {
			connected[steps[i].peer] = 1;
			l.connect_s += same_node ? args->cost->node.connect_s : args->cost->link.connect_s;
		}
	}
	gn_schedule_destroy(s);
	free(connected);
	*out = l;
	return GN_OK;
}

/* Raises *most to the loads of the node's sampled ranks, and *port to the seconds that its port is busy. */
static enum gn_status node_time(const struct gn_select_args *args, const struct gn_algorithm *a, int node, struct load *most,
				double *port, struct gn_err *err)
{
	const struct gn_node_map *map = args->map;
	int members = map->first[node + 1] - map->first[node], sampled = members < SAMPLED_RANKS ? members : SAMPLED_RANKS;
	double out = 0, in = 0;
	enum gn_status status = GN_OK;

	for (int k = 0; k < sampled && !status; k++) {
		struct load l;

		status = count_load(args, a, map->members[map->first[node] + k], &l, err);
		if (status)
			break;
		out += l.link_out;
		in += l.link_in;
		most->link_in = fmax(most->link_in, l.link_in);
		most->link_receives = fmax(most->link_receives, l.link_receives);
		most->node_receives = fmax(most->node_receives, l.node_receives);
		most->node_in = fmax(most->node_in, l.node_in);
		most->reduced = fmax(most->reduced, l.reduced);
		most->messages = fmax(most->messages, l.messages);
		most->longest_link = fmax(most->longest_link, l.longest_link);
		most->longest_node = fmax(most->longest_node, l.longest_node);
		most->connect_s = fmax(most->connect_s, l.connect_s);
	}
	if (!status)
		*port = fmax(*port, fmax(out, in) * members / sampled / args->cost->link.bytes_per_s);
	return status;
}

/* Seconds of one message besides its time at the port. */
static double message_delay_s(const struct gn_cost_path *p, double bytes)
{
	const struct gn_sim_range *r = gn_sim_range_of(&p->path, bytes);

	return r->latency_s * (bytes > p->path.eager_bytes ? 3 : 1) + r->send_s + r->receive_s + r->s_per_byte * bytes;
}

/* The length of a message on the critical path: the mean of a rank's receives; in a tree, where all are of equal length, the
 * longest. */
static double typical_bytes(double longest, double bytes, double receives, int tree)
{
	return tree || receives < 1 ? longest : bytes / receives;
}

static double predict_s(const struct gn_select_args *args, const struct rounds *rounds, const struct load *most, double port,
		      uint32_t pieces)
{
	const struct gn_cost_path *link = &args->cost->link, *node = &args->cost->node;
	double on_link = typical_bytes(most->longest_link, most->link_in, most->link_receives, rounds->tree) / pieces;
	double on_node = typical_bytes(most->longest_node, most->node_in, most->node_receives, rounds->tree) / pieces;
	double transfer_s = port + most->node_in / node->bytes_per_s, latency_s, processing_s;
	const struct gn_sim_range *busy;

	latency_s = rounds->link * message_delay_s(link, on_link) + rounds->node * message_delay_s(node, on_node);
	/* the first slice passes the whole tree */
	if (rounds->tree)
		transfer_s += rounds->link * on_link / link->bytes_per_s + rounds->node * on_node / node->bytes_per_s;
	busy = gn_sim_range_of(&(args->map->nodes > 1 ? link : node)->path, fmax(on_link, on_node));
	processing_s = most->messages * pieces / 2 * (busy->send_s + busy->receive_s);
	return latency_s + fmax(transfer_s, processing_s) + most->reduced / args->cost->reduce_bytes_per_s / (pieces > 1 ? 2 : 1);
}

enum gn_status gn_select_closed_form(const struct gn_select_args *args, const struct gn_algorithm *a, const uint32_t *pieces,
				     int count, struct gn_select_form *out, struct gn_err *err)
{
	const struct gn_node_map *map = args->map;
	struct rounds rounds = count_rounds(a, map);
	struct load most = {0};
	double port = 0;
	enum gn_status status = GN_OK;

	/* includes a tree's root and inner ranks, and, where ranks beyond a power of two are folded, ranks of each role */
	const int sampled[] = {0, 1, map->nodes / 2, map->nodes - 1};

	for (int n = 0, last = -1; n < 4 && !status; n++)
		if (sampled[n] > last && sampled[n] < map->nodes)
			status = node_time(args, a, last = sampled[n], &most, &port, err);
	for (int i = 0; i < count && !status; i++)
		out[i] = (struct gn_select_form){.seconds = predict_s(args, &rounds, &most, port, pieces[i]),
						 .connecting_s = most.connect_s, .steps = most.messages * pieces[i]};
	return status;
}
