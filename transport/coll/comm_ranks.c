/* A group of listed ranks, made by them alone. Each sends what it knows to the first of the list, which answers with what holds for all:
 * the number, which none of them uses. A rank makes one group at a time, so that the number stays free until it is taken. */
#include "transport/coll/comm_internal.h"

#include "transport/coll/p2p.h"

#include <stdlib.h>
#include <string.h>

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
	mine = gn_comm_group_create(parent, choices, k.number, name, c, err);
	k.status = mine;
	status = share(parent, ranks, count, &k, mine ? NULL : err);
	if (mine || status)
		return mine ? mine : status;
	status = explain(&k, err);
	return status ? status : gn_comm_group_finish(*c, choices, parent->size, err);
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
	gn_comm_group_enter(c);
	*out = c;
	return GN_OK;
}
