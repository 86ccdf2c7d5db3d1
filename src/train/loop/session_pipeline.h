/* A run whose network is divided among the stages of pipelines: groups of ranks, this rank's part, and the whole network's arrays for what
 * needs them: evaluation, checkpoints, the digest at the end.
 *
 * The session's communicator stays the world. Its model is the whole network, its replica trains this rank's part with the ranks of the same
 * stage, its worker is the data index. The whole arrays are in host memory in torch's order, on rank 0, and on the others if there is
 * something to evaluate; they are current after gn_session_gather.
 *
 * Thread safety: one thread. Internal to src/train/loop.
 */
#ifndef GN_TRAIN_LOOP_SESSION_PIPELINE_H
#define GN_TRAIN_LOOP_SESSION_PIPELINE_H

#include "src/train/loop/session.h"
#include "src/train/parallel/mesh.h"

struct gn_session_pipeline {
	struct gn_mesh mesh;
	struct gn_comm *data;	/* the ranks of this stage, by data index */
	struct gn_comm *pipe;	/* the stages of this rank's pipeline, by stage */
	struct gn_pipe_stage *stage;
	struct gn_model *part;
	int *nodes;		/* [stages - 1]: the first node of each stage but the first */
	struct gn_weight_layouts *plain; /* of the whole network: torch's order */
	float *params, *buffers; /* NULL: this rank has none of the whole */
	float *average_params, *average_buffers; /* with --ema */
	double waited_s;	/* before the first step, as the next */
	uint64_t sent_bytes;
};

/* Collective; failures are agreed on. With --parallel: the mesh, and, where it has pipelines, s->pipeline. Sets worker and workers. */
enum gn_status gn_session_open_mesh(struct gn_session *s, struct gn_err *err);
/* Collective; failures are agreed on. After the model is there: where it is cut, this rank's part and its stage. Without pipelines nothing,
 * here and below. */
enum gn_status gn_session_cut(struct gn_session *s, struct gn_err *err);
/* Local. Memory for the whole arrays. */
enum gn_status gn_session_alloc_whole(struct gn_session *s, struct gn_err *err);
void gn_session_pipeline_destroy(struct gn_session_pipeline *p);
/* What this rank trains, and the ranks that train the same. */
const struct gn_model *gn_session_own_model(const struct gn_session *s);
struct gn_comm *gn_session_data_comm(const struct gn_session *s);
/* Whether this rank's stage reads images. */
int gn_session_reads_images(const struct gn_session *s);
/* Collective. After gn_replica_fetch: parameters, buffers and averages of all stages become the whole arrays, on rank 0, or on all ranks. */
enum gn_status gn_session_gather(struct gn_session *s, int everywhere, struct gn_err *err);
/* Borrows the whole averages. */
void gn_session_whole_average(const struct gn_session *s, struct gn_ema *out);
/* For a checkpoint: which elements of slots this rank has, and copies of them in torch's order, freed by gn_session_free_split. */
void gn_session_set_stage_range(const struct gn_session *s, struct gn_checkpoint_arrays *a);
enum gn_status gn_session_split_stage(struct gn_session *s, struct gn_checkpoint_arrays *a, struct gn_err *err);
/* Collective. Rank 0 has read the whole arrays, and reads the slots: each rank takes its part of all, in torch's order. folder: of a checkpoint,
 * NULL: without one. */
enum gn_status gn_session_restore_stage(struct gn_session *s, const char *folder, const struct gn_checkpoint_info *info, struct gn_err *err);
/* Collective. Logs the mesh, and what each stage has, sends and will wait; after the last step what was measured. */
enum gn_status gn_session_log_mesh(struct gn_session *s, struct gn_err *err);
enum gn_status gn_session_log_bubble(struct gn_session *s, struct gn_err *err);
/* Prefixes the text with the stages of lost ranks. */
void gn_session_name_lost(const struct gn_session *s, struct gn_err *err);

#endif
