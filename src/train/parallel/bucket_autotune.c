#include "src/train/parallel/bucket_autotune.h"

#include "src/base/file.h"
#include "src/train/metrics/scaling_report.h"
#include "transport/coll/agree.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

enum { WAYS_MAX = 8, WARM_UP = 2, ROUNDS = 3, BUCKETS_MAX = 64 };
/* So many times the steps that are measured, a run has to have, or it is over before it gains by it. */
enum { WORTH = 4 };
#define USUAL_BYTES ((size_t)16 << 20)
#define MARGIN 0.97

struct gn_bucket_autotune {
	int ways, left_out, steps; /* left_out: would change the order of sums; steps: done */
	struct gn_reducer *exchanges[WAYS_MAX]; /* the first is the usual one */
	float seconds[WAYS_MAX][ROUNDS];
};

static size_t bucket_bytes(const struct gn_train_options *o)
{
	return o->bucket ? (size_t)o->bucket : USUAL_BYTES;
}

void gn_bucket_autotune_usual(const struct gn_train_options *options, const struct gn_model *model, struct gn_reducer_config *out)
{
	/* What fits into one bucket is there only when backward is through. */
	*out = (struct gn_reducer_config){bucket_bytes(options), options->overlap != GN_OVERLAP_NO &&
					 gn_reducer_count(model, bucket_bytes(options)) > 1};
}

static int is_new(const struct gn_model *model, const struct gn_reducer_config *forms, int count,
		  const struct gn_reducer_config *f)
{
	for (int i = 0; i < count; i++)
		if (forms[i].overlap == f->overlap &&
		    gn_reducer_count(model, forms[i].bucket_bytes) == gn_reducer_count(model, f->bucket_bytes))
			return 0;
	return 1;
}

/* The ways to try, the usual one first. */
static int list_ways(const struct gn_train_options *o, const struct gn_model *model, struct gn_reducer_config *forms)
{
	static const size_t sizes[] = {SIZE_MAX / 8, USUAL_BYTES, 64 << 20, 4 << 20, 1 << 20, 256 << 10};
	int count = 1;

	gn_bucket_autotune_usual(o, model, &forms[0]);
	for (int overlap = 1; overlap >= 0; overlap--) {
		if (o->overlap == (overlap ? GN_OVERLAP_NO : GN_OVERLAP_YES))
			continue;
		for (size_t i = 0; i < sizeof sizes / sizeof *sizes && count < WAYS_MAX; i++) {
			struct gn_reducer_config f = {o->bucket ? (size_t)o->bucket : sizes[i], overlap};
			size_t buckets = gn_reducer_count(model, f.bucket_bytes);

			/* Behind backward small buckets have nothing to gain. */
			if (buckets <= BUCKETS_MAX && (overlap ? buckets > 1 : o->bucket || i < 2) &&
			    is_new(model, forms, count, &f))
				forms[count++] = f;
		}
	}
	return count;
}

/* --- what is remembered --- */

/* Another of these, and what was measured says nothing. */
static void describe(const struct gn_session *s, struct gn_strbuf *out)
{
	const struct gn_train_options *o = s->options;

	gn_strbuf_printf(out, "%s of %zu parameters, %d ranks on %d nodes, %" PRId64 " x %" PRId64 " images, transport %s, algo %s, "
			 "progress %s, threads %" PRId64 ", bucket %" PRId64 ", overlap %d%s, side %" PRId64 ", %s", gn_model_name(s->model),
			 gn_model_param_elements(s->model), gn_comm_size(s->comm), gn_world_nodes(gn_comm_world(s->comm)),
			 o->accumulate, o->batch, o->transport ? o->transport : "auto", o->algo ? o->algo : "auto",
			 o->progress ? o->progress : "caller", o->threads, o->bucket, o->overlap, o->any_order ? ", any order" : "", o->side,
			 o->precision ? o->precision : "fp32");
}

static enum gn_status remember(const struct gn_session *s, const struct gn_reducer_config *f, struct gn_err *err)
{
	char path[PATH_MAX];
	struct gn_strbuf key;
	struct gn_json j;
	enum gn_status status = gn_make_dirs(s->options->checkpoint, err);

	if (!status)
		status = gn_path_join(path, sizeof path, s->options->checkpoint, "exchange.json", err);
	if (status)
		return status;
	gn_strbuf_init(&key);
	gn_json_init(&j);
	describe(s, &key);
	gn_json_object(&j, NULL);
	gn_json_string(&j, "of", gn_strbuf_text(&key));
	gn_json_uint(&j, "bucket_bytes", f->bucket_bytes);
	gn_json_bool(&j, "overlap", f->overlap);
	gn_json_end(&j);
	gn_strbuf_puts(&j.text, "\n");
	if (gn_json_failed(&j) || gn_strbuf_failed(&key))
		status = gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for %s", path);
	else
		status = gn_file_replace(path, gn_json_text(&j), j.text.len, err);
	gn_strbuf_release(&key);
	gn_json_release(&j);
	return status;
}

/* Anything but a fitting file is as none: measuring again costs little. */
static int recall(const struct gn_session *s, struct gn_reducer_config *out)
{
	char path[PATH_MAX];
	struct gn_strbuf key;
	const char *of;
	json_t *root;
	json_int_t bytes;
	int found;

	if (!s->options->checkpoint || gn_path_join(path, sizeof path, s->options->checkpoint, "exchange.json", NULL) ||
	    !(root = json_load_file(path, 0, NULL)))
		return 0;
	gn_strbuf_init(&key);
	describe(s, &key);
	of = json_string_value(json_object_get(root, "of"));
	bytes = json_integer_value(json_object_get(root, "bucket_bytes"));
	found = of && !gn_strbuf_failed(&key) && !strcmp(of, gn_strbuf_text(&key)) && bytes > 0 &&
		json_is_boolean(json_object_get(root, "overlap"));
	if (found)
		*out = (struct gn_reducer_config){(size_t)bytes, json_is_true(json_object_get(root, "overlap"))};
	gn_strbuf_release(&key);
	json_decref(root);
	return found;
}

/* --- words --- */

static void put_form(const struct gn_session *s, const struct gn_reducer_config *f, struct gn_strbuf *out)
{
	size_t buckets = gn_reducer_count(s->model, f->bucket_bytes);

	if (buckets == 1)
		gn_strbuf_puts(out, "one bucket");
	else if (f->bucket_bytes >= 1 << 20)
		gn_strbuf_printf(out, "%zu buckets of %zu MiB", buckets, f->bucket_bytes >> 20);
	else
		gn_strbuf_printf(out, "%zu buckets of %zu KiB", buckets, f->bucket_bytes >> 10);
	gn_strbuf_puts(out, f->overlap ? " during backward" : " after backward");
}

/* Whether another way would have given the same bits: one order of ranks for every element. */
static int is_exact(const struct gn_session *s, const struct gn_reducer *x, const char **order)
{
	static const char *const fixed[] = {"shared", "recursive-doubling", "halving-doubling"};
	int same = gn_comm_size(s->comm) <= 2;

	for (size_t b = 0; b < gn_reducer_buckets(x) && gn_comm_size(s->comm) > 2; b++) {
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

static enum gn_status tell(struct gn_session *s, const struct gn_bucket_autotune *t, int best, const double *medians,
			   struct gn_err *err)
{
	const struct gn_reducer_config *form = gn_reducer_config(t->exchanges[best]);
	struct gn_json *j = gn_metrics_log_begin(s->runlog, "exchange");
	struct gn_strbuf text;
	const char *order = NULL;
	int exact = 1;

	gn_strbuf_init(&text);
	put_form(s, form, &text);
	gn_strbuf_printf(&text, " %.4g ms a step", medians[best] * 1e3);
	if (j) {
		gn_json_uint(j, "step", s->state.step);
		gn_json_uint(j, "bucket_bytes", form->bucket_bytes);
		gn_json_uint(j, "buckets", gn_reducer_buckets(t->exchanges[best]));
		gn_json_bool(j, "overlap", form->overlap);
		gn_json_array(j, "tried");
	}
	for (int i = 0; i < t->ways; i++) {
		const struct gn_reducer_config *f = gn_reducer_config(t->exchanges[i]);

		exact &= is_exact(s, t->exchanges[i], &order);
		if (i != best) {
			gn_strbuf_puts(&text, i == !best ? "; tried: " : ", ");
			put_form(s, f, &text);
			gn_strbuf_printf(&text, " %.4g", medians[i] * 1e3);
		}
		if (!j)
			continue;
		gn_json_object(j, NULL);
		gn_json_uint(j, "buckets", gn_reducer_buckets(t->exchanges[i]));
		gn_json_bool(j, "overlap", f->overlap);
		gn_json_fixed(j, "step_ms", medians[i] * 1e3, 3);
		gn_json_end(j);
	}
	if (j) {
		gn_json_end(j);
		gn_json_bool(j, "exact", exact);
	}
	if (t->left_out)
		gn_strbuf_printf(&text, "; not tried: %d whose sums differ in their last bits (--any-order)", t->left_out);
	else if (!exact && s->options->any_order)
		gn_strbuf_puts(&text, "; sums of another run, which may choose otherwise, can differ in their last bits");
	if (gn_comm_rank(s->comm) == 0)
		gn_log_info(s->log, "gradients leave in %s", gn_strbuf_text(&text));
	gn_strbuf_release(&text);
	return gn_metrics_log_end(s->runlog, err);
}

/* Whether the two leave the same bits: one's buckets are the other's, or every sum adds the ranks in the same order. */
static int are_alike(const struct gn_session *s, const struct gn_reducer *a, const struct gn_reducer *b)
{
	const char *order = NULL;

	return gn_reducer_buckets(a) == gn_reducer_buckets(b) || (is_exact(s, a, &order) && is_exact(s, b, &order));
}

/* --- the trial --- */

void gn_bucket_autotune_destroy(struct gn_bucket_autotune *t, const struct gn_reducer *keep)
{
	for (int i = 0; t && i < t->ways; i++)
		if (t->exchanges[i] != keep)
			gn_reducer_destroy(t->exchanges[i]);
	free(t);
}

static enum gn_status make(struct gn_session *s, const struct gn_reducer_config *form, struct gn_reducer **out,
			   struct gn_err *err)
{
	return gn_reducer_create(s->comm, s->model, s->flat, gn_model_buffer_elements(s->model) + GN_PIGGYBACK_COUNT, form,
				  s->options->algo, out, err);
}

static enum gn_status take_remembered(struct gn_session *s, const struct gn_reducer_config *form, struct gn_err *err)
{
	struct gn_reducer *x;
	struct gn_strbuf text;
	enum gn_status status = gn_agree_status(s->comm, make(s, form, &x, err), err);

	if (status)
		return status;
	gn_reducer_destroy(s->exchange);
	s->exchange = x;
	gn_strbuf_init(&text);
	put_form(s, form, &text);
	if (gn_comm_rank(s->comm) == 0)
		gn_log_info(s->log, "gradients leave in %s, as was measured before", gn_strbuf_text(&text));
	gn_strbuf_release(&text);
	return GN_OK;
}

/* Algorithms, and so what is left out, are the same on all ranks. */
static enum gn_status make_ways(struct gn_session *s, const struct gn_reducer_config *forms, struct gn_bucket_autotune *t, int ways,
				struct gn_err *err)
{
	t->exchanges[0] = s->exchange;
	t->ways = 1;
	for (int i = 1; i < ways; i++) {
		enum gn_status status = make(s, &forms[i], &t->exchanges[t->ways], err);

		if (status)
			return status;
		if (s->options->any_order || are_alike(s, s->exchange, t->exchanges[t->ways]))
			t->ways++;
		else
			gn_reducer_destroy(t->exchanges[t->ways]), t->left_out++;
	}
	return GN_OK;
}

enum gn_status gn_bucket_autotune_begin(struct gn_session *s, uint64_t steps_left, struct gn_err *err)
{
	const struct gn_train_options *o = s->options;
	struct gn_reducer_config forms[WAYS_MAX];
	struct {
		struct gn_reducer_config form;
		int32_t found;
	} before = {.found = 0};
	int ways = list_ways(o, s->model, forms);
	enum gn_status status;

	if (gn_comm_size(s->comm) == 1 || ways < 2 || s->gpu_sums.exchange)
		return GN_OK;
	if (gn_comm_rank(s->comm) == 0)
		before.found = recall(s, &before.form);
	status = gn_comm_broadcast(s->comm, &before, sizeof before, 0, err);
	if (!status && before.found)
		return take_remembered(s, &before.form, err);
	if (status)
		return status;
	s->trial = calloc(1, sizeof *s->trial);
	status = s->trial ? make_ways(s, forms, s->trial, ways, err)
			  : gn_err_set(err, GN_ERR_NO_MEMORY, "no memory to measure the exchange");
	status = gn_agree_status(s->comm, status, err);
	if (!status && (s->trial->ways < 2 || steps_left < (uint64_t)(WORTH * (WARM_UP + s->trial->ways * ROUNDS)))) {
		gn_bucket_autotune_destroy(s->trial, s->exchange);
		s->trial = NULL;
	}
	return status;
}

static double median(const float *values)
{
	float a = values[0], b = values[1], c = values[2];

	_Static_assert(ROUNDS == 3, "the median of three");
	return a > b ? (b > c ? b : a > c ? c : a) : (a > c ? a : b > c ? c : b);
}

static enum gn_status decide(struct gn_session *s, struct gn_err *err)
{
	struct gn_bucket_autotune *t = s->trial;
	double medians[WAYS_MAX];
	int best = 0;
	enum gn_status status = gn_comm_allreduce(s->comm, t->seconds, (size_t)(WAYS_MAX * ROUNDS), GN_F32, gn_reduce_max(GN_F32),
						  err);

	if (status)
		return status;
	for (int i = 0; i < t->ways; i++) {
		medians[i] = median(t->seconds[i]);
		if (medians[i] < medians[best] && (best || medians[i] < MARGIN * medians[0]))
			best = i;
	}
	s->exchange = t->exchanges[best];
	gn_scaling_report_predict_buckets(s);
	status = gn_session_alone(s, tell(s, t, best, medians, err));
	if (!status && s->options->checkpoint && gn_comm_rank(s->comm) == 0 &&
	    remember(s, gn_reducer_config(s->exchange), err))
		gn_log_warn(s->log, "%s: the next run will measure again how gradients leave", err->text);
	gn_bucket_autotune_destroy(t, s->exchange);
	s->trial = NULL;
	return status;
}

enum gn_status gn_bucket_autotune_note(struct gn_session *s, struct gn_err *err)
{
	struct gn_bucket_autotune *t = s->trial;
	int next, number;

	number = t->steps++ - WARM_UP;
	if (number >= 0)
		t->seconds[number % t->ways][number / t->ways] = (float)s->step_s;
	next = number + 1;
	if (next == t->ways * ROUNDS)
		return decide(s, err);
	s->exchange = t->exchanges[next > 0 ? next % t->ways : 0];
	return GN_OK;
}
