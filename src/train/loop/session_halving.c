/* A run that is a trial of a sweep stops at a rung where others are better: successive halving. */
#include "src/train/loop/session.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum gn_status gn_session_begin_halving(struct gn_session *s, uint64_t total_steps, struct gn_err *err)
{
	const char *text = s->options->halving;
	struct gn_session_halving *h = &s->halving;
	int end = 0;

	s->status.now.total_steps = total_steps;
	if (!text)
		return GN_OK;
	if (sscanf(text, "%d:%d%n", &h->factor, &h->rungs, &end) != 2 || text[end] || h->factor < 2 || h->factor > 100 || h->rungs < 1 || h->rungs > 5)
		return gn_err_set(err, GN_ERR_USAGE, "--halving %s: not FACTOR:RUNGS, with a factor of 2 to 100 and 1 to 5 rungs", text);
	if (!s->options->log || !strcmp(s->options->log, "-"))
		return gn_err_set(err, GN_ERR_USAGE, "--halving needs --log FILE, beside the ledger of gannet sweep");
	return GN_OK;
}

int gn_session_rung(const struct gn_session *s)
{
	uint64_t step = s->status.now.total_steps;

	for (int k = 1; s->halving.factor && k <= s->halving.rungs; k++) {
		step /= (uint64_t)s->halving.factor;
		if (s->state.step == (step ? step : 1))
			return k;
	}
	return 0;
}

uint64_t gn_session_next_rung(const struct gn_session *s)
{
	uint64_t step = s->status.now.total_steps, next = UINT64_MAX;

	for (int k = 1; s->halving.factor && k <= s->halving.rungs; k++) {
		step /= (uint64_t)s->halving.factor;
		if ((step ? step : 1) > s->state.step)
			next = step ? step : 1;
	}
	return next;
}

enum gn_status gn_session_halve(struct gn_session *s, struct gn_err *err)
{
	struct gn_session_halving *h = &s->halving;
	int32_t stop = 0;
	struct gn_err why;
	enum gn_status status;

	if (gn_comm_rank(s->comm) == 0) {
		int behind = 0;

		/* a ledger that cannot be read is no reason to lose the run */
		if (s->options->is_behind(s->options->log, h->factor, gn_session_rung(s), &behind, h->why, &why))
			gn_log_warn(s->log, "%s: the run goes on", why.text);
		else
			gn_log_info(s->log, "step %" PRIu64 ": %s", s->state.step, h->why);
		stop = behind;
	}
	status = gn_comm_broadcast(s->comm, &stop, sizeof stop, 0, err);
	h->behind = stop;
	return status;
}
