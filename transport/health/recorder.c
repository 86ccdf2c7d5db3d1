#include "transport/health/recorder.h"

#include "src/base/clock.h"
#include "transport/health/recorder_op.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The operations kept. With more in flight the oldest are still counted, but not described. */
#define RING 64
#define SAMPLE_NS 200000000u
/* A wait this long is a suspected stall, well before the limit: a mismatch between ranks can then be reported early. */
#define SUSPECT_MS 1000u
#define WAIT_NONE UINT64_MAX
/* What an operation waits for, in one word: rank, rail + 1, message. */
#define RAIL_SHIFT 24
#define RANK_SHIFT 32

/* An operation in one word, so that readers need no lock: number, kind, enum gn_record_state. Each start and each completion
 * increases the word, so that the sum over the ring changes with every event. */
#define STATE_BITS 2
#define NUMBER_SHIFT (STATE_BITS + GN_RECORDER_KIND_BITS)
#define WORD(number, kind) ((number) << NUMBER_SHIFT | (uint64_t)(kind) << STATE_BITS | GN_RECORD_RUNNING)

/* What operation `number` waits for. number is 0 while `what` is being written. */
struct wait {
	atomic_uint_fast64_t number, what;
};

/* The counters at the heartbeat thread's last sample. */
struct sample {
	uint64_t taken_ns, since_ns, operations, waits, moves, phases;
	int inside;
};

/* A group that this rank is in. */
struct group {
	atomic_uint_fast64_t id;      /* upper bits of its operations' numbers; 0: the world, or none */
	atomic_uint_fast64_t started; /* operations */
};

struct gn_recorder {
	struct group groups[GN_RECORDER_GROUPS];
	/* written by the program's threads */
	_Alignas(64) atomic_uint_fast64_t ring[RING];
	atomic_uint_fast64_t keys[RING]; /* group and number of the operation */
	atomic_uint_fast64_t started, waits, moves, phases;
	struct wait wait[RING];
	int limit_ms;
	/* of the heartbeat thread */
	_Alignas(64) struct sample sample;
	pthread_mutex_t lock; /* guards what follows */
	struct gn_recorder_kinds kinds;
	char phase[GN_RECORD_PHASE_MAX];
	char *group_names[GN_RECORDER_GROUPS];
	int phase_limit_ms;
	char rails[GN_RECORD_RAILS_MAX][GN_RECORD_RAIL_MAX];
};

enum gn_status gn_recorder_create(int limit_ms, struct gn_recorder **out, struct gn_err *err)
{
	struct gn_recorder *r = aligned_alloc(64, sizeof *r);

	if (!r)
		return gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for the flight recorder");
	memset(r, 0, sizeof *r);
	r->limit_ms = limit_ms;
	r->sample.since_ns = r->sample.taken_ns = gn_clock_ns();
	pthread_mutex_init(&r->lock, NULL);
	*out = r;
	return GN_OK;
}

void gn_recorder_destroy(struct gn_recorder *r)
{
	if (!r)
		return;
	pthread_mutex_destroy(&r->lock);
	for (int i = 0; i < GN_RECORDER_GROUPS; i++)
		free(r->group_names[i]);
	gn_recorder_kinds_release(&r->kinds);
	free(r);
}

#define STORE(where, what) atomic_store_explicit(&(where), what, memory_order_relaxed)
#define LOAD(where) atomic_load_explicit(&(where), memory_order_relaxed)

uint32_t gn_recorder_kind(struct gn_recorder *r, const struct gn_recorder_op *op)
{
	uint32_t kind;

	pthread_mutex_lock(&r->lock);
	kind = gn_recorder_kinds_add(&r->kinds, op);
	pthread_mutex_unlock(&r->lock);
	return kind;
}

/* in_group: the number within the group. */
static uint64_t start(struct gn_recorder *r, int group, uint64_t in_group, uint32_t kind)
{
	uint64_t number = LOAD(r->started) + 1;

	/* no reader combines the key of this operation with the word of the one before it in this entry */
	STORE(r->ring[number % RING], 0);
	atomic_thread_fence(memory_order_release);
	STORE(r->keys[number % RING], LOAD(r->groups[group].id) << GN_RECORD_GROUP_SHIFT | in_group);
	atomic_store_explicit(&r->ring[number % RING], WORD(number, kind), memory_order_release);
	atomic_store_explicit(&r->started, number, memory_order_release);
	return number;
}

uint64_t gn_recorder_start_in(struct gn_recorder *r, int group, uint32_t kind)
{
	uint64_t in_group = LOAD(r->groups[group].started) + 1;

	STORE(r->groups[group].started, in_group);
	return start(r, group, in_group, kind);
}

uint64_t gn_recorder_start_message(struct gn_recorder *r, int group, int rank, uint32_t kind)
{
	uint64_t count = (LOAD(r->started) + 1) & 0x7ffff;

	return start(r, group, GN_RECORD_MESSAGE | (uint64_t)rank << 19 | count, kind);
}

uint64_t gn_recorder_start(struct gn_recorder *r, uint32_t kind)
{
	return gn_recorder_start_in(r, 0, kind);
}

/* A group's number in the upper 10 of 24 bits, its color in the lower ones: of groups with the same number only colors that differ by
 * multiples of 16384 are alike. */
static uint64_t group_id(int group, int color)
{
	return (uint64_t)group << 14 | ((uint64_t)color & 0x3fff);
}

static int group_of(uint64_t key)
{
	return (int)(key >> (GN_RECORD_GROUP_SHIFT + 14));
}

void gn_recorder_set_group(struct gn_recorder *r, int group, int color, const char *name)
{
	char *copy = name ? strdup(name) : NULL, *old;

	pthread_mutex_lock(&r->lock);
	old = r->group_names[group];
	r->group_names[group] = copy;
	pthread_mutex_unlock(&r->lock);
	free(old);
	STORE(r->groups[group].id, name ? group_id(group, color) : 0);
	STORE(r->groups[group].started, 0);
}

/* Whether the word is of operation `number`; compares the bits of the number that the word has. */
static int holds(uint64_t word, uint64_t number)
{
	return (word >> NUMBER_SHIFT) == (number << NUMBER_SHIFT >> NUMBER_SHIFT) && word;
}

void gn_recorder_done(struct gn_recorder *r, uint64_t number)
{
	uint64_t word = LOAD(r->ring[number % RING]);

	/* with more operations in flight than RING a later one may have taken this entry */
	if (holds(word, number))
		STORE(r->ring[number % RING], word - GN_RECORD_RUNNING + GN_RECORD_DONE);
}

/* Only the fact that these counters change is used, so a lost increment of two concurrent ones does no harm. */
void gn_recorder_waiting(struct gn_recorder *r, int moved)
{
	STORE(r->waits, LOAD(r->waits) + 1);
	if (moved)
		STORE(r->moves, LOAD(r->moves) + 1);
}

void gn_recorder_moved(struct gn_recorder *r)
{
	STORE(r->moves, LOAD(r->moves) + 1);
}

void gn_recorder_waits_for(struct gn_recorder *r, uint64_t number, int rank, uint32_t message, int rail)
{
	struct wait *w = &r->wait[number % RING];
	uint64_t by = rail >= 0 && rail < GN_RECORD_RAILS_MAX ? (uint64_t)rail + 1 : 0;
	uint64_t low = message & ((1u << RAIL_SHIFT) - 1);

	STORE(w->number, 0);
	atomic_thread_fence(memory_order_release);
	STORE(w->what, rank < 0 ? WAIT_NONE : (uint64_t)rank << RANK_SHIFT | by << RAIL_SHIFT | low);
	atomic_store_explicit(&w->number, number, memory_order_release);
}

void gn_recorder_name_rail(struct gn_recorder *r, int rail, const char *name)
{
	if (rail < 0 || rail >= GN_RECORD_RAILS_MAX)
		return;
	pthread_mutex_lock(&r->lock);
	snprintf(r->rails[rail], sizeof r->rails[rail], "%s", name);
	pthread_mutex_unlock(&r->lock);
}

static void rail_name(struct gn_recorder *r, uint64_t waits, char text[GN_RECORD_RAIL_MAX])
{
	unsigned by = (unsigned)(waits >> RAIL_SHIFT) & 0xff;

	text[0] = 0;
	if (waits == WAIT_NONE || !by || by > GN_RECORD_RAILS_MAX)
		return;
	pthread_mutex_lock(&r->lock);
	memcpy(text, r->rails[by - 1], GN_RECORD_RAIL_MAX);
	pthread_mutex_unlock(&r->lock);
}

void gn_recorder_set_phase(struct gn_recorder *r, const char *what, int limit_ms)
{
	pthread_mutex_lock(&r->lock);
	snprintf(r->phase, sizeof r->phase, "%s", what ? what : "");
	r->phase_limit_ms = limit_ms;
	pthread_mutex_unlock(&r->lock);
	STORE(r->phases, LOAD(r->phases) + 1);
}

static struct sample read_counters(const struct gn_recorder *r)
{
	struct sample s = {0};

	for (int i = 0; i < RING; i++)
		s.operations += LOAD(r->ring[i]);
	s.waits = LOAD(r->waits);
	s.moves = LOAD(r->moves);
	s.phases = LOAD(r->phases);
	return s;
}

static int has_progressed(const struct sample *last, const struct sample *now)
{
	return now->operations != last->operations || now->moves != last->moves || now->phases != last->phases;
}

void gn_recorder_sample(struct gn_recorder *r, uint64_t now_ns)
{
	struct sample *last = &r->sample, now = read_counters(r);

	if (now_ns - last->taken_ns < SAMPLE_NS)
		return;
	now.taken_ns = now_ns;
	now.inside = now.waits != last->waits;
	now.since_ns = has_progressed(last, &now) ? now_ns : last->since_ns;
	*last = now;
}

void gn_recorder_exclude(struct gn_recorder *r, uint64_t absent_ns, uint64_t now_ns)
{
	uint64_t *since = &r->sample.since_ns;

	*since = *since + absent_ns < now_ns ? *since + absent_ns : now_ns;
}

/* *kind is set unless the result is GN_RECORD_NEVER or GN_RECORD_FORGOTTEN. */
static enum gn_record_state read_state(const struct gn_recorder *r, uint64_t number, uint32_t *kind)
{
	uint64_t word = LOAD(r->ring[number % RING]);

	if (!holds(word, number))
		return number > atomic_load_explicit(&r->started, memory_order_acquire) ? GN_RECORD_NEVER : GN_RECORD_FORGOTTEN;
	*kind = (uint32_t)(word >> STATE_BITS) % GN_RECORDER_KINDS_MAX;
	return (enum gn_record_state)(word % (1 << STATE_BITS));
}

/* The key of the operation that this rank started as `number`; 0: it is overwritten. */
static uint64_t read_key(const struct gn_recorder *r, uint64_t number)
{
	uint64_t word = atomic_load_explicit(&r->ring[number % RING], memory_order_acquire), key = LOAD(r->keys[number % RING]);

	atomic_thread_fence(memory_order_acquire);
	return holds(word, number) && holds(LOAD(r->ring[number % RING]), number) ? key : 0;
}

/* The state of the operation with this key; *kind as above. */
static enum gn_record_state find_state(const struct gn_recorder *r, uint64_t key, uint32_t *kind)
{
	uint64_t started = atomic_load_explicit(&r->started, memory_order_acquire);
	const struct group *g = &r->groups[group_of(key)];

	for (uint64_t n = started > RING ? started - RING + 1 : 1; n <= started; n++)
		if (read_key(r, n) == key)
			return read_state(r, n, kind);
	/* the number of a message is beyond any of a group's */
	return GN_RECORD_NUMBER(key) > LOAD(g->started) ? GN_RECORD_NEVER : GN_RECORD_FORGOTTEN;
}

static uint64_t read_wait(const struct gn_recorder *r, uint64_t number)
{
	const struct wait *w = &r->wait[number % RING];
	uint64_t before = atomic_load_explicit(&w->number, memory_order_acquire), what = LOAD(w->what);

	atomic_thread_fence(memory_order_acquire);
	return before == number && LOAD(w->number) == number ? what : WAIT_NONE;
}

/* The number of the oldest operation in flight; 0: none. */
static uint64_t find_oldest(const struct gn_recorder *r, uint32_t *kind)
{
	uint64_t started = atomic_load_explicit(&r->started, memory_order_acquire);

	for (uint64_t n = started > RING ? started - RING + 1 : 1; n <= started; n++)
		if (read_state(r, n, kind) == GN_RECORD_RUNNING)
			return n;
	return 0;
}

/* Appends " in data[2]". */
static void add_group(struct gn_recorder *r, uint64_t key, char text[GN_RECORD_OP_MAX])
{
	size_t len = strlen(text);

	pthread_mutex_lock(&r->lock);
	if (group_of(key) && r->group_names[group_of(key)])
		snprintf(text + len, GN_RECORD_OP_MAX - len, " in %s", r->group_names[group_of(key)]);
	pthread_mutex_unlock(&r->lock);
}

static void kind_text(struct gn_recorder *r, uint64_t key, uint32_t kind, char text[GN_RECORD_OP_MAX])
{
	struct gn_recorder_op op;

	pthread_mutex_lock(&r->lock);
	gn_recorder_kinds_get(&r->kinds, kind, &op);
	pthread_mutex_unlock(&r->lock);
	gn_recorder_op_text(&op, text, GN_RECORD_OP_MAX);
	add_group(r, key, text);
}

/* number: this rank's own. */
static void fill_oldest(struct gn_recorder *r, uint64_t number, uint32_t kind, struct gn_record *o)
{
	uint64_t waits = read_wait(r, number);

	o->oldest = read_key(r, number);
	if (!o->oldest)
		return;
	kind_text(r, o->oldest, kind, o->oldest_op);
	if (waits == WAIT_NONE)
		return;
	o->waits_rank = (int32_t)(waits >> RANK_SHIFT);
	o->waits_message = (uint32_t)waits & ((1u << RAIL_SHIFT) - 1);
	rail_name(r, waits, o->waits_by);
}

void gn_recorder_report(struct gn_recorder *r, uint64_t number, uint64_t now_ns, struct gn_record *out)
{
	struct gn_record o = {.number = number, .waits_rank = -1};
	struct sample now = read_counters(r);
	const struct group *g = &r->groups[group_of(number)];
	uint64_t since, oldest, suspect_ms = (uint64_t)r->limit_ms < SUSPECT_MS ? (uint64_t)r->limit_ms : SUSPECT_MS;
	uint32_t kind = 0;

	/* progress since the last sample counts as progress now */
	since = has_progressed(&r->sample, &now) ? now_ns : r->sample.since_ns;
	o.outside = number && LOAD(g->id) != number >> GN_RECORD_GROUP_SHIFT;
	o.started = o.outside ? 0 : LOAD(g->started);
	oldest = find_oldest(r, &kind);
	if (oldest)
		fill_oldest(r, oldest, kind, &o);
	o.inside = (uint8_t)(r->sample.inside || now.waits != r->sample.waits);
	o.idle_ms = now_ns > since ? (uint32_t)((now_ns - since) / 1000000) : 0;
	pthread_mutex_lock(&r->lock);
	memcpy(o.phase, r->phase, sizeof o.phase);
	o.limit_ms = (uint32_t)(r->phase[0] && !o.inside ? r->phase_limit_ms : r->limit_ms);
	pthread_mutex_unlock(&r->lock);
	o.suspects = (uint8_t)(o.oldest && (o.inside || !o.phase[0]) && o.idle_ms >= suspect_ms);
	if (number && !o.outside) {
		o.state = (uint8_t)find_state(r, number, &kind);
		if (o.state == GN_RECORD_RUNNING || o.state == GN_RECORD_DONE)
			kind_text(r, number, kind, o.op);
	}
	*out = o;
}

static int describe_operation(struct gn_recorder *r, uint64_t number, uint32_t kind, char *text, size_t size)
{
	uint64_t waits = read_wait(r, number);
	char what[GN_RECORD_OP_MAX] = "", rail[GN_RECORD_RAIL_MAX];

	number = read_key(r, number);
	kind_text(r, number, kind, what);
	rail_name(r, waits, rail);
	if (number & GN_RECORD_MESSAGE)
		return snprintf(text, size, "in a message, %s, waiting for rank %u, tag %u", what, (unsigned)(waits >> RANK_SHIFT),
				(unsigned)waits & ((1u << RAIL_SHIFT) - 1));
	number = GN_RECORD_NUMBER(number);
	if (waits == WAIT_NONE)
		return snprintf(text, size, "in operation number %llu, %s", (unsigned long long)number, what);
	return snprintf(text, size, "in operation number %llu, %s, waiting for rank %u%s%s", (unsigned long long)number, what,
			(unsigned)(waits >> RANK_SHIFT), *rail ? " by " : "", rail);
}

void gn_recorder_describe(struct gn_recorder *r, char *text, size_t size)
{
	uint32_t kind = 0;
	uint64_t number = find_oldest(r, &kind), last = LOAD(r->groups[0].started);
	int len;

	if (number)
		len = describe_operation(r, number, kind, text, size);
	else if (last)
		len = snprintf(text, size, "in no collective, after operation number %llu", (unsigned long long)last);
	else
		len = snprintf(text, size, "before its first collective");
	pthread_mutex_lock(&r->lock);
	if (r->phase[0] && len > 0 && (size_t)len < size)
		snprintf(text + len, size - (size_t)len, ", %s", r->phase);
	pthread_mutex_unlock(&r->lock);
}
