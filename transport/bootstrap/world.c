#include "transport/bootstrap/world_internal.h"

#include "src/base/clock.h"
#include "src/base/process.h"
#include "transport/bootstrap/bootstrap.h"
#include "transport/health/recorder.h"
#include "transport/health/heartbeat.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* See gn_world_failure_reason_ns(). */
#define REASON_S 2
#define REASON_MAX_S 30

/* Open files besides rank 0's connections to all ranks: data, logs, libraries, UCX. */
#define DESCRIPTORS 64

static enum gn_status from_options(const struct gn_world_options *o, struct gn_launcher *d, struct gn_err *err)
{
	const char *colon = strrchr(o->rendezvous, ':');
	int end = 0;

	*d = (struct gn_launcher){.source = o->size > 1 ? GN_LAUNCHER_ENVIRONMENT : GN_LAUNCHER_SINGLE, .rank = o->rank, .size = o->size,
				  .local_rank = -1, .local_size = -1};
	if (!colon || (size_t)(colon - o->rendezvous) >= sizeof d->address || sscanf(colon + 1, "%d%n", &d->port, &end) != 1 ||
	    colon[1 + end] || d->port < 1 || d->port > 65535)
		return gn_err_set(err, GN_ERR_USAGE, "rendezvous '%s' is not HOST:PORT", o->rendezvous);
	if (o->size < 1 || o->rank < 0 || o->rank >= o->size)
		return gn_err_set(err, GN_ERR_USAGE, "no rank %d of %d", o->rank, o->size);
	memcpy(d->address, o->rendezvous, (size_t)(colon - o->rendezvous));
	return GN_OK;
}

static enum gn_status open_bootstrap(const struct gn_world_options *o, struct gn_launcher *d, struct gn_log *log,
				     struct gn_bootstrap **out, struct gn_err *err)
{
	enum gn_status status = o && o->rendezvous ? from_options(o, d, err) : gn_launcher_detect(gn_launcher_environ, NULL, d, err);

	if (status)
		return status;
	if (d->source == GN_LAUNCHER_PMIX)
		return gn_bootstrap_pmix(d, o ? o->limits.join_s : 0, log, out, err);
	if (d->source == GN_LAUNCHER_ENVIRONMENT)
		return gn_bootstrap_env(d, o && o->rendezvous ? o->secret : NULL, log, out, err);
	if (d->job_name)
		gn_log_warn(log, "%s=%d, but this is one process outside of a job step and runs as a single rank: to start one "
			    "rank per task, use 'srun --mpi=pmix'", d->job_name, d->job_count);
	return gn_bootstrap_single(out, err);
}

/* Rank 0 has one heartbeat connection per rank, and without PMIx another one for the rendezvous. */
static enum gn_status raise_descriptor_limit(const struct gn_bootstrap *b, enum gn_launcher_source source, struct gn_err *err)
{
	size_t each = b->rank ? 0 : source == GN_LAUNCHER_ENVIRONMENT ? 2 : 1;
	char what[64];

	snprintf(what, sizeof what, "rank %d of %d", b->rank, b->size);
	return gn_descriptors_want(each * (size_t)b->size + DESCRIPTORS, what, err);
}

static void release(struct gn_world *w, enum gn_heartbeat_exit how, int clean)
{
	if (w->bootstrap && w->heartbeat)
		w->bootstrap->is_lost = gn_heartbeat_has_silent(w->heartbeat) && !w->keep_going;
	gn_heartbeat_destroy(w->heartbeat, how);
	if (w->bootstrap) {
		if (w->bootstrap->listener)
			close(w->bootstrap->listener);
		w->bootstrap->heartbeat = NULL;
		w->bootstrap->ops->destroy(w->bootstrap, clean);
	}
	gn_recorder_destroy(w->recorder);
	gn_secret_wipe(&w->secret);
	free(w->node_of);
	free(w->host_of);
	free(w->hosts);
	free(w);
}

/* Without a file the job's secret is derived from what rank 0 publishes through PMIx, whose servers send it to each other as it is. */
static void warn_of_secret(const struct gn_world *w, struct gn_log *log)
{
	static const struct gn_secret none;

	if (w->encrypts && w->nodes > 1 && !w->bootstrap->rank && !memcmp(&w->bootstrap->secret, &none, sizeof none))
		gn_log_warn(log, "--encrypt-network: without GANNET_SECRET_FILE its keys come from a number that PMIx sends between nodes "
			    "unencrypted: who reads that can read the rest");
}

/* With PMIx, before any communication: a rank that found no interface later would leave the others waiting. */
static enum gn_status check_ifnames(const struct gn_bootstrap *b, const char *ifnames, struct gn_err *err)
{
	struct gn_net_addresses all = {0};
	enum gn_status status = b->address || b->size == 1 || !ifnames || !*ifnames ? GN_OK : gn_net_choose(ifnames, &all, err);

	if (status)
		gn_err_prefix(err, GN_WORLD_IFNAMES ", --socket-ifname");
	return status;
}

/* Rank 0 stays until those who come later know as well, and tells what it has told the others. */
static void fail(struct gn_world *w, enum gn_status status, struct gn_err *err)
{
	int waits = w->heartbeat && !w->bootstrap->rank && err && err->cause;

	if (status == GN_ERR_PEER_LOST && w->heartbeat && err)
		err->told = w->bootstrap->rank && !gn_heartbeat_is_lost(w->heartbeat, 0);
	/* rank 0 has not come, cannot be reached, or is of another version: nothing tells the others */
	if (w->bootstrap)
		w->bootstrap->is_lost = (status == GN_ERR_STALL || status == GN_ERR_PEER_LOST || status == GN_ERR_MISMATCH) && !w->heartbeat;
	if (w->heartbeat && err && !w->aborted && gn_world_check(w, NULL) == GN_OK)
		gn_heartbeat_abort(w->heartbeat, status, err->text);
	if (waits)
		gn_heartbeat_expect_all(w->heartbeat);
	release(w, waits ? GN_HEARTBEAT_EXIT_TOGETHER : GN_HEARTBEAT_EXIT_SILENT, 0);
}

void gn_world_decline(struct gn_log *log, gn_world_teller *tell, void *context, struct gn_err *why)
{
	struct gn_world *w = calloc(1, sizeof *w);
	struct gn_launcher detected;

	if (!w)
		return;
	if (!gn_launcher_detect(gn_launcher_environ, NULL, &detected, NULL) && detected.source != GN_LAUNCHER_SINGLE &&
	    !open_bootstrap(NULL, &detected, log, &w->bootstrap, NULL) && !gn_limits_resolve(&w->limits, w->bootstrap->size, NULL))
		gn_world_decline_in(w, log, tell, context, why);
	release(w, GN_HEARTBEAT_EXIT_SILENT, 0);
}

enum gn_status gn_world_create(const struct gn_world_options *options, struct gn_log *log, struct gn_world **out,
			       struct gn_err *err)
{
	struct gn_world *w = calloc(1, sizeof *w);
	struct gn_launcher detected;
	const char *ifnames, *encrypt = getenv(GN_WORLD_ENCRYPT);
	enum gn_status status;
	size_t size;

	if (!w)
		return gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for a world");
	if (options)
		w->limits = options->limits;
	w->keep_going = options && options->keep_going;
	w->encrypts = (options && options->encrypt) || (encrypt && *encrypt && strcmp(encrypt, "0"));
	ifnames = options && options->ifnames ? options->ifnames : getenv(GN_WORLD_IFNAMES);
	status = open_bootstrap(options, &detected, log, &w->bootstrap, err);
	if (!status && options && options->rendezvous) {
		w->bootstrap->listener = options->listener;
		w->bootstrap->check = options->check;
		w->bootstrap->check_context = options->check_context;
	} else if (options && options->rendezvous && options->listener) {
		close(options->listener);
	}
	if (!status)
		status = raise_descriptor_limit(w->bootstrap, detected.source, err);
	if (!status)
		status = gn_limits_resolve(&w->limits, w->bootstrap->size, err);
	if (!status) {
		gn_bootstrap_set_timeout(w->bootstrap, gn_world_ms(w->limits.join_s));
		size = (size_t)w->bootstrap->size;
		w->node_of = calloc(size, sizeof *w->node_of);
		w->host_of = calloc(size, sizeof *w->host_of);
		w->hosts = calloc(size, sizeof *w->hosts);
		if (!w->node_of || !w->host_of || !w->hosts)
			status = gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for %zu ranks", size);
	}
	if (!status && detected.source == GN_LAUNCHER_PMIX)
		status = check_ifnames(w->bootstrap, ifnames, err);
	if (status && w->bootstrap && err)
		gn_world_decline_in(w, log, NULL, NULL, err);
	if (!status)
		status = gn_world_join(w, ifnames && *ifnames ? ifnames : NULL, log, err);
	if (!status)
		status = gn_launcher_confirm_local(&detected, w->host_of[w->bootstrap->rank], w->bootstrap->rank, w->local_rank,
						   w->local_size, err);
	if (status) {
		fail(w, status, err);
		return status;
	}
	gn_log_set_rank(log, w->bootstrap->rank);
	warn_of_secret(w, log);
	gn_world_set_phase(w, "starting", gn_world_ms(w->limits.join_s));
	*out = w;
	return GN_OK;
}

void gn_world_destroy(struct gn_world *w)
{
	enum gn_heartbeat_exit how = GN_HEARTBEAT_EXIT_TOGETHER;
	int clean;

	if (!w)
		return;
	clean = gn_world_check(w, NULL) == GN_OK && !w->aborted;
	if (w->aborted)
		how = GN_HEARTBEAT_EXIT_SILENT;
	else if (!clean && !w->keep_going)
		how = w->bootstrap->rank ? GN_HEARTBEAT_EXIT_ALONE : GN_HEARTBEAT_EXIT_LAST;
	release(w, how, clean);
}

void gn_world_ends_job(void)
{
	gn_bootstrap_pmix_ends_job();
}

void gn_world_end_job(int code)
{
	gn_bootstrap_pmix_end_job(code);
}

void gn_world_wait_for_nobody(struct gn_world *w)
{
	w->keep_going = 0;
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

int gn_world_encrypts(const struct gn_world *w)
{
	return w->encrypts;
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

enum gn_status gn_world_exchange(struct gn_world *w, const void *mine, size_t len_bytes, struct gn_gathered *out,
				 struct gn_err *err)
{
	const struct gn_recorder_op op = {.name = "exchange", .algorithm = w->bootstrap->ops->name, .root = -1};
	enum gn_status status = gn_world_check(w, err);
	uint64_t number, started = gn_clock_ns();

	if (status)
		return status;
	number = gn_recorder_start(w->recorder, gn_recorder_kind(w->recorder, &op));
	status = w->bootstrap->ops->exchange(w->bootstrap, mine, len_bytes, out, err);
	if (status)
		return gn_world_find_reason(w, started, status, err);
	gn_recorder_done(w->recorder, number);
	return GN_OK;
}

enum gn_status gn_world_barrier(struct gn_world *w, struct gn_err *err)
{
	struct gn_gathered all = {0};
	enum gn_status status = gn_world_exchange(w, "", 0, &all, err);

	gn_gathered_release(&all);
	return status;
}

void gn_world_set_phase(struct gn_world *w, const char *what, int limit_ms)
{
	gn_recorder_set_phase(w->recorder, what, limit_ms);
}

void gn_world_set_progress(struct gn_world *w, void (*progress)(void *context), void *context)
{
	w->bootstrap->progress = progress;
	w->bootstrap->progress_context = context;
}

int gn_world_silent_after_ms(const struct gn_world *w)
{
	return gn_world_ms(w->limits.heartbeat_s);
}

uint64_t gn_world_failure_reason_ns(const struct gn_world *w)
{
	double s = w->limits.heartbeat_s + REASON_S;

	return (uint64_t)((s < REASON_MAX_S ? s : REASON_MAX_S) * 1e9);
}

struct gn_recorder *gn_world_recorder(const struct gn_world *w)
{
	return w->recorder;
}

enum gn_status gn_world_check(const struct gn_world *w, struct gn_err *err)
{
	return w->heartbeat ? gn_heartbeat_check(w->heartbeat, err) : GN_OK;
}

enum gn_status gn_world_check_wait(const struct gn_world *w, uint64_t started_ns, struct gn_err *err)
{
	return w->heartbeat ? gn_heartbeat_check_wait(w->heartbeat, started_ns, err) : GN_OK;
}

enum gn_status gn_world_check_ranks(const struct gn_world *w, const int *ranks, int count, uint64_t started_ns, struct gn_err *err)
{
	return w->heartbeat ? gn_heartbeat_check_ranks(w->heartbeat, ranks, count, started_ns, err) : GN_OK;
}

uint64_t gn_world_heard_ns(const struct gn_world *w, int rank)
{
	return w->heartbeat ? gn_heartbeat_heard_ns(w->heartbeat, rank) : 0;
}

unsigned gn_world_losses(const struct gn_world *w)
{
	return w->heartbeat ? gn_heartbeat_losses(w->heartbeat) : 0;
}

int gn_world_is_lost(const struct gn_world *w, int rank)
{
	return w->heartbeat && gn_heartbeat_is_lost(w->heartbeat, rank);
}

int gn_world_anyone_left(const struct gn_world *w)
{
	return w->heartbeat && gn_heartbeat_anyone_left(w->heartbeat);
}

int gn_world_aborted(const struct gn_world *w)
{
	return w->aborted;
}

void gn_world_abort(struct gn_world *w, enum gn_status cause, const char *why)
{
	w->aborted = 1;
	if (w->heartbeat)
		gn_heartbeat_abort(w->heartbeat, cause, why);
}
