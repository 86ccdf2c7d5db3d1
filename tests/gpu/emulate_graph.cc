#include "tests/gpu/emulate_graph.h"

#include <string.h>

#include <vector>

struct gn_cuda_graph {
	std::vector<std::function<enum gn_status(struct gn_err *)>> works;
};

static gn_cuda_graph *recorded;
static const gn_cuda_stream *recorded_stream;

int gn_emulate_records(const struct gn_cuda_stream *s)
{
	return recorded && s == recorded_stream;
}

void gn_emulate_keep(const std::function<enum gn_status(struct gn_err *)> &work)
{
	recorded->works.push_back(work);
}

int gn_emulate_keep_call(enum gn_status (*run)(const void *args, struct gn_err *err), const void *args, size_t bytes)
{
	std::vector<char> copy((const char *)args, (const char *)args + bytes);

	if (!recorded)
		return 0;
	gn_emulate_keep([=](struct gn_err *err) { return run(copy.data(), err); });
	return 1;
}

enum gn_status gn_cuda_graph_begin(struct gn_cuda_stream *s, struct gn_err *err)
{
	/* so that both ways are gone, by two ranks at the same time, too */
	if (gn_cuda_device_info(gn_cuda_stream_device(s))->ordinal)
		return gn_err_set(err, GN_ERR_UNSUPPORTED, "the second one has no graphs");
	if (recorded)
		return gn_err_set(err, GN_ERR_FAILED, "a recording is under way");
	recorded = new gn_cuda_graph();
	recorded_stream = s;
	return GN_OK;
}

enum gn_status gn_cuda_graph_end(struct gn_cuda_stream *s, struct gn_cuda_graph **out, size_t *nodes, struct gn_err *err)
{
	gn_cuda_graph *g = recorded;

	if (!gn_emulate_records(s))
		return gn_err_set(err, GN_ERR_FAILED, "the stream is not recorded");
	recorded = NULL;
	if (!out) {
		delete g;
		return GN_OK;
	}
	*nodes = g->works.size();
	*out = g;
	return GN_OK;
}

enum gn_status gn_cuda_graph_launch(struct gn_cuda_graph *g, struct gn_cuda_stream *s, struct gn_err *err)
{
	enum gn_status status = GN_OK;

	if (gn_emulate_records(s))
		return gn_err_set(err, GN_ERR_FAILED, "a graph is launched while its stream is recorded");
	for (size_t i = 0; !status && i < g->works.size(); i++)
		status = g->works[i](err);
	return status;
}

void gn_cuda_graph_destroy(struct gn_cuda_graph *g)
{
	delete g;
}
