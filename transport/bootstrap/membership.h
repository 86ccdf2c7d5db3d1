/* Agreement of a run's processes on their next epoch of membership: one process's part of single-decree Paxos, one decision an epoch.
 *
 * The acceptors of a decision are the members of the epoch before it. A proposal is chosen when members that are a majority of that epoch
 * have accepted it. So two different proposals are never chosen for one epoch, whichever processes are cut off, stop, wake up or end, and
 * whichever messages are lost, late or repeated. Exactly half of the members and a witness are enough, too: a place outside of all processes
 * that keeps, of the proposals for an epoch that it is asked to keep, the first one for ever. Two halves can only choose what it keeps; a
 * half and a majority have a member in common. A process that answers a ballot must not go on with the epoch that the ballot ends.
 *
 * Pure functions of their arguments. Thread safety: one thread per object.
 */
#ifndef GN_TRANSPORT_BOOTSTRAP_MEMBERSHIP_H
#define GN_TRANSPORT_BOOTSTRAP_MEMBERSHIP_H

#include <stdint.h>

#define GN_MEMBERS_MAX 1024

/* An epoch of membership. */
struct gn_roster {
	uint64_t epoch; /* from 1 on */
	uint64_t key;	/* random: tells proposals for one epoch apart */
	uint32_t count;
	uint64_t ids[GN_MEMBERS_MAX]; /* of processes, all different, in the order of ranks */
};

/* A process: the newest epoch that it knows to be chosen, and what it has promised and accepted for the one after it. */
struct gn_acceptor {
	struct gn_roster current;
	uint64_t promised, accepted; /* ballots; 0: none */
	struct gn_roster proposal;   /* that was accepted */
};

enum gn_membership_answer {
	GN_MEMBERSHIP_GRANTED,	/* promised; accepted; taken over */
	GN_MEMBERSHIP_REFUSED,	/* for a higher ballot */
	GN_MEMBERSHIP_NEWER,	/* a later epoch has been chosen: acceptor->current */
	GN_MEMBERSHIP_UNKNOWN	/* an epoch that this process has not heard of: send it as decided first */
};

/* The rank of a process; -1: it is no member. */
int gn_roster_rank(const struct gn_roster *r, uint64_t id);
/* Begins with an epoch that all its members know. */
void gn_acceptor_init(struct gn_acceptor *a, const struct gn_roster *first);
/* A higher ballot of the proposer, whose rank in the epoch is rank, than highest: of those that it has heard of, and of its own, for none may
 * be used for two proposals. */
uint64_t gn_membership_ballot(uint64_t highest, int rank);
/* Asked to end epoch by ballot. When granted, a->accepted and a->proposal are what the proposer has to know: it must propose, of all that it
 * is told, the proposal that was accepted at the highest ballot, and may choose its own only if it is told none. */
enum gn_membership_answer gn_acceptor_prepare(struct gn_acceptor *a, uint64_t epoch, uint64_t ballot);
/* Asked to accept proposal, whose epoch is one more than that which it ends. */
enum gn_membership_answer gn_acceptor_accept(struct gn_acceptor *a, const struct gn_roster *proposal, uint64_t ballot);
/* Told that an epoch has been chosen. */
enum gn_membership_answer gn_acceptor_decide(struct gn_acceptor *a, const struct gn_roster *chosen);
/* Whether so many members of an epoch are enough: those that have promised a ballot, to propose; those that have accepted it, to choose. */
int gn_membership_is_majority(const struct gn_roster *epoch, uint32_t members);
/* Whether so many are enough with the witness. It must keep the proposal before anybody is asked to accept it. */
int gn_membership_is_half(const struct gn_roster *epoch, uint32_t members);

#endif
