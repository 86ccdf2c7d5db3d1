/* --compress auto: which method, if any, pays on this network. The first steps run without one and say how long gradients are waited for;
 * then each method shares a copy of the last step's gradients, and the parameters know nothing of it. */
#include "src/train/loop/session.h"

#include "src/base/clock.h"
#include "src/train/loop/summary.h"
#include "transport/coll/agree.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

enum { WARM_UP = 2, MEASURED = 3, ROUNDS = 5 };
/* A method is tried again until it has taken so long, at least twice. */
#define ENOUGH_S 1.0
/* Fewer steps do not win back what measuring takes. */
enum { STEPS_MIN = 40 };
/* The share of a step that a method has to save: it changes the gradients, so it has to be worth it. */
#define WORTH 0.05

/* From the one that changes gradients least. */
static const char *const candidates[] = {"none", "bf16", "int8", "topk:0.01", "powersgd:2"};
enum { CANDIDATES = sizeof candidates / sizeof *candidates };

int gn_session_chooses_compression(const struct gn_session *s)
{
	return s->compress.method == GN_COMPRESS_AUTO && gn_comm_size(s->comm) > 1;
}

void gn_session_begin_compression(struct gn_session *s, uint64_t steps_left)
{
	s->choice = (struct gn_compress_choice){.steps_left = steps_left, .step_s = INFINITY, .exposed_s = INFINITY};
	if (steps_left >= STEPS_MIN || !gn_session_chooses_compression(s))
		return;
	s->compress.method = GN_COMPRESS_NONE;
	if (steps_left && gn_comm_rank(s->comm) == 0)
		gn_log_info(s->log, "--compress auto: none, for %" PRIu64 " steps are too few to measure (%d)", steps_left, STEPS_MIN);
}

/* Shares copies of the array; *seconds: the best of a few times, each of the slowest rank. scratch: as large as the replica's. */
static enum gn_status time_sharing(struct gn_session *s, struct gn_sharing_options *o, float *scratch, double *seconds, struct gn_err *err)
{
	size_t bytes = (gn_model_param_elements(s->model) + o->tail_elements) * sizeof(float);
	struct gn_reducer_config config;
	struct gn_reducer *x;
	double total = 0;
	enum gn_status status;

	*seconds = INFINITY;
	gn_session_reducer_config(s, &config);
	o->flat = scratch;
	status = gn_agree_status(s->comm, gn_reducer_create(o, &config, &x, err), err);
	if (status)
		return status;
	for (int round = 0; round < ROUNDS && (round < 2 || total < ENOUGH_S) && !status; round++) {
		uint64_t began;
		double took;

		memcpy(scratch, s->replica.flat, bytes);
		if (o->compressor)
			gn_compressor_begin(o->compressor, (uint64_t)round, UINT32_MAX);
		status = gn_comm_barrier(s->comm, err);
		began = gn_clock_ns();
		gn_reducer_begin(x);
		if (!status)
			status = gn_reducer_wait(x, err);
		took = (double)(gn_clock_ns() - began) * 1e-9;
		if (!status)
			status = gn_comm_allreduce(s->comm, &took, 1, GN_F64, gn_reduce_max(GN_F64), err);
		*seconds = fmin(*seconds, took);
		total += took;
	}
	gn_reducer_destroy(x);
	return status;
}

static enum gn_status time_method(struct gn_session *s, const char *name, float *scratch, double *seconds, struct gn_err *err)
{
	struct gn_sharing_options o = gn_replica_sharing_options(&s->replica);
	struct gn_compress_options co = {.comm = s->comm, .model = s->model, .algo = o.algo, .batches = 1};
	enum gn_status status = gn_compress_parse(name, &co.spec, err);

	if (!status && co.spec.method)
		status = gn_agree_status(s->comm, gn_compressor_create(&co, &o.compressor, err), err);
	if (!status)
		status = time_sharing(s, &o, scratch, seconds, err);
	gn_compressor_destroy(o.compressor);
	return status;
}

static enum gn_status report(struct gn_session *s, int best, const double *seconds, struct gn_err *err)
{
	struct gn_json *j = gn_metrics_log_begin(s->metrics.log, "compress");
	struct gn_strbuf text = {0};

	for (int i = 0; i < CANDIDATES; i++)
		gn_strbuf_printf(&text, "%s%s %.4g", i ? ", " : "", candidates[i], seconds[i] * 1e3);
	if (gn_comm_rank(s->comm) == 0)
		gn_log_info(s->log, "--compress auto: %s; sharing the gradients of a step takes, in ms: %s; a step takes %.4g ms and waits %.4g "
			    "for them", candidates[best], gn_strbuf_text(&text), s->choice.step_s * 1e3, s->choice.exposed_s * 1e3);
	gn_strbuf_release(&text);
	if (j) {
		gn_json_uint(j, "step", s->state.step);
		gn_json_string(j, "method", candidates[best]);
		gn_json_fixed(j, "step_ms", s->choice.step_s * 1e3, 3);
		gn_json_fixed(j, "exposed_ms", s->choice.exposed_s * 1e3, 3);
		gn_json_object(j, "sharing_ms");
		for (int i = 0; i < CANDIDATES; i++)
			gn_json_fixed(j, candidates[i], seconds[i] * 1e3, 3);
		gn_json_end(j);
	}
	return gn_metrics_log_end(s->metrics.log, err);
}

/* What is waited for beyond the time of sharing is for slower ranks. What a method takes is not hidden behind backward: so it saves the
 * least that it can. */
static int choose(const struct gn_session *s, const double *seconds)
{
	double waits = fmin(s->choice.exposed_s, seconds[0]);
	int best = 0;

	for (int i = 1; i < CANDIDATES; i++)
		if (waits - seconds[i] > WORTH * s->choice.step_s) {
			waits = seconds[i];
			best = i;
		}
	return best;
}

static enum gn_status decide(struct gn_session *s, struct gn_err *err)
{
	size_t bytes = (gn_model_param_elements(s->model) + gn_replica_sharing_options(&s->replica).tail_elements) * sizeof(float);
	double seconds[CANDIDATES], own[2] = {s->choice.step_s, s->choice.exposed_s};
	void *scratch;
	int best;
	enum gn_status status = gn_comm_alloc(s->comm, bytes, &scratch, err);

	if (status)
		return status;
	for (int i = 0; i < CANDIDATES && !status; i++)
		status = time_method(s, candidates[i], scratch, &seconds[i], err);
	gn_comm_free(s->comm, scratch);
	if (!status)
		status = gn_comm_allreduce(s->comm, own, 2, GN_F64, gn_reduce_max(GN_F64), err);
	if (status)
		return status;
	s->choice.step_s = own[0];
	s->choice.exposed_s = own[1];
	best = choose(s, seconds);
	status = report(s, best, seconds, err);
	if (!status)
		status = gn_session_take_compression(s, candidates[best], err);
	if (!status && !best)
		return gn_session_begin_autotune(s, s->choice.steps_left - (uint64_t)s->choice.steps, err);
	return status;
}

enum gn_status gn_session_take_compression(struct gn_session *s, const char *name, struct gn_err *err)
{
	struct gn_reducer_config config;
	enum gn_status status = gn_compress_parse(name, &s->compress, err);

	if (status)
		return status;
	snprintf(s->checkpoint.info.compress, sizeof s->checkpoint.info.compress, "%s", name);
	gn_session_reducer_config(s, &config);
	gn_step_forecast_release(&s->forecast); /* it is of the reducer before */
	if (s->compress.method)
		status = gn_replica_compress(&s->replica, &s->compress, &config, err);
	return status;
}

enum gn_status gn_session_note_compression(struct gn_session *s, double exposed_s, struct gn_err *err)
{
	struct gn_compress_choice *c = &s->choice;
	enum gn_status status;

	if (!gn_session_chooses_compression(s))
		return GN_OK;
	if (c->steps++ >= WARM_UP) {
		c->step_s = fmin(c->step_s, s->step_s);
		c->exposed_s = fmin(c->exposed_s, exposed_s);
	}
	if (c->steps < WARM_UP + MEASURED)
		return GN_OK;
	status = decide(s, err);
	if (!status)
		gn_summary_compress(s);
	return status;
}
