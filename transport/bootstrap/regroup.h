/* The ranks of a job that are left after a loss form a new world: they agree on who they are (membership.h), and meet at the lowest of
 * them, without the launcher.
 *
 * Each process has a thread that answers the others' questions at any time, at a port that all know since the start; they authenticate by a
 * key of the first world. It grants nothing before its program has given up what it did in the old world.
 *
 * A majority of the last world's ranks must be left, or exactly half of them and the word of a witness. So two worlds never exist at a
 * time, whichever ranks are cut off or stopped: those that are not in the new world find out when they ask.
 *
 * Thread safety: one thread, beside the object's own.
 */
#ifndef GN_TRANSPORT_BOOTSTRAP_REGROUP_H
#define GN_TRANSPORT_BOOTSTRAP_REGROUP_H

#include "transport/bootstrap/world.h"

struct gn_regroup;

/* Collective in the first world, which has at most GN_MEMBERS_MAX ranks and was created with keep_going. ifnames: as its options
 * had it. least: ranks that a new world must have. log may be NULL, is borrowed. */
enum gn_status gn_regroup_open(struct gn_world *w, const char *ifnames, int least, struct gn_log *log, struct gn_regroup **out,
			       struct gn_err *err);
/* Called by every rank that is left, after a loss and without anything of the old world in use but itself: destroys *world, and makes *world
 * the new one. how: limits and ifnames count. Blocks until all ranks that are left have called it or are lost, and that for as long as
 * they answer and limit_ms have not passed. *world is NULL on failure. GN_ERR_PEER_LOST: too few are left, or the others have gone on
 * without this one; the text says which. */
enum gn_status gn_regroup_form(struct gn_regroup *g, const struct gn_world_options *how, int limit_ms, struct gn_world **world,
			       struct gn_err *err);
/* What decides between two halves (membership.h). settle: keeps `mine` unless something is kept for the present world, and returns what is
 * kept, of at most room bytes. Blocks. GN_OK must mean that no other process of the job can be told anything else. */
struct gn_regroup_witness {
	enum gn_status (*settle)(void *context, const void *mine, size_t len, void *kept, size_t room, size_t *kept_len, struct gn_err *err);
	void *context;
};

/* For the next gn_regroup_form; NULL: none, and half of the ranks are too few. */
void gn_regroup_set_witness(struct gn_regroup *g, const struct gn_regroup_witness *witness);
/* After gn_regroup_form has failed: it is certain that no rank goes on, and this one is the one of them to say so for all. Ranks that have ended
 * may have gone on before. */
int gn_regroup_is_last(const struct gn_regroup *g);
/* Worlds since the start: 1 before the first loss. */
uint64_t gn_regroup_epoch(const struct gn_regroup *g);
/* The program is done: if others find a loss after this they form a world without this rank, which helps them to agree. Local. */
void gn_regroup_leave(struct gn_regroup *g);
/* NULL is fine. */
void gn_regroup_close(struct gn_regroup *g);

#endif
