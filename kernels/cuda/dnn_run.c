/* Runs a plan, and tunes it. */
#include "kernels/cuda/dnn_internal.h"
#include "kernels/cuda/autotune.h"

/* Binds addresses to the graph's tensor ids and runs one candidate. */
static enum gn_status run(struct gn_dnn_plan *p, int candidate, const struct gn_dnn_data *t, void *workspace,
			  struct gn_err *err)
{
	static const int64_t ids[] = {GN_DNN_ID_X,	       GN_DNN_ID_WEIGHT,       GN_DNN_ID_Y,
				      GN_DNN_ID_BIAS,	       GN_DNN_ID_ADDED,	       GN_DNN_ID_SUM,
				      GN_DNN_ID_SQUARES,       GN_DNN_ID_SCALE,	       GN_DNN_ID_SHIFT,
				      GN_DNN_ID_Z,	       GN_DNN_ID_MEAN,	       GN_DNN_ID_INVERSE,
				      GN_DNN_ID_NORM_WEIGHT,   GN_DNN_ID_NORM_BIAS,    GN_DNN_ID_DNORM_WEIGHT,
				      GN_DNN_ID_DNORM_BIAS,    GN_DNN_ID_FACTORS,      GN_DNN_ID_FACTORS + 1,
				      GN_DNN_ID_FACTORS + 2};
	const float *f = t->factors;
	const size_t step = gn_dnn_factors_step(&p->conv);
	const void *const all[] = {t->x,	   t->weight,	    t->y,	     t->bias,	      t->added,
				   t->sum,	   t->squares,	    t->scale,	     t->shift,	      t->z,
				   t->mean,	   t->inverse,	    t->norm_weight,  t->norm_bias,    t->dnorm_weight,
				   t->dnorm_bias,  f,		    f ? f + step : NULL, f ? f + 2 * step : NULL};
	struct gn_dnn_graph g = {.dnn = p->dnn, .conv = &p->conv, .pass = p->pass, .err = err};
	const void *data[sizeof ids / sizeof *ids];
	int64_t used[sizeof ids / sizeof *ids], count = 0;
	cudnnBackendDescriptor_t pack;

	for (size_t i = 0; i < sizeof ids / sizeof *ids; i++) {
		if (!all[i])
			continue;
		used[count] = ids[i];
		data[count++] = all[i];
	}
	pack = gn_dnn_make(&g, CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR, "variant pack");
	gn_dnn_set(&g, pack, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, count, data);
	gn_dnn_set(&g, pack, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, count, used);
	gn_dnn_set(&g, pack, CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, 1, &workspace);
	gn_dnn_finalize(&g, pack, "cudnnBackendFinalize of a variant pack");
	if (!g.status)
		g.status = gn_dnn_check(p->dnn,
					p->dnn->api.cudnnBackendExecute(p->dnn->handle, p->plans[candidate], pack),
					"cudnnBackendExecute", &p->conv, p->pass, err);
	gn_dnn_graph_release(&g);
	return g.status;
}

enum gn_status gn_dnn_run(struct gn_dnn_plan *p, const struct gn_dnn_data *data, void *workspace, struct gn_err *err)
{
	enum gn_status status;

	if (!p->dnn->stream)
		return gn_err_set(err, GN_ERR_USAGE, "a plan for a device that is not present cannot run");
	status = gn_cuda_enter(p->dnn->stream->device, err);
	return status ? status : run(p, p->chosen, data, workspace, err);
}

struct trial {
	struct gn_dnn_plan *plan;
	const struct gn_dnn_data *data;
	void *workspace;
};

static enum gn_status try_one(void *context, int candidate, struct gn_err *err)
{
	const struct trial *t = context;

	return run(t->plan, candidate, t->data, t->workspace, err);
}

/* Destroys the other candidates. */
static void keep(struct gn_dnn_plan *p, int chosen)
{
	for (int i = 0; i < p->count; i++)
		if (i != chosen)
			(void)p->dnn->api.cudnnBackendDestroyDescriptor(p->plans[i]);
	p->plans[0] = p->plans[chosen];
	p->workspaces[0] = p->workspaces[chosen];
	p->engines[0] = p->engines[chosen];
	p->chosen = 0;
	p->count = 1;
	gn_dnn_store_keep(p);
}

enum gn_status gn_dnn_tune(struct gn_dnn_plan *p, const struct gn_dnn_data *data, void *workspace, struct gn_err *err)
{
	struct trial t = {p, data, workspace};
	struct gn_cuda_candidates candidates = {p->count, try_one, &t, 0};
	int chosen;
	enum gn_status status;

	if (!p->dnn->stream)
		return gn_err_set(err, GN_ERR_USAGE, "a plan for a device that is not present cannot run");
	if (p->count == 1 && p->ms > 0)
		return GN_OK;
	status = gn_cuda_autotune(p->dnn->stream, &candidates, &chosen, err);
	if (status)
		return status;
	p->ms = (double)candidates.ms;
	keep(p, chosen);
	return GN_OK;
}
