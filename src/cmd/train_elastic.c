/* Runs that go on in other worlds: without ranks that are lost, with those that are taken in. */
#include "src/cmd/train_internal.h"

#include "data/shard/dataset.h"
#include "src/base/sha256.h"
#include "src/train/loop/carried.h"
#include "src/train/loop/served.h"
#include "src/train/parallel/mesh.h"
#include "transport/bootstrap/regroup.h"

#include <stdio.h>
#include <string.h>

/* For gn_regroup_witness: the folder's owner decides between two halves. */
struct heir {
	const char *directory;
	const struct gn_carried *carried;
};

static enum gn_status settle(void *context, const void *mine, size_t len, void *kept, size_t room, size_t *kept_len, struct gn_err *err)
{
	const struct heir *h = context;

	return gn_owner_settle(h->directory, h->carried->owner, mine, len, kept, room, kept_len, err);
}

/* The longest time that the ranks which are left wait for one that has not noticed the loss. */
enum { REGROUP_MS = GN_TRAIN_STALL_MS };

/* Of the data of a dataset, which all processes must have alike. */
static enum gn_status describe_data(const char *directory, struct gn_strbuf *out, struct gn_err *err)
{
	struct gn_dataset *d;
	enum gn_status status = directory ? gn_dataset_open(directory, &d, err) : GN_OK;

	if (status || !directory)
		return status;
	gn_strbuf_printf(out, " %s", gn_dataset_digest(d));
	gn_dataset_close(d);
	return GN_OK;
}

/* By which members tell whether one that joins would compute the same as they do. */
static enum gn_status digest_run(const struct gn_train_options *o, char hex[GN_SHA256_HEX], struct gn_err *err)
{
	struct gn_strbuf text = {0};
	enum gn_status status;

	gn_options_describe(&gn_train_command, o, gn_train_own_options(o), &text);
	status = describe_data(o->data, &text, err);
	if (!status)
		status = describe_data(o->val, &text, err);
	if (!status && gn_strbuf_failed(&text))
		status = gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for the options");
	if (!status)
		status = gn_sha256_buffer(gn_strbuf_text(&text), text.len, hex, err);
	gn_strbuf_release(&text);
	return status;
}

/* A failure before the run goes on in a world to which some were taken in, which is theirs in all likelihood: what they have on their hosts is seen
 * there first. They end with it, and the others go on without them. */
static int is_of_newcomers(const struct gn_train_options *o, enum gn_status status)
{
	return status && status != GN_ERR_PEER_LOST && status != GN_ERR_STOPPED && !o->carried->has_begun && gn_regroup_has_new(o->regroup);
}

/* Others go on without this process, which has joined them. */
static enum gn_status leave(struct gn_train_options *o, const struct gn_world_options *how, struct gn_world **world, struct gn_err *err)
{
	gn_regroup_leave(o->regroup);
	gn_regroup_form(o->regroup, how, REGROUP_MS, world, err);
	gn_world_destroy(*world);
	*world = NULL;
	return gn_err_set(err, GN_ERR_STOPPED, "stopped on request after step %llu: this process has left the run, which goes on",
			  (unsigned long long)o->carried->state.step);
}

/* The ranks that are left are no multiple of a pipeline's, and this one is not needed now. *world: NULL when the run ends before it is. */
static enum gn_status wait_again(struct gn_train_options *o, const struct gn_world_options *how, struct gn_world **world,
				 const volatile sig_atomic_t *stop, struct gn_log *log, struct gn_err *err)
{
	gn_log_warn(log, "%s: it waits to be taken in", err->text);
	gn_carried_forget(o->carried);
	return gn_regroup_await(o->regroup, how, stop, REGROUP_MS, world, err);
}

/* A rank knows of the loss that ended its step, which may be one of several, or a consequence of another. */
static void name_losses(const struct gn_train_options *o, const struct gn_world *world, struct gn_err *loss)
{
	struct gn_strbuf lost = {0};

	if (gn_world_rank(world) || o->carried->is_planned)
		return;
	gn_regroup_losses(o->regroup, &lost);
	if (lost.len && !gn_strbuf_failed(&lost) && !strstr(loss->text, gn_strbuf_text(&lost)))
		snprintf(loss->text, sizeof loss->text, "%s", gn_strbuf_text(&lost));
	gn_strbuf_release(&lost);
}

/* Trains in *world, and again and again in worlds of the ranks that are left and those that are taken in. *world: the last one; NULL: there
 * is none any more. */
static enum gn_status train_in_worlds(struct gn_train_options *o, const struct gn_world_options *how, struct gn_world **world,
				      const volatile sig_atomic_t *stop, struct gn_log *log, int *told, struct gn_err *err)
{
	struct gn_carried *carried = o->carried;
	struct heir heir = {o->checkpoint, carried};
	const struct gn_regroup_witness witness = {settle, &heir};
	struct gn_err loss = {.text = ""};
	uint64_t aborted_step = UINT64_MAX;
	enum gn_status status = gn_train_in_world(o, *world, stop, log, told, err);
	int leaves;

	while ((status == GN_ERR_PEER_LOST && (!gn_world_aborted(*world) || carried->state.step != aborted_step)) ||
	       (carried->ranks && is_of_newcomers(o, status) && !gn_world_aborted(*world))) {
		/* a connection broke before anybody knew of a loss, and this rank gave up; not again and again without a step */
		if (gn_world_aborted(*world))
			aborted_step = carried->state.step;
		loss = *err;
		leaves = status == GN_ERR_PEER_LOST && carried->leaves;
		if (carried->has_begun)
			gn_regroup_began(o->regroup);
		carried->has_begun = 0;
		*told = 0;
		gn_regroup_set_witness(o->regroup, o->checkpoint && carried->owner[0] ? &witness : NULL);
		status = leaves ? leave(o, how, world, err) : gn_regroup_form(o->regroup, how, REGROUP_MS, world, err);
		while (status && gn_regroup_is_surplus(o->regroup))
			status = wait_again(o, how, world, stop, log, err);
		if (leaves || (!status && !*world))
			break;
		if (status) {
			/* of losses the first */
			if (status == GN_ERR_PEER_LOST && strstr(err->text, " is lost: "))
				snprintf(err->text, sizeof err->text, "%s", loss.text);
			else
				gn_err_prefix(err, "%s", loss.text);
			if (gn_regroup_is_last(o->regroup))
				gn_carried_log_failure(carried, o, log, err);
			break;
		}
		name_losses(o, *world, &loss);
		carried->why = loss.text;
		carried->world = gn_regroup_epoch(o->regroup);
		status = gn_train_in_world(o, *world, stop, log, told, err);
	}
	if (*world && status != GN_ERR_PEER_LOST && !is_of_newcomers(o, status))
		gn_regroup_end(o->regroup, status);
	return status;
}

/* With the global batch kept each rank needs a batch of it. */
static enum gn_status check_growth(const struct gn_train_options *o, int ranks, const struct gn_regroup_options *ro, struct gn_err *err)
{
	const int each = ro->each > 1 ? ro->each : 1, most = ro->most / each;
	const int64_t batches = o->global_batch ? o->global_batch / o->batch : o->accumulate * (ranks / each);

	if (batches >= most || !strcmp(o->elastic_batch, "scale"))
		return GN_OK;
	return gn_err_set(err, GN_ERR_USAGE, "--elastic %s: %d %s need as many batches, and a step has %lld of them: give a --global-batch of more, or "
			  "--elastic-batch scale", o->elastic, most, each > 1 ? "pipelines" : "ranks", (long long)batches);
}

enum gn_status gn_train_elastic(const struct gn_train_options *given, const struct gn_world_options *how, struct gn_world **world,
				    const volatile sig_atomic_t *stop, struct gn_log *log, int *told, struct gn_err *err)
{
	struct gn_train_options o = *given;
	struct gn_carried carried = {.world = 1};
	struct gn_regroup_options ro = {.ifnames = how->ifnames, .stop = stop, .spares = (int)o.spares, .log = log};
	enum gn_status status = gn_elastic_parse(o.elastic, &ro.least, &ro.most, err);
	struct gn_mesh_shape shape;
	int waits;

	/* a mesh that does not fit: the first session says so */
	if (!status && *world && o.parallel && !gn_mesh_parse(o.parallel, gn_world_size(*world) - ro.spares, &shape, NULL))
		ro.each = shape.pipeline;
	/* too many spares: gn_regroup_open says so */
	if (!status && *world && ro.spares < gn_world_size(*world))
		status = check_growth(given, gn_world_size(*world) - ro.spares, &ro, err);
	if (!status && ro.most)
		status = digest_run(given, ro.digest, err);
	if (!status)
		status = *world ? gn_regroup_open(*world, &ro, &o.regroup, err) : gn_regroup_join(o.join, &ro, &o.regroup, err);
	/* what options alone cause is the same on all ranks */
	err->told = status == GN_ERR_USAGE && *world && gn_world_rank(*world);
	if (status)
		return status;
	o.carried = &carried;
	o.checkpoint = o.checkpoint ? o.checkpoint : o.join;
	waits = !*world || gn_regroup_is_spare(o.regroup);
	/* ranks may be lost before the first world has begun */
	if (*world)
		carried.global_batch = o.global_batch ? o.global_batch : o.batch * gn_train_workers(&o, gn_world_size(*world) - ro.spares) * o.accumulate;
	/* one that is taken into a run which has begun, and whose others are lost before it has their state, has the last checkpoint */
	carried.goes_back = waits;
	if (*world && o.spares)
		status = gn_regroup_begin(o.regroup, how, REGROUP_MS, world, err);
	if (!status && waits) {
		gn_log_info(log, "waiting to be taken in");
		status = gn_regroup_await(o.regroup, how, stop, REGROUP_MS, world, err);
		carried.why = "taken in";
		carried.world = gn_regroup_epoch(o.regroup);
		if (!status && *world)
			gn_log_info(log, "taken in: rank %d of %d, in world %llu of the run", gn_world_rank(*world), gn_world_size(*world),
				    (unsigned long long)carried.world);
	}
	if (!status && *world)
		status = train_in_worlds(&o, how, world, stop, log, told, err);
	if (status && waits && !carried.has_begun)
		*told = err->told = 0;
	gn_regroup_leave(o.regroup);
	gn_world_destroy(*world);
	*world = NULL;
	gn_regroup_close(o.regroup);
	gn_carried_release(&carried);
	return status;
}
