#include "transport/coll/messages_internal.h"

#include "src/base/clock.h"
#include "transport/topology/affinity.h"

#include <sched.h>
#include <stdlib.h>

#define CHECK_NS 2000000u
/* The longest sleep: what is lost should a wake-up not come. */
#define SLEEP_NS 5000000u

/* --- progress --- */

static void complete(struct gn_messages *m, struct gn_message_send_state *s)
{
	struct gn_message_send *user = s->user;
	void (*answered)(void *context) = s->answered;
	void *context = s->context;
	enum gn_status status = s->status;

	gn_comm_enter(m->comm);
	gn_message_forget_call(s);
	gn_message_unlist(s);
	gn_message_return_send(s);
	gn_comm_leave(m->comm);
	if (answered)
		answered(context);
	if (!user)
		return;
	user->state = NULL;
	user->status = status;
	if (user->complete)
		user->complete(user);
}

/* What completions finish themselves is left for the next time. */
static unsigned complete_finished(struct gn_messages *m)
{
	struct gn_message_send_state *s, *next;
	unsigned count = 0;

	gn_comm_enter(m->comm);
	s = m->finished;
	m->finished = NULL;
	m->finished_end = &m->finished;
	gn_comm_leave(m->comm);
	for (; s; s = next, count++) {
		next = s->next;
		complete(m, s);
	}
	return count;
}

static void end_lost(struct gn_messages *m, unsigned losses)
{
	m->losses = losses;
	for (int r = 0; r < m->size; r++)
		if (gn_world_is_lost(m->comm->world, r))
			gn_messages_lost(m, r);
}

unsigned gn_messages_progress(struct gn_messages *m)
{
	unsigned events, losses = gn_world_losses(m->comm->world);
	struct gn_message_peer *busy, *next, *p;

	if (losses != m->losses)
		end_lost(m, losses);
	gn_comm_enter(m->comm);
	events = gn_comm_progress(m->comm);
	gn_message_receive_answers(m);
	busy = m->busy;
	m->busy = NULL;
	for (p = busy; p; p = p->next_busy) {
		gn_message_launch_waiting(m, p);
		gn_message_receive_offered(m, p);
		gn_message_return_credits(m, p);
	}
	for (p = busy; p; p = next) {
		next = p->next_busy;
		p->is_busy = 0;
		events += gn_message_deliver(m, p);
		if (gn_message_has_work(m, p) || p->owed >= GN_MESSAGES_OWED_MAX)
			gn_message_make_busy(m, p);
	}
	gn_comm_leave(m->comm);
	return events + complete_finished(m);
}

void gn_messages_rest(struct gn_messages *m, int wake_fd)
{
	struct gn_idle_wait idle;
	int may_sleep;

	gn_comm_enter(m->comm);
	may_sleep = !m->busy && !m->finished && gn_idle_wait_begin(m->comm, &idle);
	gn_comm_leave(m->comm);
	if (may_sleep)
		gn_idle_wait_sleep(&idle, SLEEP_NS, wake_fd);
	else
		sched_yield();
}

enum gn_status gn_messages_wait(struct gn_messages *m, int (*is_done)(void *context), void *context, struct gn_err *err)
{
	unsigned idle = 0, polls = m->comm->oversubscribed ? GN_POLLS_OVERSUBSCRIBED : GN_POLLS;
	uint64_t checked = 0, now;
	enum gn_status status;

	while (!is_done(context)) {
		if (gn_messages_progress(m)) {
			idle = 0;
		} else if (++idle % polls == 0) {
			gn_messages_rest(m, -1);
		}
		if (idle % polls)
			continue;
		now = gn_clock_ns();
		if (now - checked < CHECK_NS)
			continue;
		checked = now;
		status = gn_world_check_ranks(m->comm->world, &m->rank, 1, 0, err);
		if (status)
			return status;
	}
	return GN_OK;
}

/* --- lost ranks --- */

/* UCX may still read what was handed to it: that is left to it, and the user's completion goes by another state. */
static void end_send(struct gn_messages *m, struct gn_message_send_state *s)
{
	struct gn_message_send_state *other = s;

	if (!s->is_sent) {
		other = gn_message_take_send(m, s->to);
		if (!other)
			return;
		gn_message_forget_call(s);
		gn_message_unlist(s);
		other->user = s->user;
		other->user->state = other;
		s->user = NULL;
		s->call = 0;
		gn_message_list(&m->without_user, s);
	}
	other->is_answered = 1;
	gn_message_finish(other, GN_ERR_PEER_LOST);
}

void gn_messages_lost(struct gn_messages *m, int rank)
{
	struct gn_message_peer *p = &m->peers[rank];

	if (p->is_lost)
		return;
	gn_comm_enter(m->comm);
	p->is_lost = 1;
	for (struct gn_message_send_state *s = p->waiting, *next; s; s = next) {
		next = s->next;
		m->counts.waiting--;
		gn_message_finish(s, GN_ERR_PEER_LOST);
	}
	p->waiting = NULL;
	p->waiting_end = &p->waiting;
	for (struct gn_message_send_state *s = m->newest, *older; s; s = older) {
		older = s->older;
		if (s->to == rank && !s->is_finished)
			end_send(m, s);
	}
	gn_message_drop_all(m, p);
	gn_comm_leave(m->comm);
}

/* --- lifecycle --- */

enum gn_status gn_messages_create(struct gn_comm *c, struct gn_messages **out, struct gn_err *err)
{
	struct gn_messages *m = calloc(1, sizeof *m);
	enum gn_status status;

	if (m)
		m->peers = calloc((size_t)gn_comm_size(c), sizeof *m->peers);
	if (!m || !m->peers) {
		free(m);
		return gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for messages of %d ranks", gn_comm_size(c));
	}
	m->comm = c;
	m->size = gn_comm_size(c);
	m->rank = gn_comm_rank(c);
	m->finished_end = &m->finished;
	for (int r = 0; r < m->size; r++) {
		m->peers[r].credits = GN_MESSAGES_CREDITS;
		m->peers[r].waiting_end = &m->peers[r].waiting;
	}
	c->root->independent = 1;
	status = gn_world_key(c->world, "gannet messages", &m->token, sizeof m->token, err);
	gn_comm_enter(c);
	if (!status)
		status = gn_ucx_am_listen(c->ucx, gn_message_arrived, m, err);
	gn_comm_leave(c);
	if (!status)
		status = gn_comm_barrier(c, err);
	if (status)
		gn_messages_destroy(m);
	else
		*out = m;
	return status;
}

/* UCX may hold on to sends until it ends. Returns whether it may read data of a caller's for a rank that is there. */
static int leave_to_ucx(struct gn_messages *m)
{
	int reads = 0;

	for (struct gn_message_send_state *s = m->without_user, *older; s; s = older) {
		older = s->older;
		if (!s->request.active) {
			free(s->copy);
			free(s);
			continue;
		}
		reads |= s->data_bytes && !s->copy && !m->peers[s->to].is_lost;
		gn_ucx_disown(m->comm->ucx, &s->request);
		/* else they are leaked */
		if (s->copy)
			gn_ucx_keep(m->comm->ucx, s->copy);
		gn_ucx_keep(m->comm->ucx, s);
	}
	return reads;
}

/* Nobody asks for their completions any more. */
static void free_finished(struct gn_messages *m)
{
	for (struct gn_message_send_state *s = m->finished, *next; s; s = next) {
		next = s->next;
		gn_message_unlist(s);
		free(s->copy);
		free(s);
	}
}

static void free_list(struct gn_message_send_state *s, int is_of_users)
{
	for (struct gn_message_send_state *next; s; s = next) {
		next = is_of_users ? s->older : s->next;
		free(s);
	}
}

void gn_messages_destroy(struct gn_messages *m)
{
	if (!m)
		return;
	gn_comm_enter(m->comm);
	gn_ucx_am_listen(m->comm->ucx, NULL, NULL, NULL);
	free_finished(m);
	/* else UCX would go on to read and write users' memory, and then call here, until its end */
	if (leave_to_ucx(m) || m->newest || m->coming)
		gn_comm_break(m->comm);
	for (int r = 0; r < m->size; r++)
		gn_message_drop_all(m, &m->peers[r]);
	gn_comm_leave(m->comm);
	free_list(m->newest, 1);
	free_list(m->free_sends, 0);
	free(m->calls);
	free(m->peers);
	free(m);
}

void gn_messages_count(const struct gn_messages *m, struct gn_messages_counts *out)
{
	gn_comm_enter(m->comm);
	*out = m->counts;
	gn_comm_leave(m->comm);
}
