/* The entry points of cuDNN, loaded at run time, and its errors. Private to kernels/cuda/dnn*.c. */
#ifndef GN_KERNELS_CUDA_DNN_INTERNAL_H
#define GN_KERNELS_CUDA_DNN_INTERNAL_H

#include "kernels/cuda/dnn.h"
#include "src/device/cuda_native.h"

#include <cudnn.h>

#define GN_CUDNN_FUNCTIONS(X)                                                                                          \
	X(cudnnCreate)                                                                                                 \
	X(cudnnDestroy)                                                                                                \
	X(cudnnSetStream)                                                                                              \
	X(cudnnGetVersion)                                                                                             \
	X(cudnnGetErrorString)                                                                                         \
	X(cudnnGetLastErrorString)                                                                                     \
	X(cudnnBackendCreateDescriptor)                                                                                \
	X(cudnnBackendDestroyDescriptor)                                                                               \
	X(cudnnBackendSetAttribute)                                                                                    \
	X(cudnnBackendGetAttribute)                                                                                    \
	X(cudnnBackendFinalize)                                                                                        \
	X(cudnnBackendExecute)

struct gn_cudnn {
#define X(name) __typeof__(name) *name;
	GN_CUDNN_FUNCTIONS(X)
#undef X
};

/* planning threads besides the caller's */
#define GN_DNN_HELPERS_MAX 31

struct gn_dnn {
	struct gn_cudnn api;
	void *library;
	struct gn_cuda_stream *stream; /* NULL: for planning only */
	cudnnHandle_t handle;
	cudnnBackendDescriptor_t device; /* description of the device, for planning only */
	struct gn_dnn_options options;
	struct gn_dnn_plan *plans; /* all plans, the newest first */
	int collects;
	int folder; /* -1: none */
	char identity[512]; /* of cuDNN, the device and the options: what a stored plan depends on */
	/* of the planning threads; live as long as the plans, which were created with them */
	cudnnHandle_t helpers[GN_DNN_HELPERS_MAX];
};

#define GN_DNN_CANDIDATES_MAX 24
#define GN_DNN_CANDIDATES_OF_ENGINE_MAX 8

struct gn_dnn_plan {
	struct gn_dnn *dnn;
	struct gn_dnn_plan *next;
	struct gn_dnn_conv conv;
	enum gn_dnn_pass pass;
	cudnnHandle_t handle; /* that the plan was created with */
	int is_planned, is_restored;
	struct gn_err err; /* error of planning */
	int count, chosen;
	int compiled; /* number of compiled engines */
	cudnnBackendDescriptor_t plans[GN_DNN_CANDIDATES_MAX];
	size_t workspaces[GN_DNN_CANDIDATES_MAX];
	int64_t engines[GN_DNN_CANDIDATES_MAX];
	double ms; /* of a run of the chosen one; 0: not measured */
};

/* GN_OK for success; else sets err with the call, cuDNN's message, the shape and the device. conv NULL: without a shape. */
enum gn_status gn_dnn_check(const struct gn_dnn *d, cudnnStatus_t code, const char *call, const struct gn_dnn_conv *conv,
			    enum gn_dnn_pass pass, struct gn_err *err);

/* dnn_plan.c. Creates the plan from engines or from the folder; p->err has the result. Any thread, with its own handle. */
void gn_dnn_plan_make(struct gn_dnn_plan *p, cudnnHandle_t handle);
/* A plan descriptor for the plan's handle or device, without an engine; NULL on failure. */
cudnnBackendDescriptor_t gn_dnn_plan_begin(const struct gn_dnn_plan *p);
/* Finalizes the descriptor and adds it as a candidate if its workspace is within the limit; else destroys it. 0 when it could not
 * be finalized. */
int gn_dnn_plan_finish(struct gn_dnn_plan *p, cudnnBackendDescriptor_t plan, int64_t engine);

/* dnn_store.c. Descriptor of the folder, -1 when it is not usable. */
int gn_dnn_store_open(const char *folder);
void gn_dnn_store_identify(struct gn_dnn *d, const char *device);
/* 1: the stored candidate was restored. */
int gn_dnn_store_restore(struct gn_dnn_plan *p);
/* Stores the chosen candidate. A failure is ignored. */
void gn_dnn_store_keep(const struct gn_dnn_plan *p);

#define GN_DNN_NODES_MAX 8
#define GN_DNN_PIECES_MAX 48

/* Descriptors under construction. After the first error all further calls have no effect. */
struct gn_dnn_graph {
	const struct gn_dnn *dnn;
	const struct gn_dnn_conv *conv;
	enum gn_dnn_pass pass;
	cudnnBackendDescriptor_t pieces[GN_DNN_PIECES_MAX]; /* all descriptors, to be destroyed */
	int count;
	cudnnBackendDescriptor_t nodes[GN_DNN_NODES_MAX];
	int node_count;
	enum gn_status status;
	struct gn_err *err;
};

/* Creates a descriptor that the graph owns; NULL after an error. */
cudnnBackendDescriptor_t gn_dnn_make(struct gn_dnn_graph *g, cudnnBackendDescriptorType_t kind, const char *what);
void gn_dnn_set(struct gn_dnn_graph *g, cudnnBackendDescriptor_t d, cudnnBackendAttributeName_t name,
		cudnnBackendAttributeType_t type, int64_t count, const void *value);
void gn_dnn_finalize(struct gn_dnn_graph *g, cudnnBackendDescriptor_t d, const char *what);
void gn_dnn_graph_release(struct gn_dnn_graph *g);
/* dnn_graph.c: adds the operations of the pass. */
void gn_dnn_graph_build(struct gn_dnn_graph *g);

/* Ids of tensors in a graph. */
enum gn_dnn_id {
	GN_DNN_ID_X = 1,
	GN_DNN_ID_WEIGHT,
	GN_DNN_ID_Y,
	GN_DNN_ID_BIAS,
	GN_DNN_ID_ADDED,
	GN_DNN_ID_SUM,
	GN_DNN_ID_SQUARES,
	GN_DNN_ID_SCALE,
	GN_DNN_ID_SHIFT,
	GN_DNN_ID_Z,
	GN_DNN_ID_MEAN,
	GN_DNN_ID_INVERSE,
	GN_DNN_ID_NORM_WEIGHT,
	GN_DNN_ID_NORM_BIAS,
	GN_DNN_ID_DNORM_WEIGHT,
	GN_DNN_ID_DNORM_BIAS,
	GN_DNN_ID_FACTORS, /* three */
	GN_DNN_ID_VIRTUAL = GN_DNN_ID_FACTORS + 3
};

#endif
