#include "src/train/parallel/bucket_autotune.h"

#include "src/base/file.h"
#include "transport/coll/agree.h"

#include <inttypes.h>
#include <jansson.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

enum { CANDIDATES_MAX = 8, WARM_UP = 2, ROUNDS = 3, BUCKETS_MAX = 64 };
/* A run has to have so many times the steps that are measured, or it ends before it gains by them. */
enum { WORTH = 4 };
#define DEFAULT_BYTES ((size_t)16 << 20)
#define MARGIN 0.97

struct gn_bucket_autotune {
	struct gn_bucket_autotune_options options;
	char *conditions;
	int count, left_out, steps; /* left_out: would change the order of sums; steps: done */
	struct gn_reducer *candidates[CANDIDATES_MAX]; /* the first is the default */
	float seconds[CANDIDATES_MAX][ROUNDS];
};

void gn_bucket_autotune_default(size_t bucket_bytes, enum gn_overlap overlap, const struct gn_model *model,
				struct gn_reducer_config *out)
{
	size_t bytes = bucket_bytes ? bucket_bytes : DEFAULT_BYTES;

	/* One bucket is complete only when backward is done. */
	*out = (struct gn_reducer_config){bytes, overlap != GN_OVERLAP_NO && gn_reducer_count(model, bytes) > 1};
}

static int is_new(const struct gn_model *model, const struct gn_reducer_config *configs, int count,
		  const struct gn_reducer_config *f)
{
	for (int i = 0; i < count; i++)
		if (configs[i].overlap == f->overlap &&
		    gn_reducer_count(model, configs[i].bucket_bytes) == gn_reducer_count(model, f->bucket_bytes))
			return 0;
	return 1;
}

/* The configurations to try, the default first. */
static int list_candidates(const struct gn_bucket_autotune_options *o, struct gn_reducer_config *configs)
{
	static const size_t sizes[] = {SIZE_MAX / 8, DEFAULT_BYTES, 64 << 20, 4 << 20, 1 << 20, 256 << 10};
	int count = 1;

	gn_bucket_autotune_default(o->bucket_bytes, o->overlap, o->reducer.model, &configs[0]);
	for (int overlap = 1; overlap >= 0; overlap--) {
		if (o->overlap == (overlap ? GN_OVERLAP_NO : GN_OVERLAP_YES))
			continue;
		for (size_t i = 0; i < sizeof sizes / sizeof *sizes && count < CANDIDATES_MAX; i++) {
			struct gn_reducer_config f = {o->bucket_bytes ? o->bucket_bytes : sizes[i], overlap};
			size_t buckets = gn_reducer_count(o->reducer.model, f.bucket_bytes);

			/* After backward small buckets have nothing to gain. */
			if (buckets <= BUCKETS_MAX && (overlap ? buckets > 1 : o->bucket_bytes || i < 2) &&
			    is_new(o->reducer.model, configs, count, &f))
				configs[count++] = f;
		}
	}
	return count;
}

/* --- the decision that is kept --- */

static enum gn_status save(const struct gn_bucket_autotune_options *o, const struct gn_reducer_config *f, struct gn_err *err)
{
	char path[PATH_MAX];
	struct gn_json j;
	enum gn_status status = gn_make_dirs(o->folder, err);

	if (!status)
		status = gn_path_join(path, sizeof path, o->folder, "exchange.json", err);
	if (status)
		return status;
	gn_json_begin(&j);
	gn_json_put(&j, "of %s bucket_bytes %lu overlap? %d }", o->conditions, f->bucket_bytes, f->overlap);
	return gn_json_save(&j, path, err);
}

/* Anything but a fitting file counts as none: measuring again costs little. */
static int load(const struct gn_bucket_autotune_options *o, struct gn_reducer_config *out)
{
	char path[PATH_MAX];
	const char *of;
	json_t *root;
	json_int_t bytes;
	int found;

	if (!o->folder || gn_path_join(path, sizeof path, o->folder, "exchange.json", NULL) || !(root = json_load_file(path, 0, NULL)))
		return 0;
	of = json_string_value(json_object_get(root, "of"));
	bytes = json_integer_value(json_object_get(root, "bucket_bytes"));
	found = of && !strcmp(of, o->conditions) && bytes > 0 && json_is_boolean(json_object_get(root, "overlap"));
	if (found)
		*out = (struct gn_reducer_config){(size_t)bytes, json_is_true(json_object_get(root, "overlap"))};
	json_decref(root);
	return found;
}

/* --- text --- */

static void put_config(const struct gn_model *model, const struct gn_reducer_config *f, struct gn_strbuf *out)
{
	size_t buckets = gn_reducer_count(model, f->bucket_bytes);

	if (buckets == 1)
		gn_strbuf_puts(out, "one bucket");
	else if (f->bucket_bytes >= 1 << 20)
		gn_strbuf_printf(out, "%zu buckets of %zu MiB", buckets, f->bucket_bytes >> 20);
	else
		gn_strbuf_printf(out, "%zu buckets of %zu KiB", buckets, f->bucket_bytes >> 10);
	gn_strbuf_puts(out, f->overlap ? " during backward" : " after backward");
}

/* Whether another bucket size would give the same bits: one order of ranks for every element. */
static int is_exact(const struct gn_comm *comm, const struct gn_reducer *x, const char **order)
{
	static const char *const fixed[] = {"shared", "recursive-doubling", "halving-doubling"};
	int same = gn_comm_size(comm) <= 2;

	for (size_t b = 0; b < gn_reducer_buckets(x) && gn_comm_size(comm) > 2; b++) {
		struct gn_coll_info info;

		gn_coll_describe(gn_reducer_coll(x, b), &info);
		same = 0;
		for (size_t i = 0; i < sizeof fixed / sizeof *fixed; i++)
			same |= !strcmp(info.algorithm, fixed[i]);
		if (!same || (*order && strcmp(*order, info.algorithm)))
			return 0;
		*order = info.algorithm;
	}
	return same;
}

static void log_candidates(const struct gn_bucket_autotune *t, const double *medians, struct gn_json *j)
{
	gn_json_array(j, "tried");
	for (int i = 0; i < t->count; i++)
		gn_json_put(j, "{ buckets %lu overlap? %d step_ms %.3f }", gn_reducer_buckets(t->candidates[i]),
			    gn_reducer_config(t->candidates[i])->overlap, medians[i] * 1e3);
	gn_json_end(j);
}

static enum gn_status report(const struct gn_bucket_autotune *t, int best, const double *medians, uint64_t step, struct gn_err *err)
{
	const struct gn_bucket_autotune_options *o = &t->options;
	const struct gn_reducer_config *config = gn_reducer_config(t->candidates[best]);
	struct gn_json *j = gn_metrics_log_begin(o->metrics_log, "exchange");
	struct gn_strbuf text = {0};
	const char *order = NULL;
	int exact = 1;

	put_config(o->reducer.model, config, &text);
	gn_strbuf_printf(&text, " %.4g ms a step", medians[best] * 1e3);
	for (int i = 0; i < t->count; i++) {
		exact &= is_exact(o->reducer.comm, t->candidates[i], &order);
		if (i == best)
			continue;
		gn_strbuf_puts(&text, i == !best ? "; tried: " : ", ");
		put_config(o->reducer.model, gn_reducer_config(t->candidates[i]), &text);
		gn_strbuf_printf(&text, " %.4g", medians[i] * 1e3);
	}
	if (j) {
		gn_json_put(j, "step %lu bucket_bytes %lu buckets %lu overlap? %d", step, config->bucket_bytes,
			    gn_reducer_buckets(t->candidates[best]), config->overlap);
		log_candidates(t, medians, j);
		gn_json_bool(j, "exact", exact);
	}
	if (t->left_out)
		gn_strbuf_printf(&text, "; not tried: %d whose sums differ in their last bits (--any-order)", t->left_out);
	else if (!exact && o->any_order)
		gn_strbuf_puts(&text, "; sums of another run, which may choose otherwise, can differ in their last bits");
	if (gn_comm_rank(o->reducer.comm) == 0)
		gn_log_info(o->log, "gradients are summed in %s", gn_strbuf_text(&text));
	gn_strbuf_release(&text);
	return gn_metrics_log_end(o->metrics_log, err);
}

/* Whether the two give the same bits: the same buckets, or every sum adds the ranks in the same order. */
static int are_alike(const struct gn_comm *comm, const struct gn_reducer *a, const struct gn_reducer *b)
{
	const char *order = NULL;

	return gn_reducer_buckets(a) == gn_reducer_buckets(b) || (is_exact(comm, a, &order) && is_exact(comm, b, &order));
}

/* --- measuring --- */

void gn_bucket_autotune_destroy(struct gn_bucket_autotune *t, const struct gn_reducer *keep)
{
	for (int i = 0; t && i < t->count; i++)
		if (t->candidates[i] != keep)
			gn_reducer_destroy(t->candidates[i]);
	if (t)
		free(t->conditions);
	free(t);
}

static enum gn_status take_saved(const struct gn_bucket_autotune_options *o, const struct gn_reducer_config *config,
				 struct gn_reducer **reducer, struct gn_err *err)
{
	struct gn_reducer *x;
	struct gn_strbuf text = {0};
	enum gn_status status = gn_agree_status(o->reducer.comm, gn_reducer_create(&o->reducer, config, &x, err), err);

	if (status)
		return status;
	gn_reducer_destroy(*reducer);
	*reducer = x;
	put_config(o->reducer.model, config, &text);
	if (gn_comm_rank(o->reducer.comm) == 0)
		gn_log_info(o->log, "gradients are summed in %s, as measured before", gn_strbuf_text(&text));
	gn_strbuf_release(&text);
	return GN_OK;
}

/* Algorithms, and so what is left out, are the same on all ranks. */
static enum gn_status create_candidates(struct gn_bucket_autotune *t, const struct gn_reducer_config *configs, int count,
					struct gn_reducer *first, struct gn_err *err)
{
	t->candidates[0] = first;
	t->count = 1;
	for (int i = 1; i < count; i++) {
		enum gn_status status = gn_reducer_create(&t->options.reducer, &configs[i], &t->candidates[t->count], err);

		if (status)
			return status;
		if (t->options.any_order || are_alike(t->options.reducer.comm, first, t->candidates[t->count]))
			t->count++;
		else
			gn_reducer_destroy(t->candidates[t->count]), t->left_out++;
	}
	return GN_OK;
}

enum gn_status gn_bucket_autotune_begin(const struct gn_bucket_autotune_options *o, uint64_t steps_left,
					struct gn_reducer **reducer, struct gn_bucket_autotune **out, struct gn_err *err)
{
	struct gn_reducer_config configs[CANDIDATES_MAX];
	struct {
		struct gn_reducer_config config;
		int32_t found;
	} before = {.found = 0};
	int count = list_candidates(o, configs);
	struct gn_bucket_autotune *t;
	enum gn_status status;

	*out = NULL;
	if (gn_comm_size(o->reducer.comm) == 1 || count < 2)
		return GN_OK;
	if (gn_comm_rank(o->reducer.comm) == 0)
		before.found = load(o, &before.config);
	status = gn_comm_broadcast(o->reducer.comm, &before, sizeof before, 0, err);
	if (!status && before.found)
		return take_saved(o, &before.config, reducer, err);
	if (status)
		return status;
	t = calloc(1, sizeof *t);
	if (t) {
		t->options = *o;
		t->options.conditions = t->conditions = strdup(o->conditions);
	}
	status = t && t->conditions ? create_candidates(t, configs, count, *reducer, err)
		   : gn_err_set(err, GN_ERR_NO_MEMORY, "no memory to measure buckets");
	status = gn_agree_status(o->reducer.comm, status, err);
	if (status || t->count < 2 || steps_left < (uint64_t)(WORTH * (WARM_UP + t->count * ROUNDS))) {
		gn_bucket_autotune_destroy(t, *reducer);
		return status;
	}
	*out = t;
	return GN_OK;
}

static double median(const float *values)
{
	float a = values[0], b = values[1], c = values[2];

	_Static_assert(ROUNDS == 3, "the median of three");
	return a > b ? (b > c ? b : a > c ? c : a) : (a > c ? a : b > c ? c : b);
}

static enum gn_status decide(struct gn_bucket_autotune *t, uint64_t step, struct gn_reducer **reducer, struct gn_err *err)
{
	const struct gn_bucket_autotune_options *o = &t->options;
	double medians[CANDIDATES_MAX];
	int best = 0;
	enum gn_status status = gn_comm_allreduce(o->reducer.comm, t->seconds, (size_t)(CANDIDATES_MAX * ROUNDS), GN_F32, gn_reduce_max(GN_F32),
						  err);

	if (status)
		return status;
	for (int i = 0; i < t->count; i++) {
		medians[i] = median(t->seconds[i]);
		if (medians[i] < medians[best] && (best || medians[i] < MARGIN * medians[0]))
			best = i;
	}
	*reducer = t->candidates[best];
	status = report(t, best, medians, step, err);
	if (!status && o->folder && gn_comm_rank(o->reducer.comm) == 0 && save(o, gn_reducer_config(*reducer), err))
		gn_log_warn(o->log, "%s: the next run will measure buckets again", err->text);
	return status;
}

enum gn_status gn_bucket_autotune_note(struct gn_bucket_autotune **tuning, double step_s, uint64_t step, struct gn_reducer **reducer,
				       struct gn_err *err)
{
	struct gn_bucket_autotune *t = *tuning;
	int number = t->steps++ - WARM_UP, next = number + 1;
	enum gn_status status;

	if (number >= 0)
		t->seconds[number % t->count][number / t->count] = (float)step_s;
	if (next < t->count * ROUNDS) {
		*reducer = t->candidates[next > 0 ? next % t->count : 0];
		return GN_OK;
	}
	status = decide(t, step, reducer, err);
	gn_bucket_autotune_destroy(t, *reducer);
	*tuning = NULL;
	return status;
}
