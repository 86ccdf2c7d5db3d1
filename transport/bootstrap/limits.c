#include "transport/bootstrap/limits.h"

#include "src/base/option.h"

#include <stdlib.h>
#include <string.h>

#define JOIN_S 60.0
#define JOIN_S_PER_RANK 0.06
#define HEARTBEAT_S 5.0
/* Above this number of ranks the default grows by a second per doubling. */
#define HEARTBEAT_RANKS 64

enum gn_status gn_limits_parse(const char *text, double *out, struct gn_err *err)
{
	double value;
	enum gn_status status = gn_parse_real(text, &value, err);

	if (status || !(value >= GN_LIMITS_MIN_S && value <= GN_LIMITS_MAX_S))
		return gn_err_set(err, GN_ERR_USAGE, "'%.32s' is not a number of seconds from %d to %d", text, GN_LIMITS_MIN_S,
				  GN_LIMITS_MAX_S);
	*out = value;
	return GN_OK;
}

/* An empty variable counts as not set. */
static enum gn_status fill(const char *variable, double defaults, double *limit, struct gn_err *err)
{
	const char *text = getenv(variable);

	if (*limit > 0)
		return GN_OK;
	*limit = defaults;
	if (!text || !*text || !gn_limits_parse(text, limit, err))
		return GN_OK;
	gn_err_prefix(err, "%s", variable);
	return GN_ERR_USAGE;
}

void gn_limits_default(int ranks, struct gn_limits *out)
{
	*out = (struct gn_limits){JOIN_S + JOIN_S_PER_RANK * ranks, HEARTBEAT_S, 0};
	for (int n = HEARTBEAT_RANKS; n < ranks && n <= 1 << 29; n *= 2)
		out->heartbeat_s++;
	out->stall_s = out->heartbeat_s;
}

enum gn_status gn_limits_resolve(struct gn_limits *limits, int ranks, struct gn_err *err)
{
	struct gn_limits l = *limits, defaults;
	enum gn_status status;

	gn_limits_default(ranks, &defaults);
	status = fill(GN_LIMITS_JOIN, defaults.join_s, &l.join_s, err);
	if (!status)
		status = fill(GN_LIMITS_HEARTBEAT, defaults.heartbeat_s, &l.heartbeat_s, err);
	if (!status)
		status = fill(GN_LIMITS_STALL, l.heartbeat_s > defaults.stall_s ? l.heartbeat_s : defaults.stall_s, &l.stall_s,
			      err);
	if (!status)
		*limits = l;
	return status;
}

static int is_limit(double s)
{
	return s > 0 && s <= GN_LIMITS_MAX_S;
}

enum gn_status gn_limits_take(struct gn_limits *limits, const struct gn_limits *theirs, int rank, int ranks, struct gn_log *log,
			      struct gn_err *err)
{
	const struct gn_limits own = *limits;
	struct gn_limits defaults;

	if (!is_limit(theirs->join_s) || !is_limit(theirs->heartbeat_s) || !is_limit(theirs->stall_s))
		return gn_err_set(err, GN_ERR_MISMATCH, "invalid limits from rank 0: does it run another version of this program?");
	gn_limits_default(ranks, &defaults);
	if (memcmp(&own, &defaults, sizeof own) && memcmp(&own, theirs, sizeof own))
		gn_log_warn(log, "rank %d is configured with limits of %g s to join, %g s without a heartbeat and %g s in a stall; "
			    "rank 0's apply to all ranks: %g, %g and %g s", rank, own.join_s, own.heartbeat_s, own.stall_s,
			    theirs->join_s, theirs->heartbeat_s, theirs->stall_s);
	*limits = *theirs;
	return GN_OK;
}
