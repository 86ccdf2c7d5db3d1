#include "src/train/parallel/pipe_stage.h"

#include "src/base/alloc.h"
#include "src/train/parallel/pipe_link.h"

#include <stdlib.h>
#include <string.h>

/* Of messages in the pipeline's communicator. */
enum { TAG_LAYOUT = 1, TAG_FORWARD, TAG_BACKWARD };
enum { ALIGN_BYTES = 64 };

struct gn_pipe_stage {
	struct gn_update_group group; /* first: it leads back here */
	struct gn_update_group *slices;
	struct gn_comm *comm;
	struct gn_pipe_schedule schedule;
	size_t in_bytes, out_bytes; /* of activations alone */
	int images;
	struct gn_pipe_link *input, *output, *gradient, *give_gradient;
	uint64_t sent_bytes;
	double waited_s; /* by links that are gone */
};

/* What follows activations. */
struct labels {
	int32_t has_pairs;
	int32_t batches; /* of the step or run, as the first stage knows it */
};

/* In one order of stages, so that all pipelines of a run get the same bits, on whatever nodes their stages are. */
static enum gn_status sum_stages(const struct gn_pipe_stage *p, void *values, size_t count, enum gn_dtype type, struct gn_err *err)
{
	return gn_comm_run(p->comm, &(struct gn_coll_args){.what = GN_COLLECTIVE_ALLREDUCE, .out = values, .count = count, .type = type,
							   .algorithm = "recursive-doubling"}, err);
}

static enum gn_status sum(struct gn_update_group *group, double *values, size_t count, struct gn_err *err)
{
	const struct gn_pipe_stage *p = (struct gn_pipe_stage *)group;
	enum gn_status status = p->slices ? p->slices->sum(p->slices, values, count, err) : GN_OK;

	return status ? status : sum_stages(p, values, count, GN_F64, err);
}

void gn_pipe_stage_set_slices(struct gn_pipe_stage *p, struct gn_update_group *slices)
{
	p->slices = slices;
}

enum gn_status gn_pipe_stage_create(struct gn_comm *comm, const struct gn_pipe_schedule *schedule, struct gn_pipe_stage **out, struct gn_err *err)
{
	struct gn_pipe_stage *p = calloc(1, sizeof *p);

	if (!p)
		return gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for a stage");
	p->group.sum = sum;
	p->comm = comm;
	p->schedule = *schedule;
	p->schedule.stage = gn_comm_rank(comm);
	p->schedule.stages = gn_comm_size(comm);
	*out = p;
	return GN_OK;
}

static void disconnect(struct gn_pipe_stage *p)
{
	p->waited_s = gn_pipe_stage_waited_s(p);
	gn_pipe_link_destroy(p->input);
	gn_pipe_link_destroy(p->output);
	gn_pipe_link_destroy(p->gradient);
	gn_pipe_link_destroy(p->give_gradient);
	p->input = p->output = p->gradient = p->give_gradient = NULL;
}

void gn_pipe_stage_destroy(struct gn_pipe_stage *p)
{
	if (!p)
		return;
	disconnect(p);
	free(p);
}

const struct gn_pipe_schedule *gn_pipe_stage_schedule(const struct gn_pipe_stage *p)
{
	return &p->schedule;
}

int gn_pipe_stage_is_first(const struct gn_pipe_stage *p)
{
	return p->schedule.stage == 0;
}

int gn_pipe_stage_is_last(const struct gn_pipe_stage *p)
{
	return p->schedule.stage == p->schedule.stages - 1;
}

/* Says which stage waited for what of which. */
static enum gn_status explain(const struct gn_pipe_stage *p, enum gn_status status, const char *what, int of, struct gn_err *err)
{
	return status ? gn_err_prefix(err, "stage %d of %d, %s stage %d", p->schedule.stage, p->schedule.stages, what, of), status : GN_OK;
}

/* --- making plans --- */

struct layout_message {
	struct gn_layout layout;
	int32_t has_plan;
};

enum gn_status gn_pipe_stage_get_layout(struct gn_pipe_stage *p, struct gn_layout *in, struct gn_err *err)
{
	int before = p->schedule.stage - 1;
	struct layout_message m;
	enum gn_status status;

	if (gn_pipe_stage_is_first(p))
		return GN_OK;
	status = gn_p2p_receive(p->comm, before, TAG_LAYOUT, &m, sizeof m, err);
	if (status)
		return explain(p, status, "waiting for the plan of", before, err);
	if (!m.has_plan)
		return gn_err_set(err, GN_ERR_FAILED, "stage %d of %d has no plan", before, p->schedule.stages);
	*in = m.layout;
	return GN_OK;
}

/* Activations, then a header, labels, pair labels and lambdas, of 4 bytes each. */
static size_t message_bytes(size_t activations, int images)
{
	return gn_round_up(activations, ALIGN_BYTES) + sizeof(struct labels) + 3 * (size_t)images * 4;
}

/* A gradient, in an asynchronous run with news behind it. */
static size_t gradient_bytes(const struct gn_pipe_stage *p, size_t activations)
{
	return gn_pipe_kind_is_async(p->schedule.kind) ? gn_round_up(activations, ALIGN_BYTES) + GN_PIPE_NEWS * sizeof(float) : activations;
}

static enum gn_status make_link(const struct gn_pipe_stage *p, int peer, uint32_t tag, size_t bytes, int sends, struct gn_pipe_link **out,
				struct gn_err *err)
{
	return gn_pipe_link_create(&(struct gn_pipe_link_options){.comm = p->comm, .peer = peer, .tag = tag, .bytes = bytes, .sends = sends}, out, err);
}

static enum gn_status make_links(struct gn_pipe_stage *p, struct gn_err *err)
{
	int stage = p->schedule.stage;
	enum gn_status status = GN_OK;

	if (!gn_pipe_stage_is_first(p))
		status = make_link(p, stage - 1, TAG_FORWARD, message_bytes(p->in_bytes, p->images), 0, &p->input, err);
	if (!gn_pipe_stage_is_first(p) && !status)
		status = make_link(p, stage - 1, TAG_BACKWARD, gradient_bytes(p, p->in_bytes), 1, &p->give_gradient, err);
	if (!gn_pipe_stage_is_last(p) && !status)
		status = make_link(p, stage + 1, TAG_FORWARD, message_bytes(p->out_bytes, p->images), 1, &p->output, err);
	if (!gn_pipe_stage_is_last(p) && !status)
		status = make_link(p, stage + 1, TAG_BACKWARD, gradient_bytes(p, p->out_bytes), 0, &p->gradient, err);
	return status;
}

enum gn_status gn_pipe_stage_connect(struct gn_pipe_stage *p, const struct gn_layout *in, const struct gn_layout *out, int images,
				     struct gn_err *err)
{
	struct layout_message m = {.has_plan = out != NULL};
	int next = p->schedule.stage + 1;
	enum gn_status status = GN_OK;

	disconnect(p);
	if (out)
		m.layout = *out;
	if (!gn_pipe_stage_is_last(p))
		status = explain(p, gn_p2p_send(p->comm, next, TAG_LAYOUT, &m, sizeof m, err), "telling of its plan", next, err);
	p->images = images;
	p->in_bytes = in && !gn_pipe_stage_is_first(p) ? gn_layout_bytes(in) : 0;
	p->out_bytes = out && !gn_pipe_stage_is_last(p) ? gn_layout_bytes(out) : 0;
	return status || !out ? status : make_links(p, err);
}

size_t gn_pipe_stage_output_bytes(const struct gn_pipe_stage *p)
{
	return gn_pipe_stage_is_last(p) ? 0 : message_bytes(p->out_bytes, p->images);
}

/* --- a step --- */

enum gn_status gn_pipe_stage_begin(struct gn_pipe_stage *p, int batches, struct gn_err *err)
{
	struct gn_pipe_link *links[] = {p->input, p->give_gradient, p->output, p->gradient};
	enum gn_status status = GN_OK;

	p->schedule.batches = batches;
	for (size_t i = 0; i < sizeof links / sizeof *links && !status; i++)
		status = gn_pipe_link_begin(links[i], batches, err);
	return status;
}

void gn_pipe_stage_shorten(struct gn_pipe_stage *p, int batches)
{
	struct gn_pipe_link *links[] = {p->input, p->give_gradient, p->output, p->gradient};

	p->schedule.batches = batches;
	for (size_t i = 0; i < sizeof links / sizeof *links; i++)
		gn_pipe_link_shorten(links[i], batches);
}

static void put_labels(const struct gn_pipe_stage *p, const struct gn_targets *t, char *to)
{
	const struct labels header = {.has_pairs = t->pair_labels != NULL, .batches = p->schedule.batches};
	size_t column = (size_t)p->images * 4;

	memcpy(to, &header, sizeof header);
	memcpy(to + sizeof header, t->labels, column);
	if (!header.has_pairs)
		return;
	memcpy(to + sizeof header + column, t->pair_labels, column);
	memcpy(to + sizeof header + 2 * column, t->lambdas, column);
}

static struct gn_targets labels_at(const struct gn_pipe_stage *p, const char *from, int *batches)
{
	const char *columns = from + sizeof(struct labels);
	size_t column = (size_t)p->images * 4;
	struct labels header;

	memcpy(&header, from, sizeof header);
	*batches = header.batches;
	return (struct gn_targets){.labels = (const int32_t *)(const void *)columns,
				   .pair_labels = header.has_pairs ? (const int32_t *)(const void *)(columns + column) : NULL,
				   .lambdas = header.has_pairs ? (const float *)(const void *)(columns + 2 * column) : NULL};
}

enum gn_status gn_pipe_stage_input(struct gn_pipe_stage *p, const void **activations, struct gn_targets *targets, struct gn_err *err)
{
	enum gn_status status = gn_pipe_link_take(p->input, activations, err);
	int batches;

	if (status)
		return explain(p, status, "waiting for activations of", p->schedule.stage - 1, err);
	*targets = labels_at(p, (const char *)*activations + gn_round_up(p->in_bytes, ALIGN_BYTES), &batches);
	if (batches < p->schedule.batches)
		gn_pipe_stage_shorten(p, batches);
	return GN_OK;
}

enum gn_status gn_pipe_stage_input_done(struct gn_pipe_stage *p, struct gn_err *err)
{
	return gn_pipe_link_done(p->input, err);
}

enum gn_status gn_pipe_stage_output(struct gn_pipe_stage *p, const void *activations, const struct gn_targets *targets, struct gn_err *err)
{
	void *memory;
	enum gn_status status = gn_pipe_link_room(p->output, &memory, err);

	if (status)
		return explain(p, status, "sending activations to", p->schedule.stage + 1, err);
	memcpy(memory, activations, p->out_bytes);
	put_labels(p, targets, (char *)memory + gn_round_up(p->out_bytes, ALIGN_BYTES));
	p->sent_bytes += gn_pipe_stage_output_bytes(p);
	return explain(p, gn_pipe_link_send(p->output, err), "sending activations to", p->schedule.stage + 1, err);
}

enum gn_status gn_pipe_stage_gradient(struct gn_pipe_stage *p, const void **gradient, const float **news, struct gn_err *err)
{
	enum gn_status status = gn_pipe_link_take(p->gradient, gradient, err);

	if (news)
		*news = (const float *)(const void *)((const char *)*gradient + gn_round_up(p->out_bytes, ALIGN_BYTES));
	return explain(p, status, "waiting for gradients of", p->schedule.stage + 1, err);
}

enum gn_status gn_pipe_stage_gradient_done(struct gn_pipe_stage *p, struct gn_err *err)
{
	return gn_pipe_link_done(p->gradient, err);
}

enum gn_status gn_pipe_stage_give_gradient(struct gn_pipe_stage *p, const void *gradient, const float *news, struct gn_err *err)
{
	void *memory;
	enum gn_status status = gn_pipe_link_room(p->give_gradient, &memory, err);

	if (!status) {
		memcpy(memory, gradient, p->in_bytes);
		if (news)
			memcpy((char *)memory + gn_round_up(p->in_bytes, ALIGN_BYTES), news, GN_PIPE_NEWS * sizeof *news);
		p->sent_bytes += gradient_bytes(p, p->in_bytes);
		status = gn_pipe_link_send(p->give_gradient, err);
	}
	return explain(p, status, "sending gradients to", p->schedule.stage - 1, err);
}

void gn_pipe_stage_poll(struct gn_pipe_stage *p)
{
	gn_comm_poll(p->comm);
}

enum gn_status gn_pipe_stage_end(struct gn_pipe_stage *p, struct gn_err *err)
{
	enum gn_status status = explain(p, gn_pipe_link_end(p->give_gradient, err), "sending gradients to", p->schedule.stage - 1, err);

	return status ? status : explain(p, gn_pipe_link_end(p->output, err), "sending activations to", p->schedule.stage + 1, err);
}

enum gn_status gn_pipe_stage_sum(struct gn_pipe_stage *p, float *values, size_t count, struct gn_err *err)
{
	return sum_stages(p, values, count, GN_F32, err);
}

struct gn_update_group *gn_pipe_stage_group(struct gn_pipe_stage *p)
{
	return &p->group;
}

double gn_pipe_stage_waited_s(const struct gn_pipe_stage *p)
{
	uint64_t ns = gn_pipe_link_waited_ns(p->input) + gn_pipe_link_waited_ns(p->output) + gn_pipe_link_waited_ns(p->gradient) +
		      gn_pipe_link_waited_ns(p->give_gradient);

	return p->waited_s + (double)ns * 1e-9;
}

uint64_t gn_pipe_stage_sent_bytes(const struct gn_pipe_stage *p)
{
	return p->sent_bytes;
}
