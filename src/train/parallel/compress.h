/* Compression of gradients between ranks: what --compress names, and the state that a method keeps from step to step.
 *
 *   bf16, fp16   an allreduce of 16-bit numbers; each addition converts to f32 and rounds to 16 bits, in every algorithm
 *   int8         blocks of 256 numbers with a scale each, rounded stochastically; added in f32 by the rank that owns the part, and
 *                rounded once more for the way back
 *   topk:F       the share F of largest gradients; what is not sent is added to the next step's (error feedback): sent + kept is the
 *                gradient, exactly
 *   dgc:F        Lin et al. 2018, arXiv 1712.01887: momentum before selection, local clipping, momentum of what was sent is cleared,
 *                shares of 1/4, 1/16, 1/64 and 1/256 in the first four epochs
 *   powersgd:R   Vogels et al. 2019, arXiv 1905.13727: factors of rank R, warm start, error feedback; biases and batch norm exact
 *
 * BN buffers, loss and flags are always summed exactly. All ranks get the same bits. Where a gradient is not finite, nothing of that
 * rank is sent but a NaN, so that no rank updates; what others sent in that step is lost, as its gradient is.
 *
 * Thread safety: one thread; OpenMP threads work inside. Internal to src/train and its command.
 */
#ifndef GN_TRAIN_PARALLEL_COMPRESS_H
#define GN_TRAIN_PARALLEL_COMPRESS_H

#include "src/train/model/model.h"
#include "transport/coll/comm.h"

enum gn_compress_method {
	GN_COMPRESS_NONE, GN_COMPRESS_AUTO, GN_COMPRESS_BF16, GN_COMPRESS_FP16, GN_COMPRESS_INT8, GN_COMPRESS_TOPK, GN_COMPRESS_DGC,
	GN_COMPRESS_POWERSGD
};

#define GN_COMPRESS_NAME_MAX 32

struct gn_compress_spec {
	enum gn_compress_method method;
	double fraction; /* topk, dgc: share of the gradients that a rank sends, 0 < F <= 1 */
	int rank;	 /* powersgd: 1 .. 64 */
};

/* "topk:0.01"; NULL is "none". GN_ERR_USAGE. */
enum gn_status gn_compress_parse(const char *text, struct gn_compress_spec *out, struct gn_err *err);
/* The text that parses to it. */
void gn_compress_name(const struct gn_compress_spec *s, char out[GN_COMPRESS_NAME_MAX]);
/* Whether the method of this name keeps something of a step's gradients for later ones. */
int gn_compress_keeps_back(const char *name);

struct gn_compressor;

/* Pointers are borrowed. */
struct gn_compress_options {
	struct gn_comm *comm;
	const struct gn_model *model;
	struct gn_compress_spec spec; /* not none, not auto */
	const char *algo;	      /* of allreduces, as gn_coll_allreduce takes it */
	uint64_t seed;
	double momentum, clip;	      /* dgc; clip: the norm of the mean gradient of all ranks; 0: no bound */
	int batches;		      /* dgc: whose gradients are summed in a step */
};

/* Collective; blocks. */
enum gn_status gn_compressor_create(const struct gn_compress_options *options, struct gn_compressor **out, struct gn_err *err);
/* Local. After the buckets that use it. NULL is fine. */
void gn_compressor_destroy(struct gn_compressor *c);
/* Before the first bucket of each step, and before a reducer is created for steps of another epoch than the first. Both are the same on all
 * ranks. */
void gn_compressor_begin(struct gn_compressor *c, uint64_t step, uint64_t epoch);
const struct gn_compress_spec *gn_compressor_spec(const struct gn_compressor *c);
/* Whether dgc sends more in this epoch than its share. */
int gn_compressor_is_warming_up(const struct gn_compressor *c);
/* Payload bytes that a rank sends in a step of the present epoch, by formula, for the buckets that exist (those whose algorithms are not a ring's or a
 * pairwise exchange may differ from rank to rank). Of n parameters and p ranks: an allreduce sends 2 (p - 1) / p of its bytes, an
 * allgather or all-to-all p - 1 blocks. */
double gn_compressor_sent_bytes(const struct gn_compressor *c);
/* The same of bytes that are summed without compression. */
double gn_compress_dense_bytes(size_t bytes, int ranks);

/* What a resumed run needs. Names of arrays laid out as the parameters, different on each rank; and numbers that all ranks share. */
#define GN_COMPRESS_ARRAYS_MAX 2
struct gn_compress_state {
	int count;
	const char *names[GN_COMPRESS_ARRAYS_MAX];
	float *arrays[GN_COMPRESS_ARRAYS_MAX];
	float *shared; /* NULL: there are none */
	size_t shared_count;
};
/* Borrowed from c. */
void gn_compressor_state(struct gn_compressor *c, struct gn_compress_state *out);

#endif
