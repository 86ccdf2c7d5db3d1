#include "src/cmd/sim.h"

#include "src/base/json.h"
#include "src/train/parallel/pipe_forecast.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BUCKETS_MAX 100000

/* A training step and the source of its description. */
struct described {
	struct gn_sim_step step;
	struct gn_sim_bucket *buckets;
	double batch, forward_s; /* forward_s: 0: by --backward */
};

/* Equal buckets that become ready at equal intervals during the backward pass. */
static enum gn_status spread(struct described *d, double bytes, double count, double begin_s, double end_s,
			     struct gn_err *err)
{
	size_t n = count < 1 ? 1 : count > BUCKETS_MAX ? BUCKETS_MAX : (size_t)count;

	d->buckets = calloc(n, sizeof *d->buckets);
	if (!d->buckets)
		return gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for %zu buckets", n);
	for (size_t i = 0; i < n; i++) {
		d->buckets[i].bytes = (size_t)(bytes / (double)n) / 4 * 4;
		d->buckets[i].ready_s = begin_s + (end_s - begin_s) * (double)(i + 1) / (double)n;
	}
	d->step.count = n;
	return GN_OK;
}

static enum gn_status by_options(const struct gn_sim_options *o, struct described *d, struct gn_err *err)
{
	double end = (o->compute_ms - o->after_ms) / 1e3;

	if (o->after_ms >= o->compute_ms)
		return gn_err_set(err, GN_ERR_USAGE, "--after-ms is part of --compute-ms and must be less");
	d->step.compute_s = o->compute_ms / 1e3;
	d->step.after_s = o->after_ms / 1e3;
	d->batch = o->batch;
	return spread(d, o->step_bytes, o->buckets, end * (1 - o->backward), end, err);
}

struct log_sums {
	double steps, stages, batch, bytes, buckets, data, forward, backward, optimizer;
};

static void add_line(const json_t *line, struct log_sums *s)
{
	const char *event = json_string_value(json_object_get(line, "event"));
	const json_t *times = json_object_get(line, "time_ms");

	if (event && !strcmp(event, "start")) {
		*s = (struct log_sums){0};
		s->stages = json_number_value(json_object_get(json_object_get(line, "mesh"), "pipeline"));
		s->batch = json_number_value(json_object_get(line, "global_batch")) /
			   json_number_value(json_object_get(line, "ranks"));
		s->bytes = json_number_value(json_object_get(line, "parameters")) * 4;
		s->buckets = json_number_value(json_object_get(line, "buckets"));
	} else if (event && !strcmp(event, "exchange")) {
		s->buckets = json_number_value(json_object_get(line, "buckets"));
	} else if (event && !strcmp(event, "step")) {
		s->steps++;
		s->data += json_number_value(json_object_get(times, "data"));
		s->forward += json_number_value(json_object_get(times, "forward"));
		s->backward += json_number_value(json_object_get(times, "backward"));
		s->optimizer += json_number_value(json_object_get(times, "optimizer"));
	}
}

/* Lines that are not JSON are skipped (a killed run may end in one). Of several runs in the file the last one counts. */
static enum gn_status by_log(const char *path, struct described *d, struct gn_err *err)
{
	struct log_sums s = {0};
	FILE *file = fopen(path, "re");
	char *text = NULL;
	size_t room = 0;
	double begin, end;

	if (!file)
		return gn_err_set(err, GN_ERR_NOT_FOUND, "cannot open %s", path);
	while (getline(&text, &room, file) > 0) {
		json_t *line = json_loads(text, 0, NULL);

		add_line(line, &s);
		json_decref(line);
	}
	free(text);
	fclose(file);
	if (s.stages > 1)
		return gn_err_set(err, GN_ERR_USAGE, "%s is of a pipeline of %g stages, and has the times of one stage: take a log of a run that has none, or "
				  "gannet info --plan MODEL --parallel MESH", path, s.stages);
	if (!(s.steps > 0) || !(s.batch >= 1 && s.batch < 1e9) || !(s.bytes >= 4 && s.bytes < 1e13) ||
	    !(s.forward >= 0) || !(s.backward > 0) || !(s.data >= 0) || !(s.optimizer >= 0))
		return gn_err_set(err, GN_ERR_DATA, "%s has no run with step times: is it a log of gannet train?", path);
	begin = (s.data + s.forward) / s.steps / 1e3;
	end = begin + s.backward / s.steps / 1e3;
	d->step.after_s = s.optimizer / s.steps / 1e3;
	d->step.compute_s = end + d->step.after_s;
	d->batch = s.batch;
	d->forward_s = begin;
	return spread(d, s.bytes, s.buckets, begin, end, err);
}

static enum gn_status number(const json_t *object, const char *key, double least, double most, double *out,
			     struct gn_err *err)
{
	const json_t *value = json_object_get(object, key);
	double got = json_number_value(value);

	if (!json_is_number(value) || !(got >= least) || !(got <= most))
		return gn_err_set(err, GN_ERR_DATA, "%s must be a number from %g to %g", key, least, most);
	*out = got;
	return GN_OK;
}

static enum gn_status read_buckets(const json_t *list, struct described *d, struct gn_err *err)
{
	size_t n = json_array_size(list);
	enum gn_status status = GN_OK;

	if (!n || n > BUCKETS_MAX)
		return gn_err_set(err, GN_ERR_DATA, "buckets must be a list of 1 to %d objects", BUCKETS_MAX);
	d->buckets = calloc(n, sizeof *d->buckets);
	if (!d->buckets)
		return gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for %zu buckets", n);
	for (size_t i = 0; i < n && !status; i++) {
		double bytes = 0, ready = 0;

		status = number(json_array_get(list, i), "bytes", 4, 1e12, &bytes, err);
		if (!status)
			status = number(json_array_get(list, i), "ready_ms", 0, 1e9, &ready, err);
		d->buckets[i] = (struct gn_sim_bucket){(size_t)bytes / 4 * 4, ready / 1e3};
	}
	d->step.count = n;
	return status;
}

static enum gn_status by_file(const char *path, struct described *d, struct gn_err *err)
{
	double compute = 0, after = 0;
	json_error_t why;
	json_t *root = json_load_file(path, JSON_REJECT_DUPLICATES, &why);
	enum gn_status status;

	if (!root)
		return gn_err_set(err, GN_ERR_DATA, "%s:%d: %s", path, why.line, why.text);
	status = number(root, "compute_ms", 1e-6, 1e9, &compute, err);
	if (!status && json_object_get(root, "after_ms"))
		status = number(root, "after_ms", 0, compute, &after, err);
	if (!status)
		status = number(root, "batch", 1, 1e9, &d->batch, err);
	if (!status)
		status = read_buckets(json_object_get(root, "buckets"), d, err);
	json_decref(root);
	d->step.compute_s = compute / 1e3;
	d->step.after_s = after / 1e3;
	return status ? gn_err_prefix(err, "%s", path) : GN_OK;
}

static void print_step(const struct gn_sim_options *o, const struct gn_sim_topology *t, const struct gn_algorithm *a,
		       const struct described *d, double seconds, double exposed)
{
	double ranks = (double)t->nodes * t->ranks_per_node, rate = d->batch * ranks / seconds;
	double efficiency = d->step.compute_s / seconds;
	struct gn_json j;

	if (!o->json) {
		printf("%-20s %12.3f %12.3f %12.1f %9.1f %%\n", a->name, seconds * 1e3, exposed * 1e3, rate, efficiency * 100);
		return;
	}
	gn_json_begin(&j);
	gn_json_put(&j, "op train algo %s ranks %ld step_ms %g exposed_ms %g images_per_s %g efficiency %g", a->name, (int64_t)ranks,
		    seconds * 1e3, exposed * 1e3, rate, efficiency);
	gn_cmd_print_json(&j);
}

static enum gn_status print_all(const struct gn_sim_options *o, const struct gn_sim_topology *t,
				const struct described *d, struct gn_err *err)
{
	size_t count;
	const struct gn_algorithm *all = gn_algorithms(&count);
	double seconds, exposed, bytes = 0;
	enum gn_status status = GN_OK;

	for (size_t i = 0; i < d->step.count; i++)
		bytes += (double)d->buckets[i].bytes;
	if (!o->json)
		printf("# a step of %g ms alone, %g images a rank, %.0f bytes of gradient in %zu buckets\n#%-19s %12s %12s %12s "
		       "%11s\n", d->step.compute_s * 1e3, d->batch, bytes, d->step.count, "algo", "step (ms)", "exposed (ms)",
		       "images/s", "efficiency");
	for (size_t i = 0; i < count && !status; i++) {
		if (all[i].what != GN_COLLECTIVE_ALLREDUCE || (strcmp(o->algo, "all") && strcmp(o->algo, all[i].name)))
			continue;
		status = gn_sim_step_time(t, &all[i], &d->step, &seconds, &exposed, err);
		if (!status)
			print_step(o, t, &all[i], d, seconds, exposed);
	}
	return status;
}

/* --- pipelines: equal stages --- */

static void print_pipe(const struct gn_sim_options *o, const struct gn_mesh_shape *shape, const struct gn_algorithm *a, const struct described *d,
		       const struct gn_sim_pipe_result *r)
{
	double rate = d->batch * shape->data / r->step_s;
	struct gn_json j;

	if (!o->json) {
		printf("%-20s %12.3f %12.3f %9.1f %% %12.1f %14llu\n", a->name, r->step_s * 1e3, r->sum_s * 1e3, r->bubble * 100, rate,
		       (unsigned long long)r->network_bytes);
		return;
	}
	gn_json_begin(&j);
	gn_json_put(&j, "op train algo %s data %d pipeline %d schedule %s step_ms %g sum_ms %g bubble %g images_per_s %g "
		    "network_bytes %lu", a->name, shape->data, shape->pipeline, o->schedule, r->step_s * 1e3, r->sum_s * 1e3, r->bubble,
		    rate, r->network_bytes);
	gn_cmd_print_json(&j);
}

static void divide(const struct gn_sim_options *o, const struct described *d, struct gn_sim_pipe_stage *stages)
{
	double passes_s = d->step.compute_s - d->step.after_s, forward_s = d->forward_s > 0 ? d->forward_s : passes_s * (1 - o->backward);
	double parts = (double)o->pipeline * (double)o->micro_batches, bytes = 0;

	for (size_t i = 0; i < d->step.count; i++)
		bytes += (double)d->step.buckets[i].bytes;
	for (int64_t s = 0; s < o->pipeline; s++)
		stages[s] = (struct gn_sim_pipe_stage){
			.forward_s = forward_s / parts, .backward_s = (passes_s - forward_s) / parts,
			.out_bytes = s + 1 < o->pipeline ? o->activation_bytes : 0, .gradient_bytes = bytes / (double)o->pipeline,
			.update_s = d->step.after_s / (double)o->pipeline};
}

static enum gn_status run_pipes(const struct gn_sim_options *o, const struct gn_sim_topology *t, const struct gn_mesh *mesh, const struct described *d,
				const struct gn_sim_pipe_stage *stages, struct gn_err *err)
{
	const struct gn_pipe_schedule schedule = {.kind = gn_pipe_kind_of(o->schedule), .stages = (int)o->pipeline,
						  .micro = (int)o->micro_batches, .batches = (int)o->micro_batches};
	size_t count, told = 0;
	const struct gn_algorithm *all = gn_algorithms(&count);
	enum gn_status status = GN_OK;

	if (!o->json)
		printf("# a step of %g ms alone, %g images a data rank in %lld micro-batches, data=%d x pipeline=%d, %s\n#%-19s %12s %12s %11s "
		       "%12s %14s\n", d->step.compute_s * 1e3, d->batch, (long long)o->micro_batches, mesh->shape.data, mesh->shape.pipeline,
		       o->schedule, "algo", "step (ms)", "sums (ms)", "bubble", "images/s", "network (B)");
	for (size_t i = 0; i < count && (!status || status == GN_ERR_UNSUPPORTED); i++) {
		struct gn_sim_pipe_result r;

		if (all[i].what != GN_COLLECTIVE_ALLREDUCE || (strcmp(o->algo, "all") && strcmp(o->algo, all[i].name)))
			continue;
		status = gn_pipe_forecast_step(t, mesh, &schedule, stages, 0, &all[i], &r, err);
		if (!status) {
			print_pipe(o, &mesh->shape, &all[i], d, &r);
			told++;
		}
		if (mesh->shape.data == 1) /* nothing is summed */
			break;
	}
	return told && status == GN_ERR_UNSUPPORTED ? GN_OK : status; /* of --algo all, those that can */
}

static enum gn_status simulate_pipes(const struct gn_sim_options *o, const struct gn_sim_topology *t, const struct described *d, struct gn_err *err)
{
	int ranks = gn_sim_ranks(t);
	struct gn_mesh_shape shape = {(int)(ranks / o->pipeline), (int)o->pipeline, 1};
	struct gn_sim_pipe_stage *stages = calloc((size_t)o->pipeline, sizeof *stages);
	struct gn_mesh mesh = {.size = 0};
	enum gn_status status;

	if (ranks % o->pipeline)
		status = gn_err_set(err, GN_ERR_USAGE, "--pipeline %lld does not divide the machine's %d ranks", (long long)o->pipeline, ranks);
	else if (!stages)
		status = gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for %lld stages", (long long)o->pipeline);
	else
		status = gn_pipe_forecast_mesh(&shape, t, &mesh, err);
	if (!status) {
		divide(o, d, stages);
		status = run_pipes(o, t, &mesh, d, stages, err);
	}
	gn_mesh_release(&mesh);
	free(stages);
	return status;
}

enum gn_status gn_sim_train(const struct gn_sim_options *o, const struct gn_sim_topology *t, struct gn_err *err)
{
	struct described d = {.batch = 0};
	enum gn_status status;

	if ((o->compute_ms > 0) + (o->log != NULL) + (o->step != NULL) > 1)
		return gn_err_set(err, GN_ERR_USAGE, "give exactly one of --compute-ms, --log and --step");
	if (o->pipeline > 1 && !(o->compute_ms > 0) && !o->log && !o->step)
		return gn_err_set(err, GN_ERR_USAGE, "--pipeline predicts training: give --compute-ms, --log or --step");
	if (o->log)
		status = by_log(o->log, &d, err);
	else if (o->step)
		status = by_file(o->step, &d, err);
	else
		status = by_options(o, &d, err);
	d.step.buckets = d.buckets;
	if (!status)
		status = o->pipeline > 1 ? simulate_pipes(o, t, &d, err) : print_all(o, t, &d, err);
	free(d.buckets);
	return status;
}
