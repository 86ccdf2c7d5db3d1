#include "kernels/cuda/autotune.h"

#include <stdlib.h>

/* timed launches of a graph, after an untimed one */
enum { LAUNCHES = 3 };

/* A call costs the host some microseconds, longer than small kernels run: many runs are timed as one. Long kernels need few. */
static int repeats_for(float ms)
{
	return ms < 0.5f ? 20 : ms < 5 ? 10 : 2;
}

struct timing {
	struct gn_cuda_stream *stream;
	struct gn_cuda_candidates *candidates;
	struct gn_event *from, *to;
};

static enum gn_status run(const struct timing *t, int candidate, int repeats, struct gn_err *err)
{
	enum gn_status status = GN_OK;

	for (int i = 0; i < repeats && !status; i++)
		status = t->candidates->run(t->candidates->context, candidate, err);
	return status;
}

/* Milliseconds of one graph launch, or without a graph of `repeats` runs. */
static enum gn_status time_once(const struct timing *t, struct gn_cuda_graph *graph, int candidate, int repeats, float *ms, struct gn_err *err)
{
	struct gn_stream *s = gn_cuda_stream_base(t->stream);
	enum gn_status status = gn_event_record(t->from, s, err);
	double passed = 0;

	if (!status)
		status = graph ? gn_cuda_graph_launch(graph, t->stream, err) : run(t, candidate, repeats, err);
	if (!status)
		status = gn_event_record(t->to, s, err);
	if (!status)
		status = gn_event_wait(t->to, err);
	if (!status)
		status = gn_event_between(t->from, t->to, &passed, err);
	*ms = (float)passed;
	return status;
}

/* NULL: the candidate cannot be captured. */
static struct gn_cuda_graph *record(const struct timing *t, int candidate, int repeats)
{
	struct gn_cuda_graph *graph = NULL;
	enum gn_status status = gn_cuda_graph_begin(t->stream, NULL), ended;
	size_t nodes;

	if (status)
		return NULL;
	status = run(t, candidate, repeats, NULL);
	ended = gn_cuda_graph_end(t->stream, status ? NULL : &graph, &nodes, NULL);
	return ended ? NULL : graph;
}

static enum gn_status measure(const struct timing *t, int candidate, int repeats, float *out_ms, struct gn_err *err)
{
	struct gn_cuda_graph *graph = record(t, candidate, repeats);
	enum gn_status status = GN_OK;
	float ms, best = 0;

	for (int i = -1; i < LAUNCHES && !status; i++) {
		status = time_once(t, graph, candidate, repeats, &ms, err);
		if (!status && i >= 0)
			best = i == 0 || ms < best ? ms : best;
	}
	gn_cuda_graph_destroy(graph);
	if (!status)
		*out_ms = best;
	return status;
}

/* Times one run of each, after a run that loads its code. firsts: milliseconds, negative for a candidate that fails. *out_ms: the
 * shortest. */
static enum gn_status time_first_runs(const struct timing *t, float *firsts, float *out_ms, struct gn_err *err)
{
	enum gn_status status, last = GN_OK;
	int some = 0;

	for (int i = 0; i < t->candidates->count; i++) {
		firsts[i] = -1;
		status = run(t, i, 1, err);
		if (!status)
			status = time_once(t, NULL, i, 1, &firsts[i], err);
		if (status) {
			last = status;
			firsts[i] = -1;
		} else if (!some++ || firsts[i] < *out_ms) {
			*out_ms = firsts[i];
		}
	}
	return some ? GN_OK : last;
}

static enum gn_status choose(const struct timing *t, float *firsts, int *out, struct gn_err *err)
{
	/* overhead of a call on the host */
	const float slack_ms = 0.05f;
	float quickest = 0, ms, best = 0;
	int chosen = -1;
	enum gn_status status = time_first_runs(t, firsts, &quickest, err), last = GN_OK;

	if (status)
		return status;
	for (int i = 0; i < t->candidates->count; i++) {
		if (firsts[i] < 0 || firsts[i] > 2 * quickest + slack_ms)
			continue;
		last = measure(t, i, repeats_for(quickest), &ms, err);
		if (!last && (chosen < 0 || ms < best)) {
			best = ms;
			chosen = i;
		}
	}
	if (chosen < 0)
		return last;
	*out = chosen;
	t->candidates->ms = best / (float)repeats_for(quickest);
	return GN_OK;
}

enum gn_status gn_cuda_autotune(struct gn_cuda_stream *s, struct gn_cuda_candidates *candidates, int *out, struct gn_err *err)
{
	struct timing t = {.stream = s, .candidates = candidates};
	float *firsts = calloc((size_t)candidates->count, sizeof *firsts);
	enum gn_status status = firsts ? GN_OK : gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for %d times", candidates->count);

	if (!status)
		status = gn_event_create_timed(gn_stream_device(gn_cuda_stream_base(s)), &t.from, err);
	if (!status)
		status = gn_event_create_timed(gn_stream_device(gn_cuda_stream_base(s)), &t.to, err);
	if (!status)
		status = choose(&t, firsts, out, err);
	gn_event_destroy(t.from);
	gn_event_destroy(t.to);
	free(firsts);
	return status;
}
