#include "tests/test.h"

#include "src/base/file.h"
#include "src/train/model/safetensors.h"
#include "src/train/model/weights.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char root[64], path[128];

static int make_root(void **state)
{
	(void)state;
	memcpy(root, "/tmp/gannet-tensors.XXXXXX", 27);
	if (!mkdtemp(root))
		return -1;
	snprintf(path, sizeof path, "%s/file.safetensors", root);
	return 0;
}

static int drop_root(void **state)
{
	(void)state;
	return gn_remove_tree(root, NULL) ? -1 : 0;
}

static const float weight[6] = {1, -2, 3.5f, 0, 1e-30f, 6};
static const int64_t steps = 42;

static enum gn_status write_sample(struct gn_err *err)
{
	static const char *const metadata[] = {"format", "pt"};
	struct gn_tensor_entry tensors[3] = {
		{.name = "fc.weight", .type = GN_TENSOR_F32, .dims = 2, .shape = {2, 3}, .len_bytes = 24, .data = weight},
		{.name = "bn.num_batches_tracked", .type = GN_TENSOR_I64, .len_bytes = 8, .data = &steps},
		{.name = "empty", .type = GN_TENSOR_F32, .dims = 1, .shape = {0}, .len_bytes = 0, .data = weight},
	};

	unlink(path);
	return gn_safetensors_write(path, NULL, tensors, 3, metadata, 1, NULL, NULL, err);
}

static void test_round_trip(void **state)
{
	const struct gn_tensor_entry *entry;
	struct gn_safetensors *file;
	float back[6];
	int64_t number;
	struct gn_err err;

	(void)state;
	assert_ok(write_sample(&err));
	assert_ok(gn_safetensors_open(path, NULL, &file, &err));
	assert_int_equal(gn_safetensors_count(file), 3);
	entry = gn_safetensors_find(file, "fc.weight");
	assert_non_null(entry);
	assert_int_equal(entry->dims, 2);
	assert_int_equal(entry->shape[1], 3);
	assert_ok(gn_safetensors_read(file, entry, back, &err));
	assert_memory_equal(back, weight, sizeof back);
	entry = gn_safetensors_find(file, "bn.num_batches_tracked");
	assert_int_equal(entry->dims, 0);
	assert_ok(gn_safetensors_read(file, entry, &number, &err));
	assert_int_equal(number, 42);
	assert_null(gn_safetensors_find(file, "fc.bias"));
	gn_safetensors_close(file);
}

static void test_never_overwrites(void **state)
{
	struct gn_tensor_entry none;
	struct gn_err err;

	(void)state;
	assert_ok(write_sample(&err));
	assert_int_equal(gn_safetensors_write(path, NULL, &none, 0, NULL, 0, NULL, NULL, &err), GN_ERR_IO);
}

static enum gn_status open_bytes(const char *header, size_t data_bytes, struct gn_err *err)
{
	size_t len = strlen(header);
	unsigned char *bytes = calloc(1, 8 + len + data_bytes);
	struct gn_safetensors *file;
	enum gn_status status;

	for (int i = 0; i < 8; i++)
		bytes[i] = (unsigned char)(len >> (8 * i));
	memcpy(bytes + 8, header, len);
	status = gn_file_replace(path, bytes, 8 + len + data_bytes, err);
	free(bytes);
	if (!status)
		status = gn_safetensors_open(path, NULL, &file, err);
	if (!status)
		gn_safetensors_close(file);
	return status;
}

#define T(rest) "{\"a\": {\"dtype\": \"F32\", " rest "}}"

static void test_bad_headers(void **state)
{
	static const struct {
		const char *header;
		size_t data;
		const char *text;
	} cases[] = {
		{"{", 0, "not JSON"},
		{"[]", 0, "not a JSON object"},
		{"{\"a\": 1}", 0, "unknown type"},
		{"{\"a\": {\"dtype\": \"F17\", \"shape\": [1], \"data_offsets\": [0, 2]}}", 2, "unknown type"},
		{T("\"shape\": [-1], \"data_offsets\": [0, 4]"), 4, "invalid shape"},
		{T("\"shape\": [1, 1, 1, 1, 1, 1, 1, 1, 1], \"data_offsets\": [0, 4]"), 4, "invalid shape"},
		{T("\"shape\": [4294967296, 4294967296], \"data_offsets\": [0, 4]"), 4, "invalid shape"},
		{T("\"shape\": [4611686018427387904], \"data_offsets\": [0, 4]"), 4, "does not match its shape"},
		{T("\"shape\": [1], \"data_offsets\": [0, 8]"), 4, "beyond the file"},
		{T("\"shape\": [1], \"data_offsets\": [4, 0]"), 4, "beyond the file"},
		{T("\"shape\": [1], \"data_offsets\": [0]"), 4, "beyond the file"},
		{T("\"shape\": [1], \"data_offsets\": [0.0, 4.0]"), 4, "beyond the file"},
		{T("\"shape\": [2], \"data_offsets\": [0, 4]"), 4, "does not match its shape"},
		{T("\"shape\": [1], \"data_offsets\": [4, 8]"), 8, "leaves a gap"},
		{T("\"shape\": [1], \"data_offsets\": [0, 4]"), 8, "outside all tensors"},
		{"{\"a\": {\"dtype\": \"F32\", \"shape\": [1], \"data_offsets\": [0, 4]}, "
		 "\"b\": {\"dtype\": \"F32\", \"shape\": [1], \"data_offsets\": [0, 4]}}", 4, "overlaps"},
		{"{\"a\": {\"dtype\": \"F32\", \"shape\": [0], \"data_offsets\": [0, 0]}, "
		 "\"a\": {\"dtype\": \"F32\", \"shape\": [0], \"data_offsets\": [0, 0]}}", 0, "not JSON: duplicate"},
	};
	struct gn_err err;

	(void)state;
	assert_ok(open_bytes(T("\"shape\": [1], \"data_offsets\": [0, 4]"), 4, &err));
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		assert_int_equal(open_bytes(cases[i].header, cases[i].data, &err), GN_ERR_DATA);
		if (!strstr(err.text, cases[i].text))
			fail_msg("case %zu: %s", i, err.text);
	}
}

/* Every parameter is 1, in one of the half precisions; besides them there is "mask", and a counter. */
static void write_halves(const struct gn_model *m, size_t skip, int64_t more)
{
	enum { ROOM = 16 };
	uint16_t *ones = malloc(gn_model_param_elements(m) * sizeof *ones);
	struct gn_tensor_entry e[ROOM] = {
		{.name = "mask", .type = GN_TENSOR_BOOL, .dims = 1, .shape = {3}, .len_bytes = 3, .data = "abc"},
		{.name = "x.num_batches_tracked", .type = GN_TENSOR_I64, .len_bytes = 8, .data = &steps},
	};
	size_t count = 2;
	struct gn_err err;

	assert_non_null(ones);
	for (int i = (int)skip; i < gn_model_param_count(m); i++) {
		const struct gn_param *p = gn_model_param(m, i);
		uint16_t *at = ones + p->offset;

		assert_true(count < ROOM);
		snprintf(e[count].name, sizeof e[count].name, "%s", p->name);
		e[count].type = i % 2 ? GN_TENSOR_F16 : GN_TENSOR_BF16;
		e[count].dims = p->dims;
		memcpy(e[count].shape, p->shape, sizeof p->shape);
		e[count].data = at;
		e[count].len_bytes = p->count * sizeof *ones;
		for (size_t k = 0; k < p->count; k++)
			at[k] = i % 2 ? 0x3c00 : 0x3f80;
		if (more && p->dims == 1) {
			e[count].shape[0] -= more;
			e[count].len_bytes -= (size_t)more * sizeof *ones;
			more = 0;
		}
		count++;
	}
	unlink(path);
	assert_ok(gn_safetensors_write(path, NULL, e, count, NULL, 0, NULL, NULL, &err));
	free(ones);
}

/* Weights of others: half precision is read, tensors besides are named, what is missing or of another shape is an error. */
static void test_import(void **state)
{
	struct gn_model *m;
	struct gn_strbuf ignored;
	struct gn_err err;
	char shapes[64];
	float *params;

	(void)state;
	assert_ok(gn_model_create("lenet", 10, 0, 28, &m, &err));
	params = calloc(gn_model_param_elements(m), sizeof *params);
	gn_strbuf_init(&ignored);
	write_halves(m, 0, 0);
	assert_ok(gn_weights_import(path, m, 0, params, NULL, NULL, &ignored, &err));
	assert_string_equal(gn_strbuf_text(&ignored), "mask");
	for (int i = 0; i < gn_model_param_count(m); i++)
		for (size_t k = 0; k < gn_model_param(m, i)->count; k++)
			assert_true(params[gn_model_param(m, i)->offset + k] == 1);
	/* Nothing besides may be in a checkpoint. */
	assert_int_equal(gn_weights_load(path, NULL, m, params, NULL, &err), GN_ERR_DATA);
	assert_non_null(strstr(err.text, "mask"));
	write_halves(m, 2, 0);
	assert_int_equal(gn_weights_import(path, m, 0, params, NULL, NULL, &ignored, &err), GN_ERR_DATA);
	assert_non_null(strstr(err.text, gn_model_param(m, 0)->name));
	assert_non_null(strstr(err.text, gn_model_param(m, 1)->name));
	write_halves(m, 0, 1);
	assert_int_equal(gn_weights_import(path, m, 0, params, NULL, NULL, &ignored, &err), GN_ERR_DATA);
	snprintf(shapes, sizeof shapes, "is [%zu] there and [%zu]", gn_model_param(m, 1)->count - 1, gn_model_param(m, 1)->count);
	assert_non_null(strstr(err.text, shapes));
	gn_strbuf_release(&ignored);
	free(params);
	gn_model_destroy(m);
}

static size_t add_all(const struct gn_model *m, const char *prefix, const float *data, struct gn_tensor_entry *e)
{
	for (int i = 0; i < gn_model_param_count(m); i++, e++) {
		const struct gn_param *p = gn_model_param(m, i);

		*e = (struct gn_tensor_entry){.type = GN_TENSOR_F32, .dims = p->dims, .len_bytes = p->count * sizeof *data, .data = data};
		snprintf(e->name, sizeof e->name, "%s%s", prefix, p->name);
		memcpy(e->shape, p->shape, sizeof p->shape);
	}
	return (size_t)gn_model_param_count(m);
}

static enum gn_status import_of(const struct gn_tensor_entry *e, size_t count, const struct gn_model *m, float *params, struct gn_strbuf *ignored,
				struct gn_err *err)
{
	unlink(path);
	gn_strbuf_clear(ignored);
	assert_int_equal(gn_safetensors_write(path, NULL, e, count, NULL, 0, NULL, NULL, err), GN_OK);
	return gn_weights_import(path, m, 0, params, NULL, NULL, ignored, err);
}

/* A network, whose parameters are all read from ones or twos. */
struct imported {
	struct gn_model *model;
	float *params, *ones, *twos;
	struct gn_strbuf ignored;
	struct gn_tensor_entry e[32];
};

static int begin_import(void **state)
{
	struct imported *m = calloc(1, sizeof *m);
	struct gn_err err;
	size_t elements;

	*state = m;
	assert_ok(gn_model_create("lenet", 10, 0, 28, &m->model, &err));
	elements = gn_model_param_elements(m->model);
	m->params = calloc(elements, sizeof *m->params);
	m->ones = malloc(elements * sizeof *m->ones);
	m->twos = malloc(elements * sizeof *m->twos);
	for (size_t i = 0; i < elements; i++) {
		m->ones[i] = 1;
		m->twos[i] = 2;
	}
	return 0;
}

static int end_import(void **state)
{
	struct imported *m = *state;

	gn_strbuf_release(&m->ignored);
	free(m->params);
	free(m->ones);
	free(m->twos);
	gn_model_destroy(m->model);
	free(m);
	return 0;
}

static enum gn_status import_into(struct imported *m, size_t count, struct gn_err *err)
{
	return import_of(m->e, count, m->model, m->params, &m->ignored, err);
}

/* A prefix of all names is left out, if there is one such prefix, and nothing is read that is not behind it. */
static void test_prefix(void **state)
{
	struct imported *m = *state;
	struct gn_err err;
	size_t count;

	count = add_all(m->model, "module.net.", m->ones, m->e);
	m->e[count++] = (struct gn_tensor_entry){.name = "queue", .type = GN_TENSOR_F32, .dims = 1, .shape = {2}, .len_bytes = 8, .data = m->twos};
	assert_ok(import_into(m, count, &err));
	assert_string_equal(gn_strbuf_text(&m->ignored), "queue");
	for (int i = 0; i < gn_model_param_count(m->model); i++)
		assert_true(m->params[gn_model_param(m->model, i)->offset] == 1);
	/* what Gannet wrote has no prefix */
	assert_int_equal(gn_weights_load(path, NULL, m->model, m->params, NULL, &err), GN_ERR_DATA);
	/* not part of a name */
	count = add_all(m->model, "net_", m->ones, m->e);
	assert_int_equal(import_into(m, count, &err), GN_ERR_DATA);
	/* two networks */
	count = add_all(m->model, "student.", m->ones, m->e);
	count += add_all(m->model, "teacher.", m->twos, m->e + count);
	assert_int_equal(import_into(m, count, &err), GN_ERR_DATA);
	assert_non_null(strstr(err.text, "behind 'student.' and behind 'teacher.'"));
	/* the one without a prefix is meant */
	count = add_all(m->model, "ema.", m->twos, m->e);
	count += add_all(m->model, "", m->ones, m->e + count);
	assert_ok(import_into(m, count, &err));
	assert_true(m->params[0] == 1);
	/* one tensor in both places */
	count = add_all(m->model, "ema.", m->ones, m->e);
	count += add_all(m->model, "", m->twos, m->e + count) > 0;
	assert_int_equal(import_into(m, count, &err), GN_ERR_DATA);
}

/* Sides of 1 are no difference, but their order is one: the first weight, [20][1][5][5], as [20][5][1][5], as [20][25] and as [5][20][5]. */
static void test_sides(void **state)
{
	struct imported *m = *state;
	struct gn_err err;
	size_t count;

	count = add_all(m->model, "", m->ones, m->e);
	m->e[0].dims = 4;
	memcpy(m->e[0].shape, (const int64_t[]){20, 5, 1, 5}, 4 * sizeof *m->e[0].shape);
	assert_ok(import_into(m, count, &err));
	m->e[0].dims = 2;
	m->e[0].shape[1] = 25;
	assert_int_equal(import_into(m, count, &err), GN_ERR_DATA);
	m->e[0].dims = 3;
	memcpy(m->e[0].shape, (const int64_t[]){5, 20, 5}, 3 * sizeof *m->e[0].shape);
	assert_int_equal(import_into(m, count, &err), GN_ERR_DATA);
	assert_non_null(strstr(err.text, "is [5,20,5] there"));
}

/* Whatever is cut off or changed in a file, opening and reading it ends in a status, never beyond the file. */
static void test_mutations(void **state)
{
	struct gn_err err;
	char *bytes;
	size_t len;

	(void)state;
	assert_ok(write_sample(&err));
	assert_ok(gn_file_load(path, 1 << 20, &bytes, &len, &err));
	srand(3);
	for (int round = 0; round < 3000; round++) {
		char *copy = malloc(len);
		size_t keep = round % 3 ? len : (size_t)rand() % len;
		struct gn_safetensors *file;

		memcpy(copy, bytes, len);
		for (int k = rand() % 4; k >= 0; k--)
			copy[(size_t)rand() % len] = (char)rand();
		assert_ok(gn_file_replace(path, copy, keep, &err));
		free(copy);
		if (gn_safetensors_open(path, NULL, &file, &err))
			continue;
		for (size_t i = 0; i < gn_safetensors_count(file); i++) {
			char data[64];

			assert_true(gn_safetensors_entry(file, i)->len_bytes <= sizeof data);
			assert_ok(gn_safetensors_read(file, gn_safetensors_entry(file, i), data, &err));
		}
		gn_safetensors_close(file);
	}
	free(bytes);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_round_trip),
		cmocka_unit_test(test_never_overwrites),
		cmocka_unit_test(test_bad_headers),
		cmocka_unit_test(test_import),
		cmocka_unit_test_setup_teardown(test_prefix, begin_import, end_import),
		cmocka_unit_test_setup_teardown(test_sides, begin_import, end_import),
		cmocka_unit_test(test_mutations),
	};

	return cmocka_run_group_tests_name("train/safetensors", tests, make_root, drop_root);
}
