/* Predicted steps of a pipeline beside real ones: bench/parallel/pipe_timers GBIT [MS [BYTES [BURST]]], on each rank, one stage each. Computing is
 * replaced by a timer: MS (40) forward and twice that backward of a micro-batch, and half as much again on the middle one of three stages or more.
 * Messages of BYTES (500000) go as in `gannet train --parallel`, over links of GBIT between nodes; one that was idle sends BURST (0) bytes at
 * once, as a token bucket: 262144 in slurm/vcluster. With gpipe and 1f1b, and 2, 4 and 8 micro-batches, rank 0 prints one JSON object a line: the median of 5
 * steps, what src/train/parallel/pipe_forecast.h predicts, and the ratio, which has to be between 0.9 and 1.1; and the bubble, which has to be
 * within 0.05 of that of the prediction, and the formula's, (P - 1) / (M + P - 1), that of equal stages and no messages. Exit codes: 0, 1
 * with the reason, 2 usage. */
#include "src/base/clock.h"
#include "src/base/json.h"
#include "src/base/sort.h"
#include "src/train/parallel/pipe_forecast.h"
#include "src/train/parallel/pipe_stage.h"
#include "transport/coll/comm.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { STEPS = 5 };
#define POLL_S 1e-3

struct bench {
	struct gn_comm *comm;
	double gbit, seconds, bytes, burst; /* seconds: of a forward */
	struct gn_layout layout;
	char *message;
};

static double forward_s(const struct bench *b, int stage)
{
	int stages = gn_comm_size(b->comm);

	return stages > 2 && stage == stages / 2 ? 1.5 * b->seconds : b->seconds;
}

/* As plans do it between operators. */
static void compute(struct gn_pipe_stage *p, double seconds)
{
	double end = gn_clock_s() + seconds, left;

	while ((left = end - gn_clock_s()) > 0) {
		double slice = left < POLL_S ? left : POLL_S;
		struct timespec t = {.tv_nsec = (long)(slice * 1e9)};

		nanosleep(&t, NULL);
		gn_pipe_stage_poll(p);
	}
}

static enum gn_status forward(const struct bench *b, struct gn_pipe_stage *p, struct gn_err *err)
{
	static const int32_t label;
	struct gn_targets targets = {.labels = &label};
	const void *in;
	int first = gn_pipe_stage_is_first(p);
	enum gn_status status = first ? GN_OK : gn_pipe_stage_input(p, &in, &targets, err);

	if (!status)
		compute(p, forward_s(b, gn_comm_rank(b->comm)));
	if (!status && !gn_pipe_stage_is_last(p))
		status = gn_pipe_stage_output(p, b->message, &targets, err);
	return status || first ? status : gn_pipe_stage_input_done(p, err);
}

static enum gn_status backward(const struct bench *b, struct gn_pipe_stage *p, struct gn_err *err)
{
	const void *gradient;
	int last = gn_pipe_stage_is_last(p);
	enum gn_status status = last ? GN_OK : gn_pipe_stage_gradient(p, &gradient, NULL, err);

	if (!status)
		compute(p, 2 * forward_s(b, gn_comm_rank(b->comm)));
	if (!status && !last)
		status = gn_pipe_stage_gradient_done(p, err);
	return status || gn_pipe_stage_is_first(p) ? status : gn_pipe_stage_give_gradient(p, b->message, NULL, err);
}

/* Collective: ends with a sum over the stages, as a real step. */
static enum gn_status step(const struct bench *b, struct gn_pipe_stage *p, struct gn_err *err)
{
	const struct gn_pipe_schedule *s = gn_pipe_stage_schedule(p);
	enum gn_status status = gn_pipe_stage_begin(p, s->batches, err);
	float sum = 1;

	for (int i = 0; i < 2 * s->batches && !status; i++)
		status = (gn_pipe_schedule_action(s, i).is_backward ? backward : forward)(b, p, err);
	if (!status)
		status = gn_pipe_stage_end(p, err);
	return status ? status : gn_pipe_stage_sum(p, &sum, 1, err);
}

static enum gn_status measure(const struct bench *b, const struct gn_pipe_schedule *s, double *seconds, struct gn_err *err)
{
	struct gn_pipe_stage *p = NULL;
	struct gn_layout in;
	double times[STEPS];
	enum gn_status status = gn_pipe_stage_create(b->comm, s, &p, err);

	if (!status)
		status = gn_pipe_stage_get_layout(p, &in, err);
	if (!status)
		status = gn_pipe_stage_connect(p, &b->layout, &b->layout, 1, err);
	for (int i = -1; i < STEPS && !status; i++) {
		double began = gn_clock_s();

		status = step(b, p, err);
		if (i >= 0)
			times[i] = gn_clock_s() - began;
	}
	gn_pipe_stage_destroy(p);
	if (status)
		return status;
	gn_sort_doubles(times, STEPS);
	*seconds = times[STEPS / 2];
	return GN_OK;
}

static enum gn_status predict(const struct bench *b, const struct gn_pipe_schedule *s, struct gn_sim_pipe_result *out, struct gn_err *err)
{
	const struct gn_world *w = gn_comm_world(b->comm);
	struct gn_sim_topology machine = {.nodes = gn_world_nodes(w), .ranks_per_node = gn_world_size(w) / gn_world_nodes(w), .rails = 1,
					  .link_bytes_per_s = b->gbit * 1e9 / 8, .link_latency_s = 5e-5, .node_bytes_per_s = 1e9,
					  .node_latency_s = 5e-5, .oversubscription = 1, .eager_bytes = 8192,
					  .burst_bytes = b->burst, .burst_bytes_per_s = 1e9};
	struct gn_mesh_shape shape = {1, s->stages, 1};
	struct gn_sim_pipe_stage *stages = calloc((size_t)s->stages, sizeof *stages);
	struct gn_mesh mesh = {.size = 0};
	enum gn_status status = stages ? GN_OK : gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for %d stages", s->stages);

	for (int k = 0; k < s->stages && !status; k++)
		stages[k] = (struct gn_sim_pipe_stage){.forward_s = forward_s(b, k), .backward_s = 2 * forward_s(b, k),
						       .out_bytes = k + 1 < s->stages ? b->bytes : 0};
	if (!status)
		status = gn_pipe_forecast_mesh(&shape, &machine, &mesh, err);
	if (!status)
		status = gn_pipe_forecast_step(&machine, &mesh, s, stages, 0, NULL, out, err);
	gn_mesh_release(&mesh);
	free(stages);
	return status;
}

/* Collective. *wrong: the prediction is not within a tenth. */
static enum gn_status compare(const struct bench *b, enum gn_pipe_kind kind, int micro, int *wrong, struct gn_err *err)
{
	struct gn_pipe_schedule s = {.kind = kind, .stages = gn_comm_size(b->comm), .micro = micro, .batches = micro};
	double measured = 0, busy = 0, bubble;
	struct gn_sim_pipe_result predicted;
	enum gn_status status = measure(b, &s, &measured, err);
	struct gn_json j;

	if (!status)
		status = predict(b, &s, &predicted, err);
	if (status || gn_comm_rank(b->comm))
		return status;
	for (int k = 0; k < s.stages; k++)
		busy += 3 * micro * forward_s(b, k);
	bubble = 1 - busy / (s.stages * measured);
	gn_json_init(&j);
	gn_json_object(&j, NULL);
	gn_json_int(&j, "stages", s.stages);
	gn_json_int(&j, "nodes", gn_world_nodes(gn_comm_world(b->comm)));
	gn_json_string(&j, "schedule", gn_pipe_kind_name(kind));
	gn_json_int(&j, "micro_batches", micro);
	gn_json_fixed(&j, "bytes", b->bytes, 0);
	gn_json_fixed(&j, "step_ms", 1e3 * measured, 2);
	gn_json_fixed(&j, "predicted_ms", 1e3 * predicted.step_s, 2);
	gn_json_fixed(&j, "ratio", measured / predicted.step_s, 3);
	gn_json_fixed(&j, "bubble", bubble, 3);
	gn_json_fixed(&j, "predicted_bubble", predicted.bubble, 3);
	gn_json_fixed(&j, "formula_bubble", gn_pipe_schedule_bubble(&s), 3);
	gn_json_end(&j);
	puts(gn_json_text(&j));
	fflush(stdout);
	gn_json_release(&j);
	*wrong |= measured < 0.9 * predicted.step_s || measured > 1.1 * predicted.step_s || fabs(bubble - predicted.bubble) > 0.05;
	return GN_OK;
}

int main(int argc, char **argv)
{
	const struct gn_comm_options options = {.transport = "auto", .tuning = "none"};
	struct bench b = {.gbit = argc > 1 ? atof(argv[1]) : 0, .seconds = (argc > 2 ? atof(argv[2]) : 40) / 1e3,
			  .bytes = argc > 3 ? atof(argv[3]) : 500000, .burst = argc > 4 ? atof(argv[4]) : 0};
	struct gn_world *world = NULL;
	struct gn_err err;
	int wrong = 0;
	enum gn_status status;

	if (argc < 2 || argc > 5 || !(b.burst >= 0) || !(b.gbit > 0) || !(b.seconds > 0) || !(b.bytes >= 4 && b.bytes < 1e9))
		return 2;
	b.layout = (struct gn_layout){1, 1, 1, (int)(b.bytes / 4), 1, 4};
	b.message = calloc(1, (size_t)b.bytes + 4);
	status = b.message ? gn_world_create(NULL, NULL, &world, &err) : gn_err_set(&err, GN_ERR_NO_MEMORY, "no memory for a message");
	if (!status)
		status = gn_comm_create(world, &options, NULL, &b.comm, &err);
	for (int micro = 2; micro <= 8 && !status; micro *= 2)
		for (int kind = 0; kind < 2 && !status; kind++)
			status = compare(&b, kind ? GN_PIPE_1F1B : GN_PIPE_GPIPE, micro, &wrong, &err);
	if (!status && wrong)
		status = gn_err_set(&err, GN_ERR_FAILED, "a step took a tenth more or less than predicted, or its bubble was another");
	if (status)
		fprintf(stderr, "bench/parallel/pipe_timers: %s\n", err.text);
	gn_comm_destroy(b.comm);
	gn_world_destroy(world);
	free(b.message);
	return status ? 1 : 0;
}
