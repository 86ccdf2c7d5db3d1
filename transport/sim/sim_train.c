#include "transport/sim/sim.h"

#include <math.h>

enum gn_status gn_sim_step_time(const struct gn_sim_topology *t, const struct gn_algorithm *a,
				const struct gn_sim_step *step, double *out, double *exposed_s, struct gn_err *err)
{
	double done = 0, took = 0;

	for (size_t i = 0; i < step->count && t->nodes * t->ranks_per_node > 1; i++) {
		struct gn_sim_result r = {.time_s = took};
		enum gn_status status = GN_OK;

		/* buckets of one size take one time */
		if (!i || step->buckets[i].bytes != step->buckets[i - 1].bytes)
			status = gn_sim_run(t, a, step->buckets[i].bytes, 0, 0, &r, err);
		if (status)
			return status;
		took = r.time_s;
		done = fmax(done, step->buckets[i].ready_s) + took;
	}
	*out = fmax(done, step->compute_s - step->after_s) + step->after_s;
	*exposed_s = *out - step->compute_s;
	return GN_OK;
}
