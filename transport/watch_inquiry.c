/* Nobody moves: whoever waits tells rank 0, which asks all ranks for their records and says what they mean together; so it does
 * when a rank is lost. Watches answer by themselves, so a program that is elsewhere, or hangs, is accounted for, too. */
#include "src/base/clock.h"
#include "transport/diagnosis.h"
#include "transport/watch_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SUSPECT_EVERY_NS 300000000u
#define ANSWER_NS 1500000000u
#define LOSS_NS 300000000u

_Static_assert(sizeof(struct gn_record) <= GN_WATCH_TEXT_MAX, "a record must fit into a message");

struct gn_watch_inquiry {
	uint64_t number, asked_ns;
	int missing, open;
	int lost; /* the rank that was lost: it is what the inquiry is about; 0: nobody, for it is never rank 0 */
	char how[GN_WATCH_TEXT_MAX];
	struct gn_record *records;
	unsigned char *present, *asked;
};

enum gn_status gn_watch_inquiry_create(int size, struct gn_watch_inquiry **out, struct gn_err *err)
{
	struct gn_watch_inquiry *q = calloc(1, sizeof *q);

	if (q) {
		q->records = calloc((size_t)size, sizeof *q->records);
		q->present = calloc((size_t)size, 1);
		q->asked = calloc((size_t)size, 1);
	}
	if (!q || !q->records || !q->present || !q->asked) {
		gn_watch_inquiry_destroy(q);
		return gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for the records of %d ranks", size);
	}
	*out = q;
	return GN_OK;
}

void gn_watch_inquiry_destroy(struct gn_watch_inquiry *q)
{
	if (!q)
		return;
	free(q->records);
	free(q->present);
	free(q->asked);
	free(q);
}

static void ask_all(struct gn_watch *w, uint64_t number);

/* The first operation that anyone is in. Ranks that are through with it may have called something else by that number (a
 * broadcast needs no answer), which is what to find out, not what they wait in since. */
static uint64_t first_of_all(const struct gn_watch *w)
{
	const struct gn_watch_inquiry *q = w->inquiry;
	uint64_t first = q->number;

	for (int r = 0; r < w->options.size; r++)
		if (q->present[r] && q->records[r].oldest && q->records[r].oldest < first)
			first = q->records[r].oldest;
	return first;
}

void gn_watch_inquiry_settle(struct gn_watch *w)
{
	struct gn_watch_inquiry *q = w->inquiry;
	struct gn_diagnosis_input in = {w->options.size, q->records, q->present, NULL, 0};
	char text[GN_WATCH_TEXT_MAX];
	int lost = q->lost;
	size_t len;

	if (!lost)
		return;
	q->open = q->lost = 0;
	len = (size_t)snprintf(text, sizeof text, "%.*s; ", GN_WATCH_TEXT_MAX - 4, q->how);
	pthread_mutex_lock(&w->lock);
	in.hosts = (const char *const *)w->hosts;
	gn_diagnose_loss(&in, lost, text + len, sizeof text - len);
	pthread_mutex_unlock(&w->lock);
	if (!text[len])
		text[len - 2] = 0;
	gn_watch_note_lost(w, lost, text);
	gn_watch_hub_announce(w, GN_WATCH_LOST, lost, text);
}

static void conclude(struct gn_watch *w)
{
	struct gn_watch_inquiry *q = w->inquiry;
	struct gn_diagnosis_input in = {w->options.size, q->records, q->present, NULL, q->number};
	char text[GN_WATCH_TEXT_MAX];
	enum gn_status status;

	if (q->lost) {
		gn_watch_inquiry_settle(w);
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
	gn_watch_note_verdict(w, status, text);
	gn_watch_hub_announce(w, GN_WATCH_VERDICT, -status, text);
}

static void add(struct gn_watch *w, int rank, const struct gn_record *record)
{
	struct gn_watch_inquiry *q = w->inquiry;

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
static void ask_all(struct gn_watch *w, uint64_t number)
{
	struct gn_watch_inquiry *q = w->inquiry;
	uint64_t now = gn_clock_ns();
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
		if (w->members[r].state == GN_WATCH_ABSENT) {
			q->open = 0;
			return;
		}
		q->asked[r] = w->members[r].state == GN_WATCH_HERE;
		q->missing += q->asked[r];
	}
	q->asked[0] = !w->said_goodbye;
	q->missing += q->asked[0];
	for (int r = 1; r < w->options.size; r++)
		if (q->asked[r])
			gn_watch_write_bytes(&w->members[r].stream, GN_WATCH_ASK, 0, &number, sizeof number);
	if (q->asked[0]) {
		gn_recorder_tell(w->options.recorder, number, now, &mine);
		add(w, 0, &mine);
	}
}

void gn_watch_inquiry_hear(struct gn_watch *w, int rank, const struct gn_watch_message *in)
{
	struct gn_record record;
	uint64_t number;

	if (!w->options.recorder)
		return;
	if (in->type == GN_WATCH_SUSPECT) {
		memcpy(&number, in->text, sizeof number);
		if (!w->inquiry->lost)
			ask_all(w, number);
	} else if (in->type == GN_WATCH_TELL) {
		memcpy(&record, in->text, sizeof record);
		add(w, rank, &record);
	}
}

/* Who was asked will not answer. */
static void miss_answer(struct gn_watch *w, int rank)
{
	struct gn_watch_inquiry *q = w->inquiry;

	if (!q->open || !q->asked[rank] || q->present[rank])
		return;
	q->asked[rank] = 0;
	if (--q->missing == 0)
		conclude(w);
}

void gn_watch_inquiry_lose(struct gn_watch *w, int rank, const char *how)
{
	struct gn_watch_inquiry *q = w->inquiry;

	if (atomic_load(&w->lost)) {
		gn_watch_hub_announce(w, GN_WATCH_LOST, rank, how);
		return;
	}
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
		gn_watch_inquiry_settle(w);
}

void gn_watch_inquiry_answer(struct gn_watch *w, const struct gn_watch_message *in)
{
	struct gn_record record;
	uint64_t number;

	if (!w->options.recorder)
		return;
	memcpy(&number, in->text, sizeof number);
	gn_recorder_tell(w->options.recorder, number, gn_clock_ns(), &record);
	gn_watch_write_bytes(&w->up, GN_WATCH_TELL, w->options.rank, &record, sizeof record);
}

void gn_watch_inquiry_turn(struct gn_watch *w, uint64_t now)
{
	struct gn_record record;

	if (!w->options.recorder)
		return;
	gn_recorder_sample(w->options.recorder, now);
	if (w->inquiry && w->inquiry->lost) {
		if (now - w->inquiry->asked_ns > LOSS_NS)
			gn_watch_inquiry_settle(w);
		return;
	}
	if (now - w->suspected_ns < SUSPECT_EVERY_NS || atomic_load(&w->lost))
		return;
	w->suspected_ns = now;
	gn_recorder_tell(w->options.recorder, 0, now, &record);
	if (!record.suspects)
		return;
	if (w->options.rank == 0)
		ask_all(w, record.oldest);
	else if (w->up.fd >= 0)
		gn_watch_write_bytes(&w->up, GN_WATCH_SUSPECT, w->options.rank, &record.oldest, sizeof record.oldest);
}
