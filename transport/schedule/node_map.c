#include "transport/schedule/algo.h"

#include <stdlib.h>

static enum gn_status fill(struct gn_node_map *m, const int *node_of, int *numbers, struct gn_err *err)
{
	for (int n = 0; n < m->size; n++)
		numbers[n] = -1;
	for (int r = 0; r < m->size; r++) {
		if (node_of[r] < 0 || node_of[r] >= m->size)
			return gn_err_set(err, GN_ERR_USAGE, "rank %d is on node %d, but there are at most %d nodes", r, node_of[r],
					  m->size);
		if (numbers[node_of[r]] < 0)
			numbers[node_of[r]] = m->nodes++;
		m->node[r] = numbers[node_of[r]];
		m->local[r] = m->first[m->node[r] + 1]++;
	}
	m->smallest = m->size;
	for (int n = 0; n < m->nodes; n++) {
		if (m->first[n + 1] < m->smallest)
			m->smallest = m->first[n + 1];
		m->first[n + 1] += m->first[n];
	}
	for (int r = 0; r < m->size; r++)
		m->members[m->first[m->node[r]] + m->local[r]] = r;
	return GN_OK;
}

enum gn_status gn_node_map_create(const int *node_of, int size, struct gn_node_map **out, struct gn_err *err)
{
	struct gn_node_map *m = calloc(1, sizeof *m);
	int *numbers = malloc(sizeof *numbers * ((size_t)size + 1));
	enum gn_status status = GN_ERR_NO_MEMORY;

	if (m) {
		m->size = size;
		m->node = calloc((size_t)size + 1, sizeof *m->node);
		m->local = calloc((size_t)size + 1, sizeof *m->local);
		m->first = calloc((size_t)size + 2, sizeof *m->first);
		m->members = calloc((size_t)size + 1, sizeof *m->members);
	}
	if (!numbers || !m || !m->node || !m->local || !m->first || !m->members)
		gn_err_set(err, status, "no memory for a map of %d ranks", size);
	else
		status = fill(m, node_of, numbers, err);
	free(numbers);
	if (status)
		gn_node_map_destroy(m);
	else
		*out = m;
	return status;
}

void gn_node_map_destroy(struct gn_node_map *m)
{
	if (!m)
		return;
	free(m->node);
	free(m->local);
	free(m->first);
	free(m->members);
	free(m);
}
