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

static void say(struct sentence *s, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void say(struct sentence *s, const char *format, ...)
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
static void say_ranks(struct sentence *s, const struct gn_diagnosis_input *in, const unsigned char *members)
{
	int count = 0, shown = 0, first = 0;

	for (int r = 0; r < in->size; r++) {
		if (members[r] && !count++)
			first = r;
	}
	if (count == 1) {
		say(s, "rank %d%s%s", first, in->hosts ? " on " : "", in->hosts ? in->hosts[first] : "");
		return;
	}
	say(s, "ranks");
	for (int r = 0, ranges = 0; r < in->size && ranges < 8; r++) {
		int end = r;

		if (!members[r])
			continue;
		while (end + 1 < in->size && members[end + 1])
			end++;
		say(s, end > r ? "%s %d-%d" : "%s %d", ranges++ ? "," : "", r, end);
		shown += end - r + 1;
		r = end;
	}
	if (shown < count)
		say(s, " and %d more", count - shown);
}

static double seconds(uint32_t ms)
{
	return ms / 1e3;
}

/* --- do those who started it agree? --- */

static int knows(const struct gn_diagnosis_input *in, int r)
{
	return in->present[r] && (in->records[r].state == GN_RECORD_RUNNING || in->records[r].state == GN_RECORD_DONE);
}

static int same(const struct gn_record *a, const struct gn_record *b)
{
	return !strncmp(a->op, b->op, sizeof a->op);
}

/* Of the ranks not yet told of, the smallest group that started the same; returns its size. */
static int smallest_group(const struct gn_diagnosis_input *in, const unsigned char *told, unsigned char *members, int *leader)
{
	int best = 0;

	for (int r = 0; r < in->size; r++) {
		int count = 0, is_first = 1;

		if (!knows(in, r) || told[r])
			continue;
		for (int q = 0; q < in->size; q++) {
			if (!knows(in, q) || told[q] || !same(&in->records[q], &in->records[r]))
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
		members[q] = knows(in, q) && !told[q] && same(&in->records[q], &in->records[*leader]);
	return best;
}

static int agree(const struct gn_diagnosis_input *in)
{
	int first = -1;

	for (int r = 0; r < in->size; r++) {
		if (!knows(in, r))
			continue;
		if (first < 0)
			first = r;
		else if (!same(&in->records[first], &in->records[r]))
			return 0;
	}
	return 1;
}

static void say_groups(struct sentence *s, const struct gn_diagnosis_input *in, unsigned char *told, unsigned char *members)
{
	int leader = 0, groups = 0;

	memset(told, 0, (size_t)in->size);
	say(s, "the ranks disagree about operation number %llu:", (unsigned long long)in->number);
	while (groups < GROUPS_SHOWN && smallest_group(in, told, members, &leader)) {
		say(s, groups++ ? ", " : " ");
		say_ranks(s, in, members);
		say(s, " started %.*s", GN_RECORD_OP_MAX, in->records[leader].op);
		for (int r = 0; r < in->size; r++)
			told[r] |= members[r];
	}
	if (smallest_group(in, told, members, &leader))
		say(s, ", others still other things");
	say(s, "; all ranks must call the same collectives in the same order");
}

/* --- does anything move? --- */

static int is_stalled(const struct gn_diagnosis_input *in)
{
	int anyone = 0, waiting = 0;

	for (int r = 0; r < in->size; r++) {
		if (!in->present[r])
			continue;
		if (in->records[r].idle_ms < in->records[r].limit_ms)
			return 0;
		anyone = 1;
		waiting |= in->records[r].suspects;
	}
	return anyone && waiting;
}

static const char *operation(const struct gn_diagnosis_input *in)
{
	for (int r = 0; r < in->size; r++)
		if (knows(in, r))
			return in->records[r].op;
	return "a collective";
}

static int is_through(const struct gn_record *c)
{
	return c->state == GN_RECORD_DONE || c->state == GN_RECORD_FORGOTTEN;
}

/* Its part may be done and the others' not: what it has sent moves on only while it is in a collective. */
static int is_elsewhere(const struct gn_record *c)
{
	return c->state == GN_RECORD_NEVER || (is_through(c) && !c->oldest);
}

static void say_elsewhere(struct sentence *s, const struct gn_record *c)
{
	say(s, is_through(c) ? " is through with it: " : " never started it: ");
	if (c->oldest)
		say(s, "it is in operation number %llu, %.*s, ", (unsigned long long)c->oldest, GN_RECORD_OP_MAX, c->oldest_op);
	else
		say(s, "it is alive, but in no collective, after operation number %llu, ", (unsigned long long)c->started);
	if (c->phase[0])
		say(s, "%.*s, ", GN_RECORD_PHASE_MAX, c->phase);
	say(s, "for %.1f s", seconds(c->idle_ms));
	if (c->oldest && c->waits_rank >= 0)
		say(s, ", waiting for rank %d%s%s", c->waits_rank, c->waits_by[0] ? " by " : "", c->waits_by);
}

/* Those who never came or have gone, one by one, and what they do instead. */
static void say_missing(struct sentence *s, const struct gn_diagnosis_input *in, unsigned char *one)
{
	int count = 0;

	for (int r = 0; r < in->size; r++) {
		if (!in->present[r] || !is_elsewhere(&in->records[r]) || count++ >= RANKS_SHOWN)
			continue;
		memset(one, 0, (size_t)in->size);
		one[r] = 1;
		say(s, "; ");
		say_ranks(s, in, one);
		say_elsewhere(s, &in->records[r]);
	}
	if (count > RANKS_SHOWN)
		say(s, "; %d more ranks are elsewhere", count - RANKS_SHOWN);
}

/* Those who wait in it, those who have been away from it since, and those who are in a later one. */
static int in_class(const struct gn_record *c, int class)
{
	if (class == 2)
		return is_through(c) && c->oldest;
	return c->state == GN_RECORD_RUNNING && (class == 0) == (c->inside != 0);
}

static void say_present(struct sentence *s, const struct gn_diagnosis_input *in, unsigned char *members)
{
	static const char *const several[] = {"wait in it", "started it and have not come back to it", "are through with it"};
	static const char *const alone[] = {"waits in it", "started it and has not come back to it", "is through with it"};

	for (int class = 0; class < 3; class++) {
		uint32_t longest = 0;
		int count = 0, shown = 0;

		for (int r = 0; r < in->size; r++) {
			members[r] = in->present[r] && in_class(&in->records[r], class);
			count += members[r];
			if (members[r] && in->records[r].idle_ms > longest)
				longest = in->records[r].idle_ms;
		}
		if (!count)
			continue;
		say(s, "; ");
		say_ranks(s, in, members);
		say(s, " %s, for %.1f s", count > 1 ? several[class] : alone[class], seconds(longest));
		for (int r = 0; r < in->size && shown < RANKS_SHOWN; r++)
			if (members[r] && in->records[r].waits_rank >= 0)
				say(s, "%srank %d for rank %d%s%s%s", shown++ ? ", " : " (", r, in->records[r].waits_rank,
				    in->records[r].waits_by[0] ? " by " : "", in->records[r].waits_by,
				    class == 2 ? " in a later one" : "");
		if (shown)
			say(s, ")");
	}
}

/* Those without a record: whoever waits for one of them waits in vain. */
static void say_left(struct sentence *s, const struct gn_diagnosis_input *in, unsigned char *members)
{
	int count = 0;

	for (int r = 0; r < in->size; r++) {
		members[r] = !in->present[r];
		count += members[r];
	}
	if (!count)
		return;
	say(s, "; ");
	say_ranks(s, in, members);
	say(s, " %s left the job", count > 1 ? "have" : "has");
}

enum gn_status gn_diagnose(const struct gn_diagnosis_input *in, char *text, size_t size)
{
	struct sentence s = {text, size, 0};
	unsigned char told[in->size], members[in->size];

	if (!agree(in)) {
		say_groups(&s, in, told, members);
		return GN_ERR_MISMATCH;
	}
	if (!is_stalled(in))
		return GN_OK;
	say(&s, "operation number %llu, %.*s, has stalled", (unsigned long long)in->number, GN_RECORD_OP_MAX, operation(in));
	say_missing(&s, in, members);
	say_left(&s, in, members);
	say_present(&s, in, members);
	return GN_ERR_STALL;
}

/* --- what were the others in? --- */

static int is_alike(const struct gn_record *a, const struct gn_record *b)
{
	return a->oldest == b->oldest && (a->oldest || a->started == b->started) &&
	       !strncmp(a->oldest_op, b->oldest_op, sizeof a->oldest_op) && !strncmp(a->phase, b->phase, sizeof a->phase);
}

static void say_where(struct sentence *s, const struct gn_record *c)
{
	if (c->oldest)
		say(s, "in operation number %llu, %.*s", (unsigned long long)c->oldest, GN_RECORD_OP_MAX, c->oldest_op);
	else if (c->started)
		say(s, "in no collective, after operation number %llu", (unsigned long long)c->started);
	else
		say(s, "before the first collective");
	if (c->phase[0])
		say(s, ", %.*s", GN_RECORD_PHASE_MAX, c->phase);
}

static void say_waiting(struct sentence *s, const struct gn_diagnosis_input *in, const unsigned char *members, int lost)
{
	int all = 0, waiting = 0;

	for (int r = 0; r < in->size; r++) {
		all += members[r];
		waiting += members[r] && in->records[r].oldest && in->records[r].waits_rank == lost;
	}
	if (waiting && all > 1)
		say(s, ", %d of them waiting for it", waiting);
	else if (waiting)
		say(s, ", waiting for it");
}

void gn_diagnose_loss(const struct gn_diagnosis_input *in, int lost, char *text, size_t size)
{
	struct sentence s = {text, size, 0};
	unsigned char told[in->size], members[in->size];
	int groups = 0, count;

	*text = 0;
	memset(told, 0, sizeof told);
	for (int first = 0; first < in->size; first++) {
		if (!in->present[first] || told[first] || first == lost)
			continue;
		if (groups++ == GROUPS_SHOWN) {
			say(&s, "; others were elsewhere");
			return;
		}
		count = 0;
		for (int r = 0; r < in->size; r++) {
			members[r] = in->present[r] && r != lost && is_alike(&in->records[r], &in->records[first]);
			told[r] |= members[r];
			count += members[r];
		}
		say(&s, groups > 1 ? "; " : "");
		say_ranks(&s, in, members);
		say(&s, count > 1 ? " were " : " was ");
		say_where(&s, &in->records[first]);
		say_waiting(&s, in, members, lost);
	}
}
