/* What is told of a mesh: before the first step what each stage has and will wait, afterwards what was measured. */
#include "src/train/loop/session.h"

#include "src/base/text.h"
#include "src/train/parallel/cuts.h"
#include "transport/coll/agree.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LINES_MAX = 8 };

/* Of one rank. */
struct report {
	uint64_t param_bytes, state_bytes, plan_bytes, output_bytes; /* parameters; those with gradients and optimizer state; of micro-batches */
	uint64_t sent_bytes, version_bytes; /* version: of the parameters that backwards will read, or of a predictor */
	double waited_s, steps_s, exchanged_s;
	uint64_t exchanged_bytes;
	int32_t plans, inputs; /* micro-batches that there are activations of, and of which inputs are kept */
};

static struct report own_report(const struct gn_session *s)
{
	const struct gn_session_pipeline *p = s->pipeline;
	const struct gn_replica *r = &s->replica;
	size_t params = r->params.count * sizeof(float), ignored;
	struct report own = {
		.version_bytes = r->versions ? params * (size_t)r->plan_count : r->predictor ? gn_pipe_predictor_bytes(r->predictor) : 0,
		.param_bytes = params, .state_bytes = params * (r->accumulated ? 3 : 2) + gn_replica_state_bytes(r, &ignored),
		.plan_bytes = gn_replica_plan_bytes(r), .plans = r->plan_count, .inputs = r->kept.count, .steps_s = s->metrics.steps_s,
	};

	if (p->stage) {
		own.sent_bytes = gn_pipe_stage_sent_bytes(p->stage) - p->sent_bytes;
		own.waited_s = gn_pipe_stage_waited_s(p->stage) - p->waited_s;
		own.output_bytes = gn_pipe_stage_output_bytes(p->stage);
	}
	if (p->tensor) {
		own.exchanged_bytes = gn_tensor_group_bytes(p->tensor) - p->exchanged_bytes;
		own.exchanged_s = gn_tensor_group_waited_s(p->tensor) - p->exchanged_s;
	}
	return own;
}

/* *all: by rank, freed by the caller. */
static enum gn_status gather_reports(const struct gn_session *s, struct report **all, struct gn_err *err)
{
	const struct report own = own_report(s);
	enum gn_status status;

	*all = calloc((size_t)gn_comm_size(s->comm), sizeof **all);
	status = gn_agree_status(s->comm, *all ? GN_OK : gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for a report of all stages"), err);
	if (!status)
		status = gn_agree_gather(s->comm, &own, sizeof own, *all, err);
	if (status) {
		free(*all);
		*all = NULL;
	}
	return status;
}

static void draw(const struct gn_session *s)
{
	const struct gn_mesh *mesh = &s->pipeline->mesh;
	const struct gn_world *world = gn_comm_world(s->comm);
	const char **hosts = calloc((size_t)mesh->size, sizeof *hosts);
	struct gn_strbuf text = {0};

	for (int r = 0; hosts && r < mesh->size; r++)
		hosts[r] = gn_world_host_of(world, r);
	if (hosts)
		gn_mesh_draw(mesh, hosts, LINES_MAX, &text);
	for (const char *line = gn_strbuf_text(&text); !gn_strbuf_failed(&text) && *line; line = strchr(line, '\n') + 1)
		gn_log_info(s->log, "%.*s", (int)strcspn(line, "\n"), line);
	gn_strbuf_release(&text);
	free(hosts);
}

static void log_stage(const struct gn_session *s, int stage, const struct report *r)
{
	const struct gn_session_pipeline *p = s->pipeline;
	int stages = p->mesh.shape.pipeline;
	char inputs[48] = "";
	struct gn_strbuf from = {0};

	if (r->inputs)
		snprintf(inputs, sizeof inputs, ", with the inputs of %d", r->inputs);
	if (stage)
		gn_cuts_text(s->model, &p->nodes[stage - 1], 1, &from);
	else
		gn_strbuf_puts(&from, "the images");
	gn_log_info(s->log, "stage %d of %d, from %s on%s: %.4g MB of parameters, %.4g MB with gradients and optimizer state, %.4g MB of activations for "
		    "%d micro-batch%s at a time%s; sends %.4g MB forward each", stage, stages, gn_strbuf_text(&from),
		    p->tensor ? ", each of its slices" : "", (double)r->param_bytes * 1e-6,
		    (double)r->state_bytes * 1e-6, (double)r->plan_bytes * 1e-6, r->plans, r->plans == 1 ? "" : "es", inputs,
		    (double)r->output_bytes * 1e-6);
	gn_strbuf_release(&from);
	if (r->version_bytes && gn_pipe_stage_schedule(p->stage)->kind == GN_PIPE_PIPEDREAM)
		gn_log_info(s->log, "stage %d of %d keeps %d versions of its parameters, %.4g MB", stage, stages, r->plans, (double)r->version_bytes * 1e-6);
	else if (r->version_bytes)
		gn_log_info(s->log, "stage %d of %d predicts gradients of its output, with %.4g MB", stage, stages, (double)r->version_bytes * 1e-6);
}

static void log_schedule(const struct gn_session *s, const struct gn_pipe_schedule *schedule)
{
	const char *name = gn_pipe_kind_name(schedule->kind);

	if (gn_pipe_kind_is_async(schedule->kind))
		gn_log_info(s->log, "schedule %s: %d update%s of each stage a step, and no pause until all parameters are needed, for an evaluation, a "
			    "checkpoint or the end of an epoch", name, s->schedule.own_batches, gn_text_plural((uint64_t)s->schedule.own_batches));
	else
		gn_log_info(s->log, "schedule %s of %d micro-batches a step: each stage idles %.0f %% of it if all take equally long", name,
			    schedule->batches, 100 * gn_pipe_schedule_bubble(schedule));
}

static void log_slices(const struct gn_session *s, const struct report *r)
{
	const double all = (double)gn_model_param_elements(s->model) * sizeof(float);

	gn_log_info(s->log, "each rank of a tensor group: %.4g MB of parameters, %.3f of the network's %.4g MB, %.4g MB with gradients and optimizer "
		    "state, %.4g MB of activations; rank 0 has all parameters once more, for checkpoints", (double)r->param_bytes * 1e-6,
		    (double)r->param_bytes / all, all * 1e-6, (double)r->state_bytes * 1e-6, (double)r->plan_bytes * 1e-6);
}

static void log_stages(const struct gn_session *s, const struct report *all)
{
	const struct gn_session_pipeline *p = s->pipeline;

	for (int stage = 0; stage < p->mesh.shape.pipeline; stage++)
		log_stage(s, stage, &all[gn_mesh_rank(&p->mesh, 0, stage)]);
	log_schedule(s, gn_pipe_stage_schedule(p->stage));
}

enum gn_status gn_session_log_mesh(struct gn_session *s, struct gn_err *err)
{
	struct gn_session_pipeline *p = s->pipeline;
	struct report *all;
	enum gn_status status;

	if (!p)
		return GN_OK;
	p->waited_s = p->stage ? gn_pipe_stage_waited_s(p->stage) : 0;
	p->sent_bytes = p->stage ? gn_pipe_stage_sent_bytes(p->stage) : 0;
	p->exchanged_s = p->tensor ? gn_tensor_group_waited_s(p->tensor) : 0;
	p->exchanged_bytes = p->tensor ? gn_tensor_group_bytes(p->tensor) : 0;
	status = gather_reports(s, &all, err);
	if (status || gn_comm_rank(s->comm)) {
		free(all);
		return status;
	}
	draw(s);
	if (p->stage)
		log_stages(s, all);
	else
		log_slices(s, &all[0]);
	free(all);
	return GN_OK;
}

/* That formulas predict: of asynchronous runs for their mean length. */
static double formula(const struct gn_session *s)
{
	const struct gn_async_run *a = &s->replica.async;
	struct gn_pipe_schedule schedule = *gn_pipe_stage_schedule(s->pipeline->stage);

	if (a->runs)
		schedule.batches = (int)(a->batches / a->runs);
	return gn_pipe_schedule_bubble(&schedule);
}

/* By stage, of the first pipeline. */
static enum gn_status write_bubble(const struct gn_session *s, const struct report *all, uint64_t steps, struct gn_err *err)
{
	const struct gn_mesh *mesh = &s->pipeline->mesh;
	struct gn_json *j = gn_metrics_log_begin(s->metrics.log, "pipeline");

	if (!j)
		return GN_OK;
	gn_json_uint(j, "step", s->state.step);
	gn_json_fixed(j, "bubble_formula", formula(s), 4);
	gn_json_array(j, "stages");
	for (int stage = 0; stage < mesh->shape.pipeline; stage++) {
		const struct report *r = &all[gn_mesh_rank(mesh, 0, stage)];

		gn_json_object(j, NULL);
		gn_json_fixed(j, "bubble", r->steps_s > 0 ? r->waited_s / r->steps_s : 0, 4);
		gn_json_fixed(j, "sent_bytes", (double)r->sent_bytes / (double)steps, 0);
		gn_json_uint(j, "parameter_bytes", r->param_bytes);
		gn_json_uint(j, "version_bytes", r->version_bytes);
		gn_json_uint(j, "activation_bytes", r->plan_bytes);
		gn_json_end(j);
	}
	gn_json_end(j);
	return gn_metrics_log_end(s->metrics.log, err);
}

static void log_exchanges(const struct gn_session *s, int stage, const struct report *r, uint64_t steps)
{
	const struct gn_mesh_shape *shape = &s->pipeline->mesh.shape;
	char of[48] = "";

	if (shape->pipeline > 1)
		snprintf(of, sizeof of, " of stage %d of %d", stage, shape->pipeline);
	gn_log_info(s->log, "slice 0 of %d%s took %.0f %% of the steps' time for exchanges in its tensor group, of %.4g MB a step", shape->tensor, of,
		    r->steps_s > 0 ? 100 * r->exchanged_s / r->steps_s : 0, (double)r->exchanged_bytes / (double)steps * 1e-6);
}

enum gn_status gn_session_log_bubble(struct gn_session *s, struct gn_err *err)
{
	const struct gn_session_pipeline *p = s->pipeline;
	uint64_t steps = s->state.step - s->metrics.began_step;
	struct report *all;
	enum gn_status status = p && steps ? gather_reports(s, &all, err) : GN_OK;
	int root = gn_comm_rank(s->comm) == 0;

	if (status || !p || !steps)
		return status;
	for (int stage = 0; stage < p->mesh.shape.pipeline && root && p->tensor; stage++)
		log_exchanges(s, stage, &all[gn_mesh_rank(&p->mesh, 0, stage)], steps);
	for (int stage = 0; stage < p->mesh.shape.pipeline && root && p->stage; stage++) {
		const struct report *r = &all[gn_mesh_rank(&p->mesh, 0, stage)];

		gn_log_info(s->log, "stage %d of %d waited %.0f %% of the steps' time for its neighbours, by formula %.0f %%; it sent them %.4g MB a step",
			    stage, p->mesh.shape.pipeline, r->steps_s > 0 ? 100 * r->waited_s / r->steps_s : 0,
			    100 * formula(s), (double)r->sent_bytes / (double)steps * 1e-6);
	}
	status = p->stage ? write_bubble(s, all, steps, err) : GN_OK;
	free(all);
	return gn_session_alone(s, status);
}

void gn_session_put_mesh(const struct gn_session *s, struct gn_json *j)
{
	const struct gn_session_pipeline *p = s->pipeline;

	if (*s->mesh_choice)
		gn_json_string(j, "mesh_choice", s->mesh_choice);
	if (!p)
		return;
	gn_json_object(j, "mesh");
	gn_json_int(j, "data", p->mesh.shape.data);
	if (p->tensor) {
		gn_json_int(j, "tensor", p->mesh.shape.tensor);
		gn_json_uint(j, "param_bytes", s->replica.params.count * sizeof(float));
	}
	if (!p->stage) {
		gn_json_end(j);
		return;
	}
	gn_json_int(j, "pipeline", p->mesh.shape.pipeline);
	gn_json_string(j, "cut", s->checkpoint.info.cut);
	gn_json_string(j, "schedule", s->options->pipe_schedule);
	gn_json_int(j, "micro_batches", s->options->micro_batches);
	gn_json_end(j);
}

/* is: ", is lost" or nothing. */
static void name_rank(const struct gn_mesh *m, int rank, const char *is, struct gn_err *err)
{
	if (m->shape.tensor > 1 && m->shape.pipeline > 1)
		gn_err_prefix(err, "rank %d, stage %d of %d, slice %d of %d of pipeline %d%s", rank, gn_mesh_stage(m, rank), m->shape.pipeline,
			      gn_mesh_slice(m, rank), m->shape.tensor, gn_mesh_data_index(m, rank), is);
	else if (m->shape.tensor > 1)
		gn_err_prefix(err, "rank %d, slice %d of %d of tensor group %d%s", rank, gn_mesh_slice(m, rank), m->shape.tensor,
			      gn_mesh_data_index(m, rank), is);
	else
		gn_err_prefix(err, "rank %d, stage %d of %d of pipeline %d%s", rank, gn_mesh_stage(m, rank), m->shape.pipeline,
			      gn_mesh_data_index(m, rank), is);
}

void gn_session_name_lost(const struct gn_session *s, struct gn_err *err)
{
	const struct gn_session_pipeline *p = s->pipeline;
	const struct gn_world *world = gn_comm_world(s->comm);
	int named = 0;

	for (int r = gn_comm_size(s->comm) - 1; p && r >= 0; r--)
		if (gn_world_is_lost(world, r)) {
			name_rank(&p->mesh, r, ", is lost", err);
			named++;
		}
	/* of a rank that has left, not been lost, or of messages that ended before anybody knew why */
	if (p && !named)
		name_rank(&p->mesh, gn_comm_rank(s->comm), "", err);
}
