/* Evaluation's pixels are torchvision's: a network's answers to files of many sizes, beside those that preprocess_reference, which
 * is next to this file, got from torchvision itself. */
#include "tests/test.h"

#include "data/loader/loader.h"
#include "data/pack/pack.h"
#include "src/base/alloc.h"
#include "src/base/file.h"
#include "src/train/model/init.h"
#include "src/train/loop/input.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { classes = 10, answers_max = 64 };

/* A line of the reference. */
struct answer {
	char name[64];
	int side, resize;
	float logits[classes];
};

static char root[] = "/tmp/gannet-preprocess.XXXXXX";
static struct gn_dataset *data;
static struct answer answers[answers_max];
static int answer_count;

static void beside(char *path, size_t size, const char *name)
{
	const char *source = getenv("GN_SOURCE");

	snprintf(path, size, "%s/tests/train/%s", source ? source : ".", name);
}

static void read_answers(void)
{
	char path[PATH_MAX], line[512];
	FILE *file;

	beside(path, sizeof path, "preprocess.txt");
	file = fopen(path, "r");
	assert_non_null(file);
	while (answer_count < answers_max && fgets(line, sizeof line, file)) {
		struct answer *a = &answers[answer_count];
		int at = 0, more;

		if (sscanf(line, "%63s %d %d%n", a->name, &a->side, &a->resize, &at) < 3 || line[0] == '#')
			continue;
		for (int k = 0; k < classes; k++, at += more)
			assert_int_equal(sscanf(line + at, "%f%n", &a->logits[k], &more), 1);
		answer_count++;
	}
	fclose(file);
}

static int make_data(void **state)
{
	struct gn_progress_bar progress = {0};
	char tar[PATH_MAX], out[64];
	const char *source = tar;
	struct gn_pack_options o = {.out = out, .sources = &source, .source_count = 1, .shard_bytes = 1 << 20, .threads = 1,
				    .quality = 90, .progress = &progress};
	struct gn_pack_result result;
	struct gn_err err;

	(void)state;
	if (!mkdtemp(root))
		return -1;
	beside(tar, sizeof tar, "preprocess.tar");
	snprintf(out, sizeof out, "%s/data", root);
	assert_ok(gn_pack(&o, &result, &err));
	assert_ok(gn_dataset_open(out, &data, &err));
	assert_int_equal(result.samples, 20);
	read_answers();
	return 0;
}

static int drop_data(void **state)
{
	(void)state;
	gn_dataset_close(data);
	return gn_remove_tree(root, NULL) ? -1 : 0;
}

struct net {
	struct gn_model *model;
	struct gn_plan *plan;
	struct gn_loader *loader;
	float *params, *buffers;
};

/* The network that the reference script makes. */
static void make_values(struct net *n)
{
	const struct gn_param *head = NULL;
	struct gn_err err;

	n->params = gn_alloc_aligned(gn_model_param_elements(n->model) * sizeof(float));
	n->buffers = gn_alloc_aligned(gn_model_buffer_elements(n->model) * sizeof(float));
	assert_true(n->params && n->buffers);
	assert_ok(gn_init_params(n->model, "formula", n->params, n->buffers, &err));
	for (int i = gn_model_param_count(n->model) - 2; i < gn_model_param_count(n->model); i++) {
		head = gn_model_param(n->model, i);
		assert_memory_equal(head->name, "fc.", 3);
		for (size_t k = 0; k < head->count; k++)
			n->params[head->offset + k] /= 8;
	}
}

static void net_init(struct net *n, int side, int resize)
{
	struct gn_input_spec input = {.resize_shorter = resize};
	struct gn_loader_options lo = {.ranks = 1, .batch = 4, .threads = 1, .augment = GN_AUGMENT_NONE};
	struct gn_plan_options po = {.backend = GN_BACKEND_HOST, .batch = 4, .frozen = 1};
	struct gn_err err;

	assert_ok(gn_model_create("resnet18", classes, 3, side, &n->model, &err));
	make_values(n);
	assert_ok(gn_input_parse(NULL, NULL, 3, &input, &err));
	gn_input_loader_options(&input, gn_model_channels(n->model), gn_model_side(n->model), &lo);
	assert_ok(gn_loader_create(data, &lo, &n->loader, &err));
	assert_ok(gn_loader_start(n->loader, 0, 0, &err));
	assert_ok(gn_plan_create(n->model, &po, n->params, NULL, n->buffers, &n->plan, &err));
	assert_ok(gn_plan_freeze(n->plan, &err));
}

static void net_release(struct net *n)
{
	gn_plan_destroy(n->plan);
	gn_loader_destroy(n->loader);
	gn_model_destroy(n->model);
	free(n->params);
	free(n->buffers);
}

static const struct answer *find_answer(const char *name, int side, int resize)
{
	for (int i = 0; i < answer_count; i++)
		if (answers[i].side == side && answers[i].resize == resize && !strcmp(answers[i].name, name))
			return &answers[i];
	return NULL;
}

/* Returns how many were compared. */
static int compare(int side, int resize, int option)
{
	const float *rows;
	struct net n;
	int compared = 0;
	struct gn_err err;

	net_init(&n, side, option);
	for (uint64_t b = 0; b < gn_loader_batches(n.loader); b++) {
		struct gn_batch batch;

		assert_ok(gn_loader_next(n.loader, &batch, &err));
		assert_ok(gn_plan_forward(n.plan, gn_batch_input(&batch), 0, &rows, &err));
		for (uint32_t i = 0; i < batch.count; i++) {
			const struct answer *a;
			char name[64];

			gn_dataset_sample_name(data, batch.indices[i], name, sizeof name);
			a = find_answer(name, side, resize);
			for (int k = 0; a && k < classes; k++)
				if (!(fabsf(rows[i * classes + (uint32_t)k] - a->logits[k]) <= 1e-4f))
					fail_msg("%s at side %d: logit %d is %f, torchvision's is %f", name, side, k,
						 rows[i * classes + (uint32_t)k], a->logits[k]);
			compared += a != NULL;
		}
	}
	net_release(&n);
	return compared;
}

static void test_usual(void **state)
{
	(void)state;
	assert_int_equal(compare(64, 73, 0), 20);
	assert_int_equal(compare(224, 256, 0), 5);
}

static void test_resize(void **state)
{
	(void)state;
	/* no zoom; black around most; a side below 64 */
	assert_int_equal(compare(64, 64, 64), 5);
	assert_int_equal(compare(96, 80, 80), 5);
	assert_int_equal(compare(32, 40, 40), 5);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_usual), cmocka_unit_test(test_resize)};

	alarm(120);
	return cmocka_run_group_tests(tests, make_data, drop_data);
}
