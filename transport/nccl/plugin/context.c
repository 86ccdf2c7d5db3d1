#include "transport/nccl/plugin/context.h"

#include "src/base/file.h"
#include "transport/nccl/plugin/abi.h"
#include "transport/nccl/plugin/cm.h"
#include "transport/topology/devices.h"
#include "transport/ucx/ucx_common.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <ucp/api/ucp.h>

struct gn_context {
	struct gn_context *next; /* of all contexts */
	pthread_mutex_t lock;
	struct gn_plugin_log log;
	const struct gn_device_table *devices;
	int traffic_class, destroyed;
	struct gn_worker *workers[GN_RAILS_MAX];
	unsigned users[GN_RAILS_MAX], all_users;
};

/* For gn_contexts_stop_threads(). */
static struct {
	pthread_mutex_t lock;
	struct gn_context *first;
} contexts = {.lock = PTHREAD_MUTEX_INITIALIZER};

enum gn_status gn_context_create(const struct gn_plugin_log *log, const struct gn_device_table *devices, int traffic_class,
				 struct gn_context **out, struct gn_err *err)
{
	struct gn_context *c = calloc(1, sizeof *c);

	if (!c)
		return gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for a communicator");
	pthread_mutex_init(&c->lock, NULL);
	c->log = *log;
	c->devices = devices;
	c->traffic_class = traffic_class;
	pthread_mutex_lock(&contexts.lock);
	c->next = contexts.first;
	contexts.first = c;
	pthread_mutex_unlock(&contexts.lock);
	*out = c;
	return GN_OK;
}

static void destroy_worker(struct gn_worker *w)
{
	if (!w)
		return;
	pthread_mutex_lock(&w->lock);
	gn_cm_destroy(w);
	pthread_mutex_unlock(&w->lock);
	gn_worker_destroy(w);
}

static void remove_from_all(const struct gn_context *c)
{
	struct gn_context **at = &contexts.first;

	pthread_mutex_lock(&contexts.lock);
	while (*at != c)
		at = &(*at)->next;
	*at = c->next;
	pthread_mutex_unlock(&contexts.lock);
}

static void free_context(struct gn_context *c)
{
	remove_from_all(c);
	for (int i = 0; i < GN_RAILS_MAX; i++)
		destroy_worker(c->workers[i]);
	pthread_mutex_destroy(&c->lock);
	free(c);
}

/* Lock held. Destroys listeners and attempts that an aborted init has left, and stops the progress thread, because the library may
 * be unloaded after the context. */
static void release_device(struct gn_context *c, int device)
{
	struct gn_worker *w = c->workers[device];
	unsigned left;

	pthread_mutex_lock(&w->lock);
	left = gn_cm_destroy(w);
	pthread_mutex_unlock(&w->lock);
	gn_progress_thread_stop(w);
	c->users[device] -= left;
	c->all_users -= left;
	if (!c->users[device] && c->all_users) {
		destroy_worker(w);
		c->workers[device] = NULL;
	}
}

void gn_context_destroy(struct gn_context *c)
{
	unsigned users;

	if (!c)
		return;
	pthread_mutex_lock(&c->lock);
	c->destroyed = 1;
	for (int i = 0; i < GN_RAILS_MAX; i++)
		if (c->workers[i])
			release_device(c, i);
	users = c->all_users;
	pthread_mutex_unlock(&c->lock);
	if (!users)
		free_context(c);
}

void gn_contexts_stop_threads(void)
{
	pthread_mutex_lock(&contexts.lock);
	for (struct gn_context *c = contexts.first; c; c = c->next) {
		/* its holder may be the thread that ends the process */
		if (pthread_mutex_trylock(&c->lock))
			continue;
		for (int i = 0; i < GN_RAILS_MAX; i++)
			if (c->workers[i])
				gn_progress_thread_stop(c->workers[i]);
		pthread_mutex_unlock(&c->lock);
	}
	pthread_mutex_unlock(&contexts.lock);
}

const struct gn_plugin_log *gn_context_log(const struct gn_context *c)
{
	return &c->log;
}

enum gn_status gn_context_get_worker(struct gn_context *c, int device, struct gn_worker **out, struct gn_err *err)
{
	enum gn_status status = GN_OK;

	if (device < 0 || device >= c->devices->count)
		return gn_err_set(err, GN_ERR_USAGE, "no device %d: there are 0 to %d", device, c->devices->count - 1);
	pthread_mutex_lock(&c->lock);
	if (!c->workers[device])
		status = gn_worker_create(&c->log, c->devices->items[device].ucx_name, c->traffic_class, &gn_conn_callbacks,
					  &c->workers[device], err);
	if (!status) {
		c->users[device]++;
		c->all_users++;
		*out = c->workers[device];
	}
	pthread_mutex_unlock(&c->lock);
	return status;
}

void gn_context_ref_worker(struct gn_context *c, struct gn_worker *w)
{
	pthread_mutex_lock(&c->lock);
	for (int i = 0; i < GN_RAILS_MAX; i++)
		c->users[i] += c->workers[i] == w;
	c->all_users++;
	pthread_mutex_unlock(&c->lock);
}

void gn_context_put_worker(struct gn_context *c, struct gn_worker *w)
{
	struct gn_worker *unused = NULL;
	int last;

	pthread_mutex_lock(&c->lock);
	for (int i = 0; i < GN_RAILS_MAX; i++)
		if (c->workers[i] == w && !--c->users[i]) {
			unused = w;
			c->workers[i] = NULL;
		}
	last = !--c->all_users && c->destroyed;
	pthread_mutex_unlock(&c->lock);
	destroy_worker(unused);
	if (last)
		free_context(c);
}

/* The speed that NCCL's socket transport reports for devices of unknown speed. */
#define UNKNOWN_MBIT_PER_S 10000

/* Parses the GUID in sysfs, "0c42:a103:0065:b2f4"; 0 when there is none. */
static uint64_t read_guid(const char *rdma_device)
{
	char path[PATH_MAX], text[64];
	uint64_t guid = 0;
	ssize_t n;

	snprintf(path, sizeof path, "/sys/class/infiniband/%s/node_guid", rdma_device);
	n = gn_file_read_start(path, text, sizeof text);
	for (ssize_t i = 0; i < n; i++) {
		const char *digit = strchr("0123456789abcdef", text[i]);

		if (digit && text[i])
			guid = guid << 4 | (uint64_t)(digit - "0123456789abcdef");
	}
	return guid;
}

/* The name of a rail is "eth0" or "mlx5_0:1". */
static void describe(struct gn_device *d, const struct gn_rail_device *rail, const struct gn_devices *devices, int index)
{
	char base[GN_RAIL_NAME_MAX], path[PATH_MAX];
	const char *colon = strchr(rail->name, ':');
	int rdma = colon && !strchr(rail->network, '/');

	snprintf(base, sizeof base, "%.*s", rdma ? (int)(colon - rail->name) : (int)strlen(rail->name), rail->name);
	snprintf(d->name, sizeof d->name, "%s", rail->name);
	snprintf(d->ucx_name, sizeof d->ucx_name, "%s", rail->name);
	snprintf(path, sizeof path, "/sys/class/%s/%s/device", rdma ? "infiniband" : "net", base);
	d->pci_path = realpath(path, NULL);
	d->port = rdma ? atoi(colon + 1) : 0;
	d->guid = rdma ? read_guid(base) : 0;
	if (!d->guid)
		d->guid = (uint64_t)index;
	for (int i = 0; i < devices->count; i++)
		if (!strcmp(devices->items[i].name, base) && devices->items[i].gbit_per_s > 0)
			d->mbit_per_s = (int)(devices->items[i].gbit_per_s * 1000);
}

static enum gn_status find(struct gn_device_table *t, struct gn_err *err)
{
	struct gn_devices devices = {0};
	struct gn_rails rails = {0};
	enum gn_status status = gn_rails_find("/sys", gn_ucx_tls_rail_kinds(getenv("UCX_TLS")), getenv("UCX_NET_DEVICES"), &rails, err);

	if (!status)
		status = gn_devices_read("/sys", &devices, err);
	for (int i = 0; i < rails.count && !status; i++) {
		t->items[i].mbit_per_s = UNKNOWN_MBIT_PER_S;
		describe(&t->items[i], &rails.items[i], &devices, i);
	}
	t->count = rails.count;
	if (!status && !t->count) {
		snprintf(t->items[0].name, sizeof t->items[0].name, "ucx");
		t->items[0].mbit_per_s = UNKNOWN_MBIT_PER_S;
		t->count = 1;
	}
	gn_devices_release(&devices);
	return status;
}

static enum gn_status query_ucx(struct gn_device_table *t, struct gn_err *err)
{
	ucp_params_t params = {.field_mask = UCP_PARAM_FIELD_FEATURES, .features = UCP_FEATURE_TAG | UCP_FEATURE_AM};
	ucp_context_attr_t attr = {.field_mask = UCP_ATTR_FIELD_MEMORY_TYPES};
	ucp_context_h context;
	ucp_config_t *config;
	ucs_status_t rc = ucp_config_read(NULL, NULL, &config);

	if (rc == UCS_OK) {
		rc = ucp_init(&params, config, &context);
		ucp_config_release(config);
	}
	if (rc != UCS_OK)
		return gn_err_set(err, GN_ERR_FAILED, "UCX cannot be used here: %s", ucs_status_string(rc));
	t->pointers = GN_NCCL_PTR_HOST;
	if (ucp_context_query(context, &attr) == UCS_OK && (attr.memory_types & UCS_BIT(UCS_MEMORY_TYPE_CUDA)))
		t->pointers |= GN_NCCL_PTR_CUDA;
	ucp_cleanup(context);
	return GN_OK;
}

enum gn_status gn_device_table_read(struct gn_device_table *out, struct gn_err *err)
{
	struct gn_device_table t = {0};
	enum gn_status status = query_ucx(&t, err);

	if (!status)
		status = find(&t, err);
	if (status)
		gn_device_table_release(&t);
	else
		*out = t;
	return status;
}

void gn_device_table_release(struct gn_device_table *t)
{
	for (int i = 0; i < t->count; i++)
		free(t->items[i].pci_path);
	*t = (struct gn_device_table){0};
}
