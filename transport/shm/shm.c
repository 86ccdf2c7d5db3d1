#include "transport/shm/shm_internal.h"

#include <limits.h>
#include <linux/futex.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

static void *own_part(const struct gn_shm *n, const struct gn_shm_allocation *a)
{
	return gn_segment_part_of(a->segment, n->ranks[n->local_rank]);
}

static void release(struct gn_shm *n)
{
	pthread_mutex_destroy(&n->lock);
	gn_segment_destroy(n->control);
	free(n->flags_committed);
	free(n->ranks);
	free(n->wakeups);
	free(n);
}

static enum gn_status find_locals(struct gn_shm *n, struct gn_err *err)
{
	const struct gn_shm_members *m = &n->members;
	int rank = gn_world_rank(m->world), here = gn_world_node_of(m->world, rank);

	n->flags_committed = calloc((size_t)m->size, sizeof *n->flags_committed);
	n->ranks = calloc((size_t)m->size, sizeof *n->ranks);
	n->wakeups = calloc((size_t)m->size, sizeof *n->wakeups);
	if (!n->flags_committed || !n->ranks || !n->wakeups)
		return gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for shared-memory collectives");
	for (int r = 0; r < m->size; r++) {
		int world_rank = gn_shm_member(m, r);

		if (world_rank == rank)
			n->local_rank = n->local_size;
		if (gn_world_node_of(m->world, world_rank) == here)
			n->ranks[n->local_size++] = world_rank;
	}
	return GN_OK;
}

/* root: NULL if the new one is it. */
static enum gn_status create(const struct gn_shm_members *members, struct gn_shm *root, int oversubscribed, struct gn_shm **out,
			     struct gn_err *err)
{
	struct gn_shm *n = calloc(1, sizeof *n);
	enum gn_status status;

	if (!n)
		return gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for shared-memory collectives");
	pthread_mutex_init(&n->lock, NULL);
	n->root = root ? root : n;
	n->members = *members;
	n->oversubscribed = oversubscribed;
	status = find_locals(n, err);
	/* the world's are mapped at once for speed; a group may never need them */
	n->bounce_committed = !root && gn_shm_has_bounce_buffers(n);
	if (!status)
		status = gn_segment_create(members, sizeof(struct gn_shm_control), n->bounce_committed ?
					   offsetof(struct gn_shm_control, flags) : offsetof(struct gn_shm_control, bounce),
					   &n->control, err);
	if (status) {
		release(n);
		return status;
	}
	for (int i = 0; i < n->local_size; i++) {
		struct gn_shm_control *control = gn_segment_part_of(n->root->control, n->ranks[i]);

		n->wakeups[i] = &control->wakeup;
	}
	n->waiters = &gn_shm_control_of(n->root, 0)->wakeup.waiters;
	*out = n;
	return GN_OK;
}

enum gn_status gn_shm_create(struct gn_world *world, int oversubscribed, struct gn_shm **out, struct gn_err *err)
{
	struct gn_shm_members all = gn_shm_all_members(world);

	return create(&all, NULL, oversubscribed, out, err);
}

enum gn_status gn_shm_create_group(struct gn_shm *root, const struct gn_shm_members *members, struct gn_shm **out,
				   struct gn_err *err)
{
	enum gn_status status = create(members, root, root->oversubscribed, out, err);

	root->groups += !status;
	return status;
}

int gn_shm_has_room(const struct gn_shm *root)
{
	return root->groups < GN_SHM_GROUPS_MAX;
}

void gn_shm_destroy(struct gn_shm *n)
{
	if (!n)
		return;
	for (struct gn_shm_allocation *a = n->root->allocations, *next; a; a = next) {
		next = a->next;
		if (a->owner == n)
			gn_shm_free(n, own_part(n, a));
	}
	if (n != n->root)
		n->root->groups--;
	release(n);
}

int gn_shm_has_bounce_buffers(const struct gn_shm *n)
{
	return n->local_size <= GN_BOUNCE_RANKS;
}

size_t gn_shm_eager_bytes(const struct gn_shm *n)
{
	return gn_shm_has_bounce_buffers(n) ? GN_EAGER_BYTES : GN_EAGER_NO_BOUNCE_BYTES;
}

enum gn_status gn_shm_alloc(struct gn_shm *n, size_t len_bytes, void **out, struct gn_err *err)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE), len = len_bytes ? (len_bytes + page - 1) / page * page : page;
	struct gn_shm_allocation *a = calloc(1, sizeof *a);
	enum gn_status status;

	if (!a)
		return gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for an allocation");
	status = gn_segment_create(&n->members, len, len, &a->segment, err);
	if (status) {
		free(a);
		return status;
	}
	a->owner = n;
	pthread_mutex_lock(&n->root->lock);
	a->next = n->root->allocations;
	n->root->allocations = a;
	pthread_mutex_unlock(&n->root->lock);
	*out = gn_segment_part(a->segment, n->local_rank);
	return GN_OK;
}

void gn_shm_free(struct gn_shm *n, void *memory)
{
	struct gn_shm_allocation *a, **at;

	pthread_mutex_lock(&n->root->lock);
	for (at = &n->root->allocations; *at && own_part(n, *at) != memory; at = &(*at)->next)
		;
	a = *at;
	if (a)
		*at = a->next;
	pthread_mutex_unlock(&n->root->lock);
	if (a)
		gn_segment_destroy(a->segment);
	free(a);
}

static int all_have_mapped(const struct gn_shm *n, const struct gn_segment *s)
{
	for (int i = 0; i < n->local_size; i++)
		if (!gn_segment_part_of(s, n->ranks[i]))
			return 0;
	return 1;
}

const struct gn_shm_allocation *gn_shm_find(const struct gn_shm *n, const void *memory, size_t len, uint64_t *offset)
{
	const struct gn_shm_allocation *a;
	uintptr_t at = (uintptr_t)memory, base = 0;

	pthread_mutex_lock(&n->root->lock);
	for (a = n->root->allocations; a; a = a->next) {
		size_t size = gn_segment_len(a->segment);

		base = (uintptr_t)own_part(n, a);
		if (at >= base && at - base <= size && len <= size - (at - base))
			break;
	}
	pthread_mutex_unlock(&n->root->lock);
	if (!a || !all_have_mapped(n, a->segment))
		return NULL;
	*offset = at - base;
	return a;
}

const struct gn_shm_allocation *gn_shm_find_id(const struct gn_shm *n, uint64_t id)
{
	const struct gn_shm_allocation *a;

	pthread_mutex_lock(&n->root->lock);
	for (a = n->root->allocations; a && gn_segment_id(a->segment) != id; a = a->next)
		;
	pthread_mutex_unlock(&n->root->lock);
	return a;
}

int gn_shm_owns(const struct gn_shm *n, const void *memory, size_t len_bytes)
{
	uint64_t offset;

	return gn_shm_find(n, memory, len_bytes, &offset) != NULL;
}

static void signal_wakeup(struct gn_shm_wakeup *b)
{
	atomic_fetch_add(&b->state, 1);
	syscall(SYS_futex, &b->state, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

uint32_t gn_shm_wakeup_begin(struct gn_shm *n)
{
	struct gn_shm_wakeup *own = n->wakeups[n->local_rank];
	uint32_t state = atomic_load(&own->state);

	atomic_fetch_add(&own->waiting, 1);
	atomic_fetch_add(n->waiters, 1);
	return state;
}

void gn_shm_wakeup_end(struct gn_shm *n)
{
	atomic_fetch_sub(n->waiters, 1);
	atomic_fetch_sub(&n->wakeups[n->local_rank]->waiting, 1);
}

void gn_shm_wakeup_wait(struct gn_shm *n, uint32_t state, const struct timespec *limit)
{
	syscall(SYS_futex, &n->wakeups[n->local_rank]->state, FUTEX_WAIT, state, limit, NULL, 0);
}

void gn_shm_wake(struct gn_shm *n, int local)
{
	int first = local < 0 ? 0 : local, end = local < 0 ? n->local_size : local + 1;

	for (int i = first; i < end; i++)
		if (i != n->local_rank && atomic_load_explicit(&n->wakeups[i]->waiting, memory_order_relaxed))
			signal_wakeup(n->wakeups[i]);
}

void gn_shm_wake_self(struct gn_shm *n)
{
	signal_wakeup(n->wakeups[n->local_rank]);
}

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
