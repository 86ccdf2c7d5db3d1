#include "transport/select/critical_path_internal.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Of all ranks. More steps are walked on one node only, where that can stand for all. */
#define STEPS_MAX 10000.0
#define NONE SIZE_MAX

/* --- which ranks --- */

/* How ranks are placed: the nodes have equally many; these are consecutive; rank r is on node r modulo the number of nodes. */
enum { EQUAL = 1, CONSECUTIVE = 2, CYCLIC = 4 };

static int placement_of(const struct gn_node_map *map)
{
	int local = map->size / map->nodes, found = CONSECUTIVE | CYCLIC;

	for (int n = 0; n < map->nodes; n++)
		if (map->first[n + 1] - map->first[n] != local)
			return 0;
	for (int r = 0; r < map->size && found; r++)
		found &= (map->node[r] == r / local ? CONSECUTIVE : 0) | (map->node[r] == r % map->nodes ? CYCLIC : 0);
	return EQUAL | found;
}

static int is_power_of_two(int n)
{
	return (n & (n - 1)) == 0;
}

static int largest_node(const struct gn_node_map *map)
{
	int largest = 0;

	for (int n = 1; n < map->nodes; n++)
		if (map->first[n + 1] - map->first[n] > map->first[largest + 1] - map->first[largest])
			largest = n;
	return largest;
}

/* Flat algorithms see ranks, hierarchical ones only nodes and the places of ranks on them. With pairs at distances of powers of two
 * rank r ^ k does what rank r does, with k exchanged in all peers. */
static enum gn_path_mirror find_mirror(const struct gn_algorithm *a, const struct gn_node_map *map, size_t steps)
{
	int placed = placement_of(map), many = (double)steps * map->size > STEPS_MAX;
	int pairs = !strcmp(a->name, "recursive-doubling") || !strcmp(a->name, "halving-doubling");

	if (map->nodes == 1)
		return GN_PATH_MIRROR_NONE;
	if (!strcmp(a->name, "hierarchical-ring"))
		return placed || many ? GN_PATH_MIRROR_ROTATE : GN_PATH_MIRROR_NONE;
	if (!strcmp(a->name, "hierarchical"))
		return placed && is_power_of_two(map->nodes) ? GN_PATH_MIRROR_EXCHANGE : GN_PATH_MIRROR_NONE;
	if (pairs && is_power_of_two(map->size) && placed & (CONSECUTIVE | CYCLIC))
		return GN_PATH_MIRROR_EXCHANGE;
	if (a->rotation_symmetric && placed & CONSECUTIVE)
		return GN_PATH_MIRROR_ROTATE;
	return a->rotation_symmetric && many ? GN_PATH_MIRROR_NODE : GN_PATH_MIRROR_NONE;
}

/* The walked rank that sends as `from` sends to `to`, and what it sends to in place of `to`. */
static struct gn_path_rank *stand_in(const struct gn_critical_path *p, int from, int to, int *peer)
{
	const struct gn_node_map *map = p->map;
	int nodes = map->nodes, node;

	*peer = to;
	if (p->mirror == GN_PATH_MIRROR_NONE)
		return &p->ranks[from];
	if (p->mirror == GN_PATH_MIRROR_NODE) {
		struct gn_path_rank *w = &p->ranks[map->local[from] % p->count];

		*peer = (w->rank + to - from + map->size) % map->size;
		return w;
	}
	node = p->mirror == GN_PATH_MIRROR_ROTATE ? (p->node + map->node[to] - map->node[from] + nodes) % nodes :
					    p->node ^ map->node[to] ^ map->node[from];
	*peer = map->members[map->first[node] + map->local[to]];
	return &p->ranks[map->local[from]];
}

/* --- creation --- */

static enum gn_status write_schedule(const struct gn_critical_path *p, int rank, uint32_t pieces, struct gn_path_rank *w,
				     struct gn_err *err)
{
	struct gn_algo_args how = {.rank = rank, .size = p->map->size, .pieces = pieces, .map = p->map};
	size_t unused;
	enum gn_status status = gn_algorithm_schedule(p->algorithm, &how, &w->schedule, err);

	if (status)
		return status;
	w->rank = rank;
	w->port = p->mirror == GN_PATH_MIRROR_NONE ? p->map->node[rank] : 0;
	w->steps = gn_schedule_steps(w->schedule, &w->count);
	w->dependencies = gn_schedule_dependencies(w->schedule, &unused);
	return GN_OK;
}

/* Rank 0's schedule tells how many ranks to walk. */
static enum gn_status write_schedules(struct gn_critical_path *p, uint32_t pieces, struct gn_err *err)
{
	const struct gn_node_map *map = p->map;
	struct gn_path_rank first = {0};
	enum gn_status status = write_schedule(p, 0, pieces, &first, err);

	if (status)
		return status;
	p->chunks = gn_schedule_chunks(first.schedule);
	p->mirror = find_mirror(p->algorithm, map, first.count);
	p->node = p->mirror == GN_PATH_MIRROR_NONE ? 0 : largest_node(map);
	p->count = p->mirror == GN_PATH_MIRROR_NONE ? map->size : map->first[p->node + 1] - map->first[p->node];
	p->ranks = calloc((size_t)p->count, sizeof *p->ranks);
	if (!p->ranks)
		status = gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for %d ranks", p->count);
	for (int i = 0; i < p->count && !status; i++) {
		int rank = p->mirror == GN_PATH_MIRROR_NONE ? i : map->members[map->first[p->node] + i];

		if (rank) {
			status = write_schedule(p, rank, pieces, &p->ranks[i], err);
		} else {
			p->ranks[i] = first;
			first.schedule = NULL;
		}
		p->ranks[i].first = p->steps;
		p->steps += p->ranks[i].count;
	}
	gn_schedule_destroy(first.schedule);
	return status;
}

/* The schedules of both ends are much alike: the search begins at the receiver's place in its own. */
static size_t find_send(const struct gn_path_rank *from, int peer, uint32_t message, size_t near)
{
	for (size_t d = 0; d < from->count; d++) {
		size_t before = near - d, after = near + d;

		if (d <= near && before < from->count && from->steps[before].op == GN_STEP_SEND && from->steps[before].peer == peer &&
		    from->steps[before].message == message)
			return before;
		if (after < from->count && from->steps[after].op == GN_STEP_SEND && from->steps[after].peer == peer &&
		    from->steps[after].message == message)
			return after;
	}
	return NONE;
}

static enum gn_status pair_message(struct gn_critical_path *p, const struct gn_path_rank *w, size_t i, struct gn_err *err)
{
	const struct gn_step *s = &w->steps[i];
	struct gn_path_step *v = &p->visits[w->first + i];
	int peer;
	struct gn_path_rank *from = stand_in(p, s->peer, w->rank, &peer);
	size_t send = find_send(from, peer, s->message, i < from->count ? i : from->count - 1);

	if (send == NONE)
		return gn_err_set(err, GN_ERR_FAILED, "%s: a message to rank %d is not sent", p->algorithm->name, w->rank);
	v->partner = from->first + send;
	/* what is reduced is received early, into memory of the executor */
	p->visits[v->partner].waits = s->op == GN_STEP_RECV;
	p->visits[v->partner].partner = w->first + i;
	return GN_OK;
}

/* Hierarchical algorithms have phases within nodes and between them; others do not care where a peer is. */
static int line_of(const struct gn_step *s, const struct gn_path_step *v, int hierarchical)
{
	int line = GN_PATH_LINE_RECEIVE;

	if (s->op == GN_STEP_RECV_REDUCE)
		line = GN_PATH_LINE_REDUCE;
	else if (s->op == GN_STEP_SEND)
		line = v->waits ? GN_PATH_LINE_SEND : GN_PATH_LINE_SEND_REDUCED;
	return line + (hierarchical && v->between_nodes);
}

static void line_up(struct gn_critical_path *p, struct gn_path_rank *w)
{
	int hierarchical = !strncmp(p->algorithm->name, "hierarchical", 12);

	memset(w->line, 0xff, sizeof w->line);
	for (size_t i = w->count; i-- > 0;) {
		struct gn_path_step *v = &p->visits[w->first + i];
		uint32_t *line = &w->line[line_of(&w->steps[i], v, hierarchical)];

		v->next = *line;
		*line = (uint32_t)i;
	}
}

static enum gn_status pair_messages(struct gn_critical_path *p, struct gn_err *err)
{
	int *connected = malloc((size_t)p->map->size * sizeof *connected);
	enum gn_status status = connected ? GN_OK : gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for %d peers", p->map->size);

	for (int r = 0; r < p->map->size && !status; r++)
		connected[r] = -1;
	for (int k = 0; k < p->count && !status; k++) {
		struct gn_path_rank *w = &p->ranks[k];

		for (size_t i = 0; i < w->count && !status; i++) {
			const struct gn_step *s = &w->steps[i];
			int between = p->map->node[s->peer] != p->map->node[w->rank];

			p->visits[w->first + i].between_nodes = between != 0;
			p->visits[w->first + i].walked = k;
			w->messages += s->op != GN_STEP_COPY;
			if (s->op == GN_STEP_SEND && connected[s->peer] != k) {
				connected[s->peer] = k;
				w->connect_s += between ? p->cost->link.connect_s : p->cost->node.connect_s;
			}
			if (s->op == GN_STEP_RECV || s->op == GN_STEP_RECV_REDUCE)
				status = pair_message(p, w, i, err);
		}
	}
	for (int k = 0; k < p->count && !status; k++)
		line_up(p, &p->ranks[k]);
	free(connected);
	return status;
}

enum gn_status gn_critical_path_create(const struct gn_algorithm *a, const struct gn_node_map *map, const struct gn_cost *cost,
				       uint32_t pieces, struct gn_critical_path **out, struct gn_err *err)
{
	struct gn_critical_path *p = calloc(1, sizeof *p);
	enum gn_status status = GN_OK;

	if (p) {
		*p = (struct gn_critical_path){.algorithm = a, .map = map, .cost = cost,
					       .streams = !strncmp(cost->link.lanes, "tcp", 3)};
		status = write_schedules(p, pieces, err);
	}
	if (p && !status) {
		p->ports = p->mirror == GN_PATH_MIRROR_NONE ? (size_t)map->nodes : 1;

		p->visits = calloc(p->steps + 1, sizeof *p->visits);
		p->shared = calloc(p->steps + 1, sizeof *p->shared);
		p->port_out = calloc(p->ports, sizeof *p->port_out);
		p->port_in = calloc(p->ports, sizeof *p->port_in);
	}
	if (!status && (!p || !p->visits || !p->shared || !p->port_out || !p->port_in))
		status = gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for the schedules of %d ranks", map->size);
	if (!status)
		status = pair_messages(p, err);
	if (status)
		gn_critical_path_destroy(p);
	else
		*out = p;
	return status;
}

void gn_critical_path_destroy(struct gn_critical_path *p)
{
	if (!p)
		return;
	for (int i = 0; i < p->count && p->ranks; i++)
		gn_schedule_destroy(p->ranks[i].schedule);
	free(p->ranks);
	free(p->visits);
	free(p->shared);
	free(p->port_out);
	free(p->port_in);
	free(p);
}

double gn_critical_path_busy_s(const struct gn_critical_path *p)
{
	double busy_s = 0;

	for (int k = 0; k < p->count; k++)
		busy_s = fmax(busy_s, fmax(p->ranks[k].processor.busy_s, p->ranks[k].in_node.busy_s));
	for (size_t i = 0; i < p->ports; i++)
		busy_s = fmax(busy_s, fmax(p->port_out[i].busy_s, p->port_in[i].busy_s));
	return busy_s;
}

double gn_critical_path_steps(const struct gn_critical_path *p)
{
	return (double)p->steps;
}

double gn_critical_path_messages(const struct gn_critical_path *p)
{
	double most = 0;

	for (int k = 0; k < p->count; k++)
		most = fmax(most, p->ranks[k].messages);
	return most;
}

double gn_critical_path_connect_s(const struct gn_critical_path *p)
{
	double most = 0;

	for (int k = 0; k < p->count; k++)
		most = fmax(most, p->ranks[k].connect_s);
	return most;
}
