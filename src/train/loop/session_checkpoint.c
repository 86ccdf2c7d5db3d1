/* How a session's state is saved: the folder, when it is written, and what is told of it. */
#include "src/train/loop/carried.h"
#include "src/train/loop/session.h"

#include "data/shard/manifest.h"
#include "src/base/clock.h"
#include "src/base/file.h"
#include "src/base/trust.h"
#include "transport/bootstrap/regroup.h"
#include "transport/coll/agree.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

const struct gn_data_key *gn_session_key(const struct gn_session *s)
{
	return s->options->checkpoint_key ? &s->checkpoint.key : NULL;
}

/* On rank 0. A dataset's folder holds what pack wrote, and what verify and stage know. */
static enum gn_status check_folder(const char *directory, struct gn_err *err)
{
	char path[PATH_MAX];
	enum gn_status status = gn_path_join(path, sizeof path, directory, GN_MANIFEST_NAME, err);

	if (!status && !access(path, F_OK))
		status = gn_err_set(err, GN_ERR_USAGE, "--checkpoint %s is a packed dataset: give checkpoints a folder of their own",
				    directory);
	return status;
}

static enum gn_status make_folder(const char *directory, struct gn_log *log, struct gn_err *err)
{
	enum gn_status status = gn_make_dirs(directory, err);

	return status ? status : gn_trust_check_folder(directory, 1, log, err);
}

/* On rank 0. Parts that an earlier start left on the nodes' disks may be newer than what is here. */
static void warn_of_unread(const struct gn_session *s)
{
	char path[PATH_MAX];

	if (!gn_path_join(path, sizeof path, s->options->checkpoint, "local-id", NULL) && !access(path, F_OK))
		gn_log_warn(s->log, "%s is there, so an earlier start had --checkpoint-local: without it the nodes' disks are not looked at, "
			    "where newer checkpoints may be", path);
}

/* Collective. The folder on this node's disk for this run's parts. */
static enum gn_status claim_local(struct gn_session *s, const struct gn_checkpoint_target *target, struct gn_err *err)
{
	const char *base = s->options->checkpoint_local;
	int goes_on = !strcmp(s->options->resume, "auto");
	enum gn_status status = base ? gn_agree_status(s->comm, make_folder(base, s->log, err), err) : GN_OK;

	if (!base && goes_on && gn_comm_rank(s->comm) == 0)
		warn_of_unread(s);
	if (status || !base)
		return status;
	s->checkpoint.local = malloc(PATH_MAX);
	if (!s->checkpoint.local)
		status = gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for a path");
	status = gn_agree_status(s->comm, status, err);
	return status ? status : gn_checkpoint_local_begin(s->comm, target, base, goes_on, s->checkpoint.local, err);
}

static struct gn_checkpoint_target target_of(const struct gn_session *s)
{
	return (struct gn_checkpoint_target){s->options->checkpoint, s->checkpoint.nonce, s->checkpoint.owner, (int)s->options->keep,
		(int)s->options->keep_every, s->log};
}

/* Collective. After the folder is this run's. */
static enum gn_status make_writer(struct gn_session *s, struct gn_err *err)
{
	struct gn_checkpoint_writer_options o = {.comm = s->comm, .model = s->model, .target = target_of(s),
		.layouts = s->pipeline ? s->pipeline->plain : s->replica.layouts, .own_layouts = s->replica.layouts};
	enum gn_status status = gn_checkpoint_check_shared(s->comm, &o.target, err);

	if (!status)
		status = claim_local(s, &o.target, err);
	o.local = s->checkpoint.local;
	return status ? status : gn_agree_status(s->comm, gn_checkpoint_writer_create(&o, &s->checkpoint.writer, err), err);
}

enum gn_status gn_session_claim(struct gn_session *s, const volatile sig_atomic_t *stop, struct gn_err *err)
{
	const char *directory = s->options->checkpoint;
	const struct gn_carried *carried = s->options->carried;
	const struct gn_owner_heir heir = {carried ? carried->owner : NULL, gn_regroup_run(s->options->regroup), carried ? carried->world : 0};
	enum gn_status status = GN_OK;

	if (!directory)
		return GN_OK;
	if (gn_comm_rank(s->comm) == 0) {
		status = check_folder(directory, err);
		if (!status)
			status = make_folder(directory, s->log, err);
		if (!status && s->options->regroup)
			status = gn_regroup_fence(s->options->regroup, err);
		if (!status)
			status = gn_owner_claim(directory, carried ? &heir : NULL, stop, s->log, &s->checkpoint.owner, err);
		if (!status)
			memcpy(s->checkpoint.nonce, gn_owner_nonce(s->checkpoint.owner), sizeof s->checkpoint.nonce);
	}
	status = gn_agree_status(s->comm, status, err);
	if (!status)
		status = gn_comm_broadcast(s->comm, s->checkpoint.nonce, sizeof s->checkpoint.nonce, 0, err);
	/* a loss may come before the first step, or now */
	if (s->options->carried && s->checkpoint.nonce[0])
		memcpy(s->options->carried->owner, s->checkpoint.nonce, sizeof s->checkpoint.nonce);
	return status ? status : make_writer(s, err);
}

enum gn_status gn_session_recover_local(struct gn_session *s, struct gn_err *err)
{
	const struct gn_checkpoint_target target = target_of(s);

	return gn_checkpoint_local_recover(s->comm, &target, s->checkpoint.local, err);
}

enum gn_status gn_session_mark_best(const struct gn_session *s, struct gn_err *err)
{
	const struct gn_checkpoint_target target = target_of(s);

	return gn_checkpoint_mark_best(&target, s->state.step, err);
}

/* Memory for the copy, before the first step, so that a lack of it does not come to light after an epoch. */
static enum gn_status reserve(struct gn_session *s, struct gn_err *err)
{
	struct gn_checkpoint_arrays arrays = gn_session_arrays(s);
	struct gn_compress_state kept;
	const struct gn_checkpoint_rank_state own = gn_session_own_state(s, &kept);
	size_t len_bytes = 0;
	enum gn_status status;

	arrays.own = &own;
	if (s->pipeline) {
		gn_session_set_stage_range(s, &arrays);
	} else if (s->replica.shard) {
		gn_session_set_range(s, &arrays);
		arrays.average_params = gn_replica_has_average(&s->replica) ? s->replica.flat : NULL;
		arrays.average_buffers = s->replica.ema.buffers.host;
	} else if (s->options->served) {
		gn_session_set_served_range(s, &arrays);
	}
	status = gn_checkpoint_writer_reserve(s->checkpoint.writer, s->checkpoint.info.optimizer, &arrays, &len_bytes, err);
	status = gn_agree_status(s->comm, status, err);
	if (!status && gn_comm_rank(s->comm) == 0)
		gn_log_info(s->log, "checkpoints are written beside training, from a copy of the state: %.1f MB of memory on this rank%s%s",
			    (double)len_bytes * 1e-6, s->checkpoint.local ? ", first to " : "", s->checkpoint.local ? s->checkpoint.local : "");
	return status;
}

enum gn_status gn_session_try_save(struct gn_session *s, struct gn_err *err)
{
	const struct gn_checkpoint_target target = target_of(s);
	enum gn_status status;

	if (!target.directory)
		return GN_OK;
	s->checkpoint.info.state = s->state;
	status = gn_checkpoint_try(s->comm, &target, &s->checkpoint.info, s->model, gn_replica_has_average(&s->replica), err);
	return status ? status : reserve(s, err);
}

enum gn_status gn_session_write_options(const struct gn_session *s, struct gn_err *err)
{
	const char *lines = s->options->options_lines;
	char path[PATH_MAX];
	enum gn_status status;

	if (!s->options->checkpoint || gn_comm_rank(s->comm))
		return GN_OK;
	status = gn_path_join(path, sizeof path, s->options->checkpoint, "options", err);
	return status ? status : gn_file_replace(path, lines, strlen(lines), err);
}

int gn_session_wants_save(const struct gn_session *s)
{
	const struct gn_train_options *o = s->options;

	return o->checkpoint && o->checkpoint_minutes > 0 && gn_comm_rank(s->comm) == 0 &&
	       (double)(gn_clock_ns() - s->checkpoint.begun_ns) * 1e-9 >= 60 * o->checkpoint_minutes;
}

/* What the checkpoint says of the present state. */
static void note_state(struct gn_session *s)
{
	s->checkpoint.info.state = s->state;
	s->checkpoint.info.number = s->checkpoint.number + 1;
	s->checkpoint.open_step = s->state.step;
}

/* Collective. Gives the writer a copy of the state that is in the host's memory, and starts it. */
static enum gn_status write_state(struct gn_session *s, struct gn_err *err)
{
	struct gn_checkpoint_arrays arrays = gn_session_arrays(s);
	struct gn_compress_state kept;
	const struct gn_checkpoint_rank_state own = gn_session_own_state(s, &kept);
	enum gn_status status = gn_session_gather(s, 0, err);

	if (status)
		return status;
	arrays.own = &own;
	if (s->replica.compressor)
		gn_compress_name(gn_compressor_spec(s->replica.compressor), s->checkpoint.info.compress);
	if (s->pipeline)
		status = gn_session_split_stage(s, &arrays, err);
	else if (s->replica.shard)
		status = gn_session_split_state(s, &arrays, err);
	else if (s->options->served)
		status = gn_session_fetch_served(s, 0, &arrays, err);
	if (!status)
		gn_checkpoint_writer_begin(s->checkpoint.writer, &s->checkpoint.info, &arrays);
	if (s->replica.shard || s->pipeline)
		gn_session_free_split(&arrays);
	return status;
}

/* Collective. Copies the present state and starts to write it; on a GPU the next step runs beside the copy to the host, and end_copy comes then. */
static enum gn_status copy_state(struct gn_session *s, struct gn_err *err)
{
	enum gn_status status = gn_replica_average(&s->replica, err);

	if (!status && gn_replica_fetches_beside(&s->replica)) {
		status = gn_session_alone(s, gn_replica_fetch_begin(&s->replica, err));
		s->checkpoint.is_copying = !status;
	} else if (!status) {
		status = gn_session_alone(s, gn_replica_fetch(&s->replica, err));
	}
	if (!status)
		note_state(s);
	if (!status && !s->checkpoint.is_copying)
		status = write_state(s, err);
	return status ? gn_err_prefix(err, "checkpoint of step %" PRIu64, s->state.step) : GN_OK;
}

static enum gn_status end_copy(struct gn_session *s, struct gn_err *err)
{
	enum gn_status status = gn_session_alone(s, gn_replica_fetch_end(&s->replica, err));

	s->checkpoint.is_copying = 0;
	return status ? status : write_state(s, err);
}

int gn_session_is_saving(const struct gn_session *s)
{
	return s->checkpoint.is_copying || gn_checkpoint_writer_is_open(s->checkpoint.writer);
}

/* Collective. The same, as the beginning of what the checkpoint takes and blocks. */
static enum gn_status begin_save(struct gn_session *s, struct gn_err *err)
{
	struct gn_session_checkpoint *c = &s->checkpoint;
	enum gn_status status;

	c->begun_ns = gn_clock_ns();
	status = copy_state(s, err);
	c->blocked_s = (double)(gn_clock_ns() - c->begun_ns) * 1e-9;
	return status;
}

/* The checkpoint that was open is there. */
static enum gn_status note_saved(struct gn_session *s, struct gn_err *err)
{
	struct gn_session_checkpoint *c = &s->checkpoint;
	/* other ranks do not tell it; at the end of a run training waits for the last of it */
	double seconds = gn_comm_rank(s->comm) ? 0 : fmax(c->blocked_s, (double)(gn_checkpoint_writer_ended_ns(c->writer) - c->begun_ns) * 1e-9);
	struct gn_json *j;

	c->saved_step = c->open_step;
	c->number++;
	if (gn_comm_rank(s->comm) == 0)
		gn_log_info(s->log, "checkpoint %s/step-%08" PRIu64 " saved in %.2f s, which blocked training for %.0f ms",
			    s->options->checkpoint, c->saved_step, seconds, c->blocked_s * 1e3);
	j = gn_metrics_log_begin(s->metrics.log, "checkpoint");
	if (j) {
		gn_json_uint(j, "step", c->saved_step);
		gn_json_string(j, "path", s->options->checkpoint);
		gn_json_fixed(j, "seconds", seconds, 4);
		gn_json_fixed(j, "blocked_seconds", c->blocked_s, 4);
		gn_json_fixed(j, "cpu_seconds", gn_checkpoint_writer_cpu_s(c->writer), 4);
	}
	return gn_session_alone(s, gn_metrics_log_end(s->metrics.log, err));
}

/* Collective. The open checkpoint's next stage. */
static enum gn_status advance(struct gn_session *s, struct gn_err *err)
{
	uint64_t began = gn_clock_ns();
	const int was_copying = s->checkpoint.is_copying;
	enum gn_status status = was_copying ? end_copy(s, err) : gn_checkpoint_writer_advance(s->checkpoint.writer, err);

	s->checkpoint.blocked_s += (double)(gn_clock_ns() - began) * 1e-9;
	if (status)
		return gn_err_prefix(err, "checkpoint of step %" PRIu64, s->checkpoint.open_step);
	return was_copying || gn_checkpoint_writer_is_open(s->checkpoint.writer) ? GN_OK : note_saved(s, err);
}

static enum gn_status finish(struct gn_session *s, struct gn_err *err)
{
	enum gn_status status = GN_OK;

	while (!status && gn_session_is_saving(s))
		status = advance(s, err);
	return status;
}

/* The folder has another owner: with --elastic that may be ranks of this run which took this one for lost, and which it has to ask. What is
 * not there of what this run has written is no bad input: another rank, which failed as well, has removed it. */
static enum gn_status classify(const struct gn_session *s, enum gn_status status, struct gn_err *err)
{
	if (status == GN_ERR_EXISTS && s->options->carried)
		err->status = status = GN_ERR_PEER_LOST;
	else if (status == GN_ERR_NOT_FOUND)
		err->status = status = GN_ERR_IO;
	return status;
}

/* What a later save may mend is a warning. */
static enum gn_status forgive(struct gn_session *s, enum gn_status status, struct gn_err *err)
{
	status = classify(s, status, err);
	if (s->failed_alone || (status != GN_ERR_IO && status != GN_ERR_NO_SPACE && status != GN_ERR_NO_MEMORY))
		return status;
	if (gn_comm_rank(s->comm) == 0)
		gn_log_warn(s->log, "%s; the run goes on, and the next checkpoint is tried when it is due", err->text);
	return GN_OK;
}

enum gn_status gn_session_advance_save(struct gn_session *s, struct gn_err *err)
{
	return gn_session_is_saving(s) ? forgive(s, advance(s, err), err) : GN_OK;
}

enum gn_status gn_session_fetch(struct gn_session *s, struct gn_err *err)
{
	enum gn_status status = s->checkpoint.is_copying ? gn_session_advance_save(s, err) : GN_OK;

	return status ? status : gn_session_alone(s, gn_replica_fetch(&s->replica, err));
}

enum gn_status gn_session_drain(struct gn_session *s, struct gn_err *err)
{
	return forgive(s, finish(s, err), err);
}

enum gn_status gn_session_save(struct gn_session *s, struct gn_err *err)
{
	struct gn_session_checkpoint *c = &s->checkpoint;
	enum gn_status status;

	if (!s->options->checkpoint || c->saved_step == s->state.step)
		return GN_OK;
	if (gn_session_is_saving(s) && c->open_step == s->state.step)
		return GN_OK;
	/* which counts as blocked by the one that is waited for */
	status = gn_session_drain(s, err);
	if (!status)
		status = forgive(s, begin_save(s, err), err);
	/* with servers the whole is waited for: this worker's state is theirs, and stays as they gave it until it is written */
	if (!status && s->options->served)
		status = gn_session_drain(s, err);
	return status;
}

enum gn_status gn_session_save_last(struct gn_session *s, struct gn_err *err)
{
	enum gn_status status = gn_session_drain(s, err);

	if (status || !s->options->checkpoint || s->checkpoint.saved_step == s->state.step)
		return status;
	status = begin_save(s, err);
	return classify(s, status ? status : finish(s, err), err);
}
