#include "transport/coll/coll_device_internal.h"

#include "src/base/clock.h"
#include "transport/coll/agree.h"
#include "transport/coll/comm_internal.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Sizes of small and large gradient buckets; each is reduced WARM_UPS + TIMED times. */
static const size_t sizes[] = {64u << 10, 1u << 20, 16u << 20};
#define SIZES (sizeof sizes / sizeof *sizes)
#define WARM_UPS 2
#define TIMED 5

/* --- marks --- */

enum gn_status gn_coll_device_mark(struct gn_coll_device *d, uint64_t *mark, struct gn_err *err)
{
	struct gn_event **event = &d->marks[d->marked % GN_DEVICE_MARKS];
	enum gn_status status = *event ? GN_OK : gn_event_create(d->options.device, event, err);

	*mark = d->marked++;
	return status ? status : gn_event_record(*event, d->work, err);
}

enum gn_status gn_coll_device_reached(const struct gn_coll_device *d, uint64_t mark, int *yes, struct gn_err *err)
{
	return gn_event_done(d->marks[mark % GN_DEVICE_MARKS], yes, err);
}

/* --- selection by measurement --- */

static const char *name_of(const struct gn_comm *c, const struct gn_coll_ops *ops)
{
	return ops == &gn_coll_by_library ? c->device->library->ops->name : ops->name;
}

static enum gn_status time_once(struct gn_coll *coll, double *seconds, struct gn_err *err)
{
	uint64_t began;
	enum gn_status status = gn_comm_barrier(coll->comm, err);

	began = gn_clock_ns();
	if (!status)
		status = gn_coll_start(coll, NULL, err);
	if (!status)
		status = gn_coll_wait(coll, err);
	*seconds = (double)(gn_clock_ns() - began) * 1e-9;
	return status;
}

/* Collective: the slowest rank's minimum over TIMED runs. */
static enum gn_status measure(struct gn_comm *comm, const struct gn_buffer *b, size_t bytes, double *seconds, struct gn_err *err)
{
	struct gn_coll_args args = {.what = GN_COLLECTIVE_ALLREDUCE, .out = b->address, .count = bytes / sizeof(float), .type = GN_F32,
				    .memory = GN_MEMORY_DEVICE};
	struct gn_coll *coll;
	double best = INFINITY, now;
	enum gn_status status = gn_coll_prepare(comm, &args, &coll, err);

	if (status)
		return status;
	for (int i = 0; i < WARM_UPS + TIMED && !status; i++) {
		status = time_once(coll, &now, err);
		if (i >= WARM_UPS && now < best)
			best = now;
	}
	gn_coll_free(coll);
	if (!status)
		status = gn_comm_allreduce(comm, &best, 1, GN_F64, gn_reduce_max(GN_F64), err);
	if (!status)
		*seconds = best;
	return status;
}

static void log_times(struct gn_comm *comm, const struct gn_coll_ops *const *all, double seconds[][SIZES], int best, struct gn_log *log)
{
	struct gn_strbuf text = {0};

	for (int c = 0; c < 2; c++) {
		gn_strbuf_printf(&text, "%s%s", c ? "; " : "", name_of(comm, all[c]));
		for (size_t i = 0; i < SIZES; i++)
			gn_strbuf_printf(&text, "%s %zu KiB in %.3f ms", i ? "," : "", sizes[i] >> 10, 1e3 * seconds[c][i]);
	}
	gn_log_info(log, "allreduce of GPU memory by %s, the fastest of: %s", name_of(comm, all[best]), gn_strbuf_text(&text));
	gn_strbuf_release(&text);
}

/* Collective. Selects the faster of two, by the geometric mean over the sizes of the slowest rank's time: the same on all ranks. */
static enum gn_status choose(struct gn_comm *comm, const struct gn_coll_ops *const *all, struct gn_log *log, struct gn_err *err)
{
	struct gn_coll_device *d = comm->device;
	struct gn_buffer buffer = {0};
	double seconds[2][SIZES], logs[2] = {0, 0};
	enum gn_status status = gn_agree_status(comm, gn_buffer_alloc(d->options.device, sizes[SIZES - 1], &buffer, err), err);

	for (int c = 0; c < 2 && !status; c++) {
		d->selected = all[c];
		for (size_t i = 0; i < SIZES && !status; i++) {
			status = measure(comm, &buffer, sizes[i], &seconds[c][i], err);
			logs[c] += status ? 0 : log10(seconds[c][i]);
		}
	}
	gn_buffer_free(&buffer);
	if (status)
		return status;
	d->selected = all[logs[1] < logs[0]];
	if (gn_comm_rank(comm) == 0)
		log_times(comm, all, seconds, logs[1] < logs[0], log);
	return GN_OK;
}

/* --- attach --- */

static enum gn_status use_ucx(struct gn_comm *c, const struct gn_coll_ops **out, struct gn_err *err)
{
	struct gn_coll_device *d = c->device;
	int direct = !strcmp(d->options.how, "direct");
	enum gn_status status = GN_OK;

	if (!direct && strcmp(d->options.how, "staged") && d->options.reduce)
		status = gn_comm_takes_gpu_memory(c, &direct, err);
	*out = direct ? &gn_coll_direct : &gn_coll_staged;
	if (status || direct)
		return status;
	return gn_agree_status(c, gn_stager_create(c, &d->options, &d->stager, err), err);
}

/* Errors that mean that the library is not available; all ranks have agreed on them. */
static int is_unavailable(enum gn_status status)
{
	return status == GN_ERR_NOT_FOUND || status == GN_ERR_UNSUPPORTED || status == GN_ERR_MISMATCH;
}

static enum gn_status use_library(struct gn_comm *c, struct gn_err *err)
{
	struct gn_coll_device *d = c->device;

	if (gn_world_encrypts(c->world))
		return gn_err_set(err, GN_ERR_UNSUPPORTED, "--encrypt-network: NCCL sends GPU memory as it is: use --comm ucx, which goes through the "
				  "host's memory");
	if (!d->options.library)
		return gn_err_set(err, GN_ERR_UNSUPPORTED, "--comm nccl: this build has no NCCL (configure --with-cuda=DIR)");
	return d->options.library(c, d->options.device, &d->library, err);
}

static enum gn_status use_best(struct gn_comm *c, struct gn_log *log, struct gn_err *err)
{
	const struct gn_coll_ops *both[2] = {&gn_coll_by_library, NULL};
	struct gn_coll_device *d = c->device;
	struct gn_err why;
	enum gn_status library = use_library(c, &why), status;

	if (library && !is_unavailable(library)) {
		if (err)
			*err = why;
		return library;
	}
	if (library && d->options.library && gn_comm_rank(c) == 0)
		gn_log_info(log, "GPU memory is reduced by ucx: %s", why.text);
	status = use_ucx(c, &both[1], err);
	d->selected = both[1];
	if (status || library)
		return status;
	status = choose(c, both, log, err);
	if (status)
		return status;
	if (d->selected == &gn_coll_by_library) {
		gn_stager_destroy(d->stager);
		d->stager = NULL;
	} else {
		d->library->ops->destroy(d->library);
		d->library = NULL;
	}
	return GN_OK;
}

static enum gn_status select_backend(struct gn_comm *c, struct gn_log *log, struct gn_err *err)
{
	const char *how = c->device->options.how;

	if (!strcmp(how, "auto"))
		return use_best(c, log, err);
	c->device->selected = &gn_coll_by_library;
	return strcmp(how, "nccl") ? use_ucx(c, &c->device->selected, err) : use_library(c, err);
}

enum gn_status gn_comm_attach(struct gn_comm *c, const struct gn_comm_device *options, struct gn_log *log, struct gn_err *err)
{
	struct gn_strbuf text = {0};
	enum gn_status status;

	gn_comm_detach(c);
	c->device = calloc(1, sizeof *c->device);
	if (c->device)
		c->device->options = *options;
	status = c->device ? gn_stream_create(options->device, &c->device->gate, err)
			   : gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for collectives on a device");
	if (!status)
		status = gn_stream_create(options->device, &c->device->work, err);
	status = gn_agree_status(c, status, err);
	if (!status)
		status = select_backend(c, log, err);
	if (status) {
		gn_comm_detach(c);
		return status;
	}
	gn_comm_device_describe(c, &text);
	if (gn_comm_rank(c) == 0)
		gn_log_info(log, "GPU memory: %s", gn_strbuf_text(&text));
	gn_strbuf_release(&text);
	return GN_OK;
}

void gn_comm_detach(struct gn_comm *c)
{
	struct gn_coll_device *d = c->device;

	if (!d)
		return;
	if (d->library)
		d->library->ops->destroy(d->library);
	gn_stager_destroy(d->stager);
	gn_stream_destroy(d->work);
	gn_stream_destroy(d->gate);
	for (int i = 0; i < GN_DEVICE_MARKS; i++)
		gn_event_destroy(d->marks[i]);
	free(d);
	c->device = NULL;
}

const char *gn_comm_device_backend(const struct gn_comm *c)
{
	return name_of(c, c->device->selected);
}

void gn_comm_device_describe(const struct gn_comm *c, struct gn_strbuf *out)
{
	const struct gn_coll_device *d = c->device;

	if (d->selected == &gn_coll_by_library) {
		d->library->ops->describe(d->library, out);
		return;
	}
	gn_strbuf_puts(out, "ucx, ");
	if (d->stager)
		gn_stager_describe(d->stager, out);
	else
		gn_strbuf_puts(out, "messages in GPU memory");
}

/* --- names --- */

enum gn_status gn_coll_backend_check(const char *how, const char *device, int built_in, struct gn_err *err)
{
	if (strcmp(how, "nccl"))
		return GN_OK;
	if (strcmp(device, "cuda"))
		return gn_err_set(err, GN_ERR_USAGE,
				  "--comm nccl: NCCL requires GPU memory, but --device %s uses host memory: use --comm ucx or auto%s",
				  device, built_in ? ", or --device cuda" : "");
	if (!built_in)
		return gn_err_set(err, GN_ERR_UNSUPPORTED,
				  "--comm nccl: this build has no CUDA and no NCCL (configure --with-cuda=DIR): use --comm ucx "
				  "or auto");
	return GN_OK;
}
