/* Work recorded from a stream, to be launched again and again. */
#include "src/device/cuda_native.h"

#include <stdlib.h>

struct gn_cuda_graph {
	cudaGraphExec_t native;
};

enum gn_status gn_cuda_graph_begin(struct gn_cuda_stream *s, struct gn_err *err)
{
	enum gn_status status = gn_cuda_enter(s->device, err);

	if (status)
		return status;
	/* other threads may go on with what they do */
	return gn_cuda_check(cudaStreamBeginCapture(s->native, cudaStreamCaptureModeThreadLocal), "cudaStreamBeginCapture",
			     s->device->info.ordinal, err);
}

enum gn_status gn_cuda_graph_end(struct gn_cuda_stream *s, struct gn_cuda_graph **out, size_t *nodes, struct gn_err *err)
{
	int ordinal = s->device->info.ordinal;
	struct gn_cuda_graph *g = out ? calloc(1, sizeof *g) : NULL;
	cudaGraph_t recorded = NULL;
	size_t count = 0;
	/* ends the recording of the stream in any case */
	enum gn_status status = gn_cuda_check(cudaStreamEndCapture(s->native, &recorded), "cudaStreamEndCapture", ordinal, err);

	if (!status && out && !g)
		status = gn_err_set(err, GN_ERR_NO_MEMORY, "cuda:%d: no memory for a graph", ordinal);
	if (!status && out)
		status = gn_cuda_check(cudaGraphGetNodes(recorded, NULL, &count), "cudaGraphGetNodes", ordinal, err);
	if (!status && out)
		status = gn_cuda_check(cudaGraphInstantiate(&g->native, recorded, 0), "cudaGraphInstantiate", ordinal, err);
	if (recorded)
		(void)gn_cuda_check(cudaGraphDestroy(recorded), "cudaGraphDestroy", -1, NULL);
	if (status || !out) {
		free(g);
		return status;
	}
	*nodes = count;
	*out = g;
	return GN_OK;
}

void gn_cuda_graph_destroy(struct gn_cuda_graph *g)
{
	if (!g)
		return;
	(void)gn_cuda_check(cudaGraphExecDestroy(g->native), "cudaGraphExecDestroy", -1, NULL);
	free(g);
}

enum gn_status gn_cuda_graph_launch(struct gn_cuda_graph *g, struct gn_cuda_stream *s, struct gn_err *err)
{
	enum gn_status status = gn_cuda_enter(s->device, err);

	if (status)
		return status;
	return gn_cuda_check(cudaGraphLaunch(g->native, s->native), "cudaGraphLaunch", s->device->info.ordinal, err);
}
