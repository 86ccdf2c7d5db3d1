/* Networks cut into parts that follow each other. */
#include "src/train/model/model_internal.h"

#include <stdlib.h>
#include <string.h>

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
