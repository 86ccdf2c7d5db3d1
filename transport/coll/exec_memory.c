/* Steps in memory of a reduce executor: work is queued there, and a step is complete when its mark is reached. */
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
		       ? b->memory->ops->copy(b->memory, to, from, s->len, why)
		       : b->memory->ops->reduce(b->memory, b->type, b->reduction, to, from, s->len / b->element_bytes, why);
}

void gn_exec_queue_work(struct gn_exec *e, uint32_t index, const void *from)
{
	struct gn_exec_work *work = &e->works[e->work_tail];
	struct gn_err why;
	enum gn_status status = queue(e, index, from, &why);

	if (!status)
		status = e->buffers.memory->ops->mark(e->buffers.memory, &work->mark, &why);
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
	status = e->buffers.memory->ops->reached(e->buffers.memory, e->works[e->work_head].mark, &yes, &why);
	if (status)
		fail_alone(e, status, &why);
	if (status || !yes)
		return 0;
	*index = e->works[e->work_head++].index;
	return 1;
}
