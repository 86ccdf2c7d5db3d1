#include "transport/health/diagnosis.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define GROUPS_SHOWN 3
#define RANKS_SHOWN 4

struct sentence {
	char *text;
	size_t size, len;
};

__attribute__((format(printf, 2, 3))) static void append(struct sentence *s, const char *format, ...)
{
	va_list args;
	int n;

	if (s->len >= s->size)
		return;
	va_start(args, format);
	n = vsnprintf(s->text + s->len, s->size - s->len, format, args);
	va_end(args);
	s->len += n > 0 ? (size_t)n : 0;
}

/* "rank 3 on n2" for one, "ranks 0-2, 5 and 12 more" for several. */
static void append_ranks(struct sentence *s, const struct gn_diagnosis_input *in, const unsigned char *members)
{
	int count = 0, shown = 0, first = 0;

	for (int r = 0; r < in->size; r++) {
		if (members[r] && !count++)
			first = r;
	}
	if (count == 1) {
		append(s, "rank %d%s%s", first, in->hosts ? " on " : "", in->hosts ? in->hosts[first] : "");
		return;
	}
	append(s, "ranks");
	for (int r = 0, ranges = 0; r < in->size && ranges < 8; r++) {
		int end = r;

		if (!members[r])
			continue;
		while (end + 1 < in->size && members[end + 1])
			end++;
		append(s, end > r ? "%s %d-%d" : "%s %d", ranges++ ? "," : "", r, end);
		shown += end - r + 1;
		r = end;
	}
	if (shown < count)
		append(s, " and %d more", count - shown);
}

static double seconds(uint32_t ms)
{
	return ms / 1e3;
}

/* "in operation number 812, allreduce of 64 MiB (...)", or "in a message, receive of 64 B, tag 7" */
static void append_oldest(struct sentence *s, const struct gn_record *c)
{
	if (c->oldest & GN_RECORD_MESSAGE)
		append(s, "in a message, %.*s, tag %u", GN_RECORD_OP_MAX, c->oldest_op, c->waits_message);
	else
		append(s, "in operation number %llu, %.*s", (unsigned long long)GN_RECORD_NUMBER(c->oldest), GN_RECORD_OP_MAX, c->oldest_op);
}

/* --- mismatch --- */

static int has_operation(const struct gn_diagnosis_input *in, int r)
{
	return in->present[r] && (in->records[r].state == GN_RECORD_RUNNING || in->records[r].state == GN_RECORD_DONE);
}

static int same_operation(const struct gn_record *a, const struct gn_record *b)
{
	return !strncmp(a->op, b->op, sizeof a->op);
}

/* Finds the smallest group of ranks that started the same operation, among those not yet listed; returns its size, 0: none. */
static int smallest_group(const struct gn_diagnosis_input *in, const unsigned char *listed, unsigned char *members, int *leader)
{
	int best = 0;

	for (int r = 0; r < in->size; r++) {
		int count = 0, is_first = 1;

		if (!has_operation(in, r) || listed[r])
			continue;
		for (int q = 0; q < in->size; q++) {
			if (!has_operation(in, q) || listed[q] || !same_operation(&in->records[q], &in->records[r]))
				continue;
			count++;
			is_first &= q >= r;
		}
		if (is_first && (!best || count < best)) {
			best = count;
			*leader = r;
		}
	}
	for (int q = 0; best && q < in->size; q++)
		members[q] = has_operation(in, q) && !listed[q] && same_operation(&in->records[q], &in->records[*leader]);
	return best;
}

static int all_agree(const struct gn_diagnosis_input *in)
{
	int first = -1;

	for (int r = 0; r < in->size; r++) {
		if (!has_operation(in, r))
			continue;
		if (first < 0)
			first = r;
		else if (!same_operation(&in->records[first], &in->records[r]))
			return 0;
	}
	return 1;
}

static void append_groups(struct sentence *s, const struct gn_diagnosis_input *in, unsigned char *listed, unsigned char *members)
{
	int leader = 0, groups = 0;

	memset(listed, 0, (size_t)in->size);
	append(s, "the ranks disagree about operation number %llu:", (unsigned long long)GN_RECORD_NUMBER(in->number));
	while (groups < GROUPS_SHOWN && smallest_group(in, listed, members, &leader)) {
		append(s, groups++ ? ", " : " ");
		append_ranks(s, in, members);
		append(s, " started %.*s", GN_RECORD_OP_MAX, in->records[leader].op);
		for (int r = 0; r < in->size; r++)
			listed[r] |= members[r];
	}
	if (smallest_group(in, listed, members, &leader))
		append(s, ", others started other operations");
	append(s, "; all ranks must call the same collectives in the same order");
}

/* --- stall --- */

static int is_stalled(const struct gn_diagnosis_input *in)
{
	int anyone = 0, waiting = 0;

	for (int r = 0; r < in->size; r++) {
		if (!in->present[r] || in->records[r].outside)
			continue;
		if (in->records[r].idle_ms < in->records[r].limit_ms)
			return 0;
		anyone = 1;
		waiting |= in->records[r].suspects;
	}
	return anyone && waiting;
}

static const char *operation_text(const struct gn_diagnosis_input *in)
{
	for (int r = 0; r < in->size; r++)
		if (has_operation(in, r))
			return in->records[r].op;
	return "a collective";
}

static int has_completed(const struct gn_record *c)
{
	return c->state == GN_RECORD_DONE || c->state == GN_RECORD_FORGOTTEN;
}

/* Not started, or completed on this rank and no other in flight. A rank that has completed its part may still hold up the others:
 * what it has sent progresses only while it is in a collective. */
static int is_outside(const struct gn_record *c)
{
	return c->state == GN_RECORD_NEVER || (has_completed(c) && !c->oldest);
}

static void append_elsewhere(struct sentence *s, const struct gn_record *c)
{
	if (c->oldest) {
		append(s, "it is ");
		append_oldest(s, c);
		append(s, ", ");
	} else {
		append(s, "it is alive, but in no collective, after operation number %llu, ", (unsigned long long)c->started);
	}
	if (c->phase[0])
		append(s, "%.*s, ", GN_RECORD_PHASE_MAX, c->phase);
	append(s, "for %.1f s", seconds(c->idle_ms));
	if (c->oldest && c->waits_rank >= 0)
		append(s, ", waiting for rank %d%s%s", c->waits_rank, c->waits_by[0] ? " by " : "", c->waits_by);
}

/* The ranks outside of the operation, one by one, and what they do. */
static void append_missing(struct sentence *s, const struct gn_diagnosis_input *in, unsigned char *one)
{
	int count = 0;

	for (int r = 0; r < in->size; r++) {
		if (!in->present[r] || in->records[r].outside || !is_outside(&in->records[r]) || count++ >= RANKS_SHOWN)
			continue;
		memset(one, 0, (size_t)in->size);
		one[r] = 1;
		append(s, "; ");
		append_ranks(s, in, one);
		append(s, has_completed(&in->records[r]) ? " has completed it: " : " never started it: ");
		append_elsewhere(s, &in->records[r]);
	}
	if (count > RANKS_SHOWN)
		append(s, "; %d more ranks are not in it", count - RANKS_SHOWN);
}

/* 0: waits in the operation; 1: has started it but does not wait in it; 2: has completed it and is in a later one. */
static int is_in_class(const struct gn_record *c, int class)
{
	if (class == 2)
		return has_completed(c) && c->oldest;
	return c->state == GN_RECORD_RUNNING && (class == 0) == (c->inside != 0);
}

/* Whether all ranks wait in the operation, some of them for another host. */
static int waits_for_network(const struct gn_diagnosis_input *in)
{
	int count = 0;

	for (int r = 0; r < in->size; r++) {
		int other = in->records[r].waits_rank;

		if (!in->present[r] || !is_in_class(&in->records[r], 0))
			return 0;
		count += in->hosts && other >= 0 && other < in->size && strcmp(in->hosts[r], in->hosts[other]);
	}
	return count > 0;
}

static void append_waiting(struct sentence *s, const struct gn_diagnosis_input *in, unsigned char *members)
{
	static const char *const several[] = {"wait in it", "started it and are not waiting in it", "have completed it"};
	static const char *const one[] = {"waits in it", "started it and is not waiting in it", "has completed it"};

	for (int class = 0; class < 3; class++) {
		uint32_t longest = 0;
		int count = 0, shown = 0;

		for (int r = 0; r < in->size; r++) {
			members[r] = in->present[r] && is_in_class(&in->records[r], class);
			count += members[r];
			if (members[r] && in->records[r].idle_ms > longest)
				longest = in->records[r].idle_ms;
		}
		if (!count)
			continue;
		append(s, "; ");
		append_ranks(s, in, members);
		append(s, " %s, for %.1f s", count > 1 ? several[class] : one[class], seconds(longest));
		for (int r = 0; r < in->size && shown < RANKS_SHOWN; r++)
			if (members[r] && in->records[r].waits_rank >= 0)
				append(s, "%srank %d for rank %d%s%s%s", shown++ ? ", " : " (", r, in->records[r].waits_rank,
				       in->records[r].waits_by[0] ? " by " : "", in->records[r].waits_by,
				       class == 2 ? " in a later operation" : "");
		if (shown)
			append(s, ")");
	}
}

/* Those without a record that are lost, or those that have left. */
static void append_absent(struct sentence *s, const struct gn_diagnosis_input *in, int lost, unsigned char *members)
{
	int count = 0;

	for (int r = 0; r < in->size; r++) {
		members[r] = !in->present[r] && (in->lost && in->lost[r]) == lost;
		count += members[r];
	}
	if (!count)
		return;
	append(s, "; ");
	append_ranks(s, in, members);
	if (lost)
		append(s, " %s lost", count > 1 ? "are" : "is");
	else
		append(s, " %s left the job", count > 1 ? "have" : "has");
}

/* The rank that waits for a message, and what the other end does. */
static void append_message(struct sentence *s, const struct gn_diagnosis_input *in)
{
	int r = 0, peer;

	while (r < in->size && !has_operation(in, r))
		r++;
	if (r == in->size) {
		append(s, "a message between two ranks has stalled");
		return;
	}
	peer = in->records[r].waits_rank;
	append(s, "rank %d%s%s ", r, in->hosts ? " on " : "", in->hosts ? in->hosts[r] : "");
	append(s, strncmp(in->records[r].op, "send", 4) ? "waits for a message of rank %d" : "waits to send a message to rank %d", peer);
	append(s, "%s%s, tag %u (%.*s), for %.1f s", in->records[r].waits_by[0] ? " by " : "", in->records[r].waits_by,
	       in->records[r].waits_message, GN_RECORD_OP_MAX, in->records[r].op, seconds(in->records[r].idle_ms));
	if (peer < 0 || peer >= in->size || !in->present[peer])
		return;
	append(s, "; rank %d%s%s: ", peer, in->hosts ? " on " : "", in->hosts ? in->hosts[peer] : "");
	append_elsewhere(s, &in->records[peer]);
}

enum gn_status gn_diagnose(const struct gn_diagnosis_input *in, char *text, size_t size)
{
	struct sentence s = {text, size, 0};
	unsigned char listed[in->size], members[in->size];

	if (!all_agree(in)) {
		append_groups(&s, in, listed, members);
		return GN_ERR_MISMATCH;
	}
	if (!is_stalled(in))
		return GN_OK;
	if (in->number & GN_RECORD_MESSAGE) {
		append_message(&s, in);
		append_absent(&s, in, 1, members);
		append_absent(&s, in, 0, members);
		return GN_ERR_STALL;
	}
	append(&s, "operation number %llu, %.*s, has stalled", (unsigned long long)GN_RECORD_NUMBER(in->number), GN_RECORD_OP_MAX,
	       operation_text(in));
	append_missing(&s, in, members);
	append_absent(&s, in, 1, members);
	append_absent(&s, in, 0, members);
	append_waiting(&s, in, members);
	if (waits_for_network(in))
		append(&s, "; heartbeats pass and this does not: compare the hosts' MTU (`ip link`, `ping -M do -s 8972 HOST`), then firewalls and links");
	return GN_ERR_STALL;
}

/* --- loss of a rank --- */

static int same_state(const struct gn_record *a, const struct gn_record *b)
{
	return a->oldest == b->oldest && (a->oldest || a->started == b->started) &&
	       !strncmp(a->oldest_op, b->oldest_op, sizeof a->oldest_op) && !strncmp(a->phase, b->phase, sizeof a->phase);
}

static void append_state(struct sentence *s, const struct gn_record *c)
{
	if (c->oldest)
		append_oldest(s, c);
	else if (c->started)
		append(s, "in no collective, after operation number %llu", (unsigned long long)c->started);
	else
		append(s, "before the first collective");
	if (c->phase[0])
		append(s, ", %.*s", GN_RECORD_PHASE_MAX, c->phase);
}

static void append_waiting_for(struct sentence *s, const struct gn_diagnosis_input *in, const unsigned char *members, int lost)
{
	int all = 0, waiting = 0;

	for (int r = 0; r < in->size; r++) {
		all += members[r];
		waiting += members[r] && in->records[r].oldest && in->records[r].waits_rank == lost;
	}
	if (waiting && all > 1)
		append(s, ", %d of them waiting for it", waiting);
	else if (waiting)
		append(s, ", waiting for it");
}

void gn_diagnose_loss(const struct gn_diagnosis_input *in, int lost, char *text, size_t size)
{
	struct sentence s = {text, size, 0};
	unsigned char listed[in->size], members[in->size];
	int groups = 0, count;

	*text = 0;
	memset(listed, 0, sizeof listed);
	for (int first = 0; first < in->size; first++) {
		if (!in->present[first] || listed[first] || first == lost)
			continue;
		if (groups++ == GROUPS_SHOWN) {
			append(&s, "; others were in other operations");
			return;
		}
		count = 0;
		for (int r = 0; r < in->size; r++) {
			members[r] = in->present[r] && r != lost && same_state(&in->records[r], &in->records[first]);
			listed[r] |= members[r];
			count += members[r];
		}
		append(&s, groups > 1 ? "; " : "");
		append_ranks(&s, in, members);
		append(&s, count > 1 ? " were " : " was ");
		append_state(&s, &in->records[first]);
		append_waiting_for(&s, in, members, lost);
	}
}
