/* The ranks of a job that are left after a loss form a new world: they agree on who they are (membership.h), and meet at the lowest of
 * them, without the launcher. Processes that wait, spare ranks of the job and others that join it later, are taken in then, or when
 * the ranks ask for it.
 *
 * Each process has a thread that answers the others' questions at any time, at a port that all know since the start; they authenticate by a
 * key of the first world. It grants nothing before its program has given up what it did in the old world.
 *
 * A majority of the last world's ranks must be left, or exactly half of them and the word of a witness. So two worlds never exist at a
 * time, whichever ranks are cut off or stopped: those that are not in the new world find out when they ask. One that waits takes no part in
 * agreements before it has been taken in.
 *
 * Thread safety: one thread, beside the object's own.
 */
#ifndef GN_TRANSPORT_BOOTSTRAP_REGROUP_H
#define GN_TRANSPORT_BOOTSTRAP_REGROUP_H

#include "src/base/strbuf.h"
#include "transport/bootstrap/world.h"

#include <signal.h>

struct gn_regroup;

struct gn_regroup_options {
	const char *ifnames; /* as gn_world_options had it. Not kept */
	int least;	     /* ranks that a new world must have */
	int most;	     /* that others may make it grow to; 0: nobody may join */
	const volatile sig_atomic_t *stop; /* once it is set a world is formed within 5 s or not at all; borrowed, may be NULL */
	int each;	     /* ranks are of use in groups of so many: a world has a multiple of it, or fewer; below 2: any number */
	int spares;	     /* the last ranks, which wait from the start to take the place of lost ones */
	char digest[65];     /* of what all processes must have alike: one that joins with another is refused */
	struct gn_log *log;  /* may be NULL, is borrowed */
};

/* Collective in the first world, which has at most GN_MEMBERS_MAX ranks and was created with keep_going. GN_ERR_USAGE: no rank is
 * left beside the spares. */
enum gn_status gn_regroup_open(struct gn_world *w, const struct gn_regroup_options *options, struct gn_regroup **out, struct gn_err *err);
/* Whether this rank is one of the spares. */
int gn_regroup_is_spare(const struct gn_regroup *g);
/* Collective in the first world of a job with spares, instead of the first use of that world: destroys *world. *world becomes that of the
 * ranks which are no spares; for a spare it is NULL, and gn_regroup_await() follows. how and limit_ms: as below. */
enum gn_status gn_regroup_begin(struct gn_regroup *g, const struct gn_world_options *how, int limit_ms, struct gn_world **world,
				struct gn_err *err);
/* Called by every rank that is left, after a loss and without anything of the old world in use but itself: destroys *world, and makes *world
 * the new one. how: limits and ifnames count. Blocks until all ranks that are left have called it or are lost, and that for as long as
 * they answer and limit_ms have not passed. *world is NULL on failure. GN_ERR_PEER_LOST: too few are left, or the others have gone on
 * without this one; the text says which. GN_ERR_STOPPED: options->stop. Without a loss: the same, when all ranks call it because some are to be
 * taken in. */
enum gn_status gn_regroup_form(struct gn_regroup *g, const struct gn_world_options *how, int limit_ms, struct gn_world **world,
			       struct gn_err *err);
/* For the next gn_regroup_form, on all ranks alike: a process that waits takes the place of this rank of the present world, which is out of the new
 * one; unless none can, or it would make the new world smaller. */
void gn_regroup_replace(struct gn_regroup *g, int rank);
/* Whether one that waits would do so now; cheap. */
int gn_regroup_has_substitute(struct gn_regroup *g);
/* After it: appends "rank 1 on n1, rank 3 on n2 are lost", of those of the last world that are not in the new one and do not answer; nothing if there
 * are none. Blocks for a second for each that is stopped, and for each host that cannot be reached. */
void gn_regroup_losses(struct gn_regroup *g, struct gn_strbuf *out);
/* What decides between two halves (membership.h). settle: keeps `mine` unless something is kept for the present world, and returns what is
 * kept, of at most room bytes. Blocks. GN_OK must mean that no other process of the job can be told anything else. */
struct gn_regroup_witness {
	enum gn_status (*settle)(void *context, const void *mine, size_t len, void *kept, size_t room, size_t *kept_len, struct gn_err *err);
	void *context;
};

/* For the next gn_regroup_form; NULL: none, and half of the ranks are too few. */
void gn_regroup_set_witness(struct gn_regroup *g, const struct gn_regroup_witness *witness);
/* Asks the other members of the present world w whether they are in it still. GN_ERR_PEER_LOST: they have gone on without this rank, or so few
 * answer, until w has found a loss or for as long as the limit of silence, that they may have. Blocks, about a millisecond for each member that
 * answers. */
enum gn_status gn_regroup_confirm(struct gn_regroup *g, const struct gn_world *w, struct gn_err *err);
/* Rank 0 of a new world, before it ends what the witness keeps for the last one: halves of the present one, which ask that until they hear of
 * what comes after it, cannot be told any more to go on. Blocks. GN_ERR_PEER_LOST: some have been told so before. */
enum gn_status gn_regroup_fence(struct gn_regroup *g, struct gn_err *err);
/* After gn_regroup_form has failed: it is certain that no rank goes on, and this one is the one of them to say so for all. Ranks that have ended
 * may have gone on before. */
int gn_regroup_is_last(const struct gn_regroup *g);
/* Random, the same for all processes of the run; 0: g is NULL. */
uint64_t gn_regroup_run(const struct gn_regroup *g);
/* With each: rank r of the present world is number places[r] % each of group places[r] / each. Of the ranks that are left whole groups go on
 * first, then those whose number no other has. Local, on all ranks alike. */
void gn_regroup_set_places(struct gn_regroup *g, const int *places, int ranks);
/* After gn_regroup_form() has failed: others have gone on, and this process, which is one too many, may wait as a spare: gn_regroup_await(). */
int gn_regroup_is_surplus(const struct gn_regroup *g);
/* Worlds since the start: 1 before the first loss. */
uint64_t gn_regroup_epoch(const struct gn_regroup *g);
/* The program does its work in the present world: those that were taken in are members like the others. Local. */
void gn_regroup_began(struct gn_regroup *g);
/* Whether some were taken in since then. */
int gn_regroup_has_new(const struct gn_regroup *g);
/* Those that wait and would be taken in now; cheap. 0 until the first of them has waited for a moment, in which others may come. */
int gn_regroup_candidates(struct gn_regroup *g);
/* Local: the file directory/members, by which others of this user find the run; replaced if it is there. It holds a secret, and only its owner may
 * read it. */
enum gn_status gn_regroup_publish(struct gn_regroup *g, const char *directory, struct gn_err *err);
void gn_regroup_unpublish(const char *directory);
/* For a process that is not of the job: opens what gn_regroup_publish() wrote. least, most and spares are the run's. GN_ERR_NOT_FOUND: no run is
 * going on there; GN_ERR_USAGE: the file is not this user's alone, or of another build. gn_regroup_await() follows. */
enum gn_status gn_regroup_join(const char *directory, const struct gn_regroup_options *options, struct gn_regroup **out, struct gn_err *err);
/* Blocks until this process is taken in, and makes *world the world that it is in then; or until the run has ended: *world is NULL, and the
 * status that of its end. GN_ERR_STOPPED: *stop was set. GN_ERR_USAGE: refused, because its digest is not the run's. GN_ERR_PEER_LOST:
 * nobody answers any more. */
enum gn_status gn_regroup_await(struct gn_regroup *g, const struct gn_world_options *how, const volatile sig_atomic_t *stop, int limit_ms,
				struct gn_world **world, struct gn_err *err);
/* The run has ended, on all ranks alike: tells those that wait. Blocks for some seconds at most. */
void gn_regroup_end(struct gn_regroup *g, enum gn_status status);
/* The program is done: if others find a loss after this they form a world without this rank, which helps them to agree. Local. */
void gn_regroup_leave(struct gn_regroup *g);
/* NULL is fine. */
void gn_regroup_close(struct gn_regroup *g);

#endif
