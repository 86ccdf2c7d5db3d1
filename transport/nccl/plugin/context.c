#include "transport/nccl/plugin/context.h"

#include "transport/nccl/plugin/cm.h"

#include <stdlib.h>

struct gn_context {
	struct gn_context *next; /* among all */
	pthread_mutex_t lock;
	struct gn_plugin_log report;
	const struct gn_device_table *devices;
	int traffic_class, destroyed;
	struct gn_worker *engines[GN_RAILS_MAX];
	unsigned users[GN_RAILS_MAX], all_users;
};

/* See gn_contexts_rest(). */
static struct {
	pthread_mutex_t lock;
	struct gn_context *first;
} all = {.lock = PTHREAD_MUTEX_INITIALIZER};

enum gn_status gn_context_create(const struct gn_plugin_log *report, const struct gn_device_table *devices, int traffic_class,
				 struct gn_context **out, struct gn_err *err)
{
	struct gn_context *c = calloc(1, sizeof *c);

	if (!c)
		return gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for a communicator");
	pthread_mutex_init(&c->lock, NULL);
	c->report = *report;
	c->devices = devices;
	c->traffic_class = traffic_class;
	pthread_mutex_lock(&all.lock);
	c->next = all.first;
	all.first = c;
	pthread_mutex_unlock(&all.lock);
	*out = c;
	return GN_OK;
}

static void end_engine(struct gn_worker *e)
{
	if (!e)
		return;
	pthread_mutex_lock(&e->lock);
	gn_cm_destroy(e);
	pthread_mutex_unlock(&e->lock);
	gn_worker_destroy(e);
}

static void remove_from_all(const struct gn_context *c)
{
	struct gn_context **at = &all.first;

	pthread_mutex_lock(&all.lock);
	while (*at != c)
		at = &(*at)->next;
	*at = c->next;
	pthread_mutex_unlock(&all.lock);
}

static void free_context(struct gn_context *c)
{
	remove_from_all(c);
	for (int i = 0; i < GN_RAILS_MAX; i++)
		end_engine(c->engines[i]);
	pthread_mutex_destroy(&c->lock);
	free(c);
}

/* Lock held. An init that was aborted leaves listeners that nobody closes; and no thread stays behind the end of its context,
 * since the library may go then. */
static void abandon(struct gn_context *c, int device)
{
	struct gn_worker *e = c->engines[device];
	unsigned left;

	pthread_mutex_lock(&e->lock);
	left = gn_cm_destroy(e);
	pthread_mutex_unlock(&e->lock);
	gn_progress_thread_stop(e);
	c->users[device] -= left;
	c->all_users -= left;
	if (!c->users[device] && c->all_users) {
		end_engine(e);
		c->engines[device] = NULL;
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
		if (c->engines[i])
			abandon(c, i);
	users = c->all_users;
	pthread_mutex_unlock(&c->lock);
	if (!users)
		free_context(c);
}

void gn_contexts_rest(void)
{
	pthread_mutex_lock(&all.lock);
	for (struct gn_context *c = all.first; c; c = c->next) {
		/* who holds it may be the one that ends the process */
		if (pthread_mutex_trylock(&c->lock))
			continue;
		for (int i = 0; i < GN_RAILS_MAX; i++)
			if (c->engines[i])
				gn_progress_thread_stop(c->engines[i]);
		pthread_mutex_unlock(&c->lock);
	}
	pthread_mutex_unlock(&all.lock);
}

const struct gn_plugin_log *gn_context_report(const struct gn_context *c)
{
	return &c->report;
}

enum gn_status gn_context_enter(struct gn_context *c, int device, struct gn_worker **out, struct gn_err *err)
{
	enum gn_status status = GN_OK;

	if (device < 0 || device >= c->devices->count)
		return gn_err_set(err, GN_ERR_USAGE, "there is no device %d: 0 to %d", device, c->devices->count - 1);
	pthread_mutex_lock(&c->lock);
	if (!c->engines[device])
		status = gn_worker_create(&c->report, c->devices->items[device].ucx_name, c->traffic_class, &gn_conn_callbacks,
					  &c->engines[device], err);
	if (!status) {
		c->users[device]++;
		c->all_users++;
		*out = c->engines[device];
	}
	pthread_mutex_unlock(&c->lock);
	return status;
}

void gn_context_stay(struct gn_context *c, struct gn_worker *e)
{
	pthread_mutex_lock(&c->lock);
	for (int i = 0; i < GN_RAILS_MAX; i++)
		c->users[i] += c->engines[i] == e;
	c->all_users++;
	pthread_mutex_unlock(&c->lock);
}

void gn_context_leave(struct gn_context *c, struct gn_worker *e)
{
	struct gn_worker *over = NULL;
	int last;

	pthread_mutex_lock(&c->lock);
	for (int i = 0; i < GN_RAILS_MAX; i++)
		if (c->engines[i] == e && !--c->users[i]) {
			over = e;
			c->engines[i] = NULL;
		}
	last = !--c->all_users && c->destroyed;
	pthread_mutex_unlock(&c->lock);
	end_engine(over);
	if (last)
		free_context(c);
}
