#include "transport/world.h"

#include "src/base/clock.h"
#include "transport/bootstrap.h"
#include "transport/recorder.h"
#include "transport/watch.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* A death shows within moments, silence within the watch's limit. */
#define VERDICT_NS 3000000000u

#define HOST_MAX 256

struct gn_world {
	struct gn_bootstrap *bootstrap;
	struct gn_watch *watch; /* NULL in a world of one */
	struct gn_secret secret;
	int silent_after_ms;
	struct gn_recorder *recorder;
	int nodes, local_rank, local_size;
	int *node_of;
	const char **host_of;
	char (*hosts)[HOST_MAX];
	int gave_up;
};

/* What rank 0 tells each that comes. */
struct word {
	struct gn_secret drawn;
	struct gn_watch_invitation invitation;
};

/* What every rank tells the others first. */
struct introduction {
	char host[HOST_MAX];
	struct word word; /* rank 0's counts */
};

static const char *from_environ(void *context, const char *name)
{
	(void)context;
	return getenv(name);
}

static enum gn_status open_bootstrap(int timeout_ms, struct gn_log *log, struct gn_bootstrap **out, struct gn_err *err)
{
	struct gn_detect d;
	enum gn_status status = gn_detect(from_environ, NULL, &d, err);

	if (status)
		return status;
	if (d.source == GN_DETECT_PMIX)
		return gn_bootstrap_pmix(&d, timeout_ms, out, err);
	if (d.source == GN_DETECT_ENVIRONMENT)
		return gn_bootstrap_env(&d, timeout_ms, log, out, err);
	return gn_bootstrap_alone(out, err);
}

static void number_nodes(struct gn_world *w)
{
	int rank = w->bootstrap->rank, size = w->bootstrap->size;

	for (int r = 0; r < size; r++) {
		w->host_of[r] = w->hosts[r];
		w->node_of[r] = -1;
		for (int q = r; q-- > 0 && w->node_of[r] < 0;)
			if (!strcmp(w->hosts[q], w->hosts[r]))
				w->node_of[r] = w->node_of[q];
		if (w->node_of[r] < 0)
			w->node_of[r] = w->nodes++;
	}
	for (int r = 0; r < size; r++) {
		if (w->node_of[r] != w->node_of[rank])
			continue;
		w->local_rank += r < rank;
		w->local_size++;
	}
}

/* A bootstrap that fails because a rank has gone does not know which, or why; the watch will, if we let it. */
static enum gn_status diagnose(const struct gn_world *w, uint64_t started_ns, enum gn_status failure, struct gn_err *err)
{
	const struct timespec pause = {0, 5000000};
	uint64_t until = gn_clock_ns() + VERDICT_NS;
	enum gn_status status = GN_OK;
	struct gn_err lost;

	/* this, it knows */
	if (failure == GN_ERR_USAGE)
		return failure;
	while (w->watch && !status && gn_clock_ns() < until) {
		status = gn_watch_check_wait(w->watch, started_ns, &lost);
		if (!status)
			nanosleep(&pause, NULL);
	}
	if (!status)
		return failure;
	if (err)
		*err = lost;
	return status;
}

/* What the source's channel carried and what the file held are worth as much as the better one of both. */
static enum gn_status mix_secret(struct gn_world *w, const struct gn_secret *drawn, struct gn_err *err)
{
	return gn_secret_derive(&w->bootstrap->secret, "gannet job", drawn, sizeof *drawn, &w->secret, err);
}

/* Hosts; and *word is rank 0's afterwards. */
static enum gn_status introduce(struct gn_world *w, struct word *word, struct gn_err *err)
{
	int size = w->bootstrap->size, wrong = -1;
	struct introduction mine = {.word = *word}, *first;
	struct gn_told all = {0};
	uint64_t started = gn_clock_ns();
	enum gn_status status = gn_told_create(size, &all, err);

	if (!status && gethostname(mine.host, sizeof mine.host - 1))
		status = gn_err_errno(err, errno, "this host has no name");
	if (!status) {
		status = w->bootstrap->ops->exchange(w->bootstrap, &mine, sizeof mine, all.items, all.lens, err);
		if (status)
			status = diagnose(w, started, status, err);
	}
	for (int r = 0; !status && r < size; r++) {
		if (all.lens[r] != sizeof mine)
			wrong = r;
		else
			memcpy(w->hosts[r], all.items[r], HOST_MAX - 1);
	}
	if (!status && wrong >= 0)
		status = gn_err_set(err, GN_ERR_MISMATCH, "rank %d runs another version of this program", wrong);
	if (!status) {
		first = all.items[0];
		*word = first->word;
		gn_secret_wipe(&first->word.drawn);
	}
	gn_secret_wipe(&mine.word.drawn);
	gn_told_release(&all);
	return status;
}

/* Rank 0: from here on it watches over all who come. */
static enum gn_status host_watch(struct gn_world *w, struct gn_watch_options *o, struct word *word, struct gn_err *err)
{
	struct gn_bootstrap *b = w->bootstrap;
	enum gn_status status = gn_secret_random(&word->drawn, err);

	if (!status)
		status = mix_secret(w, &word->drawn, err);
	o->secret = w->secret;
	if (!status && b->size > 1)
		status = gn_watch_host(o, &w->watch, &word->invitation, err);
	b->watch = w->watch;
	return status ? status : b->ops->word(b, word, sizeof *word, NULL, NULL, err);
}

static enum gn_status join_watch(struct gn_world *w, struct gn_watch_options *o, const struct word *word, struct gn_err *err)
{
	enum gn_status status = mix_secret(w, &word->drawn, err);

	o->secret = w->secret;
	if (!status)
		status = gn_watch_join(o, &word->invitation, &w->watch, err);
	w->bootstrap->watch = w->watch;
	return status;
}

/* The others: by rank 0's word, as soon as it is to be had. */
static enum gn_status join_early(struct gn_world *w, struct gn_watch_options *o, struct gn_err *err)
{
	struct word *word;
	void *said = NULL;
	size_t len = 0;
	enum gn_status status = w->bootstrap->ops->word(w->bootstrap, NULL, 0, &said, &len, err);

	if (status || !said)
		return status;
	if (len != sizeof *word) {
		free(said);
		return gn_err_set(err, GN_ERR_MISMATCH, "rank 0 runs another version of this program");
	}
	word = said;
	status = join_watch(w, o, word, err);
	gn_secret_wipe(&word->drawn);
	free(said);
	return status;
}

static enum gn_status called_off(void *bootstrap, struct gn_err *err)
{
	struct gn_bootstrap *b = bootstrap;

	return b->ops->called_off(b, err);
}

/* The watch first, so that whoever has come is watched while others are still missing. */
static enum gn_status meet(struct gn_world *w, const struct gn_world_options *o, struct gn_log *log, struct gn_err *err)
{
	struct gn_bootstrap *b = w->bootstrap;
	struct gn_watch_options options = {b->rank, b->size, o->silent_after_ms, o->timeout_ms, {{0}}, w->recorder, log,
					   called_off, b};
	struct word word = {{{0}}, {0}};
	enum gn_status status = b->rank ? join_early(w, &options, err) : host_watch(w, &options, &word, err);

	if (!status)
		status = introduce(w, &word, err);
	if (!status && w->watch)
		gn_watch_expect_all(w->watch);
	else if (!status && b->rank)
		status = join_watch(w, &options, &word, err);
	gn_secret_wipe(&word.drawn);
	gn_secret_wipe(&options.secret);
	if (status)
		return status;
	number_nodes(w);
	if (w->watch)
		status = gn_watch_name_hosts(w->watch, w->host_of, err);
	b->recorder = w->recorder;
	return status;
}

static void release(struct gn_world *w, int clean)
{
	gn_watch_destroy(w->watch, clean);
	if (w->bootstrap) {
		w->bootstrap->watch = NULL;
		w->bootstrap->ops->destroy(w->bootstrap, clean);
	}
	gn_recorder_destroy(w->recorder);
	gn_secret_wipe(&w->secret);
	free(w->node_of);
	free(w->host_of);
	free(w->hosts);
	free(w);
}

enum gn_status gn_world_create(const struct gn_world_options *options, struct gn_log *log, struct gn_world **out,
			       struct gn_err *err)
{
	struct gn_world_options o = options ? *options : (struct gn_world_options){0};
	struct gn_world *w = calloc(1, sizeof *w);
	enum gn_status status;
	size_t size;

	if (!w)
		return gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for a world");
	o.timeout_ms = o.timeout_ms > 0 ? o.timeout_ms : 60000;
	o.silent_after_ms = o.silent_after_ms > 0 ? o.silent_after_ms : 5000;
	o.stall_after_ms = o.stall_after_ms > 0 ? o.stall_after_ms : 5000;
	w->silent_after_ms = o.silent_after_ms;
	status = gn_recorder_create(o.stall_after_ms, &w->recorder, err);
	if (!status)
		status = open_bootstrap(o.timeout_ms, log, &w->bootstrap, err);
	if (!status) {
		size = (size_t)w->bootstrap->size;
		w->node_of = calloc(size, sizeof *w->node_of);
		w->host_of = calloc(size, sizeof *w->host_of);
		w->hosts = calloc(size, sizeof *w->hosts);
		if (!w->node_of || !w->host_of || !w->hosts)
			status = gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for %zu ranks", size);
	}
	if (!status)
		status = meet(w, &o, log, err);
	if (status) {
		if (w->watch && err && gn_world_check(w, NULL) == GN_OK)
			gn_watch_give_up(w->watch, err->text);
		release(w, 0);
		return status;
	}
	gn_log_set_rank(log, w->bootstrap->rank);
	gn_world_announce(w, "starting", o.timeout_ms);
	*out = w;
	return GN_OK;
}

void gn_world_destroy(struct gn_world *w)
{
	if (w)
		release(w, !w->gave_up && gn_world_check(w, NULL) == GN_OK);
}

int gn_world_rank(const struct gn_world *w)
{
	return w->bootstrap->rank;
}

int gn_world_size(const struct gn_world *w)
{
	return w->bootstrap->size;
}

int gn_world_local_rank(const struct gn_world *w)
{
	return w->local_rank;
}

int gn_world_local_size(const struct gn_world *w)
{
	return w->local_size;
}

int gn_world_nodes(const struct gn_world *w)
{
	return w->nodes;
}

int gn_world_node_of(const struct gn_world *w, int rank)
{
	return w->node_of[rank];
}

const char *gn_world_host_of(const struct gn_world *w, int rank)
{
	return w->host_of[rank];
}

const char *gn_world_bootstrap(const struct gn_world *w)
{
	return w->bootstrap->ops->name;
}

enum gn_status gn_world_key(const struct gn_world *w, const char *use, void *key, size_t len_bytes, struct gn_err *err)
{
	struct gn_secret made;
	enum gn_status status = gn_secret_derive(&w->secret, use, NULL, 0, &made, err);

	if (status)
		return status;
	memcpy(key, made.bytes, len_bytes < sizeof made.bytes ? len_bytes : sizeof made.bytes);
	gn_secret_wipe(&made);
	return GN_OK;
}

enum gn_status gn_world_exchange(struct gn_world *w, const void *mine, size_t len_bytes, struct gn_told *out,
				 struct gn_err *err)
{
	const struct gn_recorder_op op = {.name = "exchange", .algorithm = w->bootstrap->ops->name, .root = -1};
	struct gn_told told = {0};
	enum gn_status status = gn_world_check(w, err);
	uint64_t number, started = gn_clock_ns();

	if (!status)
		status = gn_told_create(gn_world_size(w), &told, err);
	if (status)
		return status;
	number = gn_recorder_start(w->recorder, gn_recorder_kind(w->recorder, &op));
	status = w->bootstrap->ops->exchange(w->bootstrap, mine, len_bytes, told.items, told.lens, err);
	if (status) {
		gn_told_release(&told);
		return diagnose(w, started, status, err);
	}
	gn_recorder_done(w->recorder, number);
	*out = told;
	return GN_OK;
}

enum gn_status gn_world_barrier(struct gn_world *w, struct gn_err *err)
{
	struct gn_told all = {0};
	enum gn_status status = gn_world_exchange(w, "", 0, &all, err);

	gn_told_release(&all);
	return status;
}

void gn_world_announce(struct gn_world *w, const char *what, int limit_ms)
{
	gn_recorder_announce(w->recorder, what, limit_ms);
}

void gn_world_set_progress(struct gn_world *w, void (*progress)(void *context), void *context)
{
	w->bootstrap->progress = progress;
	w->bootstrap->progress_context = context;
}

int gn_world_silent_after_ms(const struct gn_world *w)
{
	return w->silent_after_ms;
}

struct gn_recorder *gn_world_recorder(const struct gn_world *w)
{
	return w->recorder;
}

enum gn_status gn_world_check(const struct gn_world *w, struct gn_err *err)
{
	return w->watch ? gn_watch_check(w->watch, err) : GN_OK;
}

enum gn_status gn_world_check_wait(const struct gn_world *w, uint64_t started_ns, struct gn_err *err)
{
	return w->watch ? gn_watch_check_wait(w->watch, started_ns, err) : GN_OK;
}

int gn_world_anyone_left(const struct gn_world *w)
{
	return w->watch && gn_watch_anyone_left(w->watch);
}

int gn_world_gave_up(const struct gn_world *w)
{
	return w->gave_up;
}

void gn_world_give_up(struct gn_world *w, const char *why)
{
	w->gave_up = 1;
	if (w->watch)
		gn_watch_give_up(w->watch, why);
}
