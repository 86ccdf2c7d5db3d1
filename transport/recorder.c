#include "transport/recorder.h"

#include "src/base/clock.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Operations kept; more than this in flight at once are counted, but the oldest are then not described. */
#define RING 64
#define SAMPLE_NS 200000000u
/* From here on a wait is worth asking the others about: ranks that disagree need not wait for the limit. */
#define SUSPECT_MS 1000u
#define WAITS_NONE UINT64_MAX
/* What is waited for in one word: rank, rail plus one, message. */
#define RAIL_SHIFT 24
#define RANK_SHIFT 32

/* One cache line. state is 4 * number + 1 in flight, + 2 complete, + 0 being written: a reader that finds the same before
 * and after has read one operation and not halves of two. */
struct entry {
	_Alignas(64) atomic_uint_fast64_t state;
	atomic_uintptr_t name, algorithm, type, reduction;
	atomic_uint_fast64_t count, bytes_and_root, waits;
};

/* What the watch's thread saw last. */
struct sample {
	uint64_t taken_ns, since_ns, started, finished, waits, moves, announced;
	int inside;
};

struct gn_recorder {
	struct entry ring[RING];
	/* the program's */
	_Alignas(64) atomic_uint_fast64_t started;
	atomic_uint_fast64_t finished, waits, moves, announced;
	int limit_ms;
	/* the watch's */
	_Alignas(64) struct sample sample;
	pthread_mutex_t lock; /* what follows */
	char phase[GN_RECORD_PHASE_MAX];
	int phase_limit_ms;
	char rails[GN_RECORD_RAILS_MAX][GN_RECORD_RAIL_MAX];
};

static size_t append(char *text, size_t size, size_t len, const char *format, const char *word)
{
	return word && len < size ? len + (size_t)snprintf(text + len, size - len, format, word) : len;
}

static void bytes_text(uint64_t bytes, char *text, size_t size)
{
	static const char *const units[] = {"B", "KiB", "MiB", "GiB"};
	int unit = 0;

	while (unit < 3 && bytes >= 1024 && bytes % 1024 == 0) {
		bytes /= 1024;
		unit++;
	}
	snprintf(text, size, "%llu %s", (unsigned long long)bytes, units[unit]);
}

void gn_recorder_op_text(const struct gn_recorder_op *op, char *text, size_t size)
{
	char number[32], bytes[32];
	size_t len = append(text, size, 0, "%s", op->name ? op->name : "operation");
	size_t before;

	if (op->bytes) {
		bytes_text(op->bytes, bytes, sizeof bytes);
		len = append(text, size, len, " of %s", bytes);
	}
	len = append(text, size, len, "%s", " (");
	before = len;
	if (op->count) {
		snprintf(number, sizeof number, "%llu", (unsigned long long)op->count);
		len = append(text, size, len, "%s ", number);
		len = append(text, size, len, "%s", op->type ? op->type : "elements");
	}
	len = append(text, size, len, before == len ? "%s" : ", %s", op->reduction);
	len = append(text, size, len, before == len ? "%s" : ", %s", op->algorithm);
	if (op->root >= 0) {
		snprintf(number, sizeof number, "root %d", op->root);
		len = append(text, size, len, before == len ? "%s" : ", %s", number);
	}
	if (len == before && before < size)
		text[before - 2] = 0;
	else
		append(text, size, len, "%s", ")");
}

static uint64_t hash(uint64_t h, const void *data, size_t len)
{
	const unsigned char *bytes = data;

	for (size_t i = 0; i < len; i++)
		h = (h ^ bytes[i]) * 0x100000001b3u;
	return h;
}

uint64_t gn_recorder_op_signature(const struct gn_recorder_op *op)
{
	const char *texts[] = {op->name, op->algorithm, op->type, op->reduction};
	uint64_t numbers[] = {op->count, op->bytes, (uint64_t)(int64_t)op->root}, h = 0xcbf29ce484222325u;

	for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
		h = hash(h, texts[i] ? texts[i] : "", texts[i] ? strlen(texts[i]) + 1 : 1);
	h = hash(h, numbers, sizeof numbers);
	/* spread over all bits: it gets mixed with small numbers */
	h = (h ^ h >> 31) * 0x9e3779b97f4a7c15u;
	h ^= h >> 29;
	return h ? h : 1;
}

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
	free(r);
}

#define PUT(where, what) atomic_store_explicit(&(where), what, memory_order_relaxed)
#define GET(where) atomic_load_explicit(&(where), memory_order_relaxed)

uint64_t gn_recorder_start(struct gn_recorder *r, const struct gn_recorder_op *op)
{
	uint64_t number = GET(r->started) + 1;
	struct entry *e = &r->ring[number % RING];

	PUT(e->state, 4 * number);
	atomic_thread_fence(memory_order_release);
	PUT(e->name, (uintptr_t)op->name);
	PUT(e->algorithm, (uintptr_t)op->algorithm);
	PUT(e->type, (uintptr_t)op->type);
	PUT(e->reduction, (uintptr_t)op->reduction);
	PUT(e->count, op->count);
	PUT(e->bytes_and_root, op->bytes << 20 | (uint64_t)((op->root + 1) & 0xfffff));
	PUT(e->waits, WAITS_NONE);
	atomic_store_explicit(&e->state, 4 * number + 1, memory_order_release);
	atomic_store_explicit(&r->started, number, memory_order_release);
	return number;
}

/* Whether the counts of what is finished and moved change is all that matters: of two that count at once, one may be lost. */
void gn_recorder_done(struct gn_recorder *r, uint64_t number)
{
	struct entry *e = &r->ring[number % RING];

	if (GET(e->state) == 4 * number + 1)
		atomic_store_explicit(&e->state, 4 * number + 2, memory_order_release);
	PUT(r->finished, GET(r->finished) + 1);
}

void gn_recorder_waiting(struct gn_recorder *r, int moved)
{
	PUT(r->waits, GET(r->waits) + 1);
	if (moved)
		PUT(r->moves, GET(r->moves) + 1);
}

void gn_recorder_moved(struct gn_recorder *r)
{
	PUT(r->moves, GET(r->moves) + 1);
}

void gn_recorder_waits_for(struct gn_recorder *r, uint64_t number, int rank, uint32_t message, int rail)
{
	struct entry *e = &r->ring[number % RING];
	uint64_t by = rail >= 0 && rail < GN_RECORD_RAILS_MAX ? (uint64_t)rail + 1 : 0;
	uint64_t low = message & ((1u << RAIL_SHIFT) - 1);

	if (GET(e->state) == 4 * number + 1)
		PUT(e->waits, rank < 0 ? WAITS_NONE : (uint64_t)rank << RANK_SHIFT | by << RAIL_SHIFT | low);
}

void gn_recorder_name_rail(struct gn_recorder *r, int rail, const char *name)
{
	if (rail < 0 || rail >= GN_RECORD_RAILS_MAX)
		return;
	pthread_mutex_lock(&r->lock);
	snprintf(r->rails[rail], sizeof r->rails[rail], "%s", name);
	pthread_mutex_unlock(&r->lock);
}

static void say_rail(struct gn_recorder *r, uint64_t waits, char text[GN_RECORD_RAIL_MAX])
{
	unsigned by = (unsigned)(waits >> RAIL_SHIFT) & 0xff;

	text[0] = 0;
	if (waits == WAITS_NONE || !by || by > GN_RECORD_RAILS_MAX)
		return;
	pthread_mutex_lock(&r->lock);
	memcpy(text, r->rails[by - 1], GN_RECORD_RAIL_MAX);
	pthread_mutex_unlock(&r->lock);
}

void gn_recorder_announce(struct gn_recorder *r, const char *what, int limit_ms)
{
	pthread_mutex_lock(&r->lock);
	snprintf(r->phase, sizeof r->phase, "%s", what ? what : "");
	r->phase_limit_ms = limit_ms;
	pthread_mutex_unlock(&r->lock);
	PUT(r->announced, GET(r->announced) + 1);
}

static struct sample look(const struct gn_recorder *r)
{
	struct sample s = {0};

	s.started = GET(r->started);
	s.finished = GET(r->finished);
	s.waits = GET(r->waits);
	s.moves = GET(r->moves);
	s.announced = GET(r->announced);
	return s;
}

void gn_recorder_sample(struct gn_recorder *r, uint64_t now_ns)
{
	struct sample *last = &r->sample, now = look(r);

	if (now_ns - last->taken_ns < SAMPLE_NS)
		return;
	now.taken_ns = now_ns;
	now.inside = now.waits != last->waits;
	now.since_ns = now.started != last->started || now.finished != last->finished || now.moves != last->moves ||
				       now.announced != last->announced ? now_ns : last->since_ns;
	*last = now;
}

void gn_recorder_forgive(struct gn_recorder *r, uint64_t absent_ns, uint64_t now_ns)
{
	uint64_t *since = &r->sample.since_ns;

	*since = *since + absent_ns < now_ns ? *since + absent_ns : now_ns;
}

/* 0: the entry holds something else by now. */
static enum gn_record_state read_entry(const struct gn_recorder *r, uint64_t number, struct gn_recorder_op *op,
				       uint64_t *waits)
{
	const struct entry *e = &r->ring[number % RING];
	uint64_t state = atomic_load_explicit(&e->state, memory_order_acquire), packed;

	op->name = (const char *)GET(e->name);
	op->algorithm = (const char *)GET(e->algorithm);
	op->type = (const char *)GET(e->type);
	op->reduction = (const char *)GET(e->reduction);
	op->count = GET(e->count);
	packed = GET(e->bytes_and_root);
	op->bytes = packed >> 20;
	op->root = (int)(packed & 0xfffff) - 1;
	*waits = GET(e->waits);
	atomic_thread_fence(memory_order_acquire);
	if (GET(e->state) >> 2 != number || state >> 2 != number || !(state & 3))
		return number > atomic_load_explicit(&r->started, memory_order_acquire) ? GN_RECORD_NEVER : GN_RECORD_FORGOTTEN;
	return (state & 3) == 1 ? GN_RECORD_RUNNING : GN_RECORD_DONE;
}

static uint64_t find_oldest(const struct gn_recorder *r)
{
	uint64_t started = atomic_load_explicit(&r->started, memory_order_acquire), waits;
	struct gn_recorder_op op;

	for (uint64_t n = started > RING ? started - RING + 1 : 1; n <= started; n++)
		if (read_entry(r, n, &op, &waits) == GN_RECORD_RUNNING)
			return n;
	return 0;
}

void gn_recorder_tell(struct gn_recorder *r, uint64_t number, uint64_t now_ns, struct gn_record *out)
{
	struct gn_record o = {.number = number, .waits_rank = -1};
	struct sample now = look(r);
	uint64_t since, waits, usual = (uint64_t)r->limit_ms;
	struct gn_recorder_op op;

	/* what has moved since the last sample moves now */
	since = now.started != r->sample.started || now.finished != r->sample.finished || now.moves != r->sample.moves ||
				now.announced != r->sample.announced ? now_ns : r->sample.since_ns;
	o.started = now.started;
	o.oldest = find_oldest(r);
	o.inside = (uint8_t)(r->sample.inside || now.waits != r->sample.waits);
	o.idle_ms = now_ns > since ? (uint32_t)((now_ns - since) / 1000000) : 0;
	pthread_mutex_lock(&r->lock);
	memcpy(o.phase, r->phase, sizeof o.phase);
	o.limit_ms = (uint32_t)(r->phase[0] && !o.inside ? r->phase_limit_ms : r->limit_ms);
	pthread_mutex_unlock(&r->lock);
	o.suspects = (uint8_t)(o.oldest && (o.inside || !o.phase[0]) && o.idle_ms >= (usual < SUSPECT_MS ? usual : SUSPECT_MS));
	if (o.oldest && read_entry(r, o.oldest, &op, &waits) == GN_RECORD_RUNNING) {
		gn_recorder_op_text(&op, o.oldest_op, sizeof o.oldest_op);
		if (waits != WAITS_NONE) {
			o.waits_rank = (int32_t)(waits >> RANK_SHIFT);
			o.waits_message = (uint32_t)waits & ((1u << RAIL_SHIFT) - 1);
			say_rail(r, waits, o.waits_by);
		}
	}
	if (number) {
		o.state = (uint8_t)read_entry(r, number, &op, &waits);
		if (o.state == GN_RECORD_RUNNING || o.state == GN_RECORD_DONE)
			gn_recorder_op_text(&op, o.op, sizeof o.op);
	}
	*out = o;
}

void gn_recorder_describe(struct gn_recorder *r, char *text, size_t size)
{
	uint64_t number = find_oldest(r), waits = WAITS_NONE, last = atomic_load(&r->started);
	char what[GN_RECORD_OP_MAX] = "", rail[GN_RECORD_RAIL_MAX];
	struct gn_recorder_op op;
	int len;

	if (number && read_entry(r, number, &op, &waits) == GN_RECORD_RUNNING) {
		gn_recorder_op_text(&op, what, sizeof what);
		len = snprintf(text, size, "in operation number %llu, %s", (unsigned long long)number, what);
		say_rail(r, waits, rail);
		if (waits != WAITS_NONE && len > 0 && (size_t)len < size)
			snprintf(text + len, size - (size_t)len, ", waiting for rank %u%s%s", (unsigned)(waits >> RANK_SHIFT),
				 *rail ? " by " : "", rail);
	} else if (last) {
		snprintf(text, size, "in no collective, after operation number %llu", (unsigned long long)last);
	} else {
		snprintf(text, size, "before its first collective");
	}
}
