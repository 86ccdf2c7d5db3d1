/* Queries of the ranks' states. A rank in which an operation makes no progress reports a suspected stall to rank 0, which queries
 * the flight records of all ranks and diagnoses them together; it does the same when a rank is lost. The heartbeat threads answer,
 * so that the state of a rank whose program hangs or is busy is known, too. */
#include "src/base/clock.h"
#include "transport/health/diagnosis.h"
#include "transport/health/heartbeat_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Between two suspicions of one rank: doubled while they lead to no diagnosis, up to the maximum, so that ranks that wait for
 * minutes for a good reason do not load rank 0. */
#define SUSPECT_EVERY_NS 300000000u
#define SUSPECT_MAX_NS 1200000000u
#define SUSPECT_NS_PER_RANK 1000000u
/* A query that has not completed within this time may be replaced by another one. */
#define ANSWER_NS 1500000000u
/* The time for the other ranks' records after a loss. */
#define LOSS_NS 300000000u

/* The data of GN_HEARTBEAT_SUSPECT: the operation that makes no progress, and the time until the rank reports it again. */
struct suspicion {
	uint64_t number, pause_ns;
};

_Static_assert(sizeof(struct gn_record) <= GN_HEARTBEAT_TEXT_MAX, "a record must fit into a message");

/* A rank that was lost during the query about another one. */
struct later_loss {
	struct later_loss *next;
	int rank;
	char reason[GN_HEARTBEAT_TEXT_MAX];
};

struct gn_state_query {
	uint64_t number, queried_ns;
	int pending, active;
	int lost; /* the lost rank that the query is about, never rank 0; 0: a suspected stall */
	char reason[GN_HEARTBEAT_TEXT_MAX];
	struct later_loss *later, **later_end; /* to be reported after it, in order */
	struct gn_record *records;
	unsigned char *present, *queried;
};

enum gn_status gn_state_query_create(int size, struct gn_state_query **out, struct gn_err *err)
{
	struct gn_state_query *q = calloc(1, sizeof *q);

	if (q) {
		q->records = calloc((size_t)size, sizeof *q->records);
		q->present = calloc((size_t)size, 1);
		q->queried = calloc((size_t)size, 1);
	}
	if (!q || !q->records || !q->present || !q->queried) {
		gn_state_query_destroy(q);
		return gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for the records of %d ranks", size);
	}
	q->later_end = &q->later;
	*out = q;
	return GN_OK;
}

void gn_state_query_destroy(struct gn_state_query *q)
{
	if (!q)
		return;
	for (struct later_loss *l = q->later, *next; l; l = next) {
		next = l->next;
		free(l);
	}
	free(q->records);
	free(q->present);
	free(q->queried);
	free(q);
}

static void query_all(struct gn_heartbeat *h, uint64_t number);

/* The oldest operation in flight on any rank. Ranks that have completed it may have started another operation under that number (a
 * broadcast's root needs no answer): that mismatch is the cause, not the operation they wait in now. */
static uint64_t oldest_operation(const struct gn_heartbeat *h)
{
	const struct gn_state_query *q = h->query;
	uint64_t first = q->number;

	for (int r = 0; r < h->options.size; r++)
		if (q->present[r] && q->records[r].oldest && q->records[r].oldest < first &&
		    q->records[r].oldest >> GN_RECORD_GROUP_SHIFT == q->number >> GN_RECORD_GROUP_SHIFT)
			first = q->records[r].oldest;
	return first;
}

static void report_lost(struct gn_heartbeat *h, int rank, const char *text)
{
	gn_heartbeat_set_lost(h, rank, text);
	gn_heartbeat_coordinator_broadcast(h, GN_HEARTBEAT_LOST, rank, text);
}

static void report_later(struct gn_heartbeat *h)
{
	struct gn_state_query *q = h->query;

	for (struct later_loss *l; (l = q->later);) {
		q->later = l->next;
		report_lost(h, l->rank, l->reason);
		free(l);
	}
	q->later_end = &q->later;
}

void gn_state_query_report_loss(struct gn_heartbeat *h)
{
	struct gn_state_query *q = h->query;
	struct gn_diagnosis_input in = {h->options.size, q->records, q->present, NULL, 0, NULL};
	char text[GN_HEARTBEAT_TEXT_MAX];
	int lost = q->lost;
	size_t len;

	if (!lost)
		return;
	q->active = q->lost = 0;
	len = (size_t)snprintf(text, sizeof text, "%.*s; ", GN_HEARTBEAT_TEXT_MAX - 4, q->reason);
	pthread_mutex_lock(&h->lock);
	in.hosts = (const char *const *)h->hosts;
	gn_diagnose_loss(&in, lost, text + len, sizeof text - len);
	pthread_mutex_unlock(&h->lock);
	if (!text[len])
		text[len - 2] = 0;
	report_lost(h, lost, text);
	report_later(h);
}

static void finish_query(struct gn_heartbeat *h)
{
	struct gn_state_query *q = h->query;
	unsigned char lost[h->options.size];
	struct gn_diagnosis_input in = {h->options.size, q->records, q->present, NULL, q->number, lost};
	char text[GN_HEARTBEAT_TEXT_MAX];
	enum gn_status status;

	if (q->lost) {
		gn_state_query_report_loss(h);
		return;
	}
	q->active = 0;
	if (oldest_operation(h) < q->number) {
		query_all(h, oldest_operation(h));
		return;
	}
	for (int r = 0; r < h->options.size; r++)
		lost[r] = (unsigned char)gn_heartbeat_is_lost(h, r);
	pthread_mutex_lock(&h->lock);
	in.hosts = (const char *const *)h->hosts;
	status = gn_diagnose(&in, text, sizeof text);
	pthread_mutex_unlock(&h->lock);
	if (!status)
		return;
	gn_heartbeat_set_failure(h, status, text);
	gn_heartbeat_coordinator_broadcast(h, GN_HEARTBEAT_FAILURE, -status, text);
}

static void add_record(struct gn_heartbeat *h, int rank, const struct gn_record *record)
{
	struct gn_state_query *q = h->query;

	if (!q->active || !q->queried[rank] || q->present[rank] || record->number != q->number)
		return;
	q->records[rank] = *record;
	q->records[rank].op[GN_RECORD_OP_MAX - 1] = 0;
	q->records[rank].oldest_op[GN_RECORD_OP_MAX - 1] = 0;
	q->records[rank].phase[GN_RECORD_PHASE_MAX - 1] = 0;
	q->records[rank].waits_by[GN_RECORD_RAIL_MAX - 1] = 0;
	q->present[rank] = 1;
	if (--q->pending == 0)
		finish_query(h);
}

/* One query at a time. Ranks that have left are not queried. A rank that does not answer is found by the heartbeat, or by a later
 * query. */
static void query_all(struct gn_heartbeat *h, uint64_t number)
{
	struct gn_state_query *q = h->query;
	uint64_t now = gn_clock_ns(), until;
	struct gn_heartbeat_message m;
	struct gn_record own;

	if (atomic_load(&h->failure) || (q->active && !q->lost && now - q->queried_ns < ANSWER_NS))
		return;
	memset(q->present, 0, (size_t)h->options.size);
	memset(q->queried, 0, (size_t)h->options.size);
	q->number = number;
	q->queried_ns = now;
	q->active = 1;
	q->pending = 0;
	for (int r = 1; r < h->options.size; r++) {
		if (h->members[r].state == GN_HEARTBEAT_PEER_ABSENT) {
			q->active = 0;
			return;
		}
		q->queried[r] = h->members[r].state == GN_HEARTBEAT_PEER_CONNECTED;
		q->pending += q->queried[r];
	}
	q->queried[0] = !h->leave_sent;
	q->pending += q->queried[0];
	m = gn_heartbeat_data_message(GN_HEARTBEAT_QUERY, 0, &number, sizeof number);
	until = gn_heartbeat_send_deadline_ns();
	for (int r = 1; r < h->options.size; r++)
		if (q->queried[r])
			gn_heartbeat_send(&h->members[r].stream, &m, until);
	if (q->queried[0]) {
		gn_recorder_report(h->options.recorder, number, now, &own);
		add_record(h, 0, &own);
	}
}

/* Many ranks report the same stall at the same time: only a suspicion that is not covered by the last query starts another one. */
static void handle_suspicion(struct gn_heartbeat *h, const struct suspicion *s)
{
	const struct gn_state_query *q = h->query;

	if (!q->lost && (q->active || gn_clock_ns() - q->queried_ns >= s->pause_ns))
		query_all(h, s->number);
}

void gn_state_query_receive(struct gn_heartbeat *h, int rank, const struct gn_heartbeat_message *in)
{
	struct suspicion s;
	struct gn_record record;

	if (!h->options.recorder)
		return;
	if (in->type == GN_HEARTBEAT_SUSPECT) {
		memcpy(&s, in->text, sizeof s);
		handle_suspicion(h, &s);
	} else if (in->type == GN_HEARTBEAT_RECORD) {
		memcpy(&record, in->text, sizeof record);
		add_record(h, rank, &record);
	}
}

/* A rank that was queried is lost before it has answered. */
static void remove_queried(struct gn_heartbeat *h, int rank)
{
	struct gn_state_query *q = h->query;

	if (!q->active || !q->queried[rank] || q->present[rank])
		return;
	q->queried[rank] = 0;
	if (--q->pending == 0)
		finish_query(h);
}

/* Without memory it is reported at once. */
static void report_after_query(struct gn_heartbeat *h, int rank, const char *reason)
{
	struct gn_state_query *q = h->query;
	struct later_loss *l = calloc(1, sizeof *l);

	if (!l) {
		report_lost(h, rank, reason);
		return;
	}
	l->rank = rank;
	snprintf(l->reason, sizeof l->reason, "%s", reason);
	*q->later_end = l;
	q->later_end = &l->next;
}

void gn_state_query_peer_lost(struct gn_heartbeat *h, int rank, const char *reason)
{
	struct gn_state_query *q = h->query;

	/* the job ends on all ranks */
	if (atomic_load(&h->failure))
		return;
	if (q->lost) {
		/* the ranks of a lost node are lost together: one query for all of them */
		report_after_query(h, rank, reason);
		remove_queried(h, rank);
		return;
	}
	q->lost = rank;
	q->active = 0;
	snprintf(q->reason, sizeof q->reason, "%s", reason);
	memset(q->present, 0, (size_t)h->options.size);
	/* with two ranks only this one is left, and its error ends with its own state; what a rank says of itself needs no others' */
	if (h->options.recorder && !h->leave_sent && h->options.size > 2 && !atomic_load(&h->causes[rank]))
		query_all(h, 0);
	if (!q->active)
		gn_state_query_report_loss(h);
}

void gn_state_query_reply(struct gn_heartbeat *h, const struct gn_heartbeat_message *in)
{
	struct gn_heartbeat_message answer;
	struct gn_record record;
	uint64_t number;

	if (!h->options.recorder)
		return;
	memcpy(&number, in->text, sizeof number);
	gn_recorder_report(h->options.recorder, number, gn_clock_ns(), &record);
	answer = gn_heartbeat_data_message(GN_HEARTBEAT_RECORD, h->options.rank, &record, sizeof record);
	gn_heartbeat_send(&h->coordinator, &answer, gn_heartbeat_send_deadline_ns());
}

/* Plans the next suspicion: at the latest when this rank's time limit is reached, and again soon after, when the limits of the
 * others are reached, too. */
static struct suspicion next_suspicion(struct gn_heartbeat *h, const struct gn_record *r, uint64_t now)
{
	uint64_t max = SUSPECT_MAX_NS + (uint64_t)h->options.size * SUSPECT_NS_PER_RANK, pause = 2 * h->suspect_pause_ns;
	uint64_t left = r->idle_ms < r->limit_ms ? (uint64_t)(r->limit_ms - r->idle_ms) * 1000000 : 0;

	if (!r->suspects || r->oldest != h->suspected || (!left && h->suspect_in_time))
		pause = SUSPECT_EVERY_NS;
	h->suspect_pause_ns = pause < max ? pause : max;
	h->suspected = r->suspects ? r->oldest : 0;
	h->suspect_in_time = left > 0;
	h->suspect_at_ns = now + (left && left < h->suspect_pause_ns ? left : h->suspect_pause_ns);
	return (struct suspicion){r->oldest, h->suspect_pause_ns};
}

void gn_state_query_progress(struct gn_heartbeat *h, uint64_t now)
{
	struct gn_heartbeat_message m;
	struct gn_record record;
	struct suspicion s;

	if (!h->options.recorder)
		return;
	gn_recorder_sample(h->options.recorder, now);
	if (h->query && h->query->lost) {
		if (now - h->query->queried_ns > LOSS_NS)
			gn_state_query_report_loss(h);
		return;
	}
	if (now < h->suspect_at_ns || atomic_load(&h->failure))
		return;
	gn_recorder_report(h->options.recorder, 0, now, &record);
	s = next_suspicion(h, &record, now);
	if (!record.suspects)
		return;
	if (h->options.rank == 0) {
		handle_suspicion(h, &s);
	} else if (h->coordinator.fd >= 0) {
		m = gn_heartbeat_data_message(GN_HEARTBEAT_SUSPECT, h->options.rank, &s, sizeof s);
		gn_heartbeat_send(&h->coordinator, &m, gn_heartbeat_send_deadline_ns());
	}
}
