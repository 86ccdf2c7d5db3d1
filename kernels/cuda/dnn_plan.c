/* Which of cuDNN's engines run a convolution. */
#include "kernels/cuda/dnn_internal.h"

#include <stdlib.h>
#include <string.h>

/* Whether the rules allow what an engine notes about itself. */
static int is_allowed(const struct gn_dnn_plan *p, cudnnBackendDescriptor_t engine)
{
	const struct gn_dnn_options *o = &p->dnn->options;
	cudnnBackendNumericalNote_t notes[CUDNN_NUMERICAL_NOTE_TYPE_COUNT];
	int64_t count = 0;

	if (p->dnn->api.cudnnBackendGetAttribute(engine, CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, CUDNN_TYPE_NUMERICAL_NOTE,
						 CUDNN_NUMERICAL_NOTE_TYPE_COUNT, &count, notes))
		return 0;
	for (int64_t i = 0; i < count; i++) {
		int exact = p->conv.type == GN_CUDA_F32 && !o->tf32;

		if (exact && (notes[i] == CUDNN_NUMERICAL_NOTE_TENSOR_CORE || notes[i] == CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS))
			return 0;
		/* sums in the type of the tensors; float is asked for */
		if (notes[i] == CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION)
			return 0;
		if (o->deterministic && notes[i] == CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC)
			return 0;
	}
	return 1;
}

/* The engine of a configuration, and its number; 0 where cuDNN does not say, or it is not allowed. */
static int look_at_engine(struct gn_dnn_plan *p, cudnnBackendDescriptor_t config, int64_t *number)
{
	const struct gn_cudnn *api = &p->dnn->api;
	cudnnBackendDescriptor_t engine = NULL;
	int64_t count = 0;
	int ok;

	if (api->cudnnBackendCreateDescriptor(CUDNN_BACKEND_ENGINE_DESCRIPTOR, &engine))
		return 0;
	ok = !api->cudnnBackendGetAttribute(config, CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &count,
					    &engine) &&
	     !api->cudnnBackendGetAttribute(engine, CUDNN_ATTR_ENGINE_GLOBAL_INDEX, CUDNN_TYPE_INT64, 1, &count, number) &&
	     is_allowed(p, engine);
	(void)api->cudnnBackendDestroyDescriptor(engine);
	return ok;
}

/* For a device that is not here: whether cuDNN compiled code for it, and only then found nothing to load it with. */
static int is_compiled(const struct gn_dnn_plan *p)
{
	char text[1024] = "";

	if (!p->dnn->device)
		return 0;
	p->dnn->api.cudnnGetLastErrorString(text, sizeof text);
	return strstr(text, "cuLibraryLoadData") != NULL;
}

/* A configuration that becomes a plan within the limits is a candidate; one that does not is none, for whatever reason. */
static void try_config(struct gn_dnn_plan *p, cudnnBackendDescriptor_t config)
{
	const struct gn_cudnn *api = &p->dnn->api;
	cudnnBackendDescriptor_t plan = NULL;
	int64_t number = -1, workspace = 0, count = 0;
	int ok, finalized = 0;

	if (p->count == GN_DNN_CANDIDATES_MAX || !look_at_engine(p, config, &number) ||
	    api->cudnnBackendCreateDescriptor(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR, &plan))
		return;
	if (p->dnn->device)
		ok = !api->cudnnBackendSetAttribute(plan, CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1,
						    &p->dnn->device);
	else
		ok = !api->cudnnBackendSetAttribute(plan, CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, 1,
						    &p->dnn->handle);
	ok = ok &&
	     !api->cudnnBackendSetAttribute(plan, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1,
					    &config) &&
	     (finalized = !api->cudnnBackendFinalize(plan)) &&
	     !api->cudnnBackendGetAttribute(plan, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, CUDNN_TYPE_INT64, 1, &count,
					    &workspace);
	if (!finalized)
		p->compiled += is_compiled(p);
	if (!ok || workspace < 0 || (size_t)workspace > p->dnn->options.workspace_limit_bytes) {
		(void)api->cudnnBackendDestroyDescriptor(plan);
		return;
	}
	p->plans[p->count] = plan;
	p->workspaces[p->count] = (size_t)workspace;
	p->engines[p->count++] = number;
}

/* Configurations that cuDNN names in one mode, best first. */
static void try_mode(struct gn_dnn_plan *p, struct gn_dnn_graph *g, cudnnBackendDescriptor_t operations,
		     cudnnBackendHeurMode_t mode)
{
	enum { LOOKED_AT = 24 };
	const struct gn_cudnn *api = &p->dnn->api;
	cudnnBackendDescriptor_t heuristics = gn_dnn_make(g, CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR, "engine heuristics");
	cudnnBackendDescriptor_t configs[LOOKED_AT];
	int64_t made = 0, count = 0;

	gn_dnn_set(g, heuristics, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &operations);
	gn_dnn_set(g, heuristics, CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, 1, &mode);
	if (p->dnn->device)
		gn_dnn_set(g, heuristics, CUDNN_ATTR_ENGINEHEUR_DEVICEPROP, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &p->dnn->device);
	gn_dnn_finalize(g, heuristics, "cudnnBackendFinalize of engine heuristics");
	if (g->status)
		return;
	while (made < LOOKED_AT && !api->cudnnBackendCreateDescriptor(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR, &configs[made]))
		made++;
	if (!api->cudnnBackendGetAttribute(heuristics, CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_TYPE_BACKEND_DESCRIPTOR, made,
					   &count, configs))
		for (int64_t i = 0; i < count && i < made; i++)
			try_config(p, configs[i]);
	while (made > 0)
		(void)api->cudnnBackendDestroyDescriptor(configs[--made]);
}

static enum gn_status find_engines(struct gn_dnn_plan *p, struct gn_err *err)
{
	static const cudnnBackendHeurMode_t modes[] = {CUDNN_HEUR_MODE_A, CUDNN_HEUR_MODE_FALLBACK};
	struct gn_dnn_graph g = {.dnn = p->dnn, .conv = &p->conv, .pass = p->pass, .err = err};
	cudnnBackendDescriptor_t operations;
	int built;

	gn_dnn_graph_build(&g);
	operations = gn_dnn_make(&g, CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR, "operation graph");
	if (p->dnn->handle)
		gn_dnn_set(&g, operations, CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, 1, &p->dnn->handle);
	gn_dnn_set(&g, operations, CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR, g.node_count, g.nodes);
	gn_dnn_finalize(&g, operations, "cudnnBackendFinalize of an operation graph");
	built = !g.status;
	for (size_t i = 0; built && i < sizeof modes / sizeof *modes && !p->count; i++) {
		/* what one mode has nothing to say about may be known to the next */
		g.status = GN_OK;
		try_mode(p, &g, operations, modes[i]);
	}
	if (!p->count && !g.status)
		g.status = gn_dnn_check(p->dnn, CUDNN_STATUS_NOT_SUPPORTED, "no engine takes it", &p->conv, p->pass, err);
	gn_dnn_graph_release(&g);
	if (!p->count && p->compiled)
		g.status = gn_err_set(err, GN_ERR_UNSUPPORTED, "%d engines were compiled for %s, which only a driver can load",
				      p->compiled, gn_dnn_pass_name(p->pass));
	return p->count ? GN_OK : g.status;
}

enum gn_status gn_dnn_plan_create(struct gn_dnn *d, const struct gn_dnn_conv *conv, enum gn_dnn_pass pass,
				  struct gn_dnn_plan **out, struct gn_err *err)
{
	struct gn_dnn_plan *p = calloc(1, sizeof *p);
	enum gn_status status = GN_OK;

	if (!p)
		return gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for a convolution");
	p->dnn = d;
	p->conv = *conv;
	p->pass = pass;
	if (d->stream)
		status = gn_cuda_enter(d->stream->device, err);
	if (!status)
		status = find_engines(p, err);
	if (status)
		gn_dnn_plan_destroy(p);
	else
		*out = p;
	return status;
}

void gn_dnn_plan_destroy(struct gn_dnn_plan *p)
{
	if (!p)
		return;
	for (int i = 0; i < p->count; i++)
		(void)p->dnn->api.cudnnBackendDestroyDescriptor(p->plans[i]);
	free(p);
}

size_t gn_dnn_plan_workspace_bytes(const struct gn_dnn_plan *p)
{
	size_t most = 0;

	for (int i = 0; i < p->count; i++)
		most = p->workspaces[i] > most ? p->workspaces[i] : most;
	return most;
}

int gn_dnn_plan_candidates(const struct gn_dnn_plan *p)
{
	return p->count;
}

int64_t gn_dnn_plan_engine(const struct gn_dnn_plan *p)
{
	return p->engines[p->chosen];
}
