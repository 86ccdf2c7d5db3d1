/* How a world begins, or how a rank tells the others that it does not take part. */
#include "transport/bootstrap/world_internal.h"

#include "src/base/clock.h"
#include "src/base/option.h"
#include "src/base/sha256.h"
#include "transport/auth/handshake.h"
#include "transport/health/heartbeat.h"
#include "transport/health/recorder.h"

#include <errno.h>
#include <openssl/crypto.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* After a failed exchange: the time for the heartbeat to report the lost rank. */
#define REASON_NS 3000000000u
/* How long rank 0, when it declines, waits for the others, which are to know why; and how long another one waits for rank 0 until it says
 * why by itself: half of that. */
#define DECLINE_MS 10000
#define SOON_MS 4000
/* How long a rank of another version waits for rank 0's heartbeat to refuse it. */
#define REFUSAL_MS 5000

/* Rank 0's root info. Its place where it stands up to the contact does not change: another version finds it, and with it the heartbeat,
 * where both learn of each other. */
struct root_info {
	struct gn_handshake_version version;
	struct gn_secret random;
	struct gn_heartbeat_contact contact;
	struct gn_limits limits;
	struct gn_err declines; /* why rank 0 does not take part; GN_OK: it does */
};

struct rank_host {
	const char *host;
	int rank;
};

/* What each process was started as: ranks that were not started alike are told so before they begin, whatever they would do first. What
 * defaults and recipes make of the options train compares later (gn_agree_options()). */

static const char *command = "";

void gn_world_set_command(const char *text)
{
	command = text;
}

static enum gn_status command_digest(char digest[GN_SHA256_HEX], struct gn_err *err)
{
	return gn_sha256_buffer(command, strlen(command), digest, err);
}

/* The name of a command ends at a space. What options that only one of two versions has do, is not for here: gn_agree_program(). */
static enum gn_status compare(const struct gn_world *w, size_t rank, const char *first, const char *other, struct gn_err *err)
{
	size_t first_len = strcspn(first, " "), len = strcspn(other, " ");
	enum gn_status status;

	if (first_len != len || strncmp(first, other, len))
		return gn_err_set(err, GN_ERR_MISMATCH, "rank %zu on %s runs gannet %.*s, and rank 0 on %s gannet %.*s: start the same command everywhere",
				  rank, w->hosts[rank], (int)len, other, w->hosts[0], (int)first_len, first);
	status = gn_options_agree(first + len + (first[len] != 0), other + len + (other[len] != 0), err);
	if (status)
		gn_err_prefix(err, "rank %zu on %s", rank, w->hosts[rank]);
	return status;
}

/* Collective, where digests differ: GN_ERR_MISMATCH with the same text on all ranks, which rank 0 tells. */
static enum gn_status compare_commands(struct gn_world *w, struct gn_err *err)
{
	struct gn_gathered all = {0};
	enum gn_status status = w->bootstrap->ops->exchange(w->bootstrap, command, strlen(command) + 1, &all, err);

	for (size_t r = 0; !status && r < all.size; r++) {
		const char *first = all.items[0], *other = all.items[r];

		if (!all.lens[r] || first[all.lens[0] - 1] || other[all.lens[r] - 1])
			status = gn_err_set(err, GN_ERR_MISMATCH, "rank %zu runs another version of this program", r);
		else
			status = compare(w, r, first, other, err);
	}
	gn_gathered_release(&all);
	if (status == GN_ERR_MISMATCH && err)
		err->told = w->bootstrap->rank > 0;
	return status;
}

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

enum gn_status gn_world_find_reason(const struct gn_world *w, uint64_t started_ns, enum gn_status failure, struct gn_err *err)
{
	uint64_t until = gn_clock_ns() + REASON_NS;
	enum gn_status status = GN_OK;
	struct gn_err lost;

	if (failure == GN_ERR_USAGE || failure == GN_ERR_MISMATCH)
		return failure;
	while (w->heartbeat && !status && gn_clock_ns() < until) {
		status = gn_heartbeat_check_wait(w->heartbeat, started_ns, &lost);
		if (!status)
			gn_clock_sleep_ns(5000000);
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
	int size = w->bootstrap->size, wrong = -1, differ = 0;
	struct gn_gathered all = {0};
	char mine[GN_SHA256_HEX + GN_WORLD_HOST_MAX] = ""; /* the command's digest and the host */
	const size_t digest = GN_SHA256_HEX - 1;
	uint64_t started = gn_clock_ns();
	enum gn_status status = command_digest(mine, err);

	if (!status && gethostname(mine + digest, GN_WORLD_HOST_MAX - 1))
		status = gn_err_errno(err, errno, "this host has no name");
	if (status)
		return status;
	status = w->bootstrap->ops->exchange(w->bootstrap, mine, strlen(mine), &all, err);
	if (status)
		return gn_world_find_reason(w, started, status, err);
	for (int r = 0; r < size && wrong < 0; r++) {
		if (all.lens[r] <= digest || all.lens[r] >= digest + GN_WORLD_HOST_MAX || memchr(all.items[r], 0, all.lens[r])) {
			wrong = r;
		} else {
			memcpy(w->hosts[r], (const char *)all.items[r] + digest, all.lens[r] - digest);
			differ |= memcmp(all.items[r], all.items[0], digest);
		}
	}
	gn_gathered_release(&all);
	if (wrong >= 0)
		return gn_err_set(err, GN_ERR_MISMATCH, "rank %d runs another version of this program", wrong);
	return differ ? compare_commands(w, err) : GN_OK;
}

/* Once the limits are final. */
static enum gn_status apply_limits(struct gn_world *w, struct gn_heartbeat_options *o, struct gn_err *err)
{
	enum gn_status status = gn_recorder_create(gn_world_ms(w->limits.stall_s), &w->recorder, err);

	o->recorder = w->recorder;
	o->silent_after_ms = gn_world_ms(w->limits.heartbeat_s);
	o->timeout_ms = gn_world_ms(w->limits.join_s);
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

/* Rank 0: starts the heartbeat and distributes its contact. declines: why this rank does not take part; NULL: it does. */
static enum gn_status host_heartbeat(struct gn_world *w, struct gn_heartbeat_options *o, const struct gn_err *declines, struct gn_err *err)
{
	struct gn_bootstrap *b = w->bootstrap;
	struct root_info info = {.version = gn_handshake_version(), .declines = declines ? *declines : (struct gn_err){.status = GN_OK}};
	enum gn_status status = gn_secret_random(&info.random, err);

	if (!status)
		status = derive_secret(w, &info.random, err);
	o->secret = w->secret;
	if (!status)
		status = apply_limits(w, o, err);
	if (declines && o->timeout_ms > DECLINE_MS) {
		o->timeout_ms = DECLINE_MS;
		gn_bootstrap_set_timeout(b, DECLINE_MS);
	}
	info.limits = w->limits;
	if (!status && b->size > 1)
		status = gn_heartbeat_host(o, &w->heartbeat, &info.contact, err);
	if (status == GN_ERR_USAGE)
		gn_err_prefix(err, GN_WORLD_IFNAMES ", --socket-ifname");
	if (!status && b->size > 1 && !declines)
		log_start(w, &info.contact, o->log);
	/* a rank that declines as well, and says so, does not keep the others from learning why */
	b->heartbeat = declines ? NULL : w->heartbeat;
	if (!status)
		status = b->ops->root_info(b, &info, sizeof info, NULL, NULL, err);
	b->heartbeat = w->heartbeat;
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

/* Rank 0 is of another version: both tell so at its heartbeat, to all. What rank 0 published does not reach that far: the job ends with this
 * rank, since rank 0 would wait for it. */
static enum gn_status refuse_version(struct gn_world *w, struct gn_heartbeat_options *o, const struct root_info *info, size_t len, struct gn_err *err)
{
	struct gn_handshake_version own = gn_handshake_version();
	struct gn_err why, ignored;

	if (len < offsetof(struct root_info, limits) || memcmp(info->version.magic, own.magic, sizeof own.magic) ||
	    !gn_handshake_compare(&info->version, &why)) {
		gn_err_set(&why, GN_ERR_MISMATCH, "rank 0 is of another version than %s: start the same program on all nodes", own.text);
	} else if (!derive_secret(w, &info->random, &ignored)) {
		o->secret = w->secret;
		o->silent_after_ms = o->timeout_ms = REFUSAL_MS;
		gn_heartbeat_join(o, &info->contact, &w->heartbeat, &ignored);
	}
	return gn_err_set(err, why.status, "rank %d: %s", w->bootstrap->rank, why.text);
}

/* Other ranks: join the heartbeat if rank 0's root info is available yet. *declines: why rank 0 does not take part, or GN_OK. */
static enum gn_status try_join(struct gn_world *w, struct gn_heartbeat_options *o, struct gn_err *declines, struct gn_err *err)
{
	struct root_info *info;
	void *data = NULL;
	size_t len = 0;
	enum gn_status status = w->bootstrap->ops->root_info(w->bootstrap, NULL, 0, &data, &len, err);

	if (status || !data)
		return status;
	info = data;
	if (len != sizeof *info || gn_handshake_compare(&info->version, NULL)) {
		status = refuse_version(w, o, info, len, err);
		OPENSSL_cleanse(data, len);
		free(data);
		return status;
	}
	info->declines.text[sizeof info->declines.text - 1] = 0;
	*declines = info->declines;
	status = join_heartbeat(w, o, info, err);
	gn_secret_wipe(&info->random);
	free(data);
	return status;
}

/* The same of a rank that takes part. */
static enum gn_status join_all(struct gn_world *w, struct gn_heartbeat_options *o, struct gn_err *err)
{
	struct gn_err declines = {.status = GN_OK};
	enum gn_status status = try_join(w, o, &declines, err);

	if (!declines.status)
		return status;
	gn_err_set(err, declines.status, "rank 0 failed: %s", declines.text);
	if (err)
		err->told = 1;
	return declines.status;
}

static enum gn_status check_cancelled(void *bootstrap, struct gn_err *err)
{
	struct gn_bootstrap *b = bootstrap;
	enum gn_status status = b->check ? b->check(b->check_context, err) : GN_OK;

	return status ? status : b->ops->check_cancelled(b, err);
}

/* The heartbeat starts first, so that ranks that have joined are monitored while others are still missing. */
enum gn_status gn_world_join(struct gn_world *w, const char *ifnames, struct gn_log *log, struct gn_err *err)
{
	struct gn_bootstrap *b = w->bootstrap;
	struct gn_heartbeat_options options = {.rank = b->rank, .size = b->size, .log = log, .check_cancelled = check_cancelled,
					       .context = b, .address = b->address, .ifnames = ifnames};
	enum gn_status status;

	b->ifnames = ifnames;
	status = b->rank ? join_all(w, &options, err) : host_heartbeat(w, &options, NULL, err);

	if (!status)
		status = exchange_hosts(w, err);
	/* PMIx itself says that its fence took too long */
	if (status == GN_ERR_STALL && b->rank && !w->heartbeat && !strcmp(b->ops->name, "pmix"))
		gn_err_set(err, status, "rank %d has waited for rank 0 for %g s, which has not come: are all %d ranks started, and do packets of "
			   "all sizes (MTU) and the launcher's ports pass between their nodes?", b->rank,
			   w->limits.join_s, b->size);
	if (!status && w->heartbeat)
		gn_heartbeat_expect_all(w->heartbeat);
	else if (!status && b->rank)
		status = join_all(w, &options, err);
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

/* The other ranks, told by the heartbeat or by the root info, close their connections. */
static void decline_first(struct gn_world *w, struct gn_heartbeat_options *o, const struct gn_err *why)
{
	if (!host_heartbeat(w, o, why, NULL) && w->heartbeat) {
		gn_heartbeat_abort(w->heartbeat, why->status, why->text);
		gn_heartbeat_destroy(w->heartbeat, GN_HEARTBEAT_EXIT_TOGETHER);
		w->heartbeat = w->bootstrap->heartbeat = NULL;
	}
}

void gn_world_decline_in(struct gn_world *w, struct gn_log *log, gn_world_teller *tell, void *context, struct gn_err *why)
{
	struct gn_bootstrap *b = w->bootstrap;
	struct gn_heartbeat_options o = {.rank = b->rank, .size = b->size, .log = log, .check_cancelled = check_cancelled, .context = b,
					 .address = b->address};
	struct gn_err declines = {.status = GN_OK}, ignored, first = *why;
	char host[GN_WORLD_HOST_MAX] = "";
	enum gn_status status = GN_OK;

	if (b->size == 1)
		return;
	/* which an invalid variable leaves unset */
	if (w->limits.join_s <= 0 || w->limits.heartbeat_s <= 0 || w->limits.stall_s <= 0)
		gn_limits_default(b->size, &w->limits);
	gethostname(host, sizeof host - 1);
	if (b->rank)
		gn_err_prefix(why, "rank %d on %s", b->rank, host);
	else if (tell)
		tell(context, why);
	why->told = !b->rank && tell;
	if (!b->rank)
		decline_first(w, &o, &first);
	for (int turn = 0; b->rank && turn < 2 && !w->heartbeat && (!status || status == GN_ERR_STALL); turn++) {
		gn_bootstrap_set_timeout(b, turn ? gn_world_ms(w->limits.join_s) : SOON_MS);
		status = try_join(w, &o, &declines, &ignored);
		if (tell && !w->heartbeat && !why->told) {
			tell(context, why);
			why->told = 1;
		}
	}
	gn_secret_wipe(&o.secret);
	why->told |= declines.status == first.status && !strcmp(declines.text, first.text);
	w->aborted = 1;
	if (w->heartbeat)
		gn_heartbeat_abort(w->heartbeat, first.status, first.text);
}
