/* Networks whose channels are divided among ranks.
 *
 * A tensor is whole, the same on all ranks, or sliced by channels. Convolutions and linear layers give a slice of their outputs (by columns,
 * in Megatron-LM's words), for which they read all of their input; linear layers whose input is sliced already give parts of sums instead
 * (by rows). What works channel by channel stays sliced; what needs all channels of a pixel, or has channels that ranks do not divide, is
 * computed whole on each rank. */
#include "src/train/model/model_internal.h"

#include <stdlib.h>
#include <string.h>

enum mode { WHOLE, LOCAL, COLUMN, ROW };

/* How a reader wants what a node gives: as it is, or through a conjugate. */
enum { AS_IT_IS, FOR_PARTS, MADE_WHOLE, WAYS };

struct slicer {
	const struct gn_model *whole;
	struct gn_model *slice;
	int rank, ranks;
	enum mode *modes;    /* by node of the whole, as all below */
	char *is_sliced;     /* what it gives */
	int (*nodes)[WAYS];  /* in the slice, or 0: not yet */
};

static int divides(const struct slicer *s, int channels)
{
	return channels % s->ranks == 0;
}

/* The attention that reads what node gives; NULL: none. */
static const struct gn_shm *attention_after(const struct slicer *s, int node)
{
	const struct gn_shm *next = node + 1 < s->whole->node_count ? &s->whole->nodes[node + 1] : NULL;

	return next && next->kind == GN_LAYER_ATTENTION && next->input[0] == node ? next : NULL;
}

static int is_pixel_linear(const struct slicer *s, int node)
{
	for (int i = 0; i < s->whole->param_count; i++)
		if (s->whole->params[i].node == node)
			return s->whole->params[i].kind == GN_PARAM_WEIGHT && s->whole->params[i].dims == 2;
	return 0;
}

static enum mode mode_of_product(const struct slicer *s, int node)
{
	const struct gn_shm *n = &s->whole->nodes[node], *attention = attention_after(s, node);
	int sliced = s->is_sliced[n->input[0]], is_last = node + 1 == s->whole->node_count && gn_model_is_end(s->whole);

	if (n->groups > 1)
		return sliced && divides(s, n->groups) ? LOCAL : WHOLE;
	if (sliced && !is_last && !attention && (n->kind == GN_LAYER_LINEAR || is_pixel_linear(s, node)))
		return ROW;
	return divides(s, attention ? attention->heads : n->channels_out) ? COLUMN : WHOLE;
}

static enum mode mode_of(const struct slicer *s, int node)
{
	const struct gn_shm *n = &s->whole->nodes[node];
	int sliced = s->is_sliced[n->input[0]];

	switch (n->kind) {
	case GN_LAYER_CONV:
	case GN_LAYER_LINEAR:
		return mode_of_product(s, node);
	case GN_LAYER_ADD:
	case GN_LAYER_SCALE:
		return sliced && s->is_sliced[n->input[1]] ? LOCAL : WHOLE;
	case GN_LAYER_LAYER_NORM:
	case GN_LAYER_TOKENS:
		return WHOLE;
	default:
		return sliced ? LOCAL : WHOLE;
	}
}

/* --- nodes --- */

/* In the whole network: of dropout masks and traces. */
static int number_of(const struct slicer *s, int node)
{
	return node + s->whole->origin.node;
}

/* adds: the layer by rows whose bias it adds; NULL: none. */
static int add_conjugate(struct slicer *s, enum gn_conjugate kind, int input, int node, const struct gn_shm *adds)
{
	struct gn_model *m = s->slice;
	struct gn_shm *n = &m->nodes[m->node_count];

	*n = (struct gn_shm){.kind = GN_LAYER_CONJUGATE, .input = {input, -1}, .number = number_of(s, node), .conjugate = {kind, s->rank, s->ranks}};
	if (adds) {
		memcpy(n->name, adds->name, sizeof n->name);
		n->bias = adds->bias;
	}
	m->maps[m->node_count] = m->maps[input];
	if (kind >= GN_CONJUGATE_GATHER)
		m->maps[m->node_count].c *= s->ranks;
	return m->node_count++;
}

/* The node of the slice that gives what this one of the whole gives. Images have no gradient; what the stage before gives has. */
static int node_for_reader(struct slicer *s, int node, int way)
{
	int sliced = s->is_sliced[node];

	if ((!node && !s->whole->origin.node) || (way == MADE_WHOLE && !sliced))
		way = AS_IT_IS;
	if (way != AS_IT_IS && !s->nodes[node][way])
		s->nodes[node][way] = add_conjugate(s, way == MADE_WHOLE ? GN_CONJUGATE_GATHER : sliced ? GN_CONJUGATE_GATHER_REDUCE : GN_CONJUGATE_COPY,
						    s->nodes[node][AS_IT_IS], node, NULL);
	return s->nodes[node][way];
}

static void divide(const struct slicer *s, int node, struct gn_shm *n, struct gn_map *map)
{
	enum mode mode = s->modes[node];

	if (mode == COLUMN || mode == LOCAL) {
		map->c /= s->ranks;
		n->channels_out /= s->ranks;
		n->groups = n->groups > 1 ? n->groups / s->ranks : n->groups;
		n->heads /= s->ranks;
	}
	if (mode == ROW)
		n->bias = 0;
	if (mode == LOCAL && n->kind == GN_LAYER_DROPOUT) {
		size_t elements = (size_t)map->c * (size_t)map->h * (size_t)map->w;

		n->slice_begin = elements * (size_t)s->rank;
		n->slice_of = elements * (size_t)s->ranks;
	}
}

static void add_node(struct slicer *s, int node)
{
	static const int ways[] = {[WHOLE] = MADE_WHOLE, [LOCAL] = AS_IT_IS, [COLUMN] = FOR_PARTS, [ROW] = AS_IT_IS};
	struct gn_model *m = s->slice;
	struct gn_shm n = s->whole->nodes[node];
	struct gn_map map = s->whole->maps[node];

	s->modes[node] = mode_of(s, node);
	for (int k = 0; k < 2; k++)
		if (n.input[k] >= 0)
			n.input[k] = node_for_reader(s, n.input[k], ways[s->modes[node]]);
	n.number = number_of(s, node);
	divide(s, node, &n, &map);
	m->nodes[m->node_count] = n;
	m->maps[m->node_count] = map;
	s->nodes[node][AS_IT_IS] = m->node_count++;
	s->is_sliced[node] = s->modes[node] == COLUMN || s->modes[node] == LOCAL;
	if (s->modes[node] == ROW)
		s->nodes[node][AS_IT_IS] = add_conjugate(s, GN_CONJUGATE_REDUCE, m->node_count - 1, node, &s->whole->nodes[node]);
}

/* --- parameters --- */

static void cut(struct slicer *s, struct gn_param *p, int axis, size_t blocks)
{
	size_t stride = p->count / blocks, len = stride / (size_t)s->ranks;

	p->shape[axis] /= s->ranks;
	p->slice = (struct gn_param_slice){blocks, stride, len * (size_t)s->rank, len, 0};
	p->count = blocks * len;
}

static void add_params(struct slicer *s, const struct gn_param *from, int count, struct gn_param *to, size_t *elements)
{
	for (int i = 0; i < count; i++) {
		struct gn_param p = from[i];
		enum mode mode = s->modes[p.node];

		if (mode == COLUMN || mode == LOCAL)
			cut(s, &p, 0, attention_after(s, p.node) ? 3 : 1);
		else if (mode == ROW && p.kind == GN_PARAM_WEIGHT)
			cut(s, &p, 1, (size_t)p.shape[0]);
		else
			p.slice = (struct gn_param_slice){1, p.count, 0, p.count, s->rank > 0};
		p.node = s->nodes[p.node][AS_IT_IS] - (mode == ROW && p.kind == GN_PARAM_WEIGHT); /* the sum, with the bias, follows the layer */
		p.offset = *elements;
		*elements += (p.count + 15) / 16 * 16;
		to[i] = p;
	}
}

/* --- all of it --- */

static enum gn_status allocate(struct slicer *s)
{
	size_t count = (size_t)s->whole->node_count, room = 4 * count + 2; /* a node, what adds its bias, and two conjugates at most; the end of a stage */
	struct gn_model *m = s->slice;

	s->modes = calloc(count, sizeof *s->modes);
	s->is_sliced = calloc(count, 1);
	s->nodes = calloc(count, sizeof *s->nodes);
	m->nodes = calloc(room, sizeof *m->nodes);
	m->maps = calloc(room, sizeof *m->maps);
	m->params = calloc((size_t)s->whole->param_count + 1, sizeof *m->params);
	m->buffers = calloc((size_t)s->whole->buffer_count + 1, sizeof *m->buffers);
	return s->modes && s->is_sliced && s->nodes && m->nodes && m->maps && m->params && m->buffers ? GN_OK : GN_ERR_NO_MEMORY;
}

static void release(struct slicer *s)
{
	free(s->modes);
	free(s->is_sliced);
	free(s->nodes);
}

static void slice_all(struct slicer *s)
{
	const struct gn_model *whole = s->whole;
	struct gn_model *m = s->slice;
	int last = whole->node_count - 1, classes, has_classes;

	m->nodes[0] = whole->nodes[0];
	m->maps[0] = whole->maps[0];
	m->node_count = 1;
	for (int i = 1; i < whole->node_count; i++)
		add_node(s, i);
	if (whole->is_cut_off) /* the next stage takes it whole */
		node_for_reader(s, last, MADE_WHOLE);
	add_params(s, whole->params, whole->param_count, m->params, &m->param_elements);
	add_params(s, whole->buffers, whole->buffer_count, m->buffers, &m->buffer_elements);
	m->param_count = whole->param_count;
	m->buffer_count = whole->buffer_count;
	has_classes = s->is_sliced[last] && !whole->is_cut_off;
	classes = has_classes ? whole->classes / s->ranks : whole->classes;
	m->tensor = (struct gn_model_tensor){s->rank, s->ranks, has_classes ? classes * s->rank : 0, classes};
}

enum gn_status gn_model_slice(const struct gn_model *m, int rank, int ranks, struct gn_model **out, struct gn_err *err)
{
	struct slicer s = {.whole = m, .rank = rank, .ranks = ranks, .slice = calloc(1, sizeof *s.slice)};
	enum gn_status status = s.slice ? GN_OK : GN_ERR_NO_MEMORY;

	if (!status) {
		s.slice->name = m->name;
		s.slice->classes = m->classes;
		s.slice->channels = m->channels;
		s.slice->side = m->side;
		s.slice->init_rule = m->init_rule;
		s.slice->drop_path = m->drop_path;
		s.slice->origin = m->origin;
		s.slice->is_cut_off = m->is_cut_off;
		status = allocate(&s);
	}
	if (!status)
		slice_all(&s);
	release(&s);
	if (!status && s.slice->param_elements < m->param_elements) {
		*out = s.slice;
		return GN_OK;
	}
	gn_model_destroy(s.slice);
	return status ? gn_err_set(err, status, "no memory for the description of a slice of %s", m->name)
		      : gn_err_set(err, GN_ERR_USAGE, "tensor=%d: %s%s has no layer that so many ranks divide", ranks,
				 m->origin.node || m->is_cut_off ? "a stage of " : "", m->name);
}

struct gn_model_tensor gn_model_tensor(const struct gn_model *m)
{
	return m->tensor;
}

/* --- arrays --- */

static void move(const struct gn_model *slice, const struct gn_model *whole, int buffers, float *large, float *small, int takes)
{
	const struct gn_param *to = buffers ? slice->buffers : slice->params, *from = buffers ? whole->buffers : whole->params;
	int count = buffers ? slice->buffer_count : slice->param_count;

	for (int i = 0; i < count; i++) {
		const struct gn_param_slice *p = &to[i].slice;

		for (size_t b = 0; b < p->blocks; b++) {
			float *w = large + from[i].offset + b * p->stride + p->begin, *s = small + to[i].offset + b * p->len;

			memcpy(takes ? s : w, takes ? w : s, p->len * sizeof *s);
		}
	}
}

void gn_model_slice_take(const struct gn_model *slice, const struct gn_model *whole, int buffers, const float *from, float *to)
{
	move(slice, whole, buffers, (float *)(uintptr_t)from, to, 1);
}

void gn_model_slice_put(const struct gn_model *slice, const struct gn_model *whole, int buffers, const float *from, float *to)
{
	move(slice, whole, buffers, to, (float *)(uintptr_t)from, 0);
}

/* Networks cut into parts that follow each other. */

int gn_model_can_cut(const struct gn_model *m, int node)
{
	if (node < 2 || node >= m->node_count || !m->nodes[node].name[0] || m->nodes[node].kind == GN_LAYER_BATCH_NORM)
		return 0;
	for (int i = node; i < m->node_count; i++)
		for (int k = 0; k < 2; k++)
			if (m->nodes[i].input[k] >= 0 && m->nodes[i].input[k] < node - 1)
				return 0;
	return 1;
}

static int is_within(const char *layer, const char *name)
{
	size_t len = strlen(name);

	return len && !strncmp(layer, name, len) && (!layer[len] || layer[len] == '.');
}

enum gn_status gn_model_find_cut(const struct gn_model *m, const char *name, int *node, struct gn_err *err)
{
	int found = 1;

	while (found < m->node_count && !is_within(m->nodes[found].name, name))
		found++;
	if (found == m->node_count)
		return gn_err_set(err, GN_ERR_USAGE, "%s: %s has no layer or block of that name", name, m->name);
	if (gn_model_can_cut(m, found)) {
		*node = found;
		return GN_OK;
	}
	return gn_err_set(err, GN_ERR_USAGE, "%s: %s cannot be cut before it, where more than one tensor passes, or only the image", name, m->name);
}

/* Parameters or buffers of the nodes; *base: the first one's offset. */
static enum gn_status copy_params(const struct gn_param *from, int count, int first, int end, struct gn_param **out, int *out_count, size_t *base,
				  size_t *elements)
{
	struct gn_param *list = calloc((size_t)count + 1, sizeof *list);
	int copied = 0;

	if (!list)
		return GN_ERR_NO_MEMORY;
	for (int i = 0; i < count; i++) {
		if (from[i].node < first || from[i].node >= end)
			continue;
		if (!copied)
			*base = from[i].offset;
		list[copied] = from[i];
		list[copied].node -= first - 1;
		list[copied].offset -= *base;
		*elements = (list[copied].offset + from[i].count + 15) / 16 * 16;
		copied++;
	}
	*out = list;
	*out_count = copied;
	return GN_OK;
}

static enum gn_status copy_nodes(const struct gn_model *m, int first, int end, struct gn_model *part)
{
	size_t count = (size_t)(end - first) + 1;

	part->nodes = calloc(count, sizeof *part->nodes);
	part->maps = calloc(count, sizeof *part->maps);
	if (!part->nodes || !part->maps)
		return GN_ERR_NO_MEMORY;
	memcpy(part->nodes, m->nodes + first - 1, count * sizeof *part->nodes);
	memcpy(part->maps, m->maps + first - 1, count * sizeof *part->maps);
	part->nodes[0] = (struct gn_shm){.kind = GN_LAYER_INPUT, .input = {-1, -1}};
	for (size_t i = 1; i < count; i++)
		for (int k = 0; k < 2; k++)
			if (part->nodes[i].input[k] >= 0)
				part->nodes[i].input[k] -= first - 1;
	part->node_count = (int)count;
	part->channels = part->maps[0].c;
	part->side = part->maps[0].h;
	return GN_OK;
}

enum gn_status gn_model_part(const struct gn_model *m, int first, int end, struct gn_model **out, struct gn_err *err)
{
	struct gn_model *part;
	enum gn_status status;

	if (first < 1 || end <= first || end > m->node_count || (first > 1 && !gn_model_can_cut(m, first)) ||
	    (end < m->node_count && !gn_model_can_cut(m, end)))
		return gn_err_set(err, GN_ERR_USAGE, "%s cannot be cut into a part of nodes %d to %d", m->name, first, end - 1);
	part = calloc(1, sizeof *part);
	if (!part)
		return gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for the description of a part of %s", m->name);
	part->name = m->name;
	part->classes = m->classes;
	part->init_rule = m->init_rule;
	part->drop_path = m->drop_path;
	part->origin.node = first - 1;
	part->is_cut_off = end < m->node_count;
	status = copy_nodes(m, first, end, part);
	if (!status)
		status = copy_params(m->params, m->param_count, first, end, &part->params, &part->param_count, &part->origin.params,
				     &part->param_elements);
	if (!status)
		status = copy_params(m->buffers, m->buffer_count, first, end, &part->buffers, &part->buffer_count, &part->origin.buffers,
				     &part->buffer_elements);
	if (status) {
		gn_model_destroy(part);
		return gn_err_set(err, status, "no memory for the description of a part of %s", m->name);
	}
	*out = part;
	return GN_OK;
}

struct gn_model_origin gn_model_origin(const struct gn_model *m)
{
	return m->origin;
}

int gn_model_is_end(const struct gn_model *m)
{
	return !m->is_cut_off;
}
