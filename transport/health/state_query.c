/* Nobody moves: whoever waits tells rank 0, which asks all ranks for their records and says what they mean together; so it does
 * when a rank is lost. Watches answer by themselves, so a program that is elsewhere, or hangs, is accounted for, too. */
#include "src/base/clock.h"
#include "transport/health/diagnosis.h"
#include "transport/health/heartbeat_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Between two suspicions of a rank: doubled for as long as nothing comes of them, up to the most, so that ranks that rightly wait for
 * minutes do not keep rank 0 busy. */
#define SUSPECT_EVERY_NS 300000000u
#define SUSPECT_MOST_NS 1200000000u
#define SUSPECT_NS_PER_RANK 1000000u
#define ANSWER_NS 1500000000u
#define LOSS_NS 300000000u

/* What a rank tells rank 0: the operation that it waits in, and how long it will wait before it says so again. */
struct suspicion {
	uint64_t number, pause_ns;
};

_Static_assert(sizeof(struct gn_record) <= GN_HEARTBEAT_TEXT_MAX, "a record must fit into a message");

struct gn_state_query {
	uint64_t number, asked_ns;
	int missing, open;
	int lost; /* the rank that was lost: it is what the inquiry is about; 0: nobody, for it is never rank 0 */
	char how[GN_HEARTBEAT_TEXT_MAX];
	struct gn_record *records;
	unsigned char *present, *asked;
};

enum gn_status gn_state_query_create(int size, struct gn_state_query **out, struct gn_err *err)
{
	struct gn_state_query *q = calloc(1, sizeof *q);

	if (q) {
		q->records = calloc((size_t)size, sizeof *q->records);
		q->present = calloc((size_t)size, 1);
		q->asked = calloc((size_t)size, 1);
	}
	if (!q || !q->records || !q->present || !q->asked) {
		gn_state_query_destroy(q);
		return gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for the records of %d ranks", size);
	}
	*out = q;
	return GN_OK;
}

void gn_state_query_destroy(struct gn_state_query *q)
{
	if (!q)
		return;
	free(q->records);
	free(q->present);
	free(q->asked);
	free(q);
}

static void ask_all(struct gn_heartbeat *w, uint64_t number);

/* The first operation that anyone is in. Ranks that are through with it may have called something else by that number (a
 * broadcast needs no answer), which is what to find out, not what they wait in since. */
static uint64_t first_of_all(const struct gn_heartbeat *w)
{
	const struct gn_state_query *q = w->inquiry;
	uint64_t first = q->number;

	for (int r = 0; r < w->options.size; r++)
		if (q->present[r] && q->records[r].oldest && q->records[r].oldest < first)
			first = q->records[r].oldest;
	return first;
}

void gn_state_query_settle(struct gn_heartbeat *w)
{
	struct gn_state_query *q = w->inquiry;
	struct gn_diagnosis_input in = {w->options.size, q->records, q->present, NULL, 0};
	char text[GN_HEARTBEAT_TEXT_MAX];
	int lost = q->lost;
	size_t len;

	if (!lost)
		return;
	q->open = q->lost = 0;
	len = (size_t)snprintf(text, sizeof text, "%.*s; ", GN_HEARTBEAT_TEXT_MAX - 4, q->how);
	pthread_mutex_lock(&w->lock);
	in.hosts = (const char *const *)w->hosts;
	gn_diagnose_loss(&in, lost, text + len, sizeof text - len);
	pthread_mutex_unlock(&w->lock);
	if (!text[len])
		text[len - 2] = 0;
	gn_heartbeat_note_lost(w, lost, text);
	gn_heartbeat_coordinator_announce(w, GN_HEARTBEAT_LOST, lost, text);
}

static void conclude(struct gn_heartbeat *w)
{
	struct gn_state_query *q = w->inquiry;
	struct gn_diagnosis_input in = {w->options.size, q->records, q->present, NULL, q->number};
	char text[GN_HEARTBEAT_TEXT_MAX];
	enum gn_status status;

	if (q->lost) {
		gn_state_query_settle(w);
		return;
	}
	q->open = 0;
	if (first_of_all(w) < q->number) {
		ask_all(w, first_of_all(w));
		return;
	}
	pthread_mutex_lock(&w->lock);
	in.hosts = (const char *const *)w->hosts;
	status = gn_diagnose(&in, text, sizeof text);
	pthread_mutex_unlock(&w->lock);
	if (!status)
		return;
	gn_heartbeat_note_verdict(w, status, text);
	gn_heartbeat_coordinator_announce(w, GN_HEARTBEAT_VERDICT, -status, text);
}

static void add(struct gn_heartbeat *w, int rank, const struct gn_record *record)
{
	struct gn_state_query *q = w->inquiry;

	if (!q->open || !q->asked[rank] || q->present[rank] || record->number != q->number)
		return;
	q->records[rank] = *record;
	q->records[rank].op[GN_RECORD_OP_MAX - 1] = 0;
	q->records[rank].oldest_op[GN_RECORD_OP_MAX - 1] = 0;
	q->records[rank].phase[GN_RECORD_PHASE_MAX - 1] = 0;
	q->records[rank].waits_by[GN_RECORD_RAIL_MAX - 1] = 0;
	q->present[rank] = 1;
	if (--q->missing == 0)
		conclude(w);
}

/* One at a time. Who is away has nothing to say; who does not answer is the heartbeat's business, and a later inquiry's. */
static void ask_all(struct gn_heartbeat *w, uint64_t number)
{
	struct gn_state_query *q = w->inquiry;
	uint64_t now = gn_clock_ns(), until;
	struct gn_heartbeat_message m;
	struct gn_record mine;

	if (atomic_load(&w->lost) || (q->open && !q->lost && now - q->asked_ns < ANSWER_NS))
		return;
	memset(q->present, 0, (size_t)w->options.size);
	memset(q->asked, 0, (size_t)w->options.size);
	q->number = number;
	q->asked_ns = now;
	q->open = 1;
	q->missing = 0;
	for (int r = 1; r < w->options.size; r++) {
		if (w->members[r].state == GN_HEARTBEAT_ABSENT) {
			q->open = 0;
			return;
		}
		q->asked[r] = w->members[r].state == GN_HEARTBEAT_HERE;
		q->missing += q->asked[r];
	}
	q->asked[0] = !w->said_goodbye;
	q->missing += q->asked[0];
	m = gn_heartbeat_say_bytes(GN_HEARTBEAT_ASK, 0, &number, sizeof number);
	until = gn_heartbeat_send_until();
	for (int r = 1; r < w->options.size; r++)
		if (q->asked[r])
			gn_heartbeat_send(&w->members[r].stream, &m, until);
	if (q->asked[0]) {
		gn_recorder_tell(w->options.recorder, number, now, &mine);
		add(w, 0, &mine);
	}
}

/* Many ranks say so at the same time, each for the same reason: there was an inquiry a moment ago, unless this one is newer. */
static void suspect(struct gn_heartbeat *w, const struct suspicion *s)
{
	const struct gn_state_query *q = w->inquiry;

	if (!q->lost && (q->open || gn_clock_ns() - q->asked_ns >= s->pause_ns))
		ask_all(w, s->number);
}

void gn_state_query_hear(struct gn_heartbeat *w, int rank, const struct gn_heartbeat_message *in)
{
	struct suspicion s;
	struct gn_record record;

	if (!w->options.recorder)
		return;
	if (in->type == GN_HEARTBEAT_SUSPECT) {
		memcpy(&s, in->text, sizeof s);
		suspect(w, &s);
	} else if (in->type == GN_HEARTBEAT_TELL) {
		memcpy(&record, in->text, sizeof record);
		add(w, rank, &record);
	}
}

/* Who was asked will not answer. */
static void miss_answer(struct gn_heartbeat *w, int rank)
{
	struct gn_state_query *q = w->inquiry;

	if (!q->open || !q->asked[rank] || q->present[rank])
		return;
	q->asked[rank] = 0;
	if (--q->missing == 0)
		conclude(w);
}

void gn_state_query_lose(struct gn_heartbeat *w, int rank, const char *how)
{
	struct gn_state_query *q = w->inquiry;

	/* all keep the first that they are told of: with a node its ranks are lost together, and of each all others were told */
	if (atomic_load(&w->lost))
		return;
	if (q->lost) {
		miss_answer(w, rank);
		return;
	}
	q->lost = rank;
	q->open = 0;
	snprintf(q->how, sizeof q->how, "%s", how);
	memset(q->present, 0, (size_t)w->options.size);
	/* the only one that is left tells of itself */
	if (w->options.recorder && !w->said_goodbye && w->options.size > 2)
		ask_all(w, 0);
	if (!q->open)
		gn_state_query_settle(w);
}

void gn_state_query_answer(struct gn_heartbeat *w, const struct gn_heartbeat_message *in)
{
	struct gn_heartbeat_message answer;
	struct gn_record record;
	uint64_t number;

	if (!w->options.recorder)
		return;
	memcpy(&number, in->text, sizeof number);
	gn_recorder_tell(w->options.recorder, number, gn_clock_ns(), &record);
	answer = gn_heartbeat_say_bytes(GN_HEARTBEAT_TELL, w->options.rank, &record, sizeof record);
	gn_heartbeat_send(&w->up, &answer, gn_heartbeat_send_until());
}

/* When to suspect next: at the latest when what is tolerated is over, and soon after it again, for the others' is over then, too. */
static struct suspicion plan_next(struct gn_heartbeat *w, const struct gn_record *r, uint64_t now)
{
	uint64_t most = SUSPECT_MOST_NS + (uint64_t)w->options.size * SUSPECT_NS_PER_RANK, pause = 2 * w->suspect_pause_ns;
	uint64_t left = r->idle_ms < r->limit_ms ? (uint64_t)(r->limit_ms - r->idle_ms) * 1000000 : 0;

	if (!r->suspects || r->oldest != w->suspected || (!left && w->suspect_in_time))
		pause = SUSPECT_EVERY_NS;
	w->suspect_pause_ns = pause < most ? pause : most;
	w->suspected = r->suspects ? r->oldest : 0;
	w->suspect_in_time = left > 0;
	w->suspect_at_ns = now + (left && left < w->suspect_pause_ns ? left : w->suspect_pause_ns);
	return (struct suspicion){r->oldest, w->suspect_pause_ns};
}

void gn_state_query_turn(struct gn_heartbeat *w, uint64_t now)
{
	struct gn_heartbeat_message m;
	struct gn_record record;
	struct suspicion s;

	if (!w->options.recorder)
		return;
	gn_recorder_sample(w->options.recorder, now);
	if (w->inquiry && w->inquiry->lost) {
		if (now - w->inquiry->asked_ns > LOSS_NS)
			gn_state_query_settle(w);
		return;
	}
	if (now < w->suspect_at_ns || atomic_load(&w->lost))
		return;
	gn_recorder_tell(w->options.recorder, 0, now, &record);
	s = plan_next(w, &record, now);
	if (!record.suspects)
		return;
	if (w->options.rank == 0) {
		suspect(w, &s);
	} else if (w->up.fd >= 0) {
		m = gn_heartbeat_say_bytes(GN_HEARTBEAT_SUSPECT, w->options.rank, &s, sizeof s);
		gn_heartbeat_send(&w->up, &m, gn_heartbeat_send_until());
	}
}
