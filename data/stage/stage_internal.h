/* What a run of gn_stage() and its jobs, one a shard, share. Private to data/stage/stage*.c. */
#ifndef GN_DATA_STAGE_STAGE_INTERNAL_H
#define GN_DATA_STAGE_STAGE_INTERNAL_H

#include "data/shard/manifest.h"
#include "data/stage/stage.h"
#include "src/base/thread_pool.h"

#include <pthread.h>

struct gn_stage_run {
	const struct gn_stage_options *options;
	struct gn_manifest manifest;
	unsigned char *right; /* [shard_count] 1: present with the right digest */
	unsigned char *told; /* [shard_count] to options->ready; under lock */
	int begun;	      /* what lies in the target was staged before */
	struct gn_thread_pool *pool;
	struct gn_stage_result result;
	pthread_mutex_t lock;
	struct gn_err failure; /* under lock */
	int failed;	       /* under lock */
	double next_save_s;    /* of the marker; under lock */
};

/* Whether the run is to end: stopped, or failed for one shard. */
int gn_stage_is_stopped(const struct gn_stage_run *s);
static inline int gn_stage_is_ours(const struct gn_stage_run *s, uint32_t shard)
{
	return !s->options->only || s->options->only[shard];
}

/* The manifest of the source, if it is the one that is wanted. On failure there is nothing to release. */
enum gn_status gn_stage_load_source(const struct gn_stage_options *options, struct gn_manifest *out, struct gn_err *err);
/* gn_stage() to several folders. Blocks. */
enum gn_status gn_stage_spread(const struct gn_stage_options *options, struct gn_stage_result *out, struct gn_err *err);
/* Options' ready() for all shards that are right and of which it has not been called. */
void gn_stage_tell_ready(struct gn_stage_run *s);
/* Runs a job for each shard that is not known to be right. Copying: options' ready() for each, and the marker. Verifying what exists, also shards
 * that are for another folder, before which readers might find a wrong one here: shards that turn out to be right are marked so; a wrong
 * one is removed if a stage has put it there (its space is needed, or another user could change it later), else that is GN_ERR_EXISTS.
 * Verifying another user's folder: only marked. */
enum gn_stage_jobs { GN_STAGE_JOBS_COPY, GN_STAGE_JOBS_CHECK, GN_STAGE_JOBS_CHECK_FOREIGN };
enum gn_status gn_stage_run_jobs(struct gn_stage_run *s, enum gn_stage_jobs what, struct gn_err *err);

/* Sets GN_ERR_EXISTS for the file at path, which is somebody else's, and returns it. */
enum gn_status gn_stage_refuse(const char *path, struct gn_err *err);

#endif
