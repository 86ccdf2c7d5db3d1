#include "transport/shm/shm_flags.h"

#include "transport/shm/shm_internal.h"

#include <stdlib.h>

/* Run numbers never reach this: at one per microsecond it takes nine years. */
#define RUN_MASK ((uint64_t)0xffffffffffff)

/* Each rank has two flags for each message and peer in its own part: "to the peer: may be read" and "from the peer: has been read".
 * A flag holds the run number, which rises over all objects of the node alike: a flag left by an older object in the same place
 * never equals the present run, and one of a newer object means that its owner has completed the older one. */
struct gn_shm_flags {
	struct gn_shm *node;
	struct gn_shm_flags *next;
	char **buffers; /* of each local rank */
	uint32_t first, count, messages;
	uint64_t run, signature; /* signature: the upper bits of a flag */
};

static size_t flag_index(const struct gn_shm_flags *l, int peer, int acknowledges, uint32_t message)
{
	return l->first + ((size_t)peer * 2 + (size_t)acknowledges) * l->messages + message;
}

static atomic_uint_fast64_t *own_flag(const struct gn_shm_flags *l, int peer, int acknowledges, uint32_t message)
{
	return gn_shm_control_of(l->node, l->node->local_rank)->flags + flag_index(l, peer, acknowledges, message);
}

/* A flag in the peer's part; 0 while the peer has not committed it. */
static uint64_t peer_flag(const struct gn_shm_flags *l, int peer, int acknowledges, uint32_t message)
{
	struct gn_shm_control *c = gn_shm_control_of(l->node, peer);
	uint32_t *committed = &l->node->flags_committed[peer];

	if (*committed < l->first + l->count)
		*committed = atomic_load_explicit(&c->flags_committed, memory_order_acquire);
	if (*committed < l->first + l->count)
		return 0;
	return atomic_load_explicit(c->flags + flag_index(l, l->node->local_rank, acknowledges, message), memory_order_acquire);
}

/* Commits this rank's first `count` flags. */
static enum gn_status commit_flags(struct gn_shm *n, uint32_t count, struct gn_err *err)
{
	struct gn_shm_control *own = gn_shm_control_of(n, n->local_rank);
	uint32_t *committed = &n->flags_committed[n->local_rank];
	enum gn_status status;

	if (count <= *committed)
		return GN_OK;
	status = gn_segment_commit(n->control, offsetof(struct gn_shm_control, flags) + *committed * sizeof *own->flags,
				   (count - *committed) * sizeof *own->flags, err);
	if (status)
		return status;
	*committed = count;
	atomic_store_explicit(&own->flags_committed, count, memory_order_release);
	return GN_OK;
}

/* The first gap that is large enough: the same on all ranks, because they create and free objects in the same order. */
static struct gn_shm_flags **find_gap(struct gn_shm *n, uint32_t count, uint32_t *first)
{
	struct gn_shm_flags **at = &n->flags;

	for (*first = 0; *at && (*at)->first - *first < count; at = &(*at)->next)
		*first = (*at)->first + (*at)->count;
	return GN_SHM_FLAGS_MAX - *first >= count ? at : NULL;
}

static enum gn_status find_buffers(struct gn_shm_flags *l, const void *buffer, size_t len_bytes, struct gn_err *err)
{
	uint64_t offset = 0;
	const struct gn_shm_allocation *a = gn_shm_find(l->node, buffer, len_bytes, &offset);

	l->buffers = calloc((size_t)l->node->local_size, sizeof *l->buffers);
	if (!l->buffers)
		return gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for message flags");
	for (int i = 0; i < l->node->local_size; i++)
		l->buffers[i] = (char *)gn_segment_part_of(a->segment, l->node->ranks[i]) + offset;
	return GN_OK;
}

enum gn_status gn_shm_flags_create(struct gn_shm *n, const void *buffer, size_t len_bytes, uint32_t messages,
			      struct gn_shm_flags **out, struct gn_err *err)
{
	uint64_t count = (uint64_t)n->local_size * 2 * messages;
	struct gn_shm_flags **at, *l;
	enum gn_status status;
	uint32_t first;

	if (!gn_shm_owns(n, buffer, len_bytes))
		return gn_err_set(err, GN_ERR_USAGE, "the buffer is not in memory shared by the node");
	at = count <= GN_SHM_FLAGS_MAX ? find_gap(n, (uint32_t)count, &first) : NULL;
	if (!at)
		return gn_err_set(err, GN_ERR_UNSUPPORTED, "no room for %llu message flags in shared memory",
				  (unsigned long long)count);
	status = commit_flags(n, first + (uint32_t)count, err);
	if (status)
		return status;
	l = calloc(1, sizeof *l);
	if (!l)
		return gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for message flags");
	*l = (struct gn_shm_flags){.node = n, .next = *at, .first = first, .count = (uint32_t)count, .messages = messages};
	status = find_buffers(l, buffer, len_bytes, err);
	if (status) {
		free(l);
		return status;
	}
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
	for (at = &l->node->flags; *at && *at != l; at = &(*at)->next)
		;
	if (*at)
		*at = l->next;
	free(l->buffers);
	free(l);
}

int gn_shm_flags_peer(const struct gn_shm_flags *l, int rank)
{
	const struct gn_shm *n = l->node;

	for (int i = 0; i < n->local_size; i++)
		if (n->ranks[i] == rank)
			return i == n->local_rank ? -1 : i;
	return -1;
}

void gn_shm_flags_start(struct gn_shm_flags *l)
{
	l->run = ++l->node->flag_runs;
}

void gn_shm_flags_set_ready(struct gn_shm_flags *l, int to, uint32_t message)
{
	atomic_store_explicit(own_flag(l, to, 0, message), l->run | l->signature, memory_order_release);
	gn_shm_notify(l->node, to);
}

int gn_shm_flags_is_done(const struct gn_shm_flags *l, int to, uint32_t message)
{
	/* the flag may be an older object's "ready" with its signature; a receiver that is done may be some runs ahead */
	return (peer_flag(l, to, 1, message) & RUN_MASK) >= l->run;
}

int gn_shm_flags_is_ready(const struct gn_shm_flags *l, int from, uint32_t message)
{
	/* the sender waits until the message was read, so it cannot be ahead */
	return peer_flag(l, from, 0, message) == (l->run | l->signature);
}

const void *gn_shm_flags_data(const struct gn_shm_flags *l, int from, size_t offset_bytes)
{
	return l->buffers[from] + offset_bytes;
}

void gn_shm_flags_set_done(struct gn_shm_flags *l, int from, uint32_t message)
{
	atomic_store_explicit(own_flag(l, from, 1, message), l->run, memory_order_release);
	gn_shm_notify(l->node, from);
}
