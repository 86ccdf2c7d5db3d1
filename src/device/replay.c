#include "src/device/device_internal.h"

#include <stdio.h>
#include <stdlib.h>

struct gn_replay {
	struct gn_graph *graph; /* NULL: not recorded */
	const struct gn_device_kind *device; /* of graph */
	uint64_t key;		/* of graph */
	size_t nodes;
	int ran;		/* once at least */
	char obstacle[120];
};

struct gn_replay *gn_replay_create(void)
{
	return calloc(1, sizeof(struct gn_replay));
}

static void drop_graph(struct gn_replay *r)
{
	if (r->graph)
		r->device->graph_destroy(r->graph);
	r->graph = NULL;
	r->nodes = 0;
}

void gn_replay_destroy(struct gn_replay *r)
{
	if (!r)
		return;
	drop_graph(r);
	free(r);
}

/* What cannot be recorded is called for good, and the reason is kept. */
static void record(struct gn_replay *r, struct gn_stream *s, enum gn_status (*function)(void *context, struct gn_err *err),
		   void *context)
{
	const struct gn_device_kind *device = s->device->kind;
	struct gn_err err;
	enum gn_status status = device->record_begin(s, &err);

	if (!status) {
		status = function(context, &err);
		if (status)
			/* the stream ends its recording */
			(void)device->record_end(s, NULL, NULL, NULL);
		else
			status = device->record_end(s, &r->graph, &r->nodes, &err);
	}
	r->device = device;
	if (status) {
		drop_graph(r);
		snprintf(r->obstacle, sizeof r->obstacle, "%.100s", err.text);
	}
}

enum gn_status gn_replay_run(struct gn_replay *r, struct gn_stream *s, uint64_t key,
			     enum gn_status (*function)(void *context, struct gn_err *err), void *context, struct gn_err *err)
{
	const struct gn_device_kind *device = s->device->kind;

	if (!device->record_begin || r->obstacle[0] || !r->ran) {
		r->ran = 1;
		return function(context, err);
	}
	if (r->graph && r->key != key)
		drop_graph(r);
	if (!r->graph)
		record(r, s, function, context);
	r->key = key;
	return r->graph ? device->graph_launch(r->graph, s, err) : function(context, err);
}

size_t gn_replay_nodes(const struct gn_replay *r)
{
	return r->nodes;
}

const char *gn_replay_obstacle(const struct gn_replay *r)
{
	return r->obstacle;
}
