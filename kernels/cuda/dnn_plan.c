/* Selects cuDNN engines for a convolution. */
#include "kernels/cuda/dnn_internal.h"

#include <string.h>

/* Whether the options permit the numerical and behaviour notes of an engine. */
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
		/* accumulation in the tensors' type; float is required */
		if (notes[i] == CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION)
			return 0;
		if (o->deterministic && notes[i] == CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC)
			return 0;
	}
	return 1;
}

/* The engine of a configuration, its index, and whether it is compiled at planning; 0 when cuDNN does not tell or the engine is not
 * permitted. */
static int query_engine(struct gn_dnn_plan *p, cudnnBackendDescriptor_t config, int64_t *number, int *compiles)
{
	cudnnBackendBehaviorNote_t notes[CUDNN_BEHAVIOR_NOTE_TYPE_COUNT];
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
	count = 0;
	if (ok && !api->cudnnBackendGetAttribute(engine, CUDNN_ATTR_ENGINE_BEHAVIOR_NOTE, CUDNN_TYPE_BEHAVIOR_NOTE,
						 CUDNN_BEHAVIOR_NOTE_TYPE_COUNT, &count, notes))
		for (int64_t i = 0; i < count; i++)
			*compiles |= notes[i] == CUDNN_BEHAVIOR_NOTE_RUNTIME_COMPILATION;
	(void)api->cudnnBackendDestroyDescriptor(engine);
	return ok;
}

/* For a device that is not present: whether cuDNN compiled code and failed only because it cannot load it. */
static int is_unloadable(const struct gn_dnn_plan *p)
{
	char text[1024] = "";

	if (!p->dnn->device)
		return 0;
	p->dnn->api.cudnnGetLastErrorString(text, sizeof text);
	return strstr(text, "cuLibraryLoadData") != NULL;
}

cudnnBackendDescriptor_t gn_dnn_plan_begin(const struct gn_dnn_plan *p)
{
	const struct gn_dnn *d = p->dnn;
	cudnnBackendDescriptor_t plan = NULL;
	cudnnStatus_t code = d->api.cudnnBackendCreateDescriptor(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR, &plan);

	if (!code && d->device)
		code = d->api.cudnnBackendSetAttribute(plan, CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &d->device);
	else if (!code)
		code = d->api.cudnnBackendSetAttribute(plan, CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, 1, &p->handle);
	if (code && plan)
		(void)d->api.cudnnBackendDestroyDescriptor(plan);
	return code ? NULL : plan;
}

int gn_dnn_plan_finish(struct gn_dnn_plan *p, cudnnBackendDescriptor_t plan, int64_t engine)
{
	const struct gn_cudnn *api = &p->dnn->api;
	int64_t workspace = -1, count = 0;
	int is_final = !api->cudnnBackendFinalize(plan);

	if (!is_final || api->cudnnBackendGetAttribute(plan, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, CUDNN_TYPE_INT64, 1, &count, &workspace) ||
	    workspace < 0 || (size_t)workspace > p->dnn->options.workspace_limit_bytes) {
		(void)api->cudnnBackendDestroyDescriptor(plan);
		return is_final;
	}
	p->plans[p->count] = plan;
	p->workspaces[p->count] = (size_t)workspace;
	p->engines[p->count++] = engine;
	return 1;
}

static int is_full(const struct gn_dnn_plan *p)
{
	return p->count == (p->dnn->options.tune ? GN_DNN_CANDIDATES_MAX : 1);
}

/* Compiling takes a second: one compiled candidate per plan suffices. */
static int is_wanted(const struct gn_dnn_plan *p, int64_t engine, int compiles)
{
	int same = 0;

	for (int i = 0; i < p->count; i++)
		same += p->engines[i] == engine;
	return !is_full(p) && same < GN_DNN_CANDIDATES_OF_ENGINE_MAX && !(compiles && p->compiled);
}

/* A configuration becomes a candidate if it can be finalized within the limits; otherwise it is ignored. */
static void try_config(struct gn_dnn_plan *p, cudnnBackendDescriptor_t config)
{
	const struct gn_cudnn *api = &p->dnn->api;
	cudnnBackendDescriptor_t plan;
	int64_t number = -1;
	int compiles = 0;

	if (!query_engine(p, config, &number, &compiles) || !is_wanted(p, number, compiles) || !(plan = gn_dnn_plan_begin(p)))
		return;
	if (api->cudnnBackendSetAttribute(plan, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &config))
		(void)api->cudnnBackendDestroyDescriptor(plan);
	else if (gn_dnn_plan_finish(p, plan, number))
		p->compiled += compiles;
	else
		p->compiled += is_unloadable(p);
}

/* Tries the configurations that cuDNN's heuristic returns in one mode, best first. */
static void try_mode(struct gn_dnn_plan *p, struct gn_dnn_graph *g, cudnnBackendDescriptor_t operations,
		     cudnnBackendHeurMode_t mode)
{
	enum { LOOKED_AT = 64 };
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
		for (int64_t i = 0; i < count && i < made && !is_full(p); i++)
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
	if (p->handle)
		gn_dnn_set(&g, operations, CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, 1, &p->handle);
	gn_dnn_set(&g, operations, CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR, g.node_count, g.nodes);
	gn_dnn_finalize(&g, operations, "cudnnBackendFinalize of an operation graph");
	built = !g.status;
	for (size_t i = 0; built && i < sizeof modes / sizeof *modes && !p->count; i++) {
		/* a mode without results is not an error: try the next */
		g.status = GN_OK;
		try_mode(p, &g, operations, modes[i]);
	}
	if (!p->count && !g.status)
		g.status = gn_dnn_check(p->dnn, CUDNN_STATUS_NOT_SUPPORTED, "no engine supports it", &p->conv, p->pass, err);
	gn_dnn_graph_release(&g);
	if (!p->count && p->compiled)
		g.status = gn_err_set(err, GN_ERR_UNSUPPORTED, "%d engines were compiled for %s; loading them needs its driver",
				      p->compiled, gn_dnn_pass_name(p->pass));
	return p->count ? GN_OK : g.status;
}

void gn_dnn_plan_make(struct gn_dnn_plan *p, cudnnHandle_t handle)
{
	enum gn_status status = p->dnn->stream ? gn_cuda_enter(p->dnn->stream->device, &p->err) : GN_OK;

	p->handle = handle;
	p->is_restored = !status && gn_dnn_store_restore(p);
	if (!status && !p->is_restored)
		status = find_engines(p, &p->err);
	p->err.status = status;
	p->is_planned = 1;
	/* of several candidates, the chosen one is stored after tuning */
	if (p->count == 1 && !p->is_restored)
		gn_dnn_store_keep(p);
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

void gn_dnn_plan_describe(const struct gn_dnn_plan *p, struct gn_op_engine *out)
{
	*out = (struct gn_op_engine){gn_dnn_pass_name(p->pass), gn_dnn_plan_engine(p), p->ms};
}
