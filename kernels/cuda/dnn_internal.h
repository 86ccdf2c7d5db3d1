/* cuDNN as it was found at run time, and how its errors become ours. Only kernels/cuda/dnn*.c. */
#ifndef GN_KERNELS_CUDA_DNN_INTERNAL_H
#define GN_KERNELS_CUDA_DNN_INTERNAL_H

#include "kernels/cuda/dnn.h"
#include "kernels/cuda/device_internal.h"

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

/* A thread beside the caller's each. */
#define GN_DNN_HELPERS_MAX 31

struct gn_dnn {
	struct gn_cudnn api;
	void *library;
	struct gn_cuda_stream *stream; /* NULL: for planning alone */
	cudnnHandle_t handle;
	cudnnBackendDescriptor_t device; /* its description, for planning alone */
	struct gn_dnn_options options;
	struct gn_dnn_plan *plans; /* all, the last one first */
	int collects;
	int folder; /* -1: none */
	char identity[512]; /* of cuDNN, the device and the options: what a plan is good for */
	/* of the threads that plan; as long as the plans, which were made with them */
	cudnnHandle_t helpers[GN_DNN_HELPERS_MAX];
};

#define GN_DNN_CANDIDATES_MAX 24
#define GN_DNN_CANDIDATES_OF_ENGINE_MAX 8

struct gn_dnn_plan {
	struct gn_dnn *dnn;
	struct gn_dnn_plan *next;
	struct gn_dnn_conv conv;
	enum gn_dnn_pass pass;
	cudnnHandle_t handle; /* that it was planned with */
	int is_planned, is_restored;
	struct gn_err err; /* of planning */
	int count, chosen;
	int compiled; /* engines */
	cudnnBackendDescriptor_t plans[GN_DNN_CANDIDATES_MAX];
	size_t workspaces[GN_DNN_CANDIDATES_MAX];
	int64_t engines[GN_DNN_CANDIDATES_MAX];
};

/* GN_OK for success; else the call's name, cuDNN's text, the shape and the device in err. conv NULL: no shape yet. */
enum gn_status gn_dnn_check(const struct gn_dnn *d, cudnnStatus_t code, const char *call, const struct gn_dnn_conv *conv,
			    enum gn_dnn_pass pass, struct gn_err *err);

/* dnn_plan.c. By engines, or from the folder; p->err says what became of it. Any thread, with a handle of its own. */
void gn_dnn_plan_make(struct gn_dnn_plan *p, cudnnHandle_t handle);
/* A plan descriptor for the plan's handle or device, without engine; NULL: cuDNN gives none. */
cudnnBackendDescriptor_t gn_dnn_plan_begin(const struct gn_dnn_plan *p);
/* Finalizes it, and takes it as a candidate where its workspace is allowed; else it is destroyed. 0 when it was not finalized. */
int gn_dnn_plan_finish(struct gn_dnn_plan *p, cudnnBackendDescriptor_t plan, int64_t engine);

/* dnn_store.c. Descriptor of the folder, -1 where it is not to be used; what identifies plans of this dnn. */
int gn_dnn_store_open(const char *folder);
void gn_dnn_store_identify(struct gn_dnn *d, const char *device);
/* 1: the plan has the candidate that was kept. */
int gn_dnn_store_restore(struct gn_dnn_plan *p);
/* Keeps the chosen one; that it fails does no harm. */
void gn_dnn_store_keep(const struct gn_dnn_plan *p);

#define GN_DNN_NODES_MAX 8
#define GN_DNN_PIECES_MAX 48

/* Descriptors under construction: the first thing that goes wrong stays, and all after it does nothing. */
struct gn_dnn_graph {
	const struct gn_dnn *dnn;
	const struct gn_dnn_conv *conv;
	enum gn_dnn_pass pass;
	cudnnBackendDescriptor_t pieces[GN_DNN_PIECES_MAX]; /* all that was made, to be given back */
	int count;
	cudnnBackendDescriptor_t nodes[GN_DNN_NODES_MAX];
	int node_count;
	enum gn_status status;
	struct gn_err *err;
};

/* One of a graph's descriptors; NULL when something has failed. */
cudnnBackendDescriptor_t gn_dnn_make(struct gn_dnn_graph *g, cudnnBackendDescriptorType_t kind, const char *what);
void gn_dnn_set(struct gn_dnn_graph *g, cudnnBackendDescriptor_t d, cudnnBackendAttributeName_t name,
		cudnnBackendAttributeType_t type, int64_t count, const void *value);
void gn_dnn_finalize(struct gn_dnn_graph *g, cudnnBackendDescriptor_t d, const char *what);
void gn_dnn_graph_release(struct gn_dnn_graph *g);
/* dnn_graph.c: the operations of the pass, as nodes. */
void gn_dnn_graph_build(struct gn_dnn_graph *g);

/* Numbers by which a graph knows its tensors. */
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
