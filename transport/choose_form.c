#include "transport/choose.h"

#include <math.h>
#include <string.h>

#define ELEMENT_BYTES 4
/* Members of a node that are looked at; the others are like these. */
#define LOOK_AT 4

/* What one rank, or all of a node together, have to do. */
struct load {
	double link_out, link_in, node_in, reduced, messages; /* bytes; messages sent or received */
	double longest_link, longest_node;		      /* messages, bytes */
};

struct rounds {
	double link, node;
};

/* Messages that follow each other on the longest way through the schedule. */
static struct rounds rounds_of(const struct gn_algorithm *a, const struct gn_node_map *map)
{
	double p = map->size, nodes = map->nodes, local = ceil(p / nodes), depth = ceil(log2(p)), flat;
	int power = (map->size & (map->size - 1)) == 0;

	if (!strcmp(a->name, "hierarchical-ring"))
		return (struct rounds){2 * (nodes - 1), 2 * (local - 1)};
	if (!strncmp(a->name, "hierarchical", 12))
		return (struct rounds){2 * ceil(log2(nodes)) + ((map->nodes & (map->nodes - 1)) ? 2 : 0), 2 * (local - 1)};
	if (!strcmp(a->name, "ring"))
		flat = a->what == GN_COLLECTIVE_ALLREDUCE ? 2 * (p - 1) : p - 1;
	else if (!strcmp(a->name, "recursive-doubling"))
		flat = depth + (power ? 0 : 1);
	else if (!strcmp(a->name, "direct"))
		flat = 1;
	else if (!strcmp(a->name, "4-nomial"))
		flat = ceil(depth / 2) * 2;
	else if (!strcmp(a->name, "binomial"))
		flat = depth;
	else /* halving and doubling, trees up and down */
		flat = 2 * depth + (power ? 0 : 2);
	return map->nodes > 1 ? (struct rounds){flat, 0} : (struct rounds){0, flat};
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
	if (step->op == GN_STEP_RECV_REDUCE)
		l->reduced += bytes;
}

static enum gn_status load_of(const struct gn_choose_args *args, const struct gn_algorithm *a, uint32_t pieces, int rank,
			      struct load *out, struct gn_err *err)
{
	const struct gn_node_map *map = args->map;
	struct gn_algo_args how = {.rank = rank, .size = map->size, .pieces = pieces, .map = map};
	struct gn_schedule *s;
	const struct gn_step *steps;
	struct load l = {0};
	size_t count;
	enum gn_status status = gn_algorithm_schedule(a, &how, &s, err);

	if (status)
		return status;
	steps = gn_schedule_steps(s, &count);
	for (size_t i = 0; i < count; i++)
		add_step(&steps[i], bytes_of(args->bytes, gn_schedule_chunks(s), &steps[i]),
			 steps[i].op != GN_STEP_COPY && map->node[steps[i].peer] == map->node[rank], &l);
	gn_schedule_destroy(s);
	*out = l;
	return GN_OK;
}

/* One rank's own time, and in *port that of its node's port. */
static enum gn_status node_time(const struct gn_choose_args *args, const struct gn_algorithm *a, uint32_t pieces, int node,
				struct load *most, double *port, struct gn_err *err)
{
	const struct gn_node_map *map = args->map;
	int members = map->first[node + 1] - map->first[node], look = members < LOOK_AT ? members : LOOK_AT;
	double out = 0, in = 0;
	enum gn_status status = GN_OK;

	for (int k = 0; k < look && !status; k++) {
		struct load l;

		status = load_of(args, a, pieces, map->members[map->first[node] + k], &l, err);
		if (status)
			break;
		out += l.link_out;
		in += l.link_in;
		most->node_in = fmax(most->node_in, l.node_in);
		most->reduced = fmax(most->reduced, l.reduced);
		most->messages = fmax(most->messages, l.messages);
		most->longest_link = fmax(most->longest_link, l.longest_link);
		most->longest_node = fmax(most->longest_node, l.longest_node);
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

enum gn_status gn_choose_closed_form(const struct gn_choose_args *args, const struct gn_algorithm *a, uint32_t pieces,
				     double *out_s, struct gn_err *err)
{
	const struct gn_node_map *map = args->map;
	const struct gn_cost_path *link = &args->cost->link, *node = &args->cost->node;
	const struct gn_sim_range *busy;
	struct rounds rounds = rounds_of(a, map);
	struct load most = {0};
	double port = 0, moving, waiting, working;
	enum gn_status status = GN_OK;

	/* the first node and one in the middle: a tree's root and a rank within */
	for (int n = 0; n < map->nodes && !status; n += map->nodes > 1 ? map->nodes / 2 : 1)
		status = node_time(args, a, pieces, n, &most, &port, err);
	if (status)
		return status;
	waiting = rounds.link * delay_of(link, most.longest_link) + rounds.node * delay_of(node, most.longest_node);
	moving = fmax(port + most.node_in / node->bytes_per_s, rounds.link * most.longest_link / link->bytes_per_s +
								       rounds.node * most.longest_node / node->bytes_per_s);
	busy = gn_sim_range_of(&(map->nodes > 1 ? link : node)->path, fmax(most.longest_link, most.longest_node));
	working = most.messages / 2 * (busy->send_s + busy->receive_s);
	*out_s = waiting + fmax(moving, working) + most.reduced / args->cost->reduce_bytes_per_s / (pieces > 1 ? 2 : 1);
	return GN_OK;
}
