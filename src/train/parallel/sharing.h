/* The ways in which ranks share a step: what becomes of a bucket of gradients, BN buffers and flags once it is complete. Each way is a
 * file of its own and an entry in the table of sharing_table.c; the reducer (reducer.h) drives them and knows none.
 *
 * Thread safety: one thread. Collective: all ranks prepare and start the same buckets in the same order. Internal to src/train.
 */
#ifndef GN_TRAIN_PARALLEL_SHARING_H
#define GN_TRAIN_PARALLEL_SHARING_H

#include "src/device/device.h"
#include "src/train/model/model.h"
#include "transport/coll/comm.h"

#include <stdint.h>

struct gn_compressor;
struct gn_server_client;

/* Post-local SGD (Lin et al. 2018, arXiv 1808.07217): from an epoch on each rank takes steps by its own gradients, and every so many steps
 * the ranks average parameters and optimizer state.
 *
 * The tail of the gradient array (BN buffers, loss, flags) is summed in every step all the same, so that all ranks stop, save and skip a
 * step together; a rank whose gradients are not finite turns the loss of all into NaN. */
struct gn_local_steps {
	uint64_t every;	     /* steps between averages; 0 and 1: gradients are summed in every step */
	uint64_t from_epoch;
	int is_active;	     /* in the present step; set before it */
	float *flag;	     /* a number of the tail: NaN makes all ranks skip the step */
	int has_drifted;     /* ranks' parameters differ */
};

/* What is shared, and over what. Borrowed. */
struct gn_sharing_options {
	struct gn_comm *comm;
	enum gn_memory memory;		 /* where flat is: of the device that the communicator has */
	const struct gn_model *model;
	float *flat;			 /* gn_model_param_elements floats and then tail_elements more */
	size_t tail_elements;
	const char *algo;		 /* for the host's memory, as gn_coll_args takes it */
	struct gn_compressor *compressor; /* host memory, more than one rank; NULL: nothing is compressed */
	struct gn_local_steps *local;	  /* host memory, more than one rank; NULL: gradients are summed in every step */
	float *shard_params;		  /* host memory, more than one rank: the parameters, whose updates are sharded; NULL: they are not */
	struct gn_server_client *servers; /* host memory: who gets the gradients, and what follows them is summed over comm; NULL: nobody */
	float *served_flag;		  /* with servers: of what follows them, becomes NaN where a gradient is not finite */
	const int *is_partial;		  /* with shard_params: what follows the parameters is left alone while it is set; NULL: never */
};

/* The first member of each way's own bucket. */
struct gn_shared_bucket {
	float *data;
	size_t count;	  /* floats */
	size_t begin;	  /* where they are in the array */
	size_t gradients; /* of count; the rest belongs to the tail */
};

struct gn_sharing {
	const char *name;
	/* Whether it is for these options. */
	int (*fits)(const struct gn_sharing_options *o);
	/* Of a bucket, which the reducer allocates. 0: nothing is to be done, and the functions below are not called. */
	size_t bucket_bytes;
	/* The first member is set, the others are zero. free is called after a failure, too. */
	enum gn_status (*prepare)(const struct gn_sharing_options *o, struct gn_shared_bucket *b, struct gn_err *err);
	/* When after is done; NULL: at once. Does not block. */
	enum gn_status (*start)(struct gn_shared_bucket *b, const struct gn_event *after, struct gn_err *err);
	/* Makes progress; does not block. */
	enum gn_status (*test)(struct gn_shared_bucket *b, int *done, struct gn_err *err);
	enum gn_status (*wait)(struct gn_shared_bucket *b, struct gn_err *err);
	/* All but the bucket itself. */
	void (*free)(struct gn_shared_bucket *b);
	/* The collective that it is; NULL, or returns NULL: it is none of the communicator's. */
	const struct gn_coll *(*coll)(const struct gn_shared_bucket *b);
	/* What brings a bucket's updated parameters to all ranks, beside the next step's forward; NULL, or returns NULL: nothing does. */
	struct gn_coll *(*gather)(const struct gn_shared_bucket *b);
};

/* One rank: nothing is shared. Several: an allreduce of the communicator, or, of host memory, what a method of compression or local steps
 * make of it, or a reduce-scatter where the optimizer is sharded. With parameter servers they get it, also from one rank. */
extern const struct gn_sharing gn_share_served, gn_share_local, gn_share_allreduce, gn_share_compressed, gn_share_averaged, gn_share_sharded;
/* The first way that fits; there is always one. */
const struct gn_sharing *gn_sharing_choose(const struct gn_sharing_options *o);

#endif
