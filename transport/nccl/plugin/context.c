#include "transport/nccl/plugin/context.h"

#include "transport/nccl/plugin/cm.h"

#include <stdlib.h>

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
