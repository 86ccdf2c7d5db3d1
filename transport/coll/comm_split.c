/* Groups of ranks: who is in them, and their numbers. */
#include "transport/coll/comm_internal.h"

#include "transport/coll/agree.h"
#include "transport/coll/p2p.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHOICE_WORDS (sizeof(struct gn_comm_choice) / sizeof(int32_t))

struct member {
	int32_t key;
	int rank; /* in the parent */
};

static int by_key(const void *a, const void *b)
{
	const struct member *x = a, *y = b;

	return x->key != y->key ? (x->key > y->key) - (x->key < y->key) : (x->rank > y->rank) - (x->rank < y->rank);
}

static void unite(void *into, const void *from, size_t count)
{
	unsigned char *to = into;
	const unsigned char *with = from;

	for (size_t i = 0; i < count; i++)
		to[i] |= with[i];
}

/* Collective over parent: the lowest number that none of its ranks uses, the same on all; 0: there is none. */
static enum gn_status find_number(struct gn_comm *parent, int *out, struct gn_err *err)
{
	unsigned char used[GN_GROUPS] = {1};
	enum gn_status status;
	int number = 0;

	if (parent->root->groups)
		memcpy(used, parent->root->groups, sizeof used);
	used[0] = 1;
	status = gn_comm_allreduce(parent, used, sizeof used, GN_BYTES, unite, err);
	while (!status && number < GN_GROUPS && used[number])
		number++;
	*out = number % GN_GROUPS;
	return status;
}

static enum gn_status map_group(struct gn_comm *c, struct gn_err *err)
{
	int *node_of = calloc((size_t)c->size, sizeof *node_of), used = 0;
	enum gn_status status;

	if (!node_of)
		return gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for a group of %d ranks", c->size);
	/* nodes by any number below the group's size: that of their first rank */
	for (int r = 0; r < c->size; r++) {
		int node = gn_world_node_of(c->world, c->group->ranks[r]), first = 0;

		while (first < r && gn_world_node_of(c->world, c->group->ranks[first]) != node)
			first++;
		node_of[r] = first < r ? node_of[first] : used++;
	}
	status = gn_node_map_create(node_of, c->size, &c->map, err);
	free(node_of);
	return status;
}

static enum gn_status set_members(struct gn_comm *c, const struct gn_comm *parent, const struct gn_comm_choice *choices, struct gn_err *err)
{
	int32_t color = choices[parent->rank].color;
	struct member *members = calloc((size_t)parent->size, sizeof *members);

	c->group->ranks = calloc((size_t)parent->size, sizeof *c->group->ranks);
	if (!members || !c->group->ranks) {
		free(members);
		return gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for a group of %d ranks", parent->size);
	}
	for (int r = 0; r < parent->size; r++)
		if (choices[r].color == color)
			members[c->size++] = (struct member){choices[r].key, r};
	qsort(members, (size_t)c->size, sizeof *members, by_key);
	for (int r = 0; r < c->size; r++) {
		c->group->ranks[r] = gn_comm_world_rank_of(parent, members[r].rank);
		if (members[r].rank == parent->rank)
			c->rank = r;
	}
	free(members);
	return map_group(c, err);
}

/* Local, but for the choices of parent's ranks. */
static enum gn_status comm_group_create(struct gn_comm *parent, const struct gn_comm_choice *choices, int number, const char *name,
					struct gn_comm **out, struct gn_err *err)
{
	struct gn_comm *c = calloc(1, sizeof *c);
	enum gn_status status;

	if (c)
		c->group = calloc(1, sizeof *c->group);
	if (!c || !c->group) {
		free(c);
		return gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for a communicator");
	}
	c->root = parent->root;
	c->world = parent->world;
	c->ucx = parent->ucx;
	c->log = parent->log;
	c->recorder = parent->recorder;
	c->oversubscribed = parent->oversubscribed;
	c->group->number = number;
	c->group->color = choices[parent->rank].color;
	snprintf(c->group->name, sizeof c->group->name, "%.31s[%d]", name, c->group->color);
	status = set_members(c, parent, choices, err);
	if (status)
		gn_comm_group_destroy(c);
	else
		*out = c;
	return status;
}

static enum gn_status gather_choices(struct gn_comm *parent, int color, int key, struct gn_comm_choice *choices, struct gn_err *err)
{
	const struct gn_shm *shm = parent->root->shm;
	struct gn_comm_choice mine = {color, key, shm && gn_shm_has_room(shm)};
	struct gn_coll_args args = {.what = GN_COLLECTIVE_ALLGATHER, .in = &mine, .out = choices, .count = CHOICE_WORDS,
				    .type = GN_I32};

	return gn_comm_run(parent, &args, err);
}

static enum gn_status gather(void *comm, const void *mine, size_t len_bytes, void *all, struct gn_err *err)
{
	struct gn_coll_args args = {.what = GN_COLLECTIVE_ALLGATHER, .in = mine, .out = all, .count = len_bytes, .type = GN_BYTES};

	return gn_comm_run(comm, &args, err);
}

/* Collective over the new group. Without shared memory, if a rank cannot have it, the group uses messages. */
static enum gn_status comm_group_finish(struct gn_comm *c, const struct gn_comm_choice *choices, int parent_size, struct gn_err *err)
{
	struct gn_shm_members members = {.world = c->world, .size = c->size, .ranks = c->group->ranks, .gather = gather,
					 .argument = c};
	int wanted = c->root->shm && c->size > c->map->nodes, color = c->group->color;
	enum gn_status status = GN_OK;

	for (int r = 0; r < parent_size; r++)
		wanted &= choices[r].color != color || choices[r].has_room;
	if (wanted)
		status = gn_shm_create_group(c->root->shm, &members, &c->shm, err);
	if (status && (c->failed || c->root->failed))
		return status;
	if (status)
		gn_log_debug(c->log, "%s cannot share memory, using messages: %s", c->group->name, err ? err->text : "");
	return gn_coll_prepare(c, &(struct gn_coll_args){.what = GN_COLLECTIVE_BARRIER}, &c->barrier, err);
}

/* Local. Takes its number. */
static void comm_group_enter(struct gn_comm *c)
{
	c->root->independent = 1;
	c->root->groups[c->group->number] = 1;
	gn_recorder_set_group(c->recorder, c->group->number, c->group->color, c->group->name);
}

enum gn_status gn_comm_split(struct gn_comm *parent, int color, int key, const char *name, struct gn_comm **out, struct gn_err *err)
{
	struct gn_comm_choice *choices = calloc((size_t)parent->size, sizeof *choices);
	struct gn_comm *c = NULL;
	enum gn_status status;
	int number = 0;

	if (!parent->root->groups)
		parent->root->groups = calloc(1, GN_GROUPS);
	status = choices && parent->root->groups ? GN_OK : gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for groups of ranks");
	status = gn_agree_status(parent, status, err);
	if (!status)
		status = gather_choices(parent, color, key, choices, err);
	if (!status)
		status = find_number(parent, &number, err);
	if (!status && !number)
		status = gn_err_set(err, GN_ERR_UNSUPPORTED, "%d groups of these ranks exist: destroy some before another is made",
				    GN_GROUPS - 1);
	else if (!status)
		status = gn_agree_status(parent, color < 0 ? GN_OK : comm_group_create(parent, choices, number, name, &c, err), err);
	if (!status)
		status = gn_agree_status(parent, c ? comm_group_finish(c, choices, parent->size, err) : GN_OK, err);
	free(choices);
	if (status) {
		gn_comm_group_destroy(c);
		return status;
	}
	parent->root->independent = 1;
	if (c)
		comm_group_enter(c);
	*out = c;
	return GN_OK;
}

/* A group that has failed keeps its number: messages that nobody received may still arrive under it. */
void gn_comm_group_destroy(struct gn_comm *c)
{
	if (!c)
		return;
	gn_comm_detach(c);
	gn_coll_free(c->barrier);
	if (c->barrier && c->root->groups && c->root->groups[c->group->number]) {
		c->root->groups[c->group->number] = (unsigned char)(c->failed != 0);
		gn_recorder_set_group(c->recorder, c->group->number, 0, NULL);
	}
	gn_shm_destroy(c->shm);
	gn_node_map_destroy(c->map);
	free(c->group->ranks);
	free(c->group);
	free(c);
}

int gn_comm_world_rank(const struct gn_comm *c, int rank)
{
	return gn_comm_world_rank_of(c, rank);
}

const char *gn_comm_name(const struct gn_comm *c)
{
	return c->group ? c->group->name : "";
}

/* --- groups of listed ranks --- */

/* They are made by their ranks alone. Each sends what it knows to the first of the list, which answers with what holds for all:
 * the number, which none of them uses. A rank makes one group at a time, so that the number stays free until it is taken. */

#define TAG (GN_P2P_TAGS - 1)

struct knowledge {
	unsigned char used[GN_GROUPS];
	uint64_t list; /* digest of the ranks and the name */
	int32_t has_room, status, number;
};

static uint64_t digest(const int *ranks, int count, const char *name)
{
	uint64_t d = UINT64_C(14695981039346656037); /* FNV-1a */

	for (int i = 0; i < count; i++)
		d = (d ^ (uint64_t)ranks[i]) * UINT64_C(1099511628211);
	for (; *name; name++)
		d = (d ^ (unsigned char)*name) * UINT64_C(1099511628211);
	return d;
}

static void add(struct knowledge *all, const struct knowledge *one)
{
	for (int n = 0; n < GN_GROUPS; n++)
		all->used[n] |= one->used[n];
	all->has_room &= one->has_room;
	if (all->list != one->list)
		all->status = GN_ERR_MISMATCH;
	if (one->status && !all->status)
		all->status = one->status;
}

static void pick_number(struct knowledge *all)
{
	int number = 1;

	while (number < GN_GROUPS && all->used[number])
		number++;
	all->number = number % GN_GROUPS;
	if (!all->number && !all->status)
		all->status = GN_ERR_UNSUPPORTED;
}

/* Replaces what this rank knows by what holds for all. */
static enum gn_status share(struct gn_comm *parent, const int *ranks, int count, struct knowledge *k, struct gn_err *err)
{
	enum gn_status status = GN_OK;
	struct knowledge other;

	if (ranks[0] != parent->rank) {
		status = gn_p2p_send(parent, ranks[0], TAG, k, sizeof *k, err);
		return status ? status : gn_p2p_receive(parent, ranks[0], TAG, k, sizeof *k, err);
	}
	for (int i = 1; i < count && !status; i++) {
		status = gn_p2p_receive(parent, ranks[i], TAG, &other, sizeof other, err);
		if (!status)
			add(k, &other);
	}
	pick_number(k);
	for (int i = 1; i < count && !status; i++)
		status = gn_p2p_send(parent, ranks[i], TAG, k, sizeof *k, err);
	return status;
}

static enum gn_status explain(const struct knowledge *k, struct gn_err *err)
{
	enum gn_status status = (enum gn_status)k->status;

	if (status == GN_ERR_MISMATCH)
		return gn_err_set(err, status, "the ranks of a new group disagree on who is in it, or on its name");
	if (status == GN_ERR_UNSUPPORTED)
		return gn_err_set(err, status, "%d groups of these ranks exist: destroy some before another is made", GN_GROUPS - 1);
	return status ? gn_err_set(err, status, "another rank of the new group failed: %s", gn_status_text(status)) : GN_OK;
}

/* The choices as gn_comm_split() would have gathered them. */
static enum gn_status list_choices(const struct gn_comm *parent, const int *ranks, int count, struct gn_comm_choice *choices,
				   struct gn_err *err)
{
	for (int r = 0; r < parent->size; r++)
		choices[r].color = -1;
	for (int i = 0; i < count; i++) {
		if (ranks[i] < 0 || ranks[i] >= parent->size || !choices[ranks[i]].color)
			return gn_err_set(err, GN_ERR_USAGE, "rank %d in a list of ranks for a new group: not of this world, or twice", ranks[i]);
		choices[ranks[i]] = (struct gn_comm_choice){0, i, 0};
	}
	if (choices[parent->rank].color)
		return gn_err_set(err, GN_ERR_USAGE, "rank %d is not in the list of ranks that it makes a group of", parent->rank);
	return GN_OK;
}

static enum gn_status create(struct gn_comm *parent, const int *ranks, int count, const char *name, struct gn_comm_choice *choices,
			     struct gn_comm **c, struct gn_err *err)
{
	const struct gn_shm *shm = parent->root->shm;
	struct knowledge k = {.list = digest(ranks, count, name), .has_room = shm && gn_shm_has_room(shm)};
	enum gn_status status, mine;

	memcpy(k.used, parent->root->groups, sizeof k.used);
	status = share(parent, ranks, count, &k, err);
	if (!status)
		status = explain(&k, err);
	if (status)
		return status;
	for (int i = 0; i < count; i++)
		choices[ranks[i]].has_room = k.has_room;
	mine = comm_group_create(parent, choices, k.number, name, c, err);
	k.status = mine;
	status = share(parent, ranks, count, &k, mine ? NULL : err);
	if (mine || status)
		return mine ? mine : status;
	status = explain(&k, err);
	return status ? status : comm_group_finish(*c, choices, parent->size, err);
}

enum gn_status gn_comm_of_ranks(struct gn_comm *parent, const int *ranks, int count, const char *name, struct gn_comm **out,
				struct gn_err *err)
{
	struct gn_comm_choice *choices = calloc((size_t)parent->size, sizeof *choices);
	struct gn_comm *c = NULL;
	enum gn_status status;

	if (!parent->root->groups)
		parent->root->groups = calloc(1, GN_GROUPS);
	if (!choices || !parent->root->groups)
		status = gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for groups of ranks");
	else
		status = list_choices(parent, ranks, count, choices, err);
	if (!status)
		status = create(parent, ranks, count, name, choices, &c, err);
	free(choices);
	if (status) {
		gn_comm_group_destroy(c);
		return status;
	}
	comm_group_enter(c);
	*out = c;
	return GN_OK;
}
