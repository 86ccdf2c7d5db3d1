/* Steps in device memory: work is queued in the device's stream, and a step is complete when the mark behind its work is reached. */
#include "transport/coll/coll_device_internal.h"
#include "transport/coll/exec_internal.h"

static void fail_alone(struct gn_exec *e, enum gn_status status, const struct gn_err *why)
{
	e->failed_alone |= !e->status;
	gn_exec_fail(e, status, why);
}

int gn_exec_failed_alone(const struct gn_exec *e)
{
	return e->failed_alone;
}

/* Ignores from_left: the built-in reductions are commutative. */
static enum gn_status queue(struct gn_exec *e, uint32_t index, const void *from, struct gn_err *why)
{
	const struct gn_exec_buffers *b = &e->buffers;
	const struct gn_step_state *s = &e->states[index];
	char *to = (char *)b->out + s->offset;

	return e->steps[index].op == GN_STEP_COPY
		       ? gn_stream_copy(b->device->work, to, from, s->len, why)
		       : b->device->options.reduce(b->device->work, b->type, b->reduction, to, from, s->len / b->element_bytes, why);
}

void gn_exec_queue_work(struct gn_exec *e, uint32_t index, const void *from)
{
	struct gn_exec_work *work = &e->works[e->work_tail];
	struct gn_err why;
	enum gn_status status = queue(e, index, from, &why);

	if (!status)
		status = gn_coll_device_mark(e->buffers.device, &work->mark, &why);
	if (status) {
		fail_alone(e, status, &why);
		return;
	}
	work->index = index;
	e->work_tail++;
}

int gn_exec_take_work(struct gn_exec *e, uint32_t *index)
{
	struct gn_err why;
	enum gn_status status;
	int yes = 0;

	if (e->work_head == e->work_tail || e->status)
		return 0;
	status = gn_coll_device_reached(e->buffers.device, e->works[e->work_head].mark, &yes, &why);
	if (status)
		fail_alone(e, status, &why);
	if (status || !yes)
		return 0;
	*index = e->works[e->work_head++].index;
	return 1;
}

enum gn_status gn_exec_alloc_scratch(struct gn_exec *e, size_t bytes, struct gn_err *err)
{
	enum gn_status status = gn_buffer_alloc(e->buffers.device->options.device, bytes, &e->device_scratch, err);

	e->scratch = e->device_scratch.address;
	return status;
}

void gn_exec_free_scratch(struct gn_exec *e)
{
	/* what was queued may still work on it, or on the caller's buffer */
	(void)gn_stream_wait(e->buffers.device->work, NULL);
	gn_buffer_free(&e->device_scratch);
}
