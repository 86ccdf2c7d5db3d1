/* Loads cuDNN and creates its handles; errors and passes by name. */
#include "kernels/cuda/dnn_internal.h"
#include "src/base/dynlib.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char *const pass_names[GN_DNN_PASSES] = {
	"forward",		"backward data",	      "backward weight",	"forward with bias",
	"forward, bias, relu",	"forward, bias, sum, relu",   "forward with statistics", "norm, relu, forward",
	"norm, relu, forward, statistics", "norm, relu, backward weight", "backward data, relu, norm",
};

const char *gn_dnn_pass_name(enum gn_dnn_pass pass)
{
	return pass_names[pass];
}

/* CUDNN_STATUS_NOT_SUPPORTED becomes GN_ERR_UNSUPPORTED, allocation failures GN_ERR_NO_MEMORY. */
static enum gn_status status_of(cudnnStatus_t code)
{
	if (code / 1000 == 3)
		return GN_ERR_UNSUPPORTED;
	if (code == CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED ||
	    code == CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED)
		return GN_ERR_NO_MEMORY;
	return GN_ERR_FAILED;
}

enum gn_status gn_dnn_check(const struct gn_dnn *d, cudnnStatus_t code, const char *call, const struct gn_dnn_conv *c,
			    enum gn_dnn_pass pass, struct gn_err *err)
{
	char where[32] = "a device for planning only", shape[160] = "", detail[400] = "";

	if (code == CUDNN_STATUS_SUCCESS)
		return GN_OK;
	d->api.cudnnGetLastErrorString(detail, sizeof detail);
	/* the first line is the reason, the rest is the call path */
	detail[strcspn(detail, "\n")] = 0;
	if (d->stream)
		snprintf(where, sizeof where, "cuda:%d", d->stream->device->info.ordinal);
	if (c)
		snprintf(shape, sizeof shape, " (convolution %s, %s, %dx%dx%dx%d to %d channels, window %d, stride %d, padding %d)",
			 gn_dnn_pass_name(pass), gn_cuda_type_name(c->type), c->n, c->c, c->h, c->w, c->out_c, c->kernel,
			 c->stride, c->pad);
	return gn_err_set(err, status_of(code), "%s: %s: %s%s%s%s", where, call, d->api.cudnnGetErrorString(code),
			  detail[0] ? ", " : "", detail, shape);
}

static enum gn_status load_all(struct gn_dnn *d, struct gn_err *err)
{
	const char *missing = NULL;
	char why[256];

	d->library = gn_dynlib_open("libcudnn.so.9", GN_CUDA_FOLDER, why, sizeof why);
	if (!d->library)
		return gn_err_set(err, GN_ERR_NOT_FOUND, "cuDNN 9 not found: %s; install it, or name its folder in "
				  "LD_LIBRARY_PATH", why);
#define X(name) missing = gn_dynlib_find(d->library, #name, &d->api.name) ? missing : #name;
	GN_CUDNN_FUNCTIONS(X)
#undef X
	if (missing)
		return gn_err_set(err, GN_ERR_UNSUPPORTED, "this cuDNN has no %s: version 9 is needed", missing);
	if (d->api.cudnnGetVersion() / 10000 != CUDNN_MAJOR)
		return gn_err_set(err, GN_ERR_UNSUPPORTED, "this is cuDNN %zu, and the build is for version %d",
				  d->api.cudnnGetVersion(), CUDNN_MAJOR);
	return GN_OK;
}

static enum gn_status open_dnn(const struct gn_dnn_options *options, struct gn_dnn **out, struct gn_err *err)
{
	struct gn_dnn *d = calloc(1, sizeof *d);
	enum gn_status status;

	if (!d)
		return gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for cuDNN");
	d->options = *options;
	d->options.folder = NULL; /* belongs to the caller */
	d->folder = options->folder ? gn_dnn_store_open(options->folder) : -1;
	status = load_all(d, err);
	if (status)
		gn_dnn_destroy(d);
	else
		*out = d;
	return status;
}

enum gn_status gn_dnn_create(struct gn_cuda_stream *s, const struct gn_dnn_options *options, struct gn_dnn **out,
			     struct gn_err *err)
{
	const struct gn_cuda_info *info;
	char device[400];
	struct gn_dnn *d;
	enum gn_status status = gn_cuda_enter(s->device, err);

	if (status || (status = open_dnn(options, &d, err)))
		return status;
	d->stream = s;
	info = gn_cuda_device_info(s->device);
	snprintf(device, sizeof device, "%s, %d.%d, %d processors, %zu bytes", info->name, info->major, info->minor, info->multiprocessors,
		 info->memory_bytes);
	gn_dnn_store_identify(d, device);
	status = gn_dnn_check(d, d->api.cudnnCreate(&d->handle), "cudnnCreate", NULL, GN_DNN_FORWARD, err);
	if (!status)
		status = gn_dnn_check(d, d->api.cudnnSetStream(d->handle, s->native), "cudnnSetStream", NULL, GN_DNN_FORWARD,
				      err);
	if (status)
		gn_dnn_destroy(d);
	else
		*out = d;
	return status;
}

enum gn_status gn_dnn_create_planner(const char *device_json, const struct gn_dnn_options *options, struct gn_dnn **out,
				     struct gn_err *err)
{
	struct gn_dnn *d;
	cudnnStatus_t code;
	enum gn_status status = open_dnn(options, &d, err);

	if (status)
		return status;
	gn_dnn_store_identify(d, device_json);
	code = d->api.cudnnBackendCreateDescriptor(CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR, &d->device);
	if (!code)
		code = d->api.cudnnBackendSetAttribute(d->device, CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION, CUDNN_TYPE_CHAR,
						       (int64_t)strlen(device_json) + 1, device_json);
	if (!code)
		code = d->api.cudnnBackendFinalize(d->device);
	status = gn_dnn_check(d, code, "cudnnBackendFinalize of a device's properties", NULL, GN_DNN_FORWARD, err);
	if (status)
		gn_dnn_destroy(d);
	else
		*out = d;
	return status;
}

static void destroy_first(struct gn_dnn *d)
{
	struct gn_dnn_plan *p = d->plans;

	d->plans = p->next;
	for (int i = 0; i < p->count; i++)
		(void)d->api.cudnnBackendDestroyDescriptor(p->plans[i]);
	free(p);
}

/* Continues after failures. */
void gn_dnn_destroy(struct gn_dnn *d)
{
	if (!d)
		return;
	while (d->plans)
		destroy_first(d);
	if (d->device)
		(void)d->api.cudnnBackendDestroyDescriptor(d->device);
	for (int i = 0; i < GN_DNN_HELPERS_MAX; i++)
		if (d->helpers[i] && !gn_cuda_enter(d->stream->device, NULL))
			(void)d->api.cudnnDestroy(d->helpers[i]);
	if (d->handle && !gn_cuda_enter(d->stream->device, NULL))
		(void)d->api.cudnnDestroy(d->handle);
	if (d->folder >= 0)
		close(d->folder);
	/* the library stays loaded: it has threads and memory that do not survive dlclose() */
	free(d);
}

cudnnBackendDescriptor_t gn_dnn_make(struct gn_dnn_graph *g, cudnnBackendDescriptorType_t kind, const char *what)
{
	cudnnBackendDescriptor_t d = NULL;

	if (!g->status && g->count == GN_DNN_PIECES_MAX)
		g->status = gn_err_set(g->err, GN_ERR_FAILED, "a graph of more than %d descriptors", GN_DNN_PIECES_MAX);
	if (g->status)
		return NULL;
	g->status = gn_dnn_check(g->dnn, g->dnn->api.cudnnBackendCreateDescriptor(kind, &d), what, g->conv, g->pass, g->err);
	if (g->status)
		return NULL;
	g->pieces[g->count++] = d;
	return d;
}

void gn_dnn_set(struct gn_dnn_graph *g, cudnnBackendDescriptor_t d, cudnnBackendAttributeName_t name,
		cudnnBackendAttributeType_t type, int64_t count, const void *value)
{
	char what[64];

	if (g->status)
		return;
	snprintf(what, sizeof what, "cudnnBackendSetAttribute of attribute %d", (int)name);
	g->status = gn_dnn_check(g->dnn, g->dnn->api.cudnnBackendSetAttribute(d, name, type, count, value), what, g->conv,
				 g->pass, g->err);
}

void gn_dnn_finalize(struct gn_dnn_graph *g, cudnnBackendDescriptor_t d, const char *what)
{
	if (!g->status)
		g->status = gn_dnn_check(g->dnn, g->dnn->api.cudnnBackendFinalize(d), what, g->conv, g->pass, g->err);
}

void gn_dnn_graph_release(struct gn_dnn_graph *g)
{
	while (g->count > 0)
		(void)g->dnn->api.cudnnBackendDestroyDescriptor(g->pieces[--g->count]);
}
