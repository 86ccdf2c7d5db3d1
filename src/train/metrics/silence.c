#include "src/train/metrics/silence.h"

#include "src/base/clock.h"
#include "src/base/file.h"
#include "src/base/json.h"
#include "src/base/thread.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

struct gn_silence {
	char *path;
	const struct gn_world *world;
	pthread_t thread;
	pthread_mutex_t lock; /* guards what follows */
	pthread_cond_t changed;
	int stop, listed;     /* listed: how many silent ranks the file has */
	char *object;	      /* as it was written last; NULL: nothing yet */
};

/* Writes the silent ranks into the open object and returns their number. */
static int put_silent(const struct gn_world *w, struct gn_json *j)
{
	double now = gn_clock_unix_s();
	int count = 0;

	gn_json_array(j, "silent");
	for (int r = 1; r < gn_world_size(w); r++) {
		uint64_t heard = gn_world_heard_ns(w, r), now_ns = gn_clock_ns();
		double age = heard && heard < now_ns ? (double)(now_ns - heard) / 1e9 : 0;

		if (age < GN_SILENCE_S || count++ >= GN_SILENCE_LISTED)
			continue;
		gn_json_object(j, NULL);
		gn_json_int(j, "rank", r);
		gn_json_string(j, "host", gn_world_host_of(w, r));
		gn_json_fixed(j, "since", now - age, 1);
		gn_json_end(j);
	}
	gn_json_end(j);
	gn_json_int(j, "silent_count", count);
	return count;
}

/* Under the lock. always: also when no rank is silent and none was. */
static enum gn_status write_file(struct gn_silence *s, int always, struct gn_err *err)
{
	enum gn_status status = GN_OK;
	struct gn_strbuf text = {0};
	struct gn_json j;
	int count;

	gn_json_init(&j);
	gn_json_object(&j, NULL);
	count = put_silent(s->world, &j);
	gn_json_end(&j);
	if (s->object && (always || count || s->listed)) {
		/* both objects as one: without the end of the first and the beginning of the second */
		gn_strbuf_append(&text, s->object, strlen(s->object) - 1);
		gn_strbuf_printf(&text, ", %s\n", gn_json_text(&j) + 1);
		text.failed |= gn_json_failed(&j);
		status = gn_file_replace_text(s->path, &text, GN_REPLACE_UNSYNCED, err);
		s->listed = count;
	}
	gn_strbuf_release(&text);
	gn_json_release(&j);
	return status;
}

static void *silence_thread(void *argument)
{
	struct gn_silence *s = argument;
	struct timespec until;

	pthread_setname_np(pthread_self(), "gannet-silence");
	clock_gettime(CLOCK_MONOTONIC, &until);
	pthread_mutex_lock(&s->lock);
	while (!s->stop) {
		until.tv_sec++;
		while (!s->stop && !pthread_cond_timedwait(&s->changed, &s->lock, &until))
			;
		/* a failure is warned of when training writes */
		if (!s->stop)
			write_file(s, 0, NULL);
	}
	pthread_mutex_unlock(&s->lock);
	return NULL;
}

enum gn_status gn_silence_create(const char *path, const struct gn_world *world, struct gn_silence **out, struct gn_err *err)
{
	struct gn_silence *s = calloc(1, sizeof *s);
	pthread_condattr_t monotonic;
	int failure;

	if (!s || !(s->path = strdup(path))) {
		free(s);
		return gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for the silent ranks");
	}
	s->world = world;
	pthread_mutex_init(&s->lock, NULL);
	pthread_condattr_init(&monotonic);
	pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
	pthread_cond_init(&s->changed, &monotonic);
	pthread_condattr_destroy(&monotonic);
	failure = gn_thread_start(&s->thread, silence_thread, s);
	if (!failure) {
		*out = s;
		return GN_OK;
	}
	pthread_cond_destroy(&s->changed);
	pthread_mutex_destroy(&s->lock);
	free(s->path);
	free(s);
	return gn_err_errno(err, failure, "cannot start the thread of silent ranks");
}

void gn_silence_destroy(struct gn_silence *s)
{
	if (!s)
		return;
	pthread_mutex_lock(&s->lock);
	s->stop = 1;
	pthread_cond_signal(&s->changed);
	pthread_mutex_unlock(&s->lock);
	pthread_join(s->thread, NULL);
	pthread_cond_destroy(&s->changed);
	pthread_mutex_destroy(&s->lock);
	free(s->object);
	free(s->path);
	free(s);
}

enum gn_status gn_silence_write(struct gn_silence *s, const char *object, struct gn_err *err)
{
	char *copy = strdup(object);
	enum gn_status status;

	if (!copy)
		return gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for %s", s->path);
	pthread_mutex_lock(&s->lock);
	free(s->object);
	s->object = copy;
	status = write_file(s, 1, err);
	pthread_mutex_unlock(&s->lock);
	return status;
}
