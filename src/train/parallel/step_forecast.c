#include "src/train/parallel/step_forecast.h"

#include "src/base/thread_pool.h"

#include <math.h>
#include <omp.h>
#include <stdlib.h>
#include <string.h>

enum gn_status gn_step_forecast_init(struct gn_step_forecast *f, struct gn_comm *comm, int threads, int progress_thread,
				     struct gn_err *err)
{
	*f = (struct gn_step_forecast){
		.progress_thread = progress_thread,
		.spare_processor = progress_thread &&
				   omp_get_max_threads() < gn_cpu_count() / gn_world_local_size(gn_comm_world(comm)),
	};
	return gn_processors_gather(comm, threads, &f->processors, err);
}

void gn_step_forecast_release(struct gn_step_forecast *f)
{
	free(f->sums);
	f->sums = NULL;
	f->count = 0;
	f->comm = NULL;
}

void gn_step_forecast_sums(struct gn_step_forecast *f, struct gn_comm *comm, struct gn_log *log)
{
	gn_step_forecast_release(f);
	if (gn_comm_size(comm) == 1 || gn_comm_rank(comm) || gn_processors_shared(&f->processors))
		return;
	f->comm = comm;
	f->log = log;
}

static void predict_sums(struct gn_step_forecast *f, const struct gn_reducer *x)
{
	size_t count = gn_reducer_buckets(x);
	struct gn_coll_forecast *all;
	struct gn_err err;

	f->comm = NULL;
	all = calloc(count, sizeof *all);
	for (size_t b = 0; all && b < count; b++)
		if (gn_coll_predict(gn_reducer_coll(x, b), &all[b], &err)) {
			gn_log_warn(f->log, "the time of a sum cannot be predicted: %s", err.text);
			free(all);
			return;
		}
	f->sums = all;
	f->count = all ? count : 0;
}

const char *gn_step_forecast_source(const struct gn_step_forecast *f)
{
	static const char *const words[] = {
		[GN_COLL_GUESSED] = "guessed", [GN_COLL_MEASURED] = "measured", [GN_COLL_TRIED] = "tried"};
	enum gn_coll_source worst = GN_COLL_TRIED;

	for (size_t b = 0; b < f->count; b++)
		worst = f->sums[b].source < worst ? f->sums[b].source : worst;
	return words[worst];
}

double gn_step_forecast_step(struct gn_step_forecast *f, const struct gn_reducer *x, uint64_t began_ns, double compute_end_s,
			     double optimizer_s)
{
	/* Taken from computing: by all sums that the computing thread moved forward, and by those so far that have to take something. */
	double took = (double)gn_reducer_taken_ns(x) * 1e-9, taken = 0, done = 0;

	if (f->comm)
		predict_sums(f, x);
	if (!f->count)
		return 0;
	for (size_t b = 0; b < f->count; b++) {
		struct gn_reducer_bucket seen;
		struct gn_coll_info info;
		double ready = compute_end_s;
		int overlaps;

		gn_reducer_bucket(x, b, &seen);
		gn_coll_describe(gn_reducer_coll(x, b), &info);
		overlaps = gn_reducer_config(x)->overlap && (strcmp(info.algorithm, "shared") || f->progress_thread);
		if (overlaps)
			ready = fmin(ready, (double)(seen.ready_ns - seen.taken_ns - began_ns) * 1e-9);
		done = fmax(done, ready + (overlaps ? fmax(taken, (double)seen.taken_ns * 1e-9) : took)) + f->sums[b].seconds;
		if (overlaps && ready < compute_end_s && !f->spare_processor)
			taken += f->sums[b].processor_s;
	}
	return fmax(done, compute_end_s + fmax(taken, took)) + optimizer_s;
}
