#include "src/train/parallel/mesh.h"

#include "src/base/alloc.h"
#include "transport/coll/p2p.h"

#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { AXES = 3, MOST = 1 << 20 };
static const char *const axes[AXES] = {"data", "pipeline", "tensor"};

/* One "name=number" of len characters. */
static enum gn_status parse_axis(const char *word, size_t len, int *sizes, struct gn_err *err)
{
	for (int i = 0; i < AXES; i++) {
		size_t name = strlen(axes[i]);
		char *end;
		long n;

		if (len <= name || strncmp(word, axes[i], name) || word[name] != '=')
			continue;
		if (sizes[i])
			return gn_err_set(err, GN_ERR_USAGE, "--parallel: %s is given twice", axes[i]);
		errno = 0;
		n = strtol(word + name + 1, &end, 10);
		if (errno || end != word + len || len == name + 1 || n < 1 || n > MOST)
			return gn_err_set(err, GN_ERR_USAGE, "--parallel: %.*s: %s must be a number from 1 to %d", (int)len, word, axes[i], MOST);
		sizes[i] = (int)n;
		return GN_OK;
	}
	return gn_err_set(err, GN_ERR_USAGE, "--parallel: %.*s is none of data=N, pipeline=N and tensor=N, with commas between them; auto stands alone", (int)len,
			  word);
}

/* "pipeline=2 x tensor=2", of those that divide the network. */
static const char *name_axes(const struct gn_mesh_shape *s, char out[64])
{
	if (s->pipeline > 1 && s->tensor > 1)
		snprintf(out, 64, "pipeline=%d x tensor=%d", s->pipeline, s->tensor);
	else
		snprintf(out, 64, "%s=%d", s->tensor > 1 ? "tensor" : "pipeline", s->tensor > 1 ? s->tensor : s->pipeline);
	return out;
}

/* Of what is left out. */
static enum gn_status complete(int ranks, struct gn_mesh_shape *s, struct gn_err *err)
{
	int *free_axis = !s->data ? &s->data : !s->pipeline ? &s->pipeline : NULL;
	int64_t others = 1;
	char axes_of[64];

	if (!s->data && !s->pipeline)
		s->pipeline = 1;
	if (free_axis) {
		others = (int64_t)(s->data ? s->data : s->pipeline) * s->tensor;
		*free_axis = (int)(ranks / others);
	}
	if ((int64_t)s->data * s->pipeline * s->tensor == ranks)
		return GN_OK;
	if (free_axis && free_axis != &s->data)
		return gn_err_set(err, GN_ERR_USAGE, "--parallel: %d rank%s cannot be divided by data=%lld", ranks, ranks == 1 ? "" : "s",
				  (long long)others);
	if (free_axis)
		return gn_err_set(err, GN_ERR_USAGE, "--parallel: %d rank%s cannot be divided by %s", ranks, ranks == 1 ? "" : "s",
				  name_axes(s, axes_of));
	return gn_err_set(err, GN_ERR_USAGE, "--parallel: data=%d x %s are %lld ranks, and there %s %d; one of them can be left out",
			  s->data, name_axes(s, axes_of), (long long)s->data * s->pipeline * s->tensor, ranks == 1 ? "is" : "are", ranks);
}

int gn_mesh_is_auto(const char *text)
{
	return !strcmp(text, "auto");
}

enum gn_status gn_mesh_parse(const char *text, int ranks, struct gn_mesh_shape *out, struct gn_err *err)
{
	int sizes[AXES] = {0};
	struct gn_mesh_shape s;
	enum gn_status status = GN_OK;

	if (gn_mesh_is_auto(text)) {
		*out = (struct gn_mesh_shape){ranks, ranks ? 1 : 0, 1};
		return GN_OK;
	}
	for (const char *word = text; !status; word++) {
		size_t len = strcspn(word, ",");

		status = parse_axis(word, len, sizes, err);
		word += len;
		if (!*word)
			break;
	}
	s = (struct gn_mesh_shape){sizes[0], sizes[1], sizes[2] ? sizes[2] : 1};
	if (s.tensor > 1 && !s.pipeline)
		s.pipeline = 1;
	if (!status && ranks)
		status = complete(ranks, &s, err);
	if (!status)
		*out = s;
	return status;
}

/* --- ranks in the mesh --- */

struct place {
	int node, rank;
};

static int by_node(const void *a, const void *b)
{
	const struct place *x = a, *y = b;

	return x->node != y->node ? (x->node > y->node) - (x->node < y->node) : (x->rank > y->rank) - (x->rank < y->rank);
}

/* The ranks of a data index. */
static int together(const struct gn_mesh *m)
{
	return m->shape.pipeline * m->shape.tensor;
}

/* Puts the ranks of one node, count from *places, into whole rows from *whole on, and what is left over into rest. */
static void divide_node(const struct place *places, int count, int row, int **whole, int **rest)
{
	int fit = count / row * row;

	for (int i = 0; i < count; i++) {
		int **to = i < fit ? whole : rest;

		*(*to)++ = places[i].rank;
	}
}

/* Rows, one for each data index, by their first rank. A qsort of rows of any length needs a comparison that looks at the first number only. */
static int by_first(const void *a, const void *b)
{
	return (*(const int *)a > *(const int *)b) - (*(const int *)a < *(const int *)b);
}

static void place_ranks(struct gn_mesh *m, const struct place *places, int *rest)
{
	int row = together(m), *whole = m->ranks, *left = rest;

	for (int first = 0, end; first < m->size; first = end) {
		end = first;
		while (end < m->size && places[end].node == places[first].node)
			end++;
		divide_node(places + first, end - first, row, &whole, &left);
	}
	memcpy(whole, rest, (size_t)(left - rest) * sizeof *rest);
	qsort(m->ranks, (size_t)(m->size / row), (size_t)row * sizeof *m->ranks, by_first);
	for (int i = 0; i < m->size; i++)
		m->positions[m->ranks[i]] = i;
}

enum gn_status gn_mesh_init(struct gn_mesh *m, const struct gn_mesh_shape *shape, const int *node_of, int ranks, struct gn_err *err)
{
	size_t count = (size_t)ranks;
	struct gn_mesh mesh = {*shape, ranks, calloc(count, sizeof(int)), calloc(count, sizeof(int)), calloc(count, sizeof(int))};
	struct place *places = calloc(count, sizeof *places);
	int *rest = calloc(count, sizeof *rest);

	if (!mesh.ranks || !mesh.positions || !mesh.node_of || !places || !rest) {
		free(places);
		free(rest);
		gn_mesh_release(&mesh);
		return gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for a mesh of %d ranks", ranks);
	}
	memcpy(mesh.node_of, node_of, count * sizeof *node_of);
	for (int r = 0; r < ranks; r++)
		places[r] = (struct place){node_of[r], r};
	qsort(places, count, sizeof *places, by_node);
	place_ranks(&mesh, places, rest);
	free(places);
	free(rest);
	*m = mesh;
	return GN_OK;
}

void gn_mesh_release(struct gn_mesh *m)
{
	free(m->ranks);
	free(m->positions);
	free(m->node_of);
	*m = (struct gn_mesh){.size = 0};
}

int gn_mesh_data_index(const struct gn_mesh *m, int rank)
{
	return m->positions[rank] / together(m);
}

int gn_mesh_stage(const struct gn_mesh *m, int rank)
{
	return m->positions[rank] % together(m) / m->shape.tensor;
}

int gn_mesh_slice(const struct gn_mesh *m, int rank)
{
	return m->positions[rank] % m->shape.tensor;
}

int gn_mesh_rank(const struct gn_mesh *m, int data_index, int stage)
{
	return m->ranks[data_index * together(m) + stage * m->shape.tensor];
}

/* Number k in a row and the one `apart` behind it are on two nodes. */
static int differ(const struct gn_mesh *m, int data_index, int k, int apart)
{
	const int *row = m->ranks + (size_t)data_index * (size_t)together(m);

	return m->node_of[row[k]] != m->node_of[row[k + apart]];
}

int gn_mesh_crosses(const struct gn_mesh *m, int stage)
{
	const int slices = m->shape.tensor;

	for (int d = 0; d < m->shape.data; d++)
		for (int slice = 0; slice < slices; slice++)
			if (differ(m, d, stage * slices + slice, slices))
				return 1;
	return 0;
}

void gn_mesh_draw(const struct gn_mesh *m, const char *const *hosts, int lines, struct gn_strbuf *out)
{
	int skipped = m->shape.data > lines ? m->shape.data - lines : 0, nodes = 0, slices = m->shape.tensor, is_both = slices > 1 && m->shape.pipeline > 1;
	char axes_of[64];

	for (int r = 0; r < m->size; r++)
		nodes = m->node_of[r] >= nodes ? m->node_of[r] + 1 : nodes;
	gn_strbuf_printf(out, "mesh data=%d x %s: %d rank%s on %d node%s; %s%s\n", m->shape.data, name_axes(&m->shape, axes_of), m->size,
			 m->size == 1 ? "" : "s", nodes, nodes == 1 ? "" : "s", is_both ? "stages in brackets, " : "",
			 slices == 1 || is_both ? "-> within a node, => between nodes" : "- within a node, = between nodes");
	for (int d = 0; d < m->shape.data; d++) {
		if (skipped && d == lines / 2) {
			gn_strbuf_printf(out, "  ... %d more\n", skipped);
			d += skipped;
		}
		gn_strbuf_printf(out, "  data %d:", d);
		for (int k = 0; k < together(m); k++) {
			int rank = m->ranks[d * together(m) + k], begins = k % slices == 0;

			if (k)
				gn_strbuf_printf(out, " %s%s", differ(m, d, k - 1, 1) ? "=" : "-", begins ? ">" : "");
			gn_strbuf_printf(out, " %s%s[%d]%s", is_both && begins ? "(" : "", hosts[rank], rank,
					 is_both && (k + 1) % slices == 0 ? ")" : "");
		}
		gn_strbuf_puts(out, "\n");
	}
}

enum { TAG_SUMS = 48 };

struct gn_redundancy {
	const struct gn_shard *shard;
	float *flat, *sent, *received; /* packed */
	struct gn_p2p *send, *receive;
	int holder, is_elsewhere;
};

/* Ranks in the order of nodes, each moved on by as many as the largest node has: past its own node unless that has more than half of all. */
enum gn_status gn_redundancy_holders(const int *node_of, int ranks, int *holders, struct gn_err *err)
{
	int *order = calloc((size_t)ranks, sizeof *order), count = 0, most = 0;

	if (!order)
		return gn_err_set(err, GN_ERR_NO_MEMORY, "no memory to place copies of %d ranks", ranks);
	for (int node = 0; count < ranks; node++) {
		int before = count;

		for (int r = 0; r < ranks; r++)
			if (node_of[r] == node)
				order[count++] = r;
		most = count - before > most ? count - before : most;
	}
	for (int i = 0; i < ranks; i++)
		holders[order[i]] = order[(i + (most < ranks ? most : 1)) % ranks];
	free(order);
	return GN_OK;
}

static enum gn_status place_copies(struct gn_comm *comm, int *holder, int *ward, int *is_elsewhere, struct gn_err *err)
{
	const struct gn_world *world = gn_comm_world(comm);
	int ranks = gn_comm_size(comm), rank = gn_comm_rank(comm), *nodes = calloc(2 * (size_t)ranks, sizeof *nodes), *holders = nodes ? nodes + ranks : NULL;
	enum gn_status status = nodes ? GN_OK : gn_err_set(err, GN_ERR_NO_MEMORY, "no memory to place copies of %d ranks", ranks);

	for (int r = 0; r < ranks && !status; r++)
		nodes[r] = gn_world_node_of(world, gn_comm_world_rank(comm, r));
	if (!status)
		status = gn_redundancy_holders(nodes, ranks, holders, err);
	for (int r = 0; r < ranks && !status; r++)
		if (holders[r] == rank)
			*ward = r;
	if (!status) {
		*holder = holders[rank];
		*is_elsewhere = nodes[*holder] != nodes[rank];
	}
	free(nodes);
	return status;
}

enum gn_status gn_redundancy_ward(struct gn_comm *comm, int *ward, struct gn_err *err)
{
	int holder, is_elsewhere;

	return place_copies(comm, &holder, ward, &is_elsewhere, err);
}

enum gn_status gn_redundancy_create(struct gn_comm *comm, const struct gn_shard *shard, float *flat, struct gn_redundancy **out, struct gn_err *err)
{
	struct gn_redundancy *r = calloc(1, sizeof *r);
	size_t len = gn_shard_block_elements(shard) * sizeof(float);
	struct gn_p2p_args a = {.tag = TAG_SUMS, .len_bytes = len};
	int ward = -1;
	enum gn_status status = GN_OK;

	if (r) {
		*r = (struct gn_redundancy){.shard = shard, .flat = flat, .sent = gn_alloc_aligned(len + 1), .received = gn_alloc_aligned(len + 1)};
		status = place_copies(comm, &r->holder, &ward, &r->is_elsewhere, err);
	}
	if (!r || !r->sent || !r->received)
		status = gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for the gradients of a copy");
	a.peer = ward;
	if (!status) {
		a.data = r->received;
		status = gn_p2p_prepare_receive(comm, &a, &r->receive, err);
	}
	if (!status) {
		a.data = r->sent;
		a.peer = r->holder;
		status = gn_p2p_prepare_send(comm, &a, &r->send, err);
	}
	if (status)
		gn_redundancy_destroy(r);
	else
		*out = r;
	return status;
}

void gn_redundancy_destroy(struct gn_redundancy *r)
{
	if (!r)
		return;
	gn_p2p_free(r->receive);
	gn_p2p_free(r->send);
	free(r->sent);
	free(r->received);
	free(r);
}

enum gn_status gn_redundancy_exchange(struct gn_redundancy *r, struct gn_err *err)
{
	const struct gn_parts *own = gn_shard_own_parts(r->shard), *all = gn_shard_parts(r->shard);
	size_t blocks = gn_shard_block_elements(r->shard);
	enum gn_status status = gn_p2p_start(r->receive, NULL, err);

	for (size_t i = 0; i < own->count && own->list[i].at < blocks; i++)
		memcpy(r->sent + own->list[i].at, r->flat + own->list[i].begin, own->list[i].count * sizeof(float));
	if (!status)
		status = gn_p2p_start(r->send, NULL, err);
	if (!status)
		status = gn_p2p_wait(r->receive, err);
	if (!status)
		status = gn_p2p_wait(r->send, err);
	for (size_t i = own->count; i < all->count && !status; i++)
		memcpy(r->flat + all->list[i].begin, r->received + all->list[i].at - own->elements, all->list[i].count * sizeof(float));
	return status;
}

int gn_redundancy_holder(const struct gn_redundancy *r, int *is_elsewhere)
{
	*is_elsewhere = r->is_elsewhere;
	return r->holder;
}

size_t gn_redundancy_bytes(const struct gn_redundancy *r)
{
	return gn_shard_block_elements(r->shard) * sizeof(float);
}
