#include "src/train/checkpoint/checkpoint_writer.h"

#include "src/base/clock.h"
#include "src/base/file.h"
#include "src/base/thread.h"
#include "src/train/checkpoint/checkpoint_internal.h"
#include "src/train/checkpoint/checkpoint_snapshot.h"

#include <linux/ioprio.h>
#include <omp.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

enum stage { NONE, LOCAL, SHARED, COMMIT };

struct gn_checkpoint_writer {
	struct gn_comm *comm;
	const struct gn_model *model;
	struct gn_weight_layouts *layouts, *own_layouts;
	struct gn_checkpoint_target target;
	char local[PATH_MAX];		/* "": none */
	int rank, node, writes_slots;
	struct gn_checkpoint_file *all; /* of all ranks */
	/* of the checkpoint that is being written; the thread's while it works */
	enum stage stage;
	struct gn_checkpoint_info info;
	struct gn_checkpoint_snapshot snapshot;
	int is_plain;			/* the snapshot is in torch's order */
	double cpu_s;			/* of its threads so far */
	uint64_t ended_ns;		/* of the last of them */
	int has_local;			/* the local stage went well on all ranks */
	struct gn_checkpoint_paths paths, local_paths;
	struct gn_checkpoint_file mine[GN_CHECKPOINT_RANK_FILES];
	enum gn_status status;		/* of the stage, on this rank */
	struct gn_err err;
	pthread_t thread;
	int has_thread;
	atomic_int is_done;		/* of the stage, on this rank */
};

/* --- in the thread --- */

/* Training threads that wait for others leave the thread all of a processor, those that compute about a quarter of one. With less, which
 * does not make a step shorter in sum, a checkpoint comes late: at 19, twenty steps of ResNet-50, while which the next one has to wait.
 * Disks: the lowest level that other programs cannot keep waiting for ever, as those of the idle class may be. A system that refuses
 * either only has no low priority. */
enum { WRITER_NICE = 5 };

static void lower_priority(void)
{
	setpriority(PRIO_PROCESS, (id_t)syscall(SYS_gettid), WRITER_NICE);
	syscall(SYS_ioprio_set, IOPRIO_WHO_PROCESS, 0, IOPRIO_PRIO_VALUE(IOPRIO_CLASS_BE, 7));
}

static enum gn_status write_files(struct gn_checkpoint_writer *w, const struct gn_checkpoint_paths *p, struct gn_err *err)
{
	memset(w->mine, 0, sizeof w->mine);
	return gn_checkpoint_write_files(w->comm, p->temporary, &w->info, w->model, &w->snapshot.arrays, w->mine, err);
}

static enum gn_status write_local(struct gn_checkpoint_writer *w, struct gn_err *err)
{
	enum gn_status status = gn_checkpoint_make_temporary(&w->local_paths, err);

	return status ? status : write_files(w, &w->local_paths, err);
}

static enum gn_status write_shared(struct gn_checkpoint_writer *w, struct gn_err *err)
{
	struct gn_err why;
	enum gn_status status;

	if (w->has_local && w->writes_slots &&
	    gn_checkpoint_local_commit(w->local, w->target.nonce, &w->local_paths, w->info.state.step, &w->info, w->all,
				       GN_CHECKPOINT_RANK_FILES * (size_t)gn_comm_size(w->comm), &why))
		gn_log_warn(w->target.log, "checkpoint of step %llu is not kept on this node's disk: %s",
			    (unsigned long long)w->info.state.step, why.text);
	status = w->rank ? gn_checkpoint_make_temporary(&w->paths, err) : gn_checkpoint_prepare(&w->target, &w->paths, err);
	return status ? status : write_files(w, &w->paths, err);
}

static enum gn_status commit(struct gn_checkpoint_writer *w, struct gn_err *err)
{
	enum gn_status status = gn_checkpoint_write_manifest_of(w->paths.temporary, &w->info, w->all,
								GN_CHECKPOINT_RANK_FILES * (size_t)gn_comm_size(w->comm), err);

	return status ? status : gn_checkpoint_place(&w->target, &w->paths, w->info.number, err);
}

/* One rank has nobody to meet before the commit. */
static int commits_alone(const struct gn_checkpoint_writer *w)
{
	return w->stage == SHARED && gn_comm_size(w->comm) == 1;
}

static void *run(void *argument)
{
	struct gn_checkpoint_writer *w = argument;

	lower_priority();
	omp_set_num_threads(1);
	if (!w->is_plain)
		gn_checkpoint_snapshot_to_plain(&w->snapshot, w->layouts, w->own_layouts);
	w->is_plain = 1;
	w->status = w->stage == LOCAL ? write_local(w, &w->err) : w->stage == SHARED ? write_shared(w, &w->err) : commit(w, &w->err);
	if (!w->status && commits_alone(w)) {
		memcpy(w->all, w->mine, sizeof w->mine);
		w->status = commit(w, &w->err);
	}
	/* a folder that somebody has removed meanwhile: nothing that the run was to read is missing */
	if (w->status == GN_ERR_NOT_FOUND)
		w->status = w->err.status = GN_ERR_IO;
	w->cpu_s += gn_clock_thread_cpu_s();
	w->ended_ns = gn_clock_ns();
	atomic_store(&w->is_done, 1);
	return NULL;
}

/* --- in the caller's --- */

/* Rank 0 has the folder to make, ranks with files to write them. */
static int has_work(const struct gn_checkpoint_writer *w)
{
	return !w->rank || (w->stage != COMMIT && (w->writes_slots || w->snapshot.arrays.is_split || w->snapshot.own.count ||
						    w->snapshot.own.shared_count));
}

static void start(struct gn_checkpoint_writer *w, enum stage stage)
{
	w->stage = stage;
	w->status = GN_OK;
	memset(w->mine, 0, sizeof w->mine);
	atomic_store(&w->is_done, 0);
	if (has_work(w)) {
		w->has_thread = !gn_thread_start(&w->thread, run, w);
		if (!w->has_thread)
			w->status = gn_err_set(&w->err, GN_ERR_NO_MEMORY, "cannot start a thread to write a checkpoint (see ulimit -u)");
	}
	if (!w->has_thread)
		atomic_store(&w->is_done, 1);
}

static void finish_thread(struct gn_checkpoint_writer *w)
{
	if (w->has_thread)
		pthread_join(w->thread, NULL);
	w->has_thread = 0;
}

static void remove_unfinished(struct gn_checkpoint_writer *w)
{
	if (!w->rank)
		gn_remove_tree(w->paths.temporary, NULL);
	if (w->local[0] && w->writes_slots)
		gn_remove_tree(w->local_paths.temporary, NULL);
	w->stage = NONE;
}

enum gn_status gn_checkpoint_writer_create(const struct gn_checkpoint_writer_options *o, struct gn_checkpoint_writer **out, struct gn_err *err)
{
	struct gn_checkpoint_writer *w = calloc(1, sizeof *w);
	enum gn_status status;

	if (w)
		w->all = calloc(GN_CHECKPOINT_RANK_FILES * (size_t)gn_comm_size(o->comm), sizeof *w->all);
	if (!w || !w->all) {
		free(w);
		return gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for checkpoints");
	}
	w->comm = o->comm;
	w->model = o->model;
	w->target = o->target;
	if (o->local)
		memcpy(w->local, o->local, strlen(o->local) + 1);
	w->rank = gn_comm_rank(o->comm);
	w->node = gn_checkpoint_node(o->comm, w->rank);
	w->writes_slots = gn_checkpoint_writes_slots(o->comm);
	status = gn_weight_layouts_copy(o->layouts, &w->layouts, err);
	if (!status)
		status = gn_weight_layouts_copy(o->own_layouts, &w->own_layouts, err);
	if (status)
		gn_checkpoint_writer_destroy(w);
	else
		*out = w;
	return status;
}

void gn_checkpoint_writer_destroy(struct gn_checkpoint_writer *w)
{
	if (!w)
		return;
	finish_thread(w);
	if (w->stage != NONE)
		remove_unfinished(w);
	gn_checkpoint_snapshot_release(&w->snapshot);
	gn_weight_layouts_destroy(w->layouts);
	gn_weight_layouts_destroy(w->own_layouts);
	free(w->all);
	free(w);
}

enum gn_status gn_checkpoint_writer_reserve(struct gn_checkpoint_writer *w, enum gn_optim_kind optimizer,
					    const struct gn_checkpoint_arrays *arrays, size_t *len_bytes, struct gn_err *err)
{
	enum gn_status status = gn_checkpoint_snapshot_reserve(&w->snapshot, w->model, w->rank, w->writes_slots, optimizer, arrays, err);

	if (!status)
		*len_bytes = w->snapshot.len_bytes;
	return status;
}

/* A step without a name or a copy fails as a stage. */
static enum gn_status take(struct gn_checkpoint_writer *w, const struct gn_checkpoint_arrays *arrays, struct gn_err *err)
{
	uint64_t step = w->info.state.step;
	enum gn_status status = gn_checkpoint_name_paths(&w->target, step, &w->paths, err);

	if (!status && w->local[0])
		status = gn_checkpoint_local_paths(w->local, w->target.nonce, step, w->node, &w->local_paths, err);
	return status ? status : gn_checkpoint_snapshot_take(&w->snapshot, w->model, w->rank, w->writes_slots, w->info.optimizer, arrays, err);
}

void gn_checkpoint_writer_begin(struct gn_checkpoint_writer *w, const struct gn_checkpoint_info *info, const struct gn_checkpoint_arrays *arrays)
{
	enum stage first = w->local[0] ? LOCAL : SHARED;
	enum gn_status status;

	w->info = *info;
	w->is_plain = w->has_local = 0;
	w->cpu_s = 0;
	status = take(w, arrays, &w->err);
	if (!status) {
		start(w, first);
		return;
	}
	/* a local stage's failure would be a warning, and this one is of all */
	w->stage = SHARED;
	w->status = status;
	atomic_store(&w->is_done, 1);
}

int gn_checkpoint_writer_is_open(const struct gn_checkpoint_writer *w)
{
	return w && w->stage != NONE;
}

int gn_checkpoint_writer_is_busy(const struct gn_checkpoint_writer *w)
{
	return w && w->stage != NONE && !atomic_load(&w->is_done);
}

double gn_checkpoint_writer_cpu_s(const struct gn_checkpoint_writer *w)
{
	return w->cpu_s;
}

uint64_t gn_checkpoint_writer_ended_ns(const struct gn_checkpoint_writer *w)
{
	return w->ended_ns;
}

/* After a stage in which all ranks have written. The ranks do not agree on a failure of this: the run cannot go on. */
static enum gn_status gather(struct gn_checkpoint_writer *w, struct gn_err *err)
{
	enum gn_status status = gn_agree_gather(w->comm, w->mine, sizeof w->mine, w->all, err);

	return status == GN_ERR_NO_MEMORY ? gn_err_set(err, GN_ERR_FAILED, "no memory to save a checkpoint") : status;
}

static enum gn_status advance(struct gn_checkpoint_writer *w, struct gn_err *err)
{
	enum gn_status status = gn_agree_status(w->comm, w->status, err);

	if (w->stage == LOCAL && !gn_agree_is_over(w->comm, status)) {
		w->has_local = !status;
		if (status && !w->rank)
			gn_log_warn(w->target.log, "checkpoint of step %llu is not kept on the nodes' disks: %s",
				    (unsigned long long)w->info.state.step, err->text);
		if (status && w->writes_slots)
			gn_remove_tree(w->local_paths.temporary, NULL);
		status = w->has_local ? gather(w, err) : GN_OK;
		if (!status)
			start(w, SHARED);
	} else if (w->stage == SHARED && !status && !commits_alone(w)) {
		status = gather(w, err);
		if (!status)
			start(w, COMMIT);
	} else if (!status) {
		w->stage = NONE;
	}
	return status;
}

enum gn_status gn_checkpoint_writer_advance(struct gn_checkpoint_writer *w, struct gn_err *err)
{
	enum gn_status status;

	finish_thread(w);
	if (w->status)
		*err = w->err;
	status = advance(w, err);
	if (status)
		remove_unfinished(w);
	return status;
}
