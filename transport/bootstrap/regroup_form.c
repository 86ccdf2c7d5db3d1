/* How a new world is agreed on. */
#include "transport/bootstrap/regroup_internal.h"

#include "src/base/clock.h"
#include "src/base/file.h"
#include "src/base/trust.h"
#include "src/base/version.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* A rank whose turn it is not waits so long for each rank before it. */
#define TURN_NS 2000000000u
/* How often it asks whether they live: more of them ask less often. */
#define TURN_LOOK_NS 50000000u
enum { WORLDS_MAX = 16, TURNS_MAX = 4 };

uint64_t gn_regroup_silence_ns(const struct gn_world *w)
{
	return w ? (uint64_t)gn_world_silent_after_ms(w) * 1000000 : TURN_NS;
}

int gn_regroup_is_decided(struct gn_regroup *g)
{
	int decided;

	pthread_mutex_lock(&g->lock);
	decided = g->acceptor.current.epoch > g->epoch;
	pthread_mutex_unlock(&g->lock);
	return decided;
}

int gn_regroup_is_stopped(struct gn_regroup *g)
{
	if (g->stop_asked && *g->stop_asked && !g->stop_ns)
		g->stop_ns = gn_clock_ns();
	return g->stop_ns && gn_clock_ns() > g->stop_ns + GN_REGROUP_STOP_NS;
}

/* Ranks before this one that may be about to propose. */
static int turn(struct gn_regroup *g, const struct gn_world *w, struct gn_roster *roster, struct gn_regroup_request *q, struct gn_regroup_answer *a)
{
	int before = 0, rank;
	enum gn_regroup_reply reply;

	pthread_mutex_lock(&g->lock);
	*roster = g->acceptor.current;
	pthread_mutex_unlock(&g->lock);
	rank = gn_roster_rank(roster, g->self.id);
	*q = (struct gn_regroup_request){.what = GN_REGROUP_WHERE, .epoch = roster->epoch};
	/* losses that the world did not learn of are found by asking */
	for (int r = 0; r < rank && before < TURNS_MAX; r++) {
		if (w && gn_world_is_lost(w, r))
			continue;
		reply = gn_regroup_ask(g, roster->ids[r], q, a);
		before += reply == GN_REGROUP_ANSWERED || reply == GN_REGROUP_SILENT;
	}
	return before;
}

/* Waits for a decision. */
static void await_decision(struct gn_regroup *g, uint64_t wait_ns)
{
	uint64_t until = gn_clock_ns() + wait_ns;

	while (gn_clock_ns() < until && !gn_regroup_is_decided(g) && !gn_regroup_is_stopped(g))
		gn_clock_sleep_ns(GN_REGROUP_PAUSE_NS);
}

static void await_turn(struct gn_regroup *g, const struct gn_world *w)
{
	struct gn_roster *roster = malloc(sizeof *roster);
	struct gn_regroup_request *q = malloc(sizeof *q);
	struct gn_regroup_answer *a = malloc(sizeof *a);
	const uint64_t began = gn_clock_ns();

	while (roster && q && a && !gn_regroup_is_decided(g) && !gn_regroup_is_stopped(g) &&
	       gn_clock_ns() < began + (uint64_t)turn(g, w, roster, q, a) * TURN_NS)
		await_decision(g, TURN_LOOK_NS * (1 + roster->count / 16));
	free(roster);
	free(q);
	free(a);
}

static enum gn_status agree(struct gn_regroup *g, const struct gn_world *w, uint64_t until_ns, struct gn_err *err)
{
	uint64_t began = gn_clock_ns();
	uint32_t promised = 0, ranks = 0;
	enum gn_status status = GN_OK;

	await_turn(g, w);
	for (int number = 0; !status && !gn_regroup_is_decided(g); number++) {
		status = gn_regroup_attempt(g, w, began, until_ns, number, &promised, &ranks, err);
		if (status || gn_regroup_is_decided(g))
			break;
		if (gn_regroup_is_stopped(g))
			return gn_err_set(err, GN_ERR_STOPPED, "stopped on request while the ranks that are left were to form a world");
		/* others that are left have answered by now, or will not */
		if (gn_clock_ns() > until_ns || (number > 2 && gn_clock_ns() > began + gn_regroup_silence_ns(w) + 5 * TURN_NS))
			status = gn_regroup_too_few(promised, ranks, err);
		await_decision(g, (uint64_t)(1 + g->self.id % 7) * 20 * GN_REGROUP_PAUSE_NS);
	}
	return status;
}

/* One round of questions: how many members answer, how many have ended, and whether one of them is in a later world. */
static uint32_t ask_all(struct gn_regroup *g, const struct gn_regroup_request *q, struct gn_regroup_answer *a, uint32_t *dead, int *is_out)
{
	uint32_t answered = 0;

	*dead = 0;
	for (uint32_t m = 0; m < g->world.count && !*is_out; m++) {
		enum gn_regroup_reply reply = gn_regroup_ask(g, g->world.ids[m], q, a);

		*is_out = reply == GN_REGROUP_ANSWERED && a->result == GN_MEMBERSHIP_NEWER;
		answered += reply == GN_REGROUP_ANSWERED;
		*dead += reply == GN_REGROUP_DEAD;
	}
	return answered;
}

enum gn_status gn_regroup_confirm(struct gn_regroup *g, const struct gn_world *w, struct gn_err *err)
{
	const uint64_t until = gn_clock_ns() + (uint64_t)g->silent_ms * 1000000;
	struct gn_regroup_request *q = calloc(1, sizeof *q);
	struct gn_regroup_answer *a = calloc(1, sizeof *a);
	uint32_t answered = 0, dead;
	int is_out = 0, is_known = !q || !a;

	if (!is_known)
		*q = (struct gn_regroup_request){.what = GN_REGROUP_WHERE, .epoch = g->epoch};
	while (!is_known) {
		answered = ask_all(g, q, a, &dead, &is_out);
		is_known = is_out || gn_membership_is_majority(&g->world, answered);
		/* those that are slow to answer may be there for all that */
		is_known |= !gn_membership_is_majority(&g->world, g->world.count - dead) || gn_world_check(w, NULL) || gn_clock_ns() >= until;
		if (!is_known)
			gn_clock_sleep_ns(GN_REGROUP_PAUSE_NS);
	}
	free(q);
	free(a);
	if (is_out)
		return gn_err_set(err, GN_ERR_PEER_LOST, "this rank was taken for lost: others have gone on without it");
	return gn_membership_is_majority(&g->world, answered) ? GN_OK : gn_regroup_too_few(answered, g->world.count, err);
}

/* --- the new world --- */

static enum gn_status enter(struct gn_regroup *g, struct gn_roster *roster, struct gn_err *err)
{
	pthread_mutex_lock(&g->lock);
	*roster = g->acceptor.current;
	if ((int)roster->count > g->usual)
		g->usual = (int)roster->count;
	pthread_mutex_unlock(&g->lock);
	for (uint32_t m = 0; m < roster->count; m++)
		gn_regroup_forget_candidate(g, roster->ids[m], 0);
	g->epoch = roster->epoch;
	g->is_last = !roster->count && roster->ids[0] == g->self.id;
	if (!roster->count)
		return gn_err_set(err, GN_ERR_PEER_LOST, "fewer ranks are left than the %d that this run needs", g->least);
	if (gn_roster_rank(roster, g->self.id) < 0 && g->replaces && g->replaced == g->self.id)
		return gn_err_set(err, GN_ERR_PEER_LOST, "a process that waited has taken the place of this rank in world %" PRIu64 " of this run",
				  roster->epoch);
	g->is_surplus = g->each > 1 && gn_roster_rank(roster, g->self.id) < 0;
	g->is_spare |= g->is_surplus;
	if (g->is_surplus)
		return gn_err_set(err, GN_ERR_PEER_LOST, "%u others have gone on, in groups of %d, and this rank is in none", roster->count, g->each);
	if (gn_roster_rank(roster, g->self.id) < 0)
		return gn_err_set(err, GN_ERR_PEER_LOST, "this rank was taken for lost: %u others have gone on without it, in world %" PRIu64
				  " of this run", roster->count, roster->epoch);
	gn_regroup_learn_contacts(g, roster);
	return GN_OK;
}

enum gn_status gn_regroup_form(struct gn_regroup *g, const struct gn_world_options *how, int limit_ms, struct gn_world **world,
			       struct gn_err *err)
{
	const uint64_t until = gn_clock_ns() + (uint64_t)limit_ms * 1000000;
	struct gn_roster roster;
	enum gn_status status;

	g->is_last = g->is_surplus = 0;
	g->before = g->world;
	pthread_mutex_lock(&g->lock);
	g->ready = 1;
	pthread_mutex_unlock(&g->lock);
	for (int i = 0;; i++) {
		status = agree(g, *world, until, err);
		/* the heartbeat of the old world was of use until here */
		gn_world_destroy(*world);
		*world = NULL;
		if (!status)
			status = enter(g, &roster, err);
		if (status)
			return status;
		g->replaces = 0;
		status = gn_regroup_meet(g, &roster, how, world, err);
		g->world = roster;
		if (!status || status == GN_ERR_NO_MEMORY || status == GN_ERR_STOPPED || i >= WORLDS_MAX)
			return status;
		gn_log_warn(g->log, "another rank was lost before the new world stood: %s", err->text);
	}
}

/* The file by which processes that join a run find its members. */

#define FILE_MAX_BYTES (64u << 20)

/* DIR/members: this and the contacts. Of and for the same build, while the run lasts. */
struct members_file {
	char format[16], build[65], zero[7];
	struct gn_secret secret;
	int32_t first_ranks, usual, silent_ms, contact_count;
	struct gn_roster roster;
};
static const char format[16] = "gannet-members";

enum gn_status gn_regroup_publish(struct gn_regroup *g, const char *directory, struct gn_err *err)
{
	struct members_file *m = calloc(1, sizeof *m);
	struct gn_regroup_contact *contacts = NULL;
	char path[4096], made[4096 + 8];
	int fd = -1;
	enum gn_status status = m ? gn_path_join(path, sizeof path, directory, "members", err) : gn_err_set(err, GN_ERR_NO_MEMORY, "no memory");

	if (!status) {
		pthread_mutex_lock(&g->lock);
		memcpy(m->format, format, sizeof format);
		memcpy(m->build, gn_version_source_digest(), sizeof m->build);
		m->secret = g->secret;
		m->first_ranks = g->first_ranks;
		m->usual = g->usual;
		m->silent_ms = g->silent_ms;
		m->contact_count = (int32_t)g->contact_count;
		m->roster = g->acceptor.current;
		contacts = malloc(g->contact_count * sizeof *contacts);
		if (contacts)
			memcpy(contacts, g->contacts, g->contact_count * sizeof *contacts);
		pthread_mutex_unlock(&g->lock);
		snprintf(made, sizeof made, "%s.new", path);
		/* left by a crash */
		unlink(made);
		fd = open(made, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
		status = fd < 0 ? gn_err_errno(err, errno, "cannot create %s", made) : GN_OK;
	}
	if (!status && !contacts)
		status = gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for contacts");
	if (!status)
		status = gn_write_full(fd, m, sizeof *m, made, err);
	if (!status)
		status = gn_write_full(fd, contacts, (size_t)m->contact_count * sizeof *contacts, made, err);
	if (fd >= 0)
		close(fd);
	if (!status && rename(made, path))
		status = gn_err_errno(err, errno, "cannot rename %s", made);
	if (status && fd >= 0)
		unlink(made);
	if (m)
		gn_secret_wipe(&m->secret);
	free(m);
	free(contacts);
	return status;
}

void gn_regroup_unpublish(const char *directory)
{
	char path[4096];

	if (!gn_path_join(path, sizeof path, directory, "members", NULL))
		unlink(path);
}

static enum gn_status load(const char *path, char **out, size_t *len, struct gn_err *err)
{
	int fd = open(path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
	off_t end;
	enum gn_status status;

	if (fd < 0 && errno == ENOENT)
		return gn_err_set(err, GN_ERR_NOT_FOUND, "there is no %s: no run that others may join (--elastic MIN:MAX) is going on there", path);
	if (fd < 0)
		return gn_err_errno(err, errno, "cannot read %s", path);
	status = gn_trust_check_secret(fd, path, "the file of a run's members", err);
	end = lseek(fd, 0, SEEK_END);
	if (!status && (end < (off_t)sizeof(struct members_file) || end > (off_t)FILE_MAX_BYTES))
		status = gn_err_set(err, GN_ERR_USAGE, "%s is no file of a run's members", path);
	*out = status ? NULL : malloc((size_t)end);
	if (!status)
		status = *out ? gn_pread_full(fd, *out, (size_t)end, 0, path, err) : gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for %s", path);
	close(fd);
	*len = (size_t)end;
	return status;
}

static enum gn_status check_file(const struct members_file *m, size_t len, const char *path, struct gn_err *err)
{
	if (memcmp(m->format, format, sizeof format) || m->contact_count < 0 || m->roster.count > GN_MEMBERS_MAX ||
	    len != sizeof *m + (size_t)m->contact_count * sizeof(struct gn_regroup_contact))
		return gn_err_set(err, GN_ERR_USAGE, "%s is no file of a run's members, or of another version of this program", path);
	if (memcmp(m->build, gn_version_source_digest(), sizeof m->build))
		return gn_err_set(err, GN_ERR_USAGE, "%s is of a run of another build of this program: join it with the same one", path);
	return GN_OK;
}

static enum gn_status open_joining(const struct members_file *m, const struct gn_regroup_options *options, struct gn_regroup **out,
				   struct gn_err *err)
{
	const struct gn_regroup_contact *contacts = (const void *)(m + 1);
	struct gn_regroup *g;
	struct gn_secret random;
	uint64_t id = 0;
	enum gn_status status = gn_secret_random(&random, err);

	/* no rank of the first world has such a one */
	memcpy(&id, random.bytes, sizeof id);
	id |= UINT64_C(1) << 63;
	if (!status)
		status = gn_regroup_create(options, id, &m->secret, &g, err);
	if (status)
		return status;
	g->first_ranks = m->first_ranks;
	g->usual = m->usual;
	g->silent_ms = m->silent_ms;
	gn_acceptor_init(&g->acceptor, &m->roster);
	status = gn_net_choose(options->ifnames ? options->ifnames : getenv(GN_WORLD_IFNAMES), &g->self.addresses, err);
	for (int i = 0; i <= m->contact_count && !status; i++)
		if (gn_regroup_add_contact(g, i < m->contact_count ? &contacts[i] : &g->self))
			status = gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for contacts");
	return gn_regroup_start(g, status, out, err);
}

enum gn_status gn_regroup_join(const char *directory, const struct gn_regroup_options *options, struct gn_regroup **out, struct gn_err *err)
{
	char path[4096], *data = NULL;
	size_t len = 0;
	enum gn_status status = gn_path_join(path, sizeof path, directory, "members", err);

	if (!status)
		status = load(path, &data, &len, err);
	if (!status)
		status = check_file((const void *)data, len, path, err);
	if (!status)
		status = open_joining((const void *)data, options, out, err);
	if (data)
		explicit_bzero(data, len);
	free(data);
	return status;
}
