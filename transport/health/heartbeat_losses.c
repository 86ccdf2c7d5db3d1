/* Which ranks are lost, which have left, and whether the job has failed: recorded by the heartbeat thread, read by any thread. */
#include "src/base/clock.h"
#include "transport/health/heartbeat_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LEFT_GRACE_NS 3000000000u

enum gn_status gn_heartbeat_losses_create(struct gn_heartbeat *h, struct gn_err *err)
{
	size_t size = (size_t)h->options.size;

	h->lost_at = calloc(size, sizeof *h->lost_at);
	h->reasons = calloc(size, sizeof *h->reasons);
	h->causes = calloc(size, sizeof *h->causes);
	h->left_ns = calloc(size, sizeof *h->left_ns);
	h->heard_ns = calloc(size, sizeof *h->heard_ns);
	if (!h->lost_at || !h->reasons || !h->causes || !h->left_ns || !h->heard_ns)
		return gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for the heartbeat of %zu ranks", size);
	return GN_OK;
}

void gn_heartbeat_losses_release(struct gn_heartbeat *h)
{
	for (int r = 0; h->reasons && r < h->options.size; r++)
		free(h->reasons[r]);
	free(h->reasons);
	free(h->causes);
	free(h->lost_at);
	free(h->left_ns);
	free(h->heard_ns);
}

void gn_heartbeat_set_lost(struct gn_heartbeat *h, int rank, const char *reason)
{
	if (rank < 0 || rank >= h->options.size || gn_heartbeat_is_lost(h, rank))
		return;
	pthread_mutex_lock(&h->lock);
	/* without memory the loss has no reason */
	h->reasons[rank] = strndup(reason, GN_HEARTBEAT_TEXT_MAX - 1);
	atomic_store(&h->lost_at[rank], atomic_load(&h->losses) + 1);
	atomic_fetch_add(&h->losses, 1);
	if (!atomic_load(&h->first))
		atomic_store(&h->first, rank + 1);
	pthread_cond_broadcast(&h->changed);
	pthread_mutex_unlock(&h->lock);
}

void gn_heartbeat_set_failure(struct gn_heartbeat *h, enum gn_status status, const char *text)
{
	pthread_mutex_lock(&h->lock);
	if (!atomic_load(&h->failure)) {
		snprintf(h->failure_text, sizeof h->failure_text, "%s", text);
		atomic_store(&h->failure, (int)status);
		atomic_fetch_add(&h->losses, 1);
	}
	if (!atomic_load(&h->first))
		atomic_store(&h->first, (int)status);
	pthread_cond_broadcast(&h->changed);
	pthread_mutex_unlock(&h->lock);
}

void gn_heartbeat_set_left(struct gn_heartbeat *h, int rank)
{
	if (rank < 0 || rank >= h->options.size || atomic_load(&h->left_ns[rank]))
		return;
	atomic_store(&h->left_ns[rank], gn_clock_ns());
	if (!atomic_load(&h->left))
		atomic_store(&h->left, rank + 1);
}

void gn_heartbeat_set_all_left(struct gn_heartbeat *h)
{
	pthread_mutex_lock(&h->lock);
	h->all_left = 1;
	pthread_cond_broadcast(&h->changed);
	pthread_mutex_unlock(&h->lock);
}

/* Whether the reason of a loss has the rank's state: gn_diagnose_loss() lists ranks by "; rank 3 on n2 was" and "; ranks 0-2, 5 were". */
static int has_state_of(const char *reason, int rank)
{
	for (const char *at = reason; (at = strstr(at, "; rank"));) {
		char *end;

		at += strlen("; rank");
		at += *at == 's';
		for (;; at = end + 1) {
			long first = strtol(at, &end, 10), last = *end == '-' ? strtol(end + 1, &end, 10) : first;

			if (end != at && rank >= first && rank <= last)
				return 1;
			if (end == at || *end != ',')
				break;
		}
	}
	return 0;
}

/* rank: the lost rank, or the negative status of a failure of the job. reason: NULL: the recorded one. */
static enum gn_status report(const struct gn_heartbeat *h, int rank, const char *reason, struct gn_err *err)
{
	pthread_mutex_t *lock = (pthread_mutex_t *)(uintptr_t)&h->lock;
	enum gn_status cause = rank >= 0 ? (enum gn_status)atomic_load(&h->causes[rank]) : GN_OK;
	char own[400] = "", what[256];
	const char *host;

	if (h->options.recorder)
		gn_recorder_describe(h->options.recorder, what, sizeof what);

	pthread_mutex_lock(lock);
	if (rank >= 0 && !reason)
		reason = h->reasons[rank] ? h->reasons[rank] : "no memory for the reason";
	host = h->hosts ? h->hosts[h->options.rank] : "";
	if (h->options.recorder && !cause && (rank < 0 || !has_state_of(reason, h->options.rank)))
		snprintf(own, sizeof own, "; rank %d%s%.64s was %s", h->options.rank, *host ? " on " : "", host, what);
	host = h->hosts && rank >= 0 ? h->hosts[rank] : NULL;
	if (rank < 0)
		gn_err_set(err, (enum gn_status)rank, "%s%s", h->failure_text, own);
	else if (cause == GN_ERR_PEER_LOST)
		gn_err_set(err, GN_ERR_PEER_LOST, "%s%s", reason, own);
	else
		gn_err_set(err, GN_ERR_PEER_LOST, "rank %d%s%s %s: %s%s", rank, host ? " on " : "", host ? host : "",
			   cause ? "failed" : "is lost", reason, own);
	pthread_mutex_unlock(lock);
	if (err) {
		err->cause = cause;
		err->told = cause && h->options.rank;
	}
	return rank < 0 ? (enum gn_status)rank : GN_ERR_PEER_LOST;
}

enum gn_status gn_heartbeat_check(const struct gn_heartbeat *h, struct gn_err *err)
{
	int first = atomic_load_explicit(&h->first, memory_order_acquire);

	return first ? report(h, first > 0 ? first - 1 : first, NULL, err) : GN_OK;
}

static enum gn_status check_left(const struct gn_heartbeat *h, int rank, uint64_t started_ns, struct gn_err *err)
{
	uint64_t since = atomic_load(&h->left_ns[rank]);

	if (!since || gn_clock_ns() < (started_ns > since ? started_ns : since) + LEFT_GRACE_NS)
		return GN_OK;
	return report(h, rank, "it has left the job while others still wait for it", err);
}

enum gn_status gn_heartbeat_check_wait(const struct gn_heartbeat *h, uint64_t started_ns, struct gn_err *err)
{
	int left = atomic_load(&h->left);

	return atomic_load(&h->first) || !left ? gn_heartbeat_check(h, err) : check_left(h, left - 1, started_ns, err);
}

uint64_t gn_heartbeat_heard_ns(const struct gn_heartbeat *h, int rank)
{
	return atomic_load_explicit(&h->heard_ns[rank], memory_order_relaxed);
}

unsigned gn_heartbeat_losses(const struct gn_heartbeat *h)
{
	return atomic_load_explicit(&h->losses, memory_order_acquire);
}

int gn_heartbeat_is_lost(const struct gn_heartbeat *h, int rank)
{
	return atomic_load_explicit(&h->lost_at[rank], memory_order_acquire) != 0;
}

/* The rank of the group that was lost first; -1: none. */
static int first_lost(const struct gn_heartbeat *h, const int *ranks, int count)
{
	unsigned earliest = 0, at;
	int first = -1;

	for (int i = 0; i < count; i++) {
		int rank = ranks ? ranks[i] : i;

		at = atomic_load(&h->lost_at[rank]);
		if (at && (!earliest || at < earliest)) {
			earliest = at;
			first = rank;
		}
	}
	return first;
}

enum gn_status gn_heartbeat_check_ranks(const struct gn_heartbeat *h, const int *ranks, int count, uint64_t started_ns,
					struct gn_err *err)
{
	enum gn_status status = GN_OK;
	int lost = -1;

	if (gn_heartbeat_losses(h)) {
		if (atomic_load(&h->failure))
			return report(h, atomic_load(&h->failure), NULL, err);
		lost = first_lost(h, ranks, count);
		if (lost < 0 && gn_heartbeat_is_lost(h, 0))
			lost = 0;
		if (lost >= 0)
			return report(h, lost, NULL, err);
	}
	for (int i = 0; started_ns && atomic_load(&h->left) && i < count && !status; i++)
		status = check_left(h, ranks ? ranks[i] : i, started_ns, err);
	return status;
}

int gn_heartbeat_has_silent(const struct gn_heartbeat *h)
{
	return atomic_load(&h->has_silent);
}

int gn_heartbeat_anyone_left(const struct gn_heartbeat *h)
{
	return atomic_load(&h->left) != 0;
}
