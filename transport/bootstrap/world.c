#include "transport/bootstrap/world.h"

#include "src/base/clock.h"
#include "src/base/descriptors.h"
#include "transport/bootstrap/bootstrap.h"
#include "transport/health/recorder.h"
#include "transport/health/heartbeat.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* After a failed exchange: the time for the heartbeat to report the lost rank. */
#define REASON_NS 3000000000u
/* See gn_world_failure_reason_ns(). */
#define REASON_S 2
#define REASON_MAX_S 30

#define HOST_MAX 256
/* Open files besides rank 0's connections to all ranks: data, logs, libraries, UCX. */
#define DESCRIPTORS 64

struct gn_world {
	struct gn_bootstrap *bootstrap;
	struct gn_heartbeat *heartbeat; /* NULL for a single rank */
	struct gn_secret secret;
	struct gn_limits limits;
	struct gn_recorder *recorder;
	int nodes, local_rank, local_size;
	int *node_of;
	const char **host_of;
	char (*hosts)[HOST_MAX];
	int aborted, keep_going, encrypts;
};

/* Rank 0's root info. */
struct root_info {
	struct gn_secret random;
	struct gn_limits limits;
	struct gn_heartbeat_contact contact;
};

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
		return gn_bootstrap_pmix(d, log, out, err);
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

struct rank_host {
	const char *host;
	int rank;
};

static int by_host(const void *a, const void *b)
{
	const struct rank_host *x = a, *y = b;
	int order = strcmp(x->host, y->host);

	return order ? order : (x->rank > y->rank) - (x->rank < y->rank);
}

static enum gn_status number_nodes(struct gn_world *w, struct gn_err *err)
{
	int rank = w->bootstrap->rank, size = w->bootstrap->size;
	struct rank_host *sorted = calloc((size_t)size, sizeof *sorted);

	if (!sorted)
		return gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for %d ranks", size);
	for (int r = 0; r < size; r++) {
		w->host_of[r] = w->hosts[r];
		sorted[r] = (struct rank_host){w->hosts[r], r};
	}
	qsort(sorted, (size_t)size, sizeof *sorted, by_host);
	/* the lowest rank of the same node, and from that the node's number */
	for (int i = 0, first = 0; i < size; i++) {
		if (strcmp(sorted[i].host, sorted[first].host))
			first = i;
		w->node_of[sorted[i].rank] = sorted[first].rank;
	}
	free(sorted);
	for (int r = 0; r < size; r++)
		w->node_of[r] = w->node_of[r] == r ? w->nodes++ : w->node_of[w->node_of[r]];
	for (int r = 0; r < size; r++) {
		if (w->node_of[r] != w->node_of[rank])
			continue;
		w->local_rank += r < rank;
		w->local_size++;
	}
	return GN_OK;
}

/* When the bootstrap fails because a rank is lost, the heartbeat knows which rank and why, a moment later. */
static enum gn_status find_reason(const struct gn_world *w, uint64_t started_ns, enum gn_status failure, struct gn_err *err)
{
	const struct timespec pause = {0, 5000000};
	uint64_t until = gn_clock_ns() + REASON_NS;
	enum gn_status status = GN_OK;
	struct gn_err lost;

	if (failure == GN_ERR_USAGE)
		return failure;
	while (w->heartbeat && !status && gn_clock_ns() < until) {
		status = gn_heartbeat_check_wait(w->heartbeat, started_ns, &lost);
		if (!status)
			nanosleep(&pause, NULL);
	}
	if (!status)
		return failure;
	if (err)
		*err = lost;
	return status;
}

/* The job's secret: derived from the random number that the bootstrap distributes and from the secret file, if there is one, so
 * that an attacker needs both. */
static enum gn_status derive_secret(struct gn_world *w, const struct gn_secret *random, struct gn_err *err)
{
	return gn_secret_derive(&w->bootstrap->secret, "gannet job", random, sizeof *random, &w->secret, err);
}

static enum gn_status exchange_hosts(struct gn_world *w, struct gn_err *err)
{
	int size = w->bootstrap->size, wrong = -1;
	struct gn_gathered all = {0};
	char mine[HOST_MAX] = "";
	uint64_t started = gn_clock_ns();
	enum gn_status status = GN_OK;

	if (gethostname(mine, sizeof mine - 1))
		return gn_err_errno(err, errno, "this host has no name");
	status = w->bootstrap->ops->exchange(w->bootstrap, mine, strlen(mine), &all, err);
	if (status)
		return find_reason(w, started, status, err);
	for (int r = 0; r < size; r++) {
		if (all.lens[r] >= HOST_MAX || memchr(all.items[r], 0, all.lens[r]))
			wrong = r;
		else
			memcpy(w->hosts[r], all.items[r], all.lens[r]);
	}
	gn_gathered_release(&all);
	if (wrong >= 0)
		return gn_err_set(err, GN_ERR_MISMATCH, "rank %d runs another version of this program", wrong);
	return GN_OK;
}

static int to_ms(double s)
{
	return (int)(s * 1e3);
}

/* Once the limits are final. */
static enum gn_status apply_limits(struct gn_world *w, struct gn_heartbeat_options *o, struct gn_err *err)
{
	enum gn_status status = gn_recorder_create(to_ms(w->limits.stall_s), &w->recorder, err);

	o->recorder = w->recorder;
	o->silent_after_ms = to_ms(w->limits.heartbeat_s);
	o->timeout_ms = to_ms(w->limits.join_s);
	gn_bootstrap_set_timeout(w->bootstrap, o->timeout_ms);
	return status;
}

/* Logs the limits and the addresses of the heartbeat; loopback addresses only when there are no others. */
static void log_start(const struct gn_world *w, const struct gn_heartbeat_contact *i, struct gn_log *log)
{
	char addresses[256] = "";
	size_t len = 0;

	for (uint32_t a = 0; a < i->addresses.count && len < sizeof addresses; a++)
		if (!len || (strncmp(i->addresses.text[a], "127.", 4) && strcmp(i->addresses.text[a], "::1")))
			len += (size_t)snprintf(addresses + len, sizeof addresses - len, "%s%s", len ? ", " : "",
						i->addresses.text[a]);
	gn_log_info(log, "limits: %g s to join, %g s without a heartbeat, %g s in a stall; heartbeats to %s port %d",
		    w->limits.join_s,
		    w->limits.heartbeat_s, w->limits.stall_s, addresses, i->port);
}

/* Rank 0: starts the heartbeat and distributes its contact. */
static enum gn_status host_heartbeat(struct gn_world *w, struct gn_heartbeat_options *o, struct gn_err *err)
{
	struct gn_bootstrap *b = w->bootstrap;
	struct root_info info = {.random = {{0}}};
	enum gn_status status = gn_secret_random(&info.random, err);

	if (!status)
		status = derive_secret(w, &info.random, err);
	o->secret = w->secret;
	if (!status)
		status = apply_limits(w, o, err);
	info.limits = w->limits;
	if (!status && b->size > 1)
		status = gn_heartbeat_host(o, &w->heartbeat, &info.contact, err);
	if (status == GN_ERR_USAGE)
		gn_err_prefix(err, GN_WORLD_IFNAMES ", --socket-ifname");
	if (!status && b->size > 1)
		log_start(w, &info.contact, o->log);
	b->heartbeat = w->heartbeat;
	if (!status)
		status = b->ops->root_info(b, &info, sizeof info, NULL, NULL, err);
	gn_secret_wipe(&info.random);
	return status;
}

static enum gn_status join_heartbeat(struct gn_world *w, struct gn_heartbeat_options *o, const struct root_info *info,
				     struct gn_err *err)
{
	enum gn_status status = derive_secret(w, &info->random, err);

	o->secret = w->secret;
	if (!status)
		status = gn_limits_take(&w->limits, &info->limits, w->bootstrap->rank, w->bootstrap->size, o->log, err);
	if (!status)
		status = apply_limits(w, o, err);
	if (!status)
		status = gn_heartbeat_join(o, &info->contact, &w->heartbeat, err);
	w->bootstrap->heartbeat = w->heartbeat;
	return status;
}

/* Other ranks: join the heartbeat if rank 0's root info is available yet. */
static enum gn_status try_join(struct gn_world *w, struct gn_heartbeat_options *o, struct gn_err *err)
{
	struct root_info *info;
	void *data = NULL;
	size_t len = 0;
	enum gn_status status = w->bootstrap->ops->root_info(w->bootstrap, NULL, 0, &data, &len, err);

	if (status || !data)
		return status;
	if (len != sizeof *info) {
		free(data);
		return gn_err_set(err, GN_ERR_MISMATCH, "rank 0 runs another version of this program");
	}
	info = data;
	status = join_heartbeat(w, o, info, err);
	gn_secret_wipe(&info->random);
	free(data);
	return status;
}

static enum gn_status check_cancelled(void *bootstrap, struct gn_err *err)
{
	struct gn_bootstrap *b = bootstrap;
	enum gn_status status = b->check ? b->check(b->check_context, err) : GN_OK;

	return status ? status : b->ops->check_cancelled(b, err);
}

/* With PMIx, before any communication: a rank that found no interface later would leave the others waiting. */
static enum gn_status check_ifnames(const struct gn_bootstrap *b, const char *ifnames, struct gn_err *err)
{
	struct gn_net_addresses all = {0};
	enum gn_status status = b->address || b->size == 1 || !ifnames || !*ifnames ? GN_OK : gn_net_choose(ifnames, &all, err);

	if (status)
		gn_err_prefix(err, "rank %d, " GN_WORLD_IFNAMES ", --socket-ifname", b->rank);
	return status;
}

/* The heartbeat starts first, so that ranks that have joined are monitored while others are still missing. */
static enum gn_status join_job(struct gn_world *w, const char *ifnames, struct gn_log *log, struct gn_err *err)
{
	struct gn_bootstrap *b = w->bootstrap;
	struct gn_heartbeat_options options = {.rank = b->rank, .size = b->size, .log = log, .check_cancelled = check_cancelled,
					       .context = b, .address = b->address, .ifnames = ifnames};
	enum gn_status status;

	b->ifnames = ifnames;
	status = b->rank ? try_join(w, &options, err) : host_heartbeat(w, &options, err);

	if (!status)
		status = exchange_hosts(w, err);
	if (!status && w->heartbeat)
		gn_heartbeat_expect_all(w->heartbeat);
	else if (!status && b->rank)
		status = try_join(w, &options, err);
	if (!status && b->rank && !w->heartbeat)
		status = gn_err_set(err, GN_ERR_FAILED, "rank %d did not receive the address of rank 0's heartbeat", b->rank);
	gn_secret_wipe(&options.secret);
	if (status)
		return status;
	status = number_nodes(w, err);
	if (!status && w->heartbeat)
		status = gn_heartbeat_name_hosts(w->heartbeat, w->host_of, err);
	b->recorder = w->recorder;
	if (!status && w->keep_going && b->ops->detach)
		b->ops->detach(b);
	return status;
}

static void release(struct gn_world *w, enum gn_heartbeat_exit how, int clean)
{
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
		gn_bootstrap_set_timeout(w->bootstrap, to_ms(w->limits.join_s));
		size = (size_t)w->bootstrap->size;
		w->node_of = calloc(size, sizeof *w->node_of);
		w->host_of = calloc(size, sizeof *w->host_of);
		w->hosts = calloc(size, sizeof *w->hosts);
		if (!w->node_of || !w->host_of || !w->hosts)
			status = gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for %zu ranks", size);
	}
	if (!status && detected.source == GN_LAUNCHER_PMIX)
		status = check_ifnames(w->bootstrap, ifnames, err);
	if (!status)
		status = join_job(w, ifnames && *ifnames ? ifnames : NULL, log, err);
	if (!status)
		status = gn_launcher_confirm_local(&detected, w->host_of[w->bootstrap->rank], w->bootstrap->rank, w->local_rank,
						   w->local_size, err);
	if (status) {
		if (w->heartbeat && err && gn_world_check(w, NULL) == GN_OK)
			gn_heartbeat_abort(w->heartbeat, err->text);
		release(w, GN_HEARTBEAT_EXIT_SILENT, 0);
		return status;
	}
	gn_log_set_rank(log, w->bootstrap->rank);
	warn_of_secret(w, log);
	gn_world_set_phase(w, "starting", to_ms(w->limits.join_s));
	*out = w;
	return GN_OK;
}

void gn_world_destroy(struct gn_world *w)
{
	enum gn_heartbeat_exit how = GN_HEARTBEAT_EXIT_TOGETHER;
	int clean;

	if (!w)
		return;
	clean = !w->aborted && gn_world_check(w, NULL) == GN_OK;
	if (w->aborted)
		how = GN_HEARTBEAT_EXIT_SILENT;
	else if (!clean && !w->keep_going)
		how = GN_HEARTBEAT_EXIT_ALONE;
	release(w, how, clean);
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
		return find_reason(w, started, status, err);
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
	return to_ms(w->limits.heartbeat_s);
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

void gn_world_abort(struct gn_world *w, const char *why)
{
	w->aborted = 1;
	if (w->heartbeat)
		gn_heartbeat_abort(w->heartbeat, why);
}
