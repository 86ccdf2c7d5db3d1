/* The state of a world, and how it begins. Private to world.c and world_join.c. */
#ifndef GN_TRANSPORT_BOOTSTRAP_WORLD_INTERNAL_H
#define GN_TRANSPORT_BOOTSTRAP_WORLD_INTERNAL_H

#include "src/base/sha256.h"
#include "transport/bootstrap/bootstrap.h"
#include "transport/bootstrap/world.h"

#define GN_WORLD_HOST_MAX 256

struct gn_world {
	struct gn_bootstrap *bootstrap;
	struct gn_heartbeat *heartbeat; /* NULL for a single rank */
	struct gn_secret secret;
	struct gn_limits limits;
	struct gn_recorder *recorder;
	int nodes, local_rank, local_size;
	int *node_of;
	const char **host_of;
	char (*hosts)[GN_WORLD_HOST_MAX];
	int aborted, keep_going, encrypts;
};

static inline int gn_world_ms(double s)
{
	return (int)(s * 1e3);
}

/* Collective: starts or joins the heartbeat, finds where all ranks run, and numbers nodes. ifnames may be NULL. After a failure
 * w->heartbeat may be set. */
enum gn_status gn_world_join(struct gn_world *w, const char *ifnames, struct gn_log *log, struct gn_err *err);
/* As gn_world_decline(), for a world whose bootstrap is open and that has no heartbeat. */
void gn_world_decline_in(struct gn_world *w, struct gn_log *log, gn_world_teller *tell, void *context, struct gn_err *why);
/* When the bootstrap fails because a rank is lost, the heartbeat knows which rank and why, a moment later: replaces *err. GN_ERR_USAGE and
 * GN_ERR_MISMATCH are reasons themselves and stay, although whoever gave one has ended, which the heartbeat calls a loss. */
enum gn_status gn_world_find_reason(const struct gn_world *w, uint64_t started_ns, enum gn_status failure, struct gn_err *err);

#endif
