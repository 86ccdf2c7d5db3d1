#include "src/train/evaluate.h"

#include "src/base/arena.h"
#include "src/train/checkpoint.h"
#include "src/train/device.h"
#include "src/train/input.h"
#include "src/train/logits.h"
#include "transport/agree.h"

#include <stdlib.h>
#include <string.h>

struct evaluation {
	struct gn_checkpoint_info info;
	struct gn_dataset *data;
	struct gn_model *model;
	struct gn_loader *loader;
	struct gn_plan *plan;
	struct gn_logits *logits;
	float *params, *buffers;
};

static void release(struct evaluation *e)
{
	gn_logits_destroy(e->logits);
	gn_plan_destroy(e->plan);
	gn_loader_destroy(e->loader);
	gn_model_destroy(e->model);
	gn_dataset_close(e->data);
	free(e->params);
	free(e->buffers);
}

static enum gn_status open_data(struct evaluation *e, const char *directory, struct gn_err *err)
{
	char digest[65];
	enum gn_status status = gn_dataset_open(directory, &e->data, err);

	if (!status)
		status = gn_input_classes_digest(e->data, digest, err);
	if (!status && strcmp(digest, e->info.classes_digest))
		status = gn_err_set(err, GN_ERR_DATA, "%s has other classes than the checkpoint was trained on (%u, the "
				    "network has %lld): pack it with --classes FILE of the training data", directory,
				    gn_dataset_classes(e->data), (long long)e->info.classes);
	return status;
}

static enum gn_status prepare(struct evaluation *e, const struct gn_evaluate_options *o, struct gn_comm *comm,
			      struct gn_err *err)
{
	struct gn_loader_options lo = {
		.rank = (uint32_t)gn_comm_rank(comm), .ranks = (uint32_t)gn_comm_size(comm),
		.batch = (uint32_t)o->batch, .augment = GN_AUGMENT_NONE, .threads = (int)o->loader_threads,
		.prefetch_bytes = (size_t)o->prefetch,
	};
	struct gn_plan_options po = {.batch = (int)o->batch, .frozen = 1};
	struct gn_plan_pixels pixels;
	enum gn_status status = gn_device_choose(o->device, o->precision, gn_world_local_rank(gn_comm_world(comm)), &po, err);

	if (!status)
		status = open_data(e, o->data, err);

	gn_input_threads(o->threads, gn_world_local_size(gn_comm_world(comm)));
	if (!status)
		status = gn_model_create(e->info.model, (int)e->info.classes, (int)e->info.channels,
					 (int)e->info.side, &e->model, err);
	if (status)
		return status;
	e->params = gn_alloc_aligned(gn_model_param_elements(e->model) * sizeof(float));
	e->buffers = gn_alloc_aligned(gn_model_buffer_elements(e->model) * sizeof(float));
	if (!e->params || !e->buffers)
		return gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for the parameters of %s", e->info.model);
	if (gn_input_by_patches(&e->info.input, e->model, &po, &pixels)) {
		lo.patches = 1;
		po.pixels = &pixels;
	}
	gn_input_loader_options(&e->info.input, e->model, &lo);
	status = gn_loader_create(e->data, &lo, &e->loader, err);
	if (!status)
		status = gn_plan_create(e->model, &po, e->params, NULL, e->buffers, &e->plan, err);
	if (!status && o->logits)
		status = gn_logits_create(o->logits, gn_dataset_count(e->data), (uint32_t)e->info.classes, comm, &e->logits, err);
	return status;
}

/* Rank 0 reads the checkpoint, the others receive it. */
static enum gn_status share_weights(struct evaluation *e, const char *folder, int average, struct gn_comm *comm,
				    struct gn_err *err)
{
	struct gn_checkpoint_arrays plain = {.params = e->params, .buffers = e->buffers};
	struct gn_checkpoint_arrays averaged = {.average_params = e->params, .average_buffers = e->buffers};
	size_t params = gn_model_param_elements(e->model) * sizeof(float);
	size_t buffers = gn_model_buffer_elements(e->model) * sizeof(float);
	enum gn_status status = GN_OK;

	if (gn_comm_rank(comm) == 0)
		status = gn_checkpoint_load(folder, &e->info, e->model, average ? &averaged : &plain, err);
	status = gn_agree_status(comm, status, err);
	if (!status)
		status = gn_comm_broadcast(comm, e->params, params, 0, err);
	if (!status && buffers)
		status = gn_comm_broadcast(comm, e->buffers, buffers, 0, err);
	return status;
}

enum gn_status gn_evaluate(const struct gn_evaluate_options *options, struct gn_comm *comm, struct gn_log *log,
			   char *folder, uint64_t *step, struct gn_score *out, struct gn_err *err)
{
	struct evaluation e = {0};
	enum gn_status status = GN_OK;
	int counting;

	if (gn_comm_rank(comm) == 0)
		status = gn_checkpoint_find(options->checkpoint, log, folder, &e.info, err);
	status = gn_agree_status(comm, status, err);
	if (!status)
		status = gn_comm_broadcast(comm, &e.info, sizeof e.info, 0, err);
	if (!status)
		status = gn_agree_status(comm, prepare(&e, options, comm, err), err);
	if (!status)
		status = share_weights(&e, folder, options->average, comm, err);
	counting = !status;
	if (!status)
		status = gn_score_run(e.plan, e.loader, comm, (int)e.info.classes, e.logits ? gn_logits_rows(e.logits) : NULL,
				      out, err);
	/* Until here all failures were agreed on; one in the middle of the run is this rank's own. */
	if (status && counting && status != GN_ERR_PEER_LOST)
		gn_world_give_up(gn_comm_world(comm), err->text);
	if (!status && e.logits)
		status = gn_logits_write(e.logits, comm, err);
	if (!status)
		*step = e.info.state.step;
	release(&e);
	return status;
}
