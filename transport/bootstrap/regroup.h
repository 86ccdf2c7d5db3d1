/* The ranks of a job that are left after a loss form a new world: they agree on who they are (membership.h), and meet at the lowest of
 * them, without the launcher.
 *
 * Each process has a thread that answers the others' questions at any time, at a port that all know since the start; they authenticate by a
 * key of the first world. It grants nothing before its program has given up what it did in the old world.
 *
 * A majority of the last world's ranks must be left; exactly half of them are not one. So two worlds never exist at a time, whichever ranks
 * are cut off or stopped: those that are not in the new world find out when they ask.
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
/* Worlds since the start: 1 before the first loss. */
uint64_t gn_regroup_epoch(const struct gn_regroup *g);
/* The program is done: if others find a loss after this they form a world without this rank, which helps them to agree. Local. */
void gn_regroup_leave(struct gn_regroup *g);
/* NULL is fine. */
void gn_regroup_close(struct gn_regroup *g);

#endif
