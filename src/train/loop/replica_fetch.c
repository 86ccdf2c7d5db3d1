/* A run's state from the device to the host's copies and back; for checkpoints on a stream of its own, beside the next step. */
#include "src/train/loop/replica.h"

/* All that changes in an update. Returns how many. */
static int updated(const struct gn_replica *r, const struct gn_array *arrays[3 + GN_OPTIM_SLOTS_MAX])
{
	int count = 0;

	arrays[count++] = &r->params;
	arrays[count++] = &r->ema.params;
	arrays[count++] = &r->ema.buffers;
	for (int k = 0; k < gn_optim_slots(gn_optimizer_kind(r->optimizer)); k++)
		arrays[count++] = gn_optimizer_slot(r->optimizer, k);
	return count;
}

/* All that a run's state is made of, by move: what an update changes on stream, batch norm's buffers on the compute stream. */
static enum gn_status move_all(const struct gn_replica *r, struct gn_stream *stream,
			       enum gn_status (*move)(const struct gn_array *a, struct gn_stream *s, struct gn_err *err), struct gn_err *err)
{
	const struct gn_array *arrays[3 + GN_OPTIM_SLOTS_MAX];
	int count = updated(r, arrays);
	enum gn_status status = r->buffers.count ? move(&r->buffers, r->device.stream, err) : GN_OK;

	for (int i = 0; i < count && !status; i++)
		if (arrays[i]->count)
			status = move(arrays[i], stream, err);
	return status;
}

enum gn_status gn_replica_fetch(struct gn_replica *r, struct gn_err *err)
{
	enum gn_status status = r->reducer ? gn_reducer_need_all(r->reducer, err) : GN_OK;

	if (!status)
		status = move_all(r, r->device.stream, gn_array_fetch, err);
	return status ? status : gn_stream_wait(r->device.stream, err);
}

enum gn_status gn_replica_send(struct gn_replica *r, struct gn_err *err)
{
	enum gn_status status = move_all(r, r->device.stream, gn_array_send, err);

	return status ? status : gn_stream_wait(r->device.stream, err);
}

/* --- beside the next step --- */

int gn_replica_fetches_beside(const struct gn_replica *r)
{
	const struct gn_replica_options *o = &r->options;

	return gn_device_is_queued(r->device.device) && !r->shard && !r->compressor && !o->servers && !o->pipe && !o->tensor && o->local.every <= 1;
}

static enum gn_status open(struct gn_replica *r, struct gn_err *err)
{
	struct gn_replica_fetch *f = &r->fetch;
	enum gn_status status = f->stream ? GN_OK : gn_stream_create(r->device.device, &f->stream, err);

	if (!status && !f->begun)
		status = gn_event_create(r->device.device, &f->begun, err);
	if (!status && !f->done)
		status = gn_event_create(r->device.device, &f->done, err);
	return status;
}

enum gn_status gn_replica_fetch_begin(struct gn_replica *r, struct gn_err *err)
{
	struct gn_replica_fetch *f = &r->fetch;
	enum gn_status status = open(r, err);

	/* after the last update */
	if (!status)
		status = gn_event_record(f->begun, r->device.stream, err);
	if (!status)
		status = gn_stream_after(f->stream, f->begun, err);
	if (!status)
		status = move_all(r, f->stream, gn_array_fetch, err);
	/* the buffers, too, which the next forward changes: their copy is before it */
	if (!status)
		status = gn_event_record(f->begun, r->device.stream, err);
	if (!status)
		status = gn_stream_after(f->stream, f->begun, err);
	if (!status)
		status = gn_event_record(f->done, f->stream, err);
	f->is_open = !status;
	return status;
}

enum gn_status gn_replica_fetch_guard(struct gn_replica *r, struct gn_err *err)
{
	return r->fetch.is_open ? gn_stream_after(r->device.stream, r->fetch.done, err) : GN_OK;
}

enum gn_status gn_replica_fetch_end(struct gn_replica *r, struct gn_err *err)
{
	r->fetch.is_open = 0;
	return gn_event_wait(r->fetch.done, err);
}

void gn_replica_fetch_close(struct gn_replica *r)
{
	gn_stream_destroy(r->fetch.stream);
	gn_event_destroy(r->fetch.begun);
	gn_event_destroy(r->fetch.done);
	r->fetch = (struct gn_replica_fetch){0};
}
