#include "transport/bootstrap/membership.h"

/* A ballot is a round and the rank of its proposer, so that no two proposers of an epoch have the same one. */
#define RANK_BITS 16

int gn_roster_rank(const struct gn_roster *r, uint64_t id)
{
	for (uint32_t i = 0; i < r->count; i++)
		if (r->ids[i] == id)
			return (int)i;
	return -1;
}

static void begin_epoch(struct gn_acceptor *a, const struct gn_roster *chosen)
{
	a->current = *chosen;
	a->promised = a->accepted = 0;
}

void gn_acceptor_init(struct gn_acceptor *a, const struct gn_roster *first)
{
	begin_epoch(a, first);
}

uint64_t gn_membership_ballot(uint64_t highest, int rank)
{
	return ((highest >> RANK_BITS) + 1) << RANK_BITS | (uint64_t)rank;
}

/* Whether the acceptor is in that epoch; if not, the answer. */
static int is_now(const struct gn_acceptor *a, uint64_t epoch, enum gn_membership_answer *otherwise)
{
	*otherwise = epoch < a->current.epoch ? GN_MEMBERSHIP_NEWER : GN_MEMBERSHIP_UNKNOWN;
	return epoch == a->current.epoch;
}

enum gn_membership_answer gn_acceptor_prepare(struct gn_acceptor *a, uint64_t epoch, uint64_t ballot)
{
	enum gn_membership_answer answer;

	if (!is_now(a, epoch, &answer))
		return answer;
	/* the same ballot again: its answer was lost */
	if (ballot < a->promised)
		return GN_MEMBERSHIP_REFUSED;
	a->promised = ballot;
	return GN_MEMBERSHIP_GRANTED;
}

enum gn_membership_answer gn_acceptor_accept(struct gn_acceptor *a, const struct gn_roster *proposal, uint64_t ballot)
{
	enum gn_membership_answer answer;

	if (!is_now(a, proposal->epoch - 1, &answer))
		return answer;
	if (ballot < a->promised)
		return GN_MEMBERSHIP_REFUSED;
	a->promised = a->accepted = ballot;
	a->proposal = *proposal;
	return GN_MEMBERSHIP_GRANTED;
}

enum gn_membership_answer gn_acceptor_decide(struct gn_acceptor *a, const struct gn_roster *chosen)
{
	if (chosen->epoch <= a->current.epoch)
		return chosen->epoch == a->current.epoch ? GN_MEMBERSHIP_GRANTED : GN_MEMBERSHIP_NEWER;
	begin_epoch(a, chosen);
	return GN_MEMBERSHIP_GRANTED;
}

int gn_membership_is_majority(const struct gn_roster *epoch, uint32_t members)
{
	return 2 * members > epoch->count;
}

int gn_membership_is_half(const struct gn_roster *epoch, uint32_t members)
{
	return 2 * members == epoch->count;
}
