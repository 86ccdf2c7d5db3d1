#include "src/cmd/sim.h"

#include "transport/select/tuning_table.h"

#include <jansson.h>
#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

/* Keys of a topology file are the option names with underscores. The defaults describe a simple cluster: 100 Gbit/s, 1.5 us. */
static const struct {
	const char *key;
	size_t offset;
	double initial;
	int whole;
} fields[] = {
#define FIELD(name, initial, whole) {#name, offsetof(struct gn_sim_machine, name), initial, whole}
	FIELD(nodes, 4, 1),	      FIELD(ranks_per_node, 1, 1),   FIELD(rails, 1, 1),      FIELD(link_gbit, 100, 0),
	FIELD(link_us, 1.5, 0),	      FIELD(node_gb, 10, 0),	     FIELD(node_us, 0.5, 0),  FIELD(leaf_nodes, 0, 1),
	FIELD(oversubscription, 1, 0), FIELD(send_us, 0.3, 0),	     FIELD(receive_us, 0.3, 0), FIELD(gap_us, 0.1, 0),
	FIELD(reduce_gb, 10, 0),      FIELD(eager_bytes, 8192, 0),   FIELD(jitter, 0, 0),     FIELD(stragglers, 0, 1),
	FIELD(straggler_us, 1000, 0),
#undef FIELD
};
enum { FIELDS = sizeof fields / sizeof *fields };

static double *field_of(struct gn_sim_machine *m, size_t i)
{
	return (double *)((char *)m + fields[i].offset);
}

static enum gn_status set_from(json_t *value, const char *key, const char *path, struct gn_sim_machine *m,
			       struct gn_err *err)
{
	for (size_t i = 0; i < FIELDS; i++) {
		double number = json_number_value(value);

		if (strcmp(key, fields[i].key))
			continue;
		if (!json_is_number(value) || number < 0 || number > 1e12 || (fields[i].whole && number != floor(number)))
			return gn_err_set(err, GN_ERR_DATA, "%s: %s must be a%s number, not negative", path, key,
					  fields[i].whole ? " whole" : "");
		*field_of(m, i) = number;
		return GN_OK;
	}
	return gn_err_set(err, GN_ERR_DATA, "%s: unknown key %s; see gannet sim --help", path, key);
}

/* Explains why a file is not JSON. */
static enum gn_status explain_not_json(const char *path, const json_error_t *why, struct gn_err *err)
{
	FILE *f = fopen(path, "re");
	char first = 0;

	if (f) {
		/* skip white space */
		if (fscanf(f, " %c", &first) != 1)
			first = 0;
		fclose(f);
	}
	if (first == '<')
		return gn_err_set(err, GN_ERR_DATA, "%s is XML, as lstopo writes for one machine: --topology needs a JSON object "
				  "that "
				  "describes a cluster, such as {\"nodes\": 4, \"link_gbit\": 100}; see gannet sim --help", path);
	return gn_err_set(err, GN_ERR_DATA, "%s:%d: %s", path, why->line, why->text);
}

static enum gn_status read_file(const char *path, struct gn_sim_machine *m, struct gn_err *err)
{
	enum gn_status status = GN_OK;
	json_error_t why;
	json_t *root = json_load_file(path, JSON_REJECT_DUPLICATES, &why), *value;
	const char *key;

	if (!root)
		return explain_not_json(path, &why, err);
	if (!json_is_object(root))
		status = gn_err_set(err, GN_ERR_DATA, "%s is not a JSON object", path);
	json_object_foreach(root, key, value)
		if (!status)
			status = set_from(value, key, path, m, err);
	json_decref(root);
	return status;
}

/* Replaces latencies, overheads and rates by those that gannet tune measured. A given link rate overrides the measured one. */
static enum gn_status apply_tuning(const struct gn_sim_options *o, const struct gn_sim_machine *given,
				  struct gn_sim_topology *t, struct gn_err *err)
{
	struct gn_sim_topology measured;
	struct gn_cost cost;
	enum gn_status status = gn_tuning_table_find(o->tuning, o->fabric ? o->fabric : "", &cost, err);

	if (status)
		return status;
	gn_cost_topology(&cost, t->nodes, t->ranks_per_node, &measured);
	if (given->link_gbit < 0) {
		t->link_bytes_per_s = measured.link_bytes_per_s;
		t->burst_bytes = measured.burst_bytes;
		t->burst_bytes_per_s = measured.burst_bytes_per_s;
	}
	if (given->reduce_gb < 0)
		t->reduce_s_per_byte = measured.reduce_s_per_byte;
	t->node_bytes_per_s = measured.node_bytes_per_s;
	t->link = measured.link;
	t->node = measured.node;
	t->streams |= measured.streams;
	return GN_OK;
}

enum gn_status gn_sim_machine_read(const struct gn_sim_options *o, struct gn_sim_topology *out, struct gn_err *err)
{
	struct gn_sim_machine m, given = o->machine;
	enum gn_status status = GN_OK;

	for (size_t i = 0; i < FIELDS; i++)
		*field_of(&m, i) = fields[i].initial;
	if (o->topology)
		status = read_file(o->topology, &m, err);
	if (status)
		return status;
	for (size_t i = 0; i < FIELDS; i++) {
		if (*field_of(&given, i) >= 0)
			*field_of(&m, i) = *field_of(&given, i);
		if (fields[i].whole && (*field_of(&m, i) > 1 << 20 || *field_of(&m, i) != floor(*field_of(&m, i))))
			return gn_err_set(err, GN_ERR_USAGE, "%s must be an integer of at most 1048576", fields[i].key);
	}
	if (m.oversubscription != 1 && !m.leaf_nodes)
		return gn_err_set(err, o->topology ? GN_ERR_DATA : GN_ERR_USAGE, "oversubscription needs leaf switches: give the "
				  "number of nodes per "
				  "switch (--leaf-nodes, or leaf_nodes in the file)");
	*out = (struct gn_sim_topology){
		.nodes = (int)m.nodes, .ranks_per_node = (int)m.ranks_per_node, .rails = (int)m.rails,
		.link_bytes_per_s = m.link_gbit * 1e9 / 8, .link_latency_s = m.link_us / 1e6,
		.node_bytes_per_s = m.node_gb * 1e9, .node_latency_s = m.node_us / 1e6, .leaf_nodes = (int)m.leaf_nodes,
		.oversubscription = m.oversubscription, .send_overhead_s = m.send_us / 1e6,
		.receive_overhead_s = m.receive_us / 1e6, .gap_s = m.gap_us / 1e6,
		.reduce_s_per_byte = m.reduce_gb > 0 ? 1e-9 / m.reduce_gb : 0, .eager_bytes = m.eager_bytes,
		.jitter = m.jitter, .stragglers = (int)m.stragglers, .straggler_s = m.straggler_us / 1e6,
		.seed = (uint64_t)o->seed, .repeats = (int)(o->repeats + o->warmup), .warmup = (int)o->warmup,
		.streams = o->streams,
	};
	if (o->tuning)
		status = apply_tuning(o, &given, out, err);
	return status ? status : gn_sim_topology_check(out, err);
}
