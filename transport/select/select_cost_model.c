#include "transport/select/select.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define ELEMENT_BYTES 4
/* Members of a node that are looked at; the others are like these. */
#define LOOK_AT 4

/* What one rank, or all of a node together, have to do. */
struct load {
	double link_out, link_in, node_in, reduced, messages; /* bytes; messages sent or received */
	double link_receipts, node_receipts;		      /* messages */
	double longest_link, longest_node;		      /* messages, bytes */
	double connecting;				      /* s, once */
};

struct rounds {
	double link, node;
	int tree; /* each round's messages are other ranks': all as long, and the rounds follow each other for each piece */
};

static int is_tree(const struct gn_algorithm *a)
{
	return !strcmp(a->name, "double-tree") || !strcmp(a->name, "binomial") || !strcmp(a->name, "4-nomial");
}

/* Messages that follow each other on the longest way through the schedule. */
static struct rounds rounds_of(const struct gn_algorithm *a, const struct gn_shm_map *map)
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
	else /* halving and doubling, trees up and down */
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
	*(same_node ? &l->node_receipts : &l->link_receipts) += 1;
	if (step->op == GN_STEP_RECV_REDUCE)
		l->reduced += bytes;
}

/* Uncut: pieces neither move more bytes nor reach more peers. */
static enum gn_status load_of(const struct gn_select_args *args, const struct gn_algorithm *a, int rank, struct load *out,
			      struct gn_err *err)
{
	const struct gn_shm_map *map = args->map;
	struct gn_algo_args how = {.rank = rank, .size = map->size, .pieces = 1, .map = map};
	unsigned char *known = calloc((size_t)map->size, 1);
	struct gn_schedule *s;
	const struct gn_step *steps;
	struct load l = {0};
	size_t count;
	enum gn_status status = known ? gn_algorithm_schedule(a, &how, &s, err)
				      : gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for %d peers", map->size);

	if (status) {
		free(known);
		return status;
	}
	steps = gn_schedule_steps(s, &count);
	for (size_t i = 0; i < count; i++) {
		int same_node = steps[i].op != GN_STEP_COPY && map->node[steps[i].peer] == map->node[rank];

		add_step(&steps[i], bytes_of(args->bytes, gn_schedule_chunks(s), &steps[i]), same_node, &l);
		if (steps[i].op == GN_STEP_SEND && !known[steps[i].peer]) {
			known[steps[i].peer] = 1;
			l.connecting += same_node ? args->cost->node.connect_s : args->cost->link.connect_s;
		}
	}
	gn_schedule_destroy(s);
	free(known);
	*out = l;
	return GN_OK;
}

/* One rank's own time, and in *port that of its node's port. */
static enum gn_status node_time(const struct gn_select_args *args, const struct gn_algorithm *a, int node, struct load *most,
				double *port, struct gn_err *err)
{
	const struct gn_shm_map *map = args->map;
	int members = map->first[node + 1] - map->first[node], look = members < LOOK_AT ? members : LOOK_AT;
	double out = 0, in = 0;
	enum gn_status status = GN_OK;

	for (int k = 0; k < look && !status; k++) {
		struct load l;

		status = load_of(args, a, map->members[map->first[node] + k], &l, err);
		if (status)
			break;
		out += l.link_out;
		in += l.link_in;
		most->link_in = fmax(most->link_in, l.link_in);
		most->link_receipts = fmax(most->link_receipts, l.link_receipts);
		most->node_receipts = fmax(most->node_receipts, l.node_receipts);
		most->node_in = fmax(most->node_in, l.node_in);
		most->reduced = fmax(most->reduced, l.reduced);
		most->messages = fmax(most->messages, l.messages);
		most->longest_link = fmax(most->longest_link, l.longest_link);
		most->longest_node = fmax(most->longest_node, l.longest_node);
		most->connecting = fmax(most->connecting, l.connecting);
	}
	if (!status)
		*port = fmax(*port, fmax(out, in) * members / look / args->cost->link.bytes_per_s);
	return status;
}

/* A message beside what it takes at the port. */
static double delay_of(const struct gn_cost_path *p, double bytes)
{
	const struct gn_sim_range *r = gn_sim_range_of(&p->path, bytes);

	return r->latency_s * (bytes > p->path.eager_bytes ? 3 : 1) + r->send_s + r->receive_s + r->s_per_byte * bytes;
}

/* The messages that follow each other are a rank's own, whose mean is known, or a tree's, which are all as long. */
static double usual(double longest, double bytes, double receipts, int tree)
{
	return tree || receipts < 1 ? longest : bytes / receipts;
}

static double time_of(const struct gn_select_args *args, const struct rounds *rounds, const struct load *most, double port,
		      uint32_t pieces)
{
	const struct gn_cost_path *link = &args->cost->link, *node = &args->cost->node;
	double on_link = usual(most->longest_link, most->link_in, most->link_receipts, rounds->tree) / pieces;
	double on_node = usual(most->longest_node, most->node_in, most->node_receipts, rounds->tree) / pieces;
	double moving = port + most->node_in / node->bytes_per_s, waiting, working;
	const struct gn_sim_range *busy;

	waiting = rounds->link * delay_of(link, on_link) + rounds->node * delay_of(node, on_node);
	/* the first piece on its way through the tree */
	if (rounds->tree)
		moving += rounds->link * on_link / link->bytes_per_s + rounds->node * on_node / node->bytes_per_s;
	busy = gn_sim_range_of(&(args->map->nodes > 1 ? link : node)->path, fmax(on_link, on_node));
	working = most->messages * pieces / 2 * (busy->send_s + busy->receive_s);
	return waiting + fmax(moving, working) + most->reduced / args->cost->reduce_bytes_per_s / (pieces > 1 ? 2 : 1);
}

enum gn_status gn_select_closed_form(const struct gn_select_args *args, const struct gn_algorithm *a, const uint32_t *pieces,
				     int count, struct gn_select_form *out, struct gn_err *err)
{
	const struct gn_shm_map *map = args->map;
	struct rounds rounds = rounds_of(a, map);
	struct load most = {0};
	double port = 0;
	enum gn_status status = GN_OK;

	/* a tree's root and ranks within; where a power of two is folded, one that sits out, one that acts for it, and one that does not */
	const int look[] = {0, 1, map->nodes / 2, map->nodes - 1};

	for (int n = 0, last = -1; n < 4 && !status; n++)
		if (look[n] > last && look[n] < map->nodes)
			status = node_time(args, a, last = look[n], &most, &port, err);
	for (int i = 0; i < count && !status; i++)
		out[i] = (struct gn_select_form){.seconds = time_of(args, &rounds, &most, port, pieces[i]),
						 .connecting_s = most.connecting, .steps = most.messages * pieces[i]};
	return status;
}
