/* The mesh of a run: data x pipeline x tensor, as --parallel asks for it. Each rank is one stage of one pipeline; the pipelines are
 * the data ranks, and the ranks of one stage sum its gradients. Or it has one slice of each layer in a tensor group, and the ranks of one
 * slice sum its gradients. Or both: each stage is a tensor group, and the ranks of one slice of one stage sum its gradients.
 *
 * Ranks are ordered by (node, rank), and a pipeline (or a tensor group) is as many ranks in a row as it has stages (or slices), slices of one
 * stage next to each other: first those that fit on one node, then what is left over on nodes. So neighbours of a pipeline are on one node
 * where they can be, and only activations of stages that are on two nodes pass the network. Pipelines
 * are numbered by their lowest rank: rank 0 is stage 0 of pipeline 0.
 *
 * Thread safety: constant after gn_mesh_init. Nothing blocks; nothing is collective: all ranks compute the same.
 */
#ifndef GN_TRAIN_PARALLEL_MESH_H
#define GN_TRAIN_PARALLEL_MESH_H

#include "src/base/status.h"
#include "src/base/strbuf.h"
#include "src/train/parallel/shard.h"

struct gn_mesh_shape {
	int data, pipeline, tensor;
};

/* "auto": gn_mesh_parse takes all ranks for data. */
int gn_mesh_is_auto(const char *text);

/* "data=2,pipeline=4" or "data=2,pipeline=2,tensor=4", in any order. What is left out is 1, but for data, or with data the pipeline without a
 * tensor, which are what ranks / the others is. ranks 0: not known yet, and these become 0. GN_ERR_USAGE: a word that is none of these, a
 * number below 1, or a product that is not the number of ranks. */
enum gn_status gn_mesh_parse(const char *text, int ranks, struct gn_mesh_shape *out, struct gn_err *err);

struct gn_mesh {
	struct gn_mesh_shape shape;
	int size;
	int *ranks;	/* [(data index * shape.pipeline + stage) * shape.tensor + slice]: the rank there */
	int *positions; /* [rank]: the same number */
	int *node_of;	/* [rank] */
};

/* node_of [ranks]: the node of each rank, as gn_world_node_of has it; copied. ranks is the product of the shape. */
enum gn_status gn_mesh_init(struct gn_mesh *m, const struct gn_mesh_shape *shape, const int *node_of, int ranks, struct gn_err *err);
/* A zeroed one is fine. */
void gn_mesh_release(struct gn_mesh *m);

int gn_mesh_data_index(const struct gn_mesh *m, int rank);
int gn_mesh_stage(const struct gn_mesh *m, int rank);
int gn_mesh_slice(const struct gn_mesh *m, int rank);
/* Of a tensor group the rank of slice 0. */
int gn_mesh_rank(const struct gn_mesh *m, int data_index, int stage);
/* Whether what a stage sends to the next one passes the network in any pipeline. */
int gn_mesh_crosses(const struct gn_mesh *m, int stage);
/* Appends lines for people, each with its newline: a header, then a line for each pipeline, "n1[0] -> n1[1] => n2[2]", or
 * tensor group, "n1[0] - n1[1] = n2[2]", or both, "(n1[0] - n1[1]) => (n2[2] - n2[3])", of which the middle ones are left out when there
 * are more than `lines`. hosts: by rank. */
void gn_mesh_draw(const struct gn_mesh *m, const char *const *hosts, int lines, struct gn_strbuf *out);

/* Copies of the parts of a sharded optimizer (shard.h) on other ranks. A rank that has a copy updates it itself, by the sums of gradients that
 * the owner sends it before each update: 4 bytes for each parameter of the part, whatever the optimizer keeps, where the state itself would be
 * 8 for sgd, and 12 for adamw. */

/* holders [ranks]: which rank gets the copy of each one's part: another one, on another node where there is one; each rank gets one copy. node_of
 * [ranks]: nodes from 0 on. Pure. GN_ERR_NO_MEMORY. */
enum gn_status gn_redundancy_holders(const int *node_of, int ranks, int *holders, struct gn_err *err);

struct gn_redundancy;

/* Local; more than one rank. The rank that this one has a copy of: the shard's ward. */
enum gn_status gn_redundancy_ward(struct gn_comm *comm, int *ward, struct gn_err *err);
/* Local. flat: the sums, as the reducer has them. All borrowed, and outlive it. */
enum gn_status gn_redundancy_create(struct gn_comm *comm, const struct gn_shard *shard, float *flat, struct gn_redundancy **out, struct gn_err *err);
/* NULL is fine. */
void gn_redundancy_destroy(struct gn_redundancy *r);
/* Blocks. After the sums of a step, on all ranks: the ward's come to their place in flat. */
enum gn_status gn_redundancy_exchange(struct gn_redundancy *r, struct gn_err *err);
/* Who has the copy of this rank's part, and whether it is on another node; bytes of each exchange. */
int gn_redundancy_holder(const struct gn_redundancy *r, int *is_elsewhere);
size_t gn_redundancy_bytes(const struct gn_redundancy *r);

#endif
