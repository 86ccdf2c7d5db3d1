#include "src/train/metrics/scaling_report.h"

#include "src/base/thread_pool.h"
#include "src/base/text.h"
#include "transport/coll/agree.h"

#include <math.h>
#include <omp.h>
#include <stdlib.h>
#include <string.h>

static const char *const names[GN_SCALING_REPORT_PARTS] = {"data",	"forward", "backward", "communication_exposed",
							   "optimizer", "step",	   "compute"};
/* With more ranks a line would be longer than what it says is worth. */
enum { LISTED_MAX = 64 };
/* A rank is worth a word when it computes so much longer than the mean. */
#define SLOW 1.25

static void fold(struct gn_scaling_report *out, const float *all)
{
	for (int p = 0; p < GN_SCALING_REPORT_PARTS; p++) {
		out->min[p] = out->max[p] = (double)all[p];
		out->mean[p] = 0;
	}
	for (int r = 0; r < out->ranks; r++)
		for (int p = 0; p < GN_SCALING_REPORT_PARTS; p++) {
			double value = (double)all[r * GN_SCALING_REPORT_PARTS + p];

			if (p == GN_SCALING_REPORT_COMPUTE && value > out->max[p])
				out->slowest = r;
			out->min[p] = fmin(out->min[p], value);
			out->max[p] = fmax(out->max[p], value);
			out->mean[p] += value / out->ranks;
		}
	for (int r = 0; r < out->ranks; r++)
		out->compute[r] = all[r * GN_SCALING_REPORT_PARTS + GN_SCALING_REPORT_COMPUTE];
}

enum gn_status gn_scaling_report_gather(const struct gn_session *s, const struct gn_interval *sums, struct gn_scaling_report *out,
			       struct gn_err *err)
{
	struct gn_comm *comm = s->comm;
	double steps = (double)sums->steps, parts[GN_SCALING_REPORT_PARTS] = {sums->data,
									      sums->forward,
									      sums->backward,
									      sums->exposed,
									      sums->optimizer,
									      sums->step,
									      sums->step - sums->exposed};
	float mine[GN_SCALING_REPORT_PARTS], *all;
	struct gn_scaling_report split = {.ranks = gn_comm_size(comm), .processors = s->processors};
	enum gn_status status;

	for (int p = 0; p < GN_SCALING_REPORT_PARTS; p++)
		mine[p] = (float)(parts[p] / steps);
	all = calloc((size_t)split.ranks, sizeof mine);
	split.compute = calloc((size_t)split.ranks, sizeof *split.compute);
	if (!all || !split.compute)
		status = gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for the times of %d ranks", split.ranks);
	else
		status = gn_agree_gather(comm, mine, sizeof mine, all, err);
	if (!status) {
		fold(&split, all);
		split.measured = split.mean[GN_SCALING_REPORT_COMPUTE] / split.mean[GN_SCALING_REPORT_STEP];
		if (sums->predicted > 0)
			split.predicted = sums->predicted_compute / sums->predicted;
		*out = split;
	} else {
		gn_scaling_report_release(&split);
	}
	free(all);
	return status;
}

void gn_scaling_report_release(struct gn_scaling_report *split)
{
	free(split->compute);
	split->compute = NULL;
}

const char *gn_scaling_report_source(const struct gn_session *s)
{
	static const char *const words[] = {
		[GN_COLL_GUESSED] = "guessed", [GN_COLL_MEASURED] = "measured", [GN_COLL_TRIED] = "tried"};
	enum gn_coll_source worst = GN_COLL_TRIED;

	/* While ways are tried, there are forecasts of another's buckets, and nothing is predicted. */
	for (size_t b = 0; s->forecasts && !s->trial && b < gn_reducer_buckets(s->exchange); b++)
		worst = s->forecasts[b].source < worst ? s->forecasts[b].source : worst;
	return words[worst];
}

static void put_sharing(const struct gn_processors *p, struct gn_strbuf *out)
{
	gn_strbuf_printf(out, "%d threads of %d rank%s share %d processor%s", p->threads, p->ranks, gn_text_plural((uint64_t)p->ranks),
			 p->processors, gn_text_plural((uint64_t)p->processors));
}

void gn_scaling_report_json(const struct gn_scaling_report *split, const struct gn_world *world, const char *source,
			    struct gn_json *j)
{
	struct gn_strbuf why;

	gn_json_object(j, "ranks");
	for (int p = 0; p < GN_SCALING_REPORT_PARTS; p++) {
		if (p == GN_SCALING_REPORT_STEP)
			continue;
		gn_json_array(j, names[p]);
		gn_json_fixed(j, NULL, split->min[p] * 1e3, 3);
		gn_json_fixed(j, NULL, split->mean[p] * 1e3, 3);
		gn_json_fixed(j, NULL, split->max[p] * 1e3, 3);
		gn_json_end(j);
	}
	gn_json_int(j, "slowest", split->slowest);
	gn_json_string(j, "slowest_host", gn_world_host_of(world, split->slowest));
	if (split->ranks <= LISTED_MAX) {
		gn_json_array(j, "each_compute");
		for (int r = 0; r < split->ranks; r++)
			gn_json_fixed(j, NULL, (double)split->compute[r] * 1e3, 3);
		gn_json_end(j);
	}
	gn_json_end(j);
	gn_json_object(j, "efficiency");
	gn_json_fixed(j, "measured", split->measured, 4);
	if (split->predicted > 0) {
		gn_json_fixed(j, "predicted", split->predicted, 4);
		gn_json_string(j, "costs", source);
	} else if (gn_processors_shared(&split->processors)) {
		gn_strbuf_init(&why);
		put_sharing(&split->processors, &why);
		gn_json_string(j, "unpredicted", gn_strbuf_text(&why));
		gn_strbuf_release(&why);
	}
	gn_json_end(j);
}

void gn_scaling_report_text(const struct gn_scaling_report *split, const struct gn_world *world, const char *source,
			    struct gn_strbuf *out)
{
	double slowest = split->max[GN_SCALING_REPORT_COMPUTE] / split->mean[GN_SCALING_REPORT_COMPUTE];

	gn_strbuf_printf(out, ", efficiency %.0f %%", 100 * split->measured);
	if (split->predicted > 0)
		gn_strbuf_printf(out, " (predicted %.0f %%, costs %s)", 100 * split->predicted, source);
	else if (gn_processors_shared(&split->processors)) {
		gn_strbuf_puts(out, " (not predicted: ");
		put_sharing(&split->processors, out);
		gn_strbuf_puts(out, ")");
	}
	if (slowest > SLOW)
		gn_strbuf_printf(out, ", rank %d on %s computes %.0f %% longer", split->slowest,
				 gn_world_host_of(world, split->slowest), 100 * (slowest - 1));
}

enum gn_status gn_scaling_report_find_processors(struct gn_session *s, struct gn_err *err)
{
	struct gn_plan_options po = {0};
	enum gn_status status = gn_agree_status(s->comm, gn_session_device(s, &po, err), err);

	if (status)
		return status;
	/* A rank whose GPU computes has one thread that feeds it. */
	return gn_processors_gather(s->comm, po.backend == GN_BACKEND_CUDA ? 1 : omp_get_max_threads(), &s->processors, err);
}

void gn_scaling_report_predict_buckets(struct gn_session *s)
{
	size_t count = gn_reducer_buckets(s->exchange);
	struct gn_coll_forecast *all;
	struct gn_err err;

	if (gn_comm_size(s->comm) == 1 || gn_comm_rank(s->comm) || s->gpu_sums.exchange || gn_processors_shared(&s->processors))
		return;
	free(s->forecasts);
	s->forecasts = NULL;
	all = calloc(count, sizeof *all);
	for (size_t b = 0; all && b < count; b++)
		if (gn_coll_predict(gn_reducer_coll(s->exchange, b), &all[b], &err)) {
			gn_log_warn(s->log, "the time of a sum cannot be predicted: %s", err.text);
			free(all);
			return;
		}
	s->forecasts = all;
}

static int has_thread(const struct gn_train_options *o)
{
	return o->progress && !strcmp(o->progress, "thread");
}

/* A thread makes progress, and has a processor that no thread of this rank computes on. */
static int has_processor_to_spare(const struct gn_session *s)
{
	return has_thread(s->options) &&
	       omp_get_max_threads() < gn_cpu_count() / gn_world_local_size(gn_comm_world(s->comm));
}

double gn_scaling_report_predict_step(const struct gn_session *s, uint64_t began_ns, double compute_end_s, double optimizer_s)
{
	int spare = has_processor_to_spare(s);
	/* From computing: what all sums took, where the computing thread makes progress, and what those so far have to. */
	double took = (double)gn_reducer_taken_ns(s->exchange) * 1e-9, taken = 0, done = 0;

	/* While ways are tried, the times are those of another. */
	if (!s->forecasts || s->trial)
		return 0;
	for (size_t b = 0; b < gn_reducer_buckets(s->exchange); b++) {
		const struct gn_coll_forecast *f = &s->forecasts[b];
		struct gn_reducer_bucket seen;
		struct gn_coll_info info;
		double ready = compute_end_s;
		int hides;

		gn_reducer_bucket(s->exchange, b, &seen);
		gn_coll_describe(gn_reducer_coll(s->exchange, b), &info);
		/* In shared memory it is the computing thread that sums, unless another makes progress. */
		hides = gn_reducer_config(s->exchange)->overlap && (strcmp(info.algorithm, "shared") || has_thread(s->options));
		if (hides)
			ready = fmin(ready, (double)(seen.ready_ns - seen.taken_ns - began_ns) * 1e-9);
		done = fmax(done, ready + (hides ? fmax(taken, (double)seen.taken_ns * 1e-9) : took)) + f->seconds;
		if (hides && ready < compute_end_s && !spare)
			taken += f->processor_s;
	}
	return fmax(done, compute_end_s + fmax(taken, took)) + optimizer_s;
}
