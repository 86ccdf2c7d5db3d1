#include "src/train/loop/evaluate.h"

#include "src/base/file.h"
#include "src/train/plan/contention.h"
#include "src/train/plan/device.h"
#include "src/train/loop/input.h"
#include "src/train/metrics/logits.h"
#include "transport/coll/agree.h"

#include <stdlib.h>
#include <string.h>

struct evaluation {
	struct gn_checkpoint_info info;
	struct gn_dataset *data;
	struct gn_network network;
	struct gn_loader *loader;
	struct gn_plan *plan;
	struct gn_logits *logits;
	struct gn_confusion *confusion;
	const char *folder; /* of the checkpoint; NULL where it is not known */
};

static void release(struct evaluation *e)
{
	gn_contention_watch(1, NULL);
	gn_confusion_destroy(e->confusion);
	gn_logits_destroy(e->logits);
	gn_plan_destroy(e->plan);
	gn_loader_destroy(e->loader);
	gn_network_release(&e->network);
	gn_dataset_close(e->data);
}

static enum gn_status other_classes(const struct evaluation *e, const struct gn_evaluate_options *o, struct gn_err *err)
{
	char difference[300] = "", *names = NULL;

	if (o->network.weights || e->folder)
		gn_network_class_names(&o->network, e->folder, &names, NULL);
	if (names)
		gn_network_classes_differ(e->data, names, difference, sizeof difference);
	free(names);
	return gn_err_set(err, GN_ERR_DATA, "%s has other classes than the network was trained on (%u, the network has %lld%s): "
			  "pack it with --classes, naming the packed training data", o->data, gn_dataset_classes(e->data),
			  (long long)e->info.classes, difference);
}

/* Weights by themselves may have no names of classes, only their number. */
static enum gn_status open_data(struct evaluation *e, const struct gn_evaluate_options *o, struct gn_err *err)
{
	const char *directory = o->data;
	char digest[65];
	enum gn_status status = gn_dataset_open(directory, &e->data, err);

	if (!status)
		status = gn_dataset_unlock(e->data, o->key_file, err);
	if (!status && o->network.weights && e->info.classes != gn_dataset_classes(e->data))
		return gn_err_set(err, GN_ERR_DATA, "%s has %u classes, the network in %s has %lld: pack it with --classes, "
				  "naming the packed training data", directory, gn_dataset_classes(e->data), o->network.weights,
				  (long long)e->info.classes);
	if (status || (o->network.weights && !e->info.classes_digest[0]))
		return status;
	status = gn_input_classes_digest(e->data, digest, err);
	if (!status && strcmp(digest, e->info.classes_digest))
		status = other_classes(e, o, err);
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
	enum gn_status status = gn_device_choose(o->device, o->precision, gn_world_local_rank(gn_comm_world(comm)), &po, err);

	if (!status)
		status = open_data(e, o, err);

	if (!status)
		status = gn_network_create(&e->info, &e->network, err);
	if (status)
		return status;
	gn_input_loader_options(&e->info.input, gn_model_channels(e->network.model), gn_model_side(e->network.model), &lo);
	status = gn_loader_create(e->data, &lo, &e->loader, err);
	if (!status)
		status = gn_plan_create(e->network.model, &po, e->network.params, NULL, e->network.buffers, &e->plan, err);
	if (!status && o->logits)
		status = gn_logits_create(o->logits, gn_dataset_count(e->data), (uint32_t)e->info.classes, comm, &e->logits, err);
	if (!status && o->per_class)
		status = gn_confusion_create((int)e->info.classes, &e->confusion, err);
	if (!status && o->per_class && strcmp(o->per_class, "-") && gn_comm_rank(comm) == 0)
		status = gn_file_check_folder(o->per_class, "per-class", err);
	return status;
}

/* Collective. */
static enum gn_status write_confusion(const struct evaluation *e, const char *path, struct gn_comm *comm, struct gn_log *log,
				      struct gn_strbuf *classes, struct gn_err *err)
{
	enum gn_status status = gn_confusion_sum(e->confusion, comm, err);

	if (status)
		return status;
	if (gn_comm_rank(comm) == 0 && !strcmp(path, "-")) {
		gn_confusion_text(e->confusion, e->data, classes);
	} else if (gn_comm_rank(comm) == 0) {
		status = gn_confusion_write(e->confusion, e->data, path, err);
		gn_log_info(log, "macro F1 %.4f, calibration error %.4f", gn_confusion_macro_f1(e->confusion),
			    gn_confusion_calibration_error(e->confusion));
	}
	return gn_agree_status(comm, status, err);
}

enum gn_status gn_evaluate(const struct gn_evaluate_options *options, struct gn_comm *comm, struct gn_log *log,
			   char *folder, uint64_t *step, struct gn_metrics *out, struct gn_strbuf *classes, struct gn_err *err)
{
	struct evaluation e = {0};
	int counting;
	enum gn_status status = gn_network_find(&options->network, comm, log, folder, &e.info, err);

	gn_input_threads(options->threads, gn_comm_world(comm), log);
	e.folder = !status && gn_comm_rank(comm) == 0 && !options->network.weights ? folder : NULL;
	if (!status)
		status = gn_agree_status(comm, prepare(&e, options, comm, err), err);
	if (!status)
		status = gn_network_load(&options->network, folder, &e.info, &e.network, comm, log, err);
	counting = !status;
	if (!status && gn_comm_rank(comm) == 0)
		gn_input_compare_turned(&e.info.input, gn_dataset_directory(e.data), gn_dataset_exif_rotate(e.data), log);
	if (!status)
		status = gn_metrics_run(e.plan, e.loader, comm, (int)e.info.classes, e.logits ? gn_logits_rows(e.logits) : NULL,
				      e.confusion, NULL, NULL, NULL, out, err);
	/* Until here all failures were agreed on; one in the middle of the run is this rank's own. */
	if (status && counting && status != GN_ERR_PEER_LOST)
		gn_world_abort(gn_comm_world(comm), status, err->text);
	if (!status && e.logits)
		status = gn_logits_write(e.logits, comm, err);
	if (!status && e.confusion)
		status = write_confusion(&e, options->per_class, comm, log, classes, err);
	if (!status)
		*step = e.info.state.step;
	release(&e);
	return status;
}
