#include "transport/shm/shm_flags.h"

#include "transport/shm/shm_internal.h"

#include <stdlib.h>

/* Runs never reach this: one a microsecond would take nine years. */
#define RUN_MASK ((uint64_t)0xffffffffffff)

/* For each message and peer two words in each rank's own part: "to you: may be read", "from you: has been read". They hold
 * the number of the run, which rises over all lanes of the node alike: words of an older lane in the same place never look
 * like the present one's, and a newer lane's there means that the older one is complete at their owner. */
struct gn_shm_flags {
	struct gn_shm *node;
	struct gn_shm_flags *next;
	const struct gn_segment *segment;
	size_t offset;
	uint32_t first, words, messages;
	uint64_t run, signature; /* in the upper bits of a word */
};

static size_t word_of(const struct gn_shm_flags *l, int peer, int acknowledges, uint32_t message)
{
	return l->first + ((size_t)peer * 2 + (size_t)acknowledges) * l->messages + message;
}

static atomic_uint_fast64_t *mine(const struct gn_shm_flags *l, int peer, int acknowledges, uint32_t message)
{
	return gn_shm_control_of(l->node, l->node->local_rank)->words + word_of(l, peer, acknowledges, message);
}

/* A neighbour's word; 0 when it has none yet. */
static uint64_t theirs(const struct gn_shm_flags *l, int peer, int acknowledges, uint32_t message)
{
	struct gn_shm_control *c = gn_shm_control_of(l->node, peer);
	uint32_t *ready = &l->node->words_ready[peer];

	if (*ready < l->first + l->words)
		*ready = atomic_load_explicit(&c->words_ready, memory_order_acquire);
	if (*ready < l->first + l->words)
		return 0;
	return atomic_load_explicit(c->words + word_of(l, l->node->local_rank, acknowledges, message), memory_order_acquire);
}

/* Of this rank's own words, so many. */
static enum gn_status make_ready(struct gn_shm *n, uint32_t words, struct gn_err *err)
{
	struct gn_shm_control *own = gn_shm_control_of(n, n->local_rank);
	uint32_t *ready = &n->words_ready[n->local_rank];
	enum gn_status status;

	if (words <= *ready)
		return GN_OK;
	status = gn_segment_commit(n->control, offsetof(struct gn_shm_control, words) + *ready * sizeof *own->words,
				   (words - *ready) * sizeof *own->words, err);
	if (status)
		return status;
	*ready = words;
	atomic_store_explicit(&own->words_ready, words, memory_order_release);
	return GN_OK;
}

/* The first gap that is large enough: the same on all ranks, who make and free lanes in the same order. */
static struct gn_shm_flags **find_gap(struct gn_shm *n, uint32_t words, uint32_t *first)
{
	struct gn_shm_flags **at = &n->lanes;

	for (*first = 0; *at && (*at)->first - *first < words; at = &(*at)->next)
		*first = (*at)->first + (*at)->words;
	return GN_SHM_FLAGS_WORDS - *first >= words ? at : NULL;
}

enum gn_status gn_shm_flags_create(struct gn_shm *n, const void *buffer, size_t len_bytes, uint32_t messages,
			      struct gn_shm_flags **out, struct gn_err *err)
{
	uint64_t words = (uint64_t)n->local_size * 2 * messages, offset;
	const struct gn_shm_allocation *place = gn_shm_find(n, buffer, len_bytes, &offset);
	struct gn_shm_flags **at, *l;
	enum gn_status status;
	uint32_t first;

	if (!place)
		return gn_err_set(err, GN_ERR_USAGE, "a lane needs a buffer of the node's");
	at = words <= GN_SHM_FLAGS_WORDS ? find_gap(n, (uint32_t)words, &first) : NULL;
	if (!at)
		return gn_err_set(err, GN_ERR_UNSUPPORTED, "no room for %llu words in the node's lanes", (unsigned long long)words);
	status = make_ready(n, first + (uint32_t)words, err);
	if (status)
		return status;
	l = calloc(1, sizeof *l);
	if (!l)
		return gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for a lane");
	*l = (struct gn_shm_flags){.node = n, .next = *at, .segment = place->segment, .offset = offset, .first = first,
			      .words = (uint32_t)words, .messages = messages};
	*at = l;
	*out = l;
	return GN_OK;
}

void gn_shm_flags_sign(struct gn_shm_flags *l, uint64_t signature)
{
	l->signature = signature & ~RUN_MASK;
}

void gn_shm_flags_destroy(struct gn_shm_flags *l)
{
	struct gn_shm_flags **at;

	if (!l)
		return;
	for (at = &l->node->lanes; *at && *at != l; at = &(*at)->next)
		;
	if (*at)
		*at = l->next;
	free(l);
}

int gn_shm_flags_of(const struct gn_shm_flags *l, int rank)
{
	const struct gn_world *w = l->node->world;
	int here = gn_world_node_of(w, gn_world_rank(w)), local = 0;

	if (rank == gn_world_rank(w) || gn_world_node_of(w, rank) != here)
		return -1;
	for (int r = 0; r < rank; r++)
		local += gn_world_node_of(w, r) == here;
	return local;
}

void gn_shm_flags_start(struct gn_shm_flags *l)
{
	l->run = ++l->node->lane_runs;
}

void gn_shm_flags_offer(struct gn_shm_flags *l, int to, uint32_t message)
{
	atomic_store_explicit(mine(l, to, 0, message), l->run | l->signature, memory_order_release);
	gn_shm_tell(l->node, to);
}

int gn_shm_flags_taken(const struct gn_shm_flags *l, int to, uint32_t message)
{
	/* an older lane may have left an offer there, with its signature; who has taken it may be runs ahead */
	return (theirs(l, to, 1, message) & RUN_MASK) >= l->run;
}

int gn_shm_flags_offered(const struct gn_shm_flags *l, int from, uint32_t message)
{
	/* who offers waits until it is taken, so it cannot be ahead */
	return theirs(l, from, 0, message) == (l->run | l->signature);
}

const void *gn_shm_flags_peek(const struct gn_shm_flags *l, int from, size_t offset_bytes)
{
	return (const char *)gn_segment_part(l->segment, from) + l->offset + offset_bytes;
}

void gn_shm_flags_take(struct gn_shm_flags *l, int from, uint32_t message)
{
	atomic_store_explicit(mine(l, from, 1, message), l->run, memory_order_release);
	gn_shm_tell(l->node, from);
}
