#include "src/train/loop/summary.h"

#include "data/sample/augment.h"
#include "src/base/clock.h"
#include "src/base/text.h"
#include "src/base/thread_pool.h"
#include "src/train/loop/input.h"
#include "src/train/parallel/shard.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* A wait for images that is worth a warning at the end: steps, seconds, and the share of all steps' time. */
#define WAIT_STEPS_MIN 20
#define WAIT_S_MIN 1
#define WAIT_SHARE 0.05

static void put_input(const struct gn_session *s, struct gn_strbuf *out)
{
	static const char *const names[] = {[GN_AUGMENT_NONE] = "no augmentation", [GN_AUGMENT_CROP_FLIP] = "crop-flip",
					    [GN_AUGMENT_SHIFT] = "shift", [GN_AUGMENT_SHIFT_FLIP] = "shift-flip"};
	const struct gn_train_options *o = s->options;
	int side = gn_model_side(s->model), pad = o->pad >= 0 ? (int)o->pad : side / 14;
	struct gn_loader_options lo = {.augment = GN_AUGMENT_NONE};
	enum gn_augment augment = GN_AUGMENT_NONE;

	gn_input_loader_options(&s->checkpoint.info.input, gn_model_channels(s->model), gn_model_side(s->model), &lo);
	gn_input_augment_parse(o->augment, side, &augment, NULL); /* was parsed without an error before */
	gn_strbuf_printf(out, "input %dx%dx%d, %s", gn_model_channels(s->model), side, side, names[augment]);
	if (augment == GN_AUGMENT_SHIFT || augment == GN_AUGMENT_SHIFT_FLIP)
		gn_strbuf_printf(out, " by up to %d pixel%s", pad, gn_text_plural((uint64_t)pad));
	if (o->resize_schedule)
		gn_strbuf_printf(out, ", resize schedule %s", o->resize_schedule);
	gn_strbuf_puts(out, "; evaluation: ");
	if (gn_crop_resize(&lo))
		gn_strbuf_printf(out, "shorter side %u", (unsigned)gn_crop_resize(&lo));
	else
		gn_strbuf_puts(out, "images near the side keep their size");
	gn_strbuf_printf(out, ", centre %d", side);
}

static void put_optimizer(const struct gn_train_options *o, struct gn_strbuf *out)
{
	gn_strbuf_printf(out, "; %s ", o->optimizer);
	if (!strcmp(o->optimizer, "lamb"))
		gn_strbuf_printf(out, "betas %g and %g", o->momentum, o->beta2);
	else
		gn_strbuf_printf(out, "momentum %g%s", o->momentum, o->nesterov ? " (Nesterov)" : "");
	if (!strcmp(o->optimizer, "lars"))
		gn_strbuf_printf(out, ", trust %g", o->trust);
	gn_strbuf_printf(out, ", weight decay %g%s", o->weight_decay, o->weight_decay > 0 && !o->decay_all ?
			 " (not of biases and batch norm)" : "");
}

static void put_schedule(const struct gn_session *s, struct gn_strbuf *out)
{
	const struct gn_lr *lr = &s->schedule.lr;
	struct gn_lr steady = *lr;

	steady.shape = GN_LR_CONSTANT;
	steady.warmup_epochs = 0;
	gn_strbuf_printf(out, "; lr %.6g", gn_lr_at(&steady, (double)s->schedule.global_batch, 0));
	if (lr->reference_batch > 0)
		gn_strbuf_printf(out, " (%g x %" PRIu64 " / %g)", lr->lr, s->schedule.global_batch, lr->reference_batch);
	if (lr->shape == GN_LR_COSINE)
		gn_strbuf_printf(out, " by cosine to %g", lr->final_lr);
	else if (lr->shape == GN_LR_POLYNOMIAL)
		gn_strbuf_printf(out, " by polynomial of power %g to %g", lr->power, lr->final_lr);
	else if (lr->shape == GN_LR_CONSTANT)
		gn_strbuf_puts(out, " constant");
	for (size_t i = 0; lr->shape == GN_LR_STEP && i < lr->milestone_count; i++)
		gn_strbuf_printf(out, "%s%.4g", i ? "," : " by steps at epochs ", lr->milestones[i]);
	if (lr->shape == GN_LR_STEP)
		gn_strbuf_printf(out, " times %g", lr->factor);
	if (lr->warmup_epochs > 0)
		gn_strbuf_printf(out, ", warm-up %.4g epoch%s from %.4g", lr->warmup_epochs, lr->warmup_epochs == 1 ? "" : "s",
				 gn_lr_at(lr, (double)s->schedule.global_batch, 0));
}

void gn_summary_resolved(const struct gn_session *s, struct gn_strbuf *out)
{
	uint64_t left_out = gn_dataset_count(s->data.train) - s->schedule.epoch_samples;

	put_input(s, out);
	put_optimizer(s->options, out);
	put_schedule(s, out);
	gn_strbuf_printf(out, "; seed %" PRId64, s->options->seed);
	if (left_out)
		gn_strbuf_printf(out, "; %" PRIu64 " image%s left out of each epoch, others each time (a last batch that is not full)", left_out,
				 gn_text_plural(left_out));
}

/* That a rank sends in a step whose gradients are summed as they are. */
static double plain_bytes(const struct gn_session *s)
{
	const struct gn_model *m = gn_session_own_model(s);
	size_t count = gn_model_param_elements(m) + gn_model_buffer_elements(m) + GN_PIGGYBACK_COUNT;

	return gn_compress_dense_bytes(count * sizeof(float), gn_comm_size(gn_session_data_comm(s)));
}

/* Of ways to share a step that change nothing. */
static void warn_about_sharing(const struct gn_session *s)
{
	const struct gn_compressor *c = s->replica.compressor;
	int ranks = gn_comm_size(gn_session_data_comm(s));

	if (ranks == 1 && s->options->local_steps > 1)
		gn_log_warn(s->log, "--local-steps %" PRId64 " does nothing: one rank has no others to average parameters with",
			    s->options->local_steps);
	if (ranks == 1 && gn_shard_mode_of(s->options->shard) != GN_SHARD_NONE)
		gn_log_warn(s->log, "--shard %s does nothing: one rank has no others to divide its state with", s->options->shard);
	if (s->options->local_steps > 1 && s->options->local_from && (double)s->options->local_from >= s->schedule.lr.epochs)
		gn_log_warn(s->log, "--local-steps %" PRId64 " does nothing: --local-from %" PRId64 " is not within the run (%.4g epochs)",
			    s->options->local_steps, s->options->local_from, s->schedule.lr.epochs);
	if (ranks == 1 && s->compress.method > GN_COMPRESS_AUTO)
		gn_log_warn(s->log, "--compress %s does nothing: one rank sends no gradients", s->options->compress);
	if (c && !gn_compressor_is_warming_up(c) && gn_compressor_sent_bytes(c) >= 0.99 * plain_bytes(s))
		gn_log_warn(s->log, "--compress %s saves nothing: of %d ranks each sends as many bytes as without it (a share below 1 / ranks, or "
			    "a lower rank of factors, saves)", s->options->compress, ranks);
}

/* Of a run that will not do what was meant. */
static void warn_about(const struct gn_session *s)
{
	if (!s->options->checkpoint)
		gn_log_warn(s->log, "without --checkpoint nothing of this run is kept");
	if (gn_dataset_classes(s->data.train) == 1)
		gn_log_warn(s->log, "%s has one class: every answer is right, and nothing is learned", s->options->data);
	if (s->schedule.lr.shape == GN_LR_STEP && (!s->schedule.lr.milestone_count || s->schedule.lr.milestones[0] >= s->schedule.lr.epochs))
		gn_log_warn(s->log, "--schedule step: no milestone lies within the run (%.4g epochs): the rate never falls", s->schedule.lr.epochs);
	warn_about_sharing(s);
}

void gn_summary_compress(const struct gn_session *s)
{
	const struct gn_replica *r = &s->replica;
	char name[GN_COMPRESS_NAME_MAX];

	if (!r->compressor || gn_comm_rank(s->comm))
		return;
	gn_compress_name(gn_compressor_spec(r->compressor), name);
	gn_log_info(s->log, "gradients are compressed by %s: a rank sends %.4g MB a step, without compression %.4g MB (by formula%s)", name,
		    gn_compressor_sent_bytes(r->compressor) * 1e-6, plain_bytes(s) * 1e-6,
		    gn_compressor_is_warming_up(r->compressor) ? "; in this epoch, less in the next ones" : "");
}

/* With local steps, on rank 0. */
static void put_local_steps(const struct gn_session *s)
{
	const struct gn_local_steps *local = &s->replica.local;
	size_t params = gn_model_param_elements(s->model) * sizeof(float);
	double tail = plain_bytes(s) - gn_compress_dense_bytes(params, gn_comm_size(s->comm));
	double average = gn_compress_dense_bytes(params * (1 + (size_t)gn_optim_slots(s->checkpoint.info.optimizer)), gn_comm_size(s->comm));

	char from[64] = "";

	if (local->every <= 1)
		return;
	if (local->from_epoch)
		snprintf(from, sizeof from, " after the first %" PRIu64 " epoch%s", local->from_epoch, gn_text_plural(local->from_epoch));
	gn_log_info(s->log, "local steps%s: ranks average parameters and optimizer state every %" PRIu64 " steps; a rank sends %.4g MB a step "
		    "then, summing gradients %.4g MB (by formula)", from, local->every, (tail + average / (double)local->every) * 1e-6,
		    plain_bytes(s) * 1e-6);
}

static void log_copies(const struct gn_session *s)
{
	const struct gn_replica *r = &s->replica;
	int is_elsewhere, holder = r->redundancy ? gn_redundancy_holder(r->redundancy, &is_elsewhere) : 0;

	if (r->redundancy)
		gn_log_info(s->log, "--redundancy %" PRId64 ": rank %d, on %s, has a copy of rank 0's part, half of what it holds; a rank sends %.4g MB of "
			    "gradients before each update, and keeps the state before it, %.4g MB", s->options->redundancy, holder,
			    is_elsewhere ? "another node" : "this node", (double)gn_redundancy_bytes(r->redundancy) * 1e-6,
			    (double)r->undo.len_bytes * 1e-6);
	else if (r->ring)
		gn_log_info(s->log, "--redundancy %" PRId64 ": each stage has a copy of the one before; rank 0 sends %.4g MB before each update", s->options->redundancy,
			    (double)gn_stage_ring_bytes(r->ring) * 1e-6);
	else if (r->options.undoes)
		gn_log_info(s->log, "--elastic: each stage keeps the state before its last update, %.4g MB here", (double)r->undo.len_bytes * 1e-6);
}

static void log_shard(const struct gn_session *s)
{
	size_t whole, held = gn_replica_state_bytes(&s->replica, &whole);

	if (s->replica.shard)
		gn_log_info(s->log, "--shard %s: rank 0 holds %.4g MB of optimizer state and averages, without sharding %.4g MB", s->options->shard,
			    (double)held * 1e-6, (double)whole * 1e-6);
}

static void log_served(const struct gn_session *s)
{
	const struct gn_server_client *c = s->options->served;
	int ranks = gn_world_size(gn_comm_world(s->comm)), workers = s->workers;
	char who[96] = "every rank holds a part of the parameters";

	if (!c)
		return;
	if (ranks == workers + 1)
		snprintf(who, sizeof who, "rank %d holds the parameters and does not train", workers);
	else if (ranks > workers)
		snprintf(who, sizeof who, "ranks %d to %d hold the parameters and do not train", workers, ranks - 1);
	gn_log_info(s->log, "--update %s --servers %s: %s%s", s->options->update, s->options->servers, who, gn_server_client_is_sync(c) ? "" :
		    "; a worker's gradients are applied as they come, at --lr divided by the number of workers");
}

void gn_summary_start(struct gn_session *s, uint64_t steps_left)
{
	const struct gn_train_options *o = s->options;
	uint64_t images = gn_dataset_count(s->data.train), steps = s->state.step + steps_left;
	uint32_t classes = gn_dataset_classes(s->data.train);
	int ranks = s->workers;
	struct gn_strbuf text = {0};

	s->metrics.began_ns = gn_clock_ns();
	s->metrics.began_step = s->state.step;
	if (gn_comm_rank(s->comm))
		return;
	gn_strbuf_printf(&text, "training %s on %s: %" PRIu64 " image%s of %u class%s", gn_model_name(s->model), o->data, images,
			 gn_text_plural(images), classes, classes == 1 ? "" : "es");
	if (s->data.val)
		gn_strbuf_printf(&text, ", evaluation on %" PRIu64, gn_dataset_count(s->data.val));
	gn_strbuf_printf(&text, "; global batch %" PRIu64 " (%d %s%s x %" PRId64, s->schedule.global_batch, ranks,
			 !s->pipeline ? "rank" : s->pipeline->stage ? "pipeline" : "tensor group", gn_text_plural((uint64_t)ranks), o->batch);
	if (s->schedule.batches % ranks)
		gn_strbuf_printf(&text, " x %d or %d accumulated", s->schedule.own_batches - 1, s->schedule.own_batches);
	else if (s->schedule.own_batches > 1)
		gn_strbuf_printf(&text, " x %d accumulated", s->schedule.own_batches);
	gn_strbuf_puts(&text, "); ");
	if (!o->steps)
		gn_strbuf_printf(&text, "%" PRId64 " epoch%s, ", o->epochs, gn_text_plural((uint64_t)o->epochs));
	gn_strbuf_printf(&text, "%" PRIu64 " step%s", steps, gn_text_plural(steps));
	if (s->state.step)
		gn_strbuf_printf(&text, ", of which %" PRIu64 " %s done", s->state.step, s->state.step == 1 ? "is" : "are");
	if (!gn_strbuf_failed(&text))
		gn_log_info(s->log, "%s", gn_strbuf_text(&text));
	gn_strbuf_clear(&text);
	gn_summary_resolved(s, &text);
	if (steps_left && !gn_strbuf_failed(&text))
		gn_log_info(s->log, "%s", gn_strbuf_text(&text));
	gn_strbuf_release(&text);
	if (steps_left) {
		gn_summary_compress(s);
		put_local_steps(s);
		log_shard(s);
		log_copies(s);
		log_served(s);
		warn_about(s);
	}
}

/* What a wait for images comes from: the disk where the loader's threads waited for it, else their number, or that of processors. */
static void advise_on_data(const struct gn_session *s)
{
	const struct gn_session_metrics *m = &s->metrics;
	struct gn_loader_effort e;
	char cause[256];

	if (s->state.step - m->began_step < WAIT_STEPS_MIN || m->waited_s < WAIT_S_MIN || m->waited_s < WAIT_SHARE * m->steps_s)
		return;
	gn_loader_effort(s->data.loader, &e);
	if (e.read_s > 0.5 * e.busy_s)
		snprintf(cause, sizeof cause, "its threads spent %.0f %% of their work on reading files: copy the dataset to a local disk (gannet stage), "
			 "and measure a disk by gannet bench io", 100 * e.read_s / e.busy_s);
	else
		snprintf(cause, sizeof cause, "its %d thread%s decoded: raise --loader-threads (or give auto) while processors are idle (this rank may use %d), then give "
			 "ranks more of them (--cpus-per-task of srun), or pack smaller images", e.threads, gn_text_plural((uint64_t)e.threads),
			 gn_cpu_count());
	gn_log_warn(s->log, "steps waited %.0f %% of their time for the loader, on rank 0; %s", 100 * m->waited_s / m->steps_s, cause);
}

void gn_summary_end(const struct gn_session *s)
{
	uint64_t steps = s->state.step - s->metrics.began_step;
	double seconds = (double)(gn_clock_ns() - s->metrics.began_ns) * 1e-9;
	struct gn_strbuf text = {0};

	if (gn_comm_rank(s->comm))
		return;
	gn_strbuf_printf(&text, "done: %" PRIu64 " step%s in %.1f s", steps, gn_text_plural(steps), seconds);
	if (steps)
		gn_strbuf_printf(&text, ", %.0f images/s in all", (double)s->metrics.images / seconds);
	if (steps && s->replica.options.undoes)
		gn_strbuf_printf(&text, ", %.2f ms a step for copies of the state", 1e3 * s->metrics.copies_s / (double)steps);
	if (s->metrics.evaluations)
		gn_strbuf_printf(&text, ", top-1 %.2f %% (best %.2f %%)", 100 * s->metrics.last_top1, 100 * s->metrics.best_top1);
	if (s->options->checkpoint && s->checkpoint.saved_step == s->state.step)
		gn_strbuf_printf(&text, ", checkpoint %s/step-%08" PRIu64, s->options->checkpoint, s->checkpoint.saved_step);
	if (!gn_strbuf_failed(&text))
		gn_log_info(s->log, "%s", gn_strbuf_text(&text));
	gn_strbuf_release(&text);
	advise_on_data(s);
}
