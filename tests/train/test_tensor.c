/* Networks whose channels are divided among ranks, which are threads here: gradients, losses and statistics are those of the whole network up to
 * rounding. */
#include "tests/train/net.h"

#include "kernels/sliced_loss.h"
#include "src/train/plan/weight_layouts.h"

#include <math.h>
#include <omp.h>
#include <pthread.h>
#include <string.h>

enum { RANKS_MAX = 4 };

/* What ranks exchange, through memory that all see. */
struct meeting {
	int ranks;
	pthread_barrier_t barrier;
	void *values[RANKS_MAX];
};

struct member {
	struct gn_plan_group group;
	struct meeting *meeting;
	int rank;
	size_t exchanged;
};

static void add(const struct gn_op_exchange *x, void *to, const void *from)
{
	for (size_t i = 0; i < x->count && x->element_bytes == sizeof(double); i++)
		((double *)to)[i] += ((const double *)from)[i];
	for (size_t i = 0; i < x->count && x->element_bytes == sizeof(float); i++)
		((float *)to)[i] += ((const float *)from)[i];
}

static enum gn_status exchange(struct gn_plan_group *g, struct gn_stream *s, const struct gn_op_exchange *x, void *values, struct gn_err *err)
{
	struct member *m = (struct member *)g;
	size_t bytes = x->count * (size_t)x->element_bytes;
	char *result = room(x->count, sizeof(double)), *own = (char *)values + (size_t)m->rank * bytes;

	(void)s;
	(void)err;
	m->exchanged += bytes;
	m->meeting->values[m->rank] = values;
	pthread_barrier_wait(&m->meeting->barrier);
	memset(result, 0, bytes);
	for (int r = 0; r < m->meeting->ranks && x->kind != GN_EXCHANGE_GATHER; r++)
		add(x, result, (char *)m->meeting->values[r] + (x->kind == GN_EXCHANGE_SCATTER ? (size_t)m->rank * bytes : 0));
	for (int r = 0; r < m->meeting->ranks && x->kind == GN_EXCHANGE_GATHER; r++)
		if (r != m->rank)
			memcpy((char *)values + (size_t)r * bytes, (char *)m->meeting->values[r] + (size_t)r * bytes, bytes);
	pthread_barrier_wait(&m->meeting->barrier);
	if (x->kind == GN_EXCHANGE_SUM)
		memcpy(values, result, bytes);
	if (x->kind == GN_EXCHANGE_SCATTER)
		memcpy(own, result, bytes);
	free(result);
	return GN_OK;
}

struct rank {
	struct member member;
	const struct net *whole;
	struct gn_model *model;
	struct gn_plan *plan;
	float *params, *grads, *buffers, *logits;
	float loss, correct;
	struct gn_targets targets;
};

static void ignore(void *context, int param, struct gn_event *event)
{
	(void)context;
	(void)param;
	(void)event;
}

static void *run_rank(void *context)
{
	const struct gn_plan_observer observer = {.ready = ignore};
	struct rank *r = context;
	struct gn_plan_options o = r->whole->options;
	struct gn_weight_layouts *layouts;
	const float *logits;
	struct gn_err err;

	omp_set_num_threads(1);
	o.tensor = &r->member.group;
	o.mean_loss = &r->loss;
	o.correct = &r->correct;
	assert_ok(gn_weight_layouts_create(r->model, &layouts, &err));
	o.weights = gn_weight_layouts_layouts(layouts);
	if (o.backend == GN_BACKEND_REF)
		o.weights = NULL;
	assert_ok(gn_plan_create(r->model, &o, r->params, r->grads, r->buffers, &r->plan, &err));
	assert_ok(gn_weight_layouts_take(layouts, r->plan, &err));
	gn_weight_layouts_in(layouts, r->params);
	assert_ok(gn_plan_stage(r->plan, r->whole->images, &r->targets, &err));
	assert_ok(gn_plan_run(r->plan, 3, &observer, NULL, &err));
	gn_weight_layouts_out(layouts, r->grads);
	gn_plan_destroy(r->plan);
	o.training = 0;
	o.weights = o.backend == GN_BACKEND_REF ? NULL : gn_weight_layouts_layouts(layouts);
	assert_ok(gn_plan_create(r->model, &o, r->params, NULL, r->buffers, &r->plan, &err));
	assert_ok(gn_plan_forward(r->plan, r->whole->images, 0, &logits, &err));
	r->logits = room((size_t)o.batch * (size_t)gn_model_classes(r->model), sizeof *logits);
	memcpy(r->logits, logits, (size_t)o.batch * (size_t)gn_model_classes(r->model) * sizeof *logits);
	gn_plan_destroy(r->plan);
	gn_weight_layouts_destroy(layouts);
	return NULL;
}

static void make_rank(struct rank *r, const struct net *n, struct meeting *meeting, int rank)
{
	struct gn_err err;

	memset(r, 0, sizeof *r);
	r->member = (struct member){{meeting->ranks, exchange}, meeting, rank, 0};
	r->whole = n;
	r->targets.labels = n->labels;
	assert_ok(gn_model_slice(n->model, rank, meeting->ranks, &r->model, &err));
	r->params = room(gn_model_param_elements(r->model), sizeof(float));
	r->grads = room(gn_model_param_elements(r->model), sizeof(float));
	r->buffers = room(gn_model_buffer_elements(r->model), sizeof(float));
	gn_model_slice_take(r->model, n->model, 0, n->params, r->params);
	gn_model_slice_take(r->model, n->model, 1, n->buffers, r->buffers);
}

static void release_rank(struct rank *r)
{
	gn_model_destroy(r->model);
	free(r->params);
	free(r->grads);
	free(r->buffers);
	free(r->logits);
}

/* The largest distance of a tensor, by the norm of the whole one, or of the largest where it is 0 but for rounding. */
static double distance(const struct gn_model *m, int buffers, const float *a, const float *b)
{
	int count = buffers ? gn_model_buffer_count(m) : gn_model_param_count(m);
	double worst = 0, largest = 0;

	for (int pass = 0; pass < 2; pass++)
		for (int i = 0; i < count; i++) {
			const struct gn_param *p = buffers ? gn_model_buffer(m, i) : gn_model_param(m, i);
			double norm = 0, far = 0;

			for (size_t k = p->offset; k < p->offset + p->count; k++) {
				norm += (double)a[k] * a[k];
				far += ((double)a[k] - b[k]) * ((double)a[k] - b[k]);
			}
			largest = norm > largest ? norm : largest;
			far = sqrt(far / (norm > 1e-6 * largest ? norm : largest));
			worst = pass && far > worst ? far : worst;
		}
	return worst;
}

static size_t largest_rank(const struct rank *ranks, int count)
{
	size_t most = 0;

	for (int r = 0; r < count; r++)
		most = gn_model_param_elements(ranks[r].model) > most ? gn_model_param_elements(ranks[r].model) : most;
	return most;
}

/* After the step, in inference, each rank has the logits of all classes. */
static void check_logits(const struct net *n, const struct rank *ranks, int count, double bound)
{
	size_t elements = (size_t)n->options.batch * (size_t)gn_model_classes(n->model);
	struct gn_plan_options o = n->options;
	double norm = 0;
	const float *logits;
	struct gn_plan *plan;
	struct gn_err err;

	o.training = 0;
	assert_ok(gn_plan_create(n->model, &o, n->params, NULL, n->buffers, &plan, &err));
	assert_ok(gn_plan_forward(plan, n->images, 0, &logits, &err));
	for (size_t i = 0; i < elements; i++)
		norm = fmax(norm, fabs(logits[i]));
	for (int r = 0; r < count; r++)
		for (size_t i = 0; i < elements; i++)
			assert_true(fabs(ranks[r].logits[i] - logits[i]) <= bound * norm);
	gn_plan_destroy(plan);
}

/* share: the most that a rank has of the parameters. */
static void check(const char *model, int classes, int side, int ranks, struct gn_plan_options o, double bound, double share)
{
	struct meeting meeting = {.ranks = ranks};
	struct rank all[RANKS_MAX];
	pthread_t threads[RANKS_MAX];
	float loss = 0, correct = 0, *grads, *buffers;
	const struct gn_plan_observer observer = {.ready = ignore};
	struct gn_targets targets;
	struct gn_err err;
	struct net n;

	o.training = 1;
	o.mean_loss = &loss;
	o.correct = &correct;
	net_init(&n, model, classes, side, "seed:1", o);
	grads = room(gn_model_param_elements(n.model), sizeof(float));
	buffers = room(gn_model_buffer_elements(n.model), sizeof(float));
	targets = (struct gn_targets){.labels = n.labels};
	pthread_barrier_init(&meeting.barrier, NULL, (unsigned)ranks);
	for (int r = 0; r < ranks; r++)
		make_rank(&all[r], &n, &meeting, r);
	for (int r = 0; r < ranks; r++)
		assert_int_equal(pthread_create(&threads[r], NULL, run_rank, &all[r]), 0);
	for (int r = 0; r < ranks; r++)
		pthread_join(threads[r], NULL);
	assert_ok(gn_plan_stage(n.plan, n.images, &targets, &err));
	assert_ok(gn_plan_run(n.plan, 3, &observer, NULL, &err));
	for (int r = 0; r < ranks; r++) {
		gn_model_slice_put(all[r].model, n.model, 0, all[r].grads, grads);
		gn_model_slice_put(all[r].model, n.model, 1, all[r].buffers, buffers);
		assert_true(fabs(all[r].loss - loss) <= 1e-5 * fabs(loss));
		assert_true(all[r].loss == all[0].loss);
		if (o.backend == GN_BACKEND_HOST)
			assert_true(all[r].correct == correct);
	}
	print_message("%s tensor=%d: gradients %.2g, statistics %.2g, parameters %.3f x, exchanged %.3g MB a batch\n", model, ranks,
		      distance(n.model, 0, n.grads, grads), distance(n.model, 1, n.buffers, buffers),
		      (double)largest_rank(all, ranks) / (double)gn_model_param_elements(n.model), (double)all[0].member.exchanged * 1e-6);
	assert_true(distance(n.model, 0, n.grads, grads) <= bound);
	assert_true(distance(n.model, 1, n.buffers, buffers) <= bound);
	assert_true((double)largest_rank(all, ranks) <= share * (double)gn_model_param_elements(n.model));
	check_logits(&n, all, ranks, bound);
	for (int i = 0; i < gn_model_buffer_count(n.model); i++) /* statistics are there at all */
		assert_true(buffers[gn_model_buffer(n.model, i)->offset] != 0 && buffers[gn_model_buffer(n.model, i)->offset] != 1);
	for (int r = 0; r < ranks; r++)
		release_rank(&all[r]);
	pthread_barrier_destroy(&meeting.barrier);
	free(grads);
	free(buffers);
	net_release(&n);
}

/* In double precision nothing but the conjugates' rounding is between the two. */
static void test_oracle(void **state)
{
	const struct gn_plan_options o = {.backend = GN_BACKEND_REF, .batch = 3, .label_smoothing = 0.1};

	(void)state;
	check("lenet", 10, 28, 2, o, 1e-6, 0.6);
	check("resnet20", 10, 32, 2, o, 1e-6, 0.6);
}

static void test_networks(void **state)
{
	const struct gn_plan_options o = {.backend = GN_BACKEND_HOST, .batch = 4, .dropout = 1, .drop_path = 0.1, .seed = 5};

	(void)state;
	check("lenet", 10, 28, 2, o, 1e-3, 0.6);
	check("resnet18", 10, 64, 2, o, 1e-3, 0.6);
}

/* The network that tests/train/tensor_networks.t names. By the rule a slice and the whole layer may be convolved in two ways, whose rounding
 * ResNet-50 amplifies. */
static void test_named(void **state)
{
	const struct gn_plan_options o = {.backend = GN_BACKEND_HOST, .batch = 4, .dropout = 1, .drop_path = 0.1, .seed = 5,
					  .convolution = GN_CONVOLUTION_WINOGRAD};

	(void)state;
	for (int ranks = 2; ranks <= 4; ranks += 2)
		check(getenv("GN_TENSOR_NETWORK"), 12, 64, ranks, o, 1e-2, ranks == 2 ? 0.6 : 0.4);
}

/* Logits of 12 classes on three ranks: loss and gradients are those of one. */
static void check_loss(int has_pairs, const double *weights, double smoothing)
{
	enum { BATCH = 5, CLASSES = 12, OWN = 4 };
	static const int32_t labels[BATCH] = {0, 11, -1, 5, 7}, pairs[BATCH] = {3, 2, 0, 5, 8};
	static const float lambdas[BATCH] = {0.3f, 0.9f, 1, 0.5f, 0.7f};
	const struct gn_targets targets = {labels, has_pairs ? pairs : NULL, lambdas, weights};
	double logits[BATCH][CLASSES], part[CLASSES / OWN][BATCH][OWN], gradient[BATCH][CLASSES], own[BATCH][OWN], loss;
	double all[CLASSES / OWN][BATCH][GN_SLICED_LOSS_NUMBERS];
	struct gn_loss out;
	struct gn_err err;

	for (int i = 0; i < BATCH * CLASSES; i++) {
		logits[i / CLASSES][i % CLASSES] = 9 * sin(i * i + 1.0);
		part[i % CLASSES / OWN][i / CLASSES][i % OWN] = logits[i / CLASSES][i % CLASSES];
	}
	assert_ok(gn_softmax_cross_entropy_mixed(GN_BACKEND_REF, BATCH, CLASSES, logits, &targets, smoothing, &loss, gradient, &err));
	for (int pass = 0; pass < 2; pass++)
		for (int r = 0; r < CLASSES / OWN; r++) {
			const struct gn_class_slice slice = {r * OWN, OWN, CLASSES, CLASSES / OWN};
			const struct gn_loss_args a = {.batch = BATCH, .classes = CLASSES, .logits = part[r], .targets = targets, .smoothing = smoothing,
						       .grad_scale = 1, .dlogits = own, .out = &out, .share = 1};

			if (!pass) {
				assert_ok(gn_sliced_loss_begin(GN_BACKEND_REF, &a, &slice, all[r][0], &err));
				continue;
			}
			gn_sliced_loss_end(GN_BACKEND_REF, &a, &slice, all[0][0]);
			assert_true(fabs(out.loss - loss) < 1e-12);
			for (int i = 0; i < BATCH * OWN; i++)
				assert_true(fabs(own[i / OWN][i % OWN] - gradient[i / OWN][r * OWN + i % OWN]) < 1e-12);
		}
}

static void test_loss(void **state)
{
	double weights[12];

	(void)state;
	for (int k = 0; k < 12; k++)
		weights[k] = 0.25 * (k + 1);
	for (int i = 0; i < 8; i++)
		check_loss(i & 1, i & 2 ? weights : NULL, i & 4 ? 0.1 : 0);
}

/* A label that is no class, and ranks that divide nothing. */
static void test_refused(void **state)
{
	const struct gn_class_slice slice = {0, 5, 10, 2};
	float logits[5] = {0};
	double numbers[GN_SLICED_LOSS_NUMBERS];
	int32_t label = 10;
	struct gn_loss_args a = {.batch = 1, .logits = logits, .targets = {.labels = &label}};
	struct gn_model *model, *part, *stage;
	struct gn_err err;

	(void)state;
	assert_int_equal(gn_sliced_loss_begin(GN_BACKEND_HOST, &a, &slice, numbers, &err), GN_ERR_DATA);
	assert_ok(gn_model_create("lenet", 10, 0, 28, &model, &err));
	assert_int_equal(gn_model_slice(model, 0, 7, &part, &err), GN_ERR_USAGE);
	assert_non_null(strstr(err.text, "no layer that so many ranks divide"));
	assert_ok(gn_model_part(model, gn_model_node_count(model) - 1, gn_model_node_count(model), &stage, &err));
	assert_int_equal(gn_model_slice(stage, 0, 4, &part, &err), GN_ERR_USAGE);
	assert_non_null(strstr(err.text, "a stage of lenet has no layer that so many ranks divide"));
	gn_model_destroy(stage);
	gn_model_destroy(model);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_loss), cmocka_unit_test(test_refused), cmocka_unit_test(test_oracle),
					    cmocka_unit_test(test_networks)};
	const struct CMUnitTest named[] = {cmocka_unit_test(test_named)};

	return getenv("GN_TENSOR_NETWORK") ? cmocka_run_group_tests(named, NULL, NULL) : cmocka_run_group_tests(tests, NULL, NULL);
}
