/* What a session has to do with parameter servers: state to them and back, the end, and workers that are lost. */
#include "src/train/loop/session.h"

#include "src/base/text.h"

#include <stdlib.h>
#include <string.h>

/* Whether workers take steps one by one. */
static int is_async(const struct gn_session *s)
{
	return s->options->served && !gn_server_client_is_sync(s->options->served);
}

struct gn_optimizer_options gn_session_optimizer_options(const struct gn_train_options *o)
{
	return (struct gn_optimizer_options){
		.name = o->optimizer, .momentum = o->momentum, .beta2 = o->beta2, .trust = o->trust, .eps = o->eps,
		.weight_decay = o->weight_decay, .clip = o->clip, .nesterov = o->nesterov, .decay_all = o->decay_all, .freeze = &o->freeze,
		.lr_scale = &o->lr_scale};
}

enum gn_status gn_session_open_servers(struct gn_session *s, struct gn_err *err)
{
	struct gn_server_client *c = s->options->served;
	struct gn_server_open open = {.classes = gn_model_classes(s->model), .channels = gn_model_channels(s->model),
				      .side = gn_model_side(s->model), .state = s->state};
	struct gn_server_arrays a;
	char hex[65];
	enum gn_status status;

	if (!c)
		return GN_OK;
	status = gn_weight_layouts_digest(s->replica.layouts, hex, err);
	memcpy(open.layouts, hex, sizeof open.layouts);
	memcpy(open.data, s->checkpoint.info.dataset_digest, sizeof open.data);
	a = gn_replica_served_arrays(&s->replica);
	if (!status)
		status = gn_server_client_open(c, &open, &a, err);
	s->state = open.state;
	return gn_session_alone(s, status);
}

void gn_session_set_served_range(const struct gn_session *s, struct gn_checkpoint_arrays *a)
{
	a->is_split = a->in_layouts = 1;
	a->begin = 0;
	a->end = gn_server_client_worker(s->options->served) == 0 ? gn_model_param_elements(s->model) : 0;
}

/* The first worker has all of them, where a checkpoint is one worker's; in other ranks' memory there is none. */
enum gn_status gn_session_fetch_served(struct gn_session *s, int drains, struct gn_checkpoint_arrays *a, struct gn_err *err)
{
	struct gn_server_client *c = s->options->served;
	struct gn_server_arrays served = gn_replica_served_arrays(&s->replica);
	int is_first = gn_server_client_worker(c) == 0;

	if (a)
		gn_session_set_served_range(s, a);
	return is_first || !is_async(s) ? gn_session_alone(s, gn_server_client_fetch(c, drains, &served, err)) : GN_OK;
}

enum gn_status gn_session_drain_servers(struct gn_session *s, struct gn_err *err)
{
	enum gn_status status = is_async(s) ? gn_session_fetch_served(s, 1, NULL, err) : GN_OK;

	/* those that went while the first worker waited for the others' last steps */
	return status ? status : gn_session_note_losses(s, err);
}

static enum gn_status log_lost(struct gn_session *s, int rank, struct gn_err *err)
{
	struct gn_world *world = gn_comm_world(s->comm);
	struct gn_err why = {.text = ""};
	struct gn_json *j;
	int left = 0;

	for (int r = 0; r < s->workers; r++)
		left += !gn_world_is_lost(world, r);
	gn_world_check_ranks(world, &rank, 1, 0, &why);
	/* what the others did is of no interest where they go on */
	why.text[strcspn(why.text, ";")] = 0;
	gn_log_warn(s->log, "a worker is lost: %s; the run goes on with %d of %d", why.text, left, s->workers);
	j = gn_metrics_log_begin(s->metrics.log, "worker_lost");
	if (j) {
		gn_json_uint(j, "step", s->state.step);
		gn_json_int(j, "rank", rank);
		gn_json_string(j, "host", gn_world_host_of(world, rank));
		gn_json_string(j, "reason", why.text);
		gn_json_int(j, "workers", left);
	}
	return gn_session_alone(s, gn_metrics_log_end(s->metrics.log, err));
}

enum gn_status gn_session_note_losses(struct gn_session *s, struct gn_err *err)
{
	const struct gn_world *world = gn_comm_world(s->comm);
	unsigned losses = gn_world_losses(world);
	enum gn_status status = GN_OK;

	if (!s->options->served || losses == s->losses || s->worker > 0)
		return GN_OK;
	s->losses = losses;
	if (!s->is_lost)
		s->is_lost = calloc((size_t)s->workers, sizeof *s->is_lost);
	if (!s->is_lost)
		return gn_session_alone(s, gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for which of %d workers are lost", s->workers));
	for (int r = 0; r < s->workers && !status; r++) {
		if (s->is_lost[r] || !gn_world_is_lost(world, r))
			continue;
		s->is_lost[r] = 1;
		status = log_lost(s, r, err);
	}
	return status;
}

uint64_t gn_session_step_images(const struct gn_session *s)
{
	int left = s->workers;

	for (int r = 0; s->is_lost && r < s->workers; r++)
		left -= s->is_lost[r];
	return s->schedule.global_batch / (uint64_t)s->workers * (uint64_t)left;
}

static double mean_staleness(const struct gn_server_state *state)
{
	return state->pushes ? state->staleness_sum / state->pushes : 0;
}

void gn_session_put_staleness(const struct gn_session *s, struct gn_json *j)
{
	const struct gn_server_state *state;

	if (!is_async(s))
		return;
	state = gn_server_client_state(s->options->served);
	gn_json_object(j, "staleness");
	gn_json_fixed(j, "mean", mean_staleness(state), 3);
	gn_json_uint(j, "most", state->staleness_most);
	gn_json_uint(j, "ahead_most", state->ahead_most);
	gn_json_int(j, "workers", state->workers);
	gn_json_array(j, "histogram");
	for (int i = 0; i <= GN_STALENESS_MAX + 1; i++)
		gn_json_uint(j, NULL, state->histogram[i]);
	gn_json_end(j);
	gn_json_end(j);
}

void gn_session_put_staleness_text(const struct gn_session *s, struct gn_strbuf *out)
{
	const struct gn_server_state *state;

	if (!is_async(s))
		return;
	state = gn_server_client_state(s->options->served);
	gn_strbuf_printf(out, "; staleness %.2f (at most %u), workers ahead by at most %u step%s", mean_staleness(state), state->staleness_most,
			 state->ahead_most, gn_text_plural(state->ahead_most));
}
