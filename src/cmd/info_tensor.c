/* gannet info --plan MODEL --parallel data=D,tensor=T: what a rank of a tensor group has, what it exchanges, and what a step should take.
 *
 * Computing is by the roofline, operator by operator. An exchange of n bytes takes 2 (T - 1) / T n at the rate of the slowest link between
 * two ranks of a group if it is a sum, and half of that if it gathers or scatters the whole, each with the latency of a ring's steps; the sum of
 * gradients over the data ranks comes after that, as if nothing overlapped. */
#include "src/cmd/info.h"

#include "src/base/json.h"
#include "src/base/strbuf.h"
#include "src/train/parallel/pipe_forecast.h"
#include "src/train/plan/weight_layouts.h"

#include <stdio.h>
#include <stdlib.h>

enum { ROWS_SHOWN = 4 };

struct answer {
	struct gn_mesh mesh;
	double whole_bytes, param_bytes, memory_bytes;
	double exchange_bytes; /* that a rank sends in a batch */
	double compute_s, exchange_s, sum_s;
};

void gn_info_print_mesh(const struct gn_mesh *mesh, const struct gn_sim_topology *machine)
{
	const char **hosts = calloc((size_t)mesh->size, sizeof *hosts);
	char(*names)[16] = calloc((size_t)machine->nodes, sizeof *names);
	struct gn_strbuf text;

	gn_strbuf_init(&text);
	if (hosts && names) {
		for (int r = 0; r < mesh->size; r++) {
			int node = gn_sim_node_of(machine, r);

			snprintf(names[node], sizeof names[node], "node%d", node);
			hosts[r] = names[node];
		}
		gn_mesh_draw(mesh, hosts, ROWS_SHOWN, &text);
		fputs(gn_strbuf_text(&text), stdout);
	}
	gn_strbuf_release(&text);
	free(hosts);
	free(names);
}

/* Whether the ranks of a tensor group lie on several nodes, or with all those of the mesh. */
static int is_spread(const struct gn_mesh *m, int all)
{
	for (int i = 1; i < m->size; i++)
		if ((all || i % m->shape.tensor) && m->node_of[m->ranks[i]] != m->node_of[m->ranks[i - 1]])
			return 1;
	return 0;
}

/* Of a ring: bytes that each rank sends, in `steps` messages one after the other; spread: between nodes. */
static double ring_s(const struct gn_sim_topology *machine, int spread, double bytes, int steps)
{
	return bytes / (spread ? machine->link_bytes_per_s : machine->node_bytes_per_s) +
	       steps * (spread ? machine->link_latency_s : machine->node_latency_s);
}

static void add_exchange(const struct gn_op_exchange *x, const struct gn_sim_topology *machine, struct answer *a)
{
	const int others = a->mesh.shape.tensor - 1, rounds = x->kind == GN_EXCHANGE_SUM ? 2 : 1;
	double block = (double)x->count * x->element_bytes / (x->kind == GN_EXCHANGE_SUM ? a->mesh.shape.tensor : 1);

	if (x->kind == GN_EXCHANGE_NONE)
		return;
	a->exchange_bytes += rounds * others * block;
	a->exchange_s += ring_s(machine, is_spread(&a->mesh, 0), rounds * others * block, rounds * others);
}

static enum gn_status add_plan(const struct gn_model *slice, const struct gn_plan_options *options, const struct gn_info_machine *roof,
			       const struct gn_sim_topology *machine, int batches, struct answer *a, struct gn_err *err)
{
	struct gn_plan *plan;
	enum gn_status status = gn_plan_create_unallocated(slice, options, &plan, err);

	if (status)
		return status;
	for (int i = 0; i < gn_plan_op_count(plan); i++) {
		struct gn_plan_cost c;

		gn_plan_op_cost(plan, i, &c);
		a->compute_s += gn_info_roofline_s(roof, &c);
		for (int k = 0; k < 2; k++)
			add_exchange(&c.exchange[k], machine, a);
	}
	a->memory_bytes = gn_pipe_forecast_bytes(slice, plan, 1, batches);
	gn_plan_destroy(plan);
	return GN_OK;
}

static void print_json(const struct gn_info_plan_options *o, const struct gn_model *model, const struct answer *a, double step_s)
{
	struct gn_json j;

	gn_json_init(&j);
	gn_json_object(&j, NULL);
	gn_json_string(&j, "plan", gn_model_name(model));
	gn_json_int(&j, "batch", o->batch);
	gn_json_int(&j, "side", gn_model_side(model));
	gn_json_int(&j, "data", a->mesh.shape.data);
	gn_json_int(&j, "tensor", a->mesh.shape.tensor);
	gn_json_fixed(&j, "param_bytes", a->param_bytes, 0);
	gn_json_fixed(&j, "param_share", a->param_bytes / a->whole_bytes, 4);
	gn_json_fixed(&j, "memory_bytes", a->memory_bytes, 0);
	gn_json_fixed(&j, "exchange_bytes", a->exchange_bytes, 0);
	gn_json_fixed(&j, "compute_ms", 1e3 * a->compute_s, 3);
	gn_json_fixed(&j, "exchange_ms", 1e3 * a->exchange_s, 3);
	gn_json_fixed(&j, "sum_ms", 1e3 * a->sum_s, 3);
	gn_json_fixed(&j, "step_ms", 1e3 * step_s, 3);
	gn_json_fixed(&j, "images_per_s", (double)o->batch * a->mesh.shape.data / step_s, 2);
	gn_json_end(&j);
	puts(gn_json_text(&j));
	gn_json_release(&j);
}

static void print_text(const struct gn_info_plan_options *o, const struct gn_model *model, const struct gn_sim_topology *machine,
		       const struct answer *a, double step_s)
{
	gn_info_print_mesh(&a->mesh, machine);
	printf("\neach rank of a tensor group: %.4g MB of parameters, %.3f of the network's %.4g MB; %.1f MB with gradients, momentum and activations\n",
	       a->param_bytes * 1e-6, a->param_bytes / a->whole_bytes, a->whole_bytes * 1e-6, a->memory_bytes * 1e-6);
	printf("%s, batch %lld of %dx%d a tensor group: it sends %.3f MB a step to the others of its group\n", gn_model_name(model), (long long)o->batch,
	       gn_model_side(model), gn_model_side(model), a->exchange_bytes * 1e-6);
	printf("step %.1f ms, %.1f images/s: computing %.1f ms by the roofline, exchanges in tensor groups %.1f ms, sums of gradients %.1f ms\n", 1e3 * step_s,
	       (double)o->batch * a->mesh.shape.data / step_s, 1e3 * a->compute_s, 1e3 * a->exchange_s, 1e3 * a->sum_s);
}

enum gn_status gn_info_tensor(const struct gn_info_plan_options *o, const struct gn_model *model, const struct gn_plan_options *plan,
			      const struct gn_sim_topology *ranks, const struct gn_mesh_shape *shape, struct gn_err *err)
{
	struct answer a = {.whole_bytes = (double)gn_model_param_elements(model) * sizeof(float)};
	int batches = (int)o->micro_batches, others = shape->data - 1;
	struct gn_model *slice = NULL;
	struct gn_info_machine roof;
	enum gn_status status = gn_info_machine(o, &roof, err);

	if (!status)
		status = gn_pipe_forecast_mesh(shape, ranks, &a.mesh, err);
	if (!status)
		status = gn_model_slice(model, 0, shape->tensor, &slice, err);
	if (!status) {
		a.param_bytes = (double)gn_model_param_elements(slice) * sizeof(float);
		status = add_plan(slice, plan, &roof, ranks, batches, &a, err);
	}
	if (!status) {
		a.compute_s *= batches;
		a.exchange_s *= batches;
		a.exchange_bytes *= batches;
		a.sum_s = ring_s(ranks, is_spread(&a.mesh, 1), 2 * a.param_bytes * others / shape->data, 2 * others);
		if (o->json)
			print_json(o, model, &a, a.compute_s + a.exchange_s + a.sum_s);
		else
			print_text(o, model, ranks, &a, a.compute_s + a.exchange_s + a.sum_s);
	}
	gn_model_destroy(slice);
	gn_mesh_release(&a.mesh);
	return status;
}
