/* What gn_onnx_write() refuses; what it writes is for onnx.t. */
#include "tests/test.h"

#include "src/base/alloc.h"
#include "src/train/model/model_internal.h"
#include "src/train/model/onnx.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static char path[] = "/tmp/test-onnx.XXXXXX";

static enum gn_status write_model(const struct gn_model *m, const float *params, uint64_t *len_bytes, struct gn_err *err)
{
	struct gn_onnx_options o = {.metadata_count = 0};

	return gn_onnx_write(path, m, params, NULL, &o, len_bytes, err);
}

static void test_unknown_layer(void **state)
{
	struct gn_model *m;
	struct gn_err err;
	uint64_t len_bytes;
	float *params;

	(void)state;
	assert_ok(gn_model_create("lenet", 10, 0, 28, &m, &err));
	params = gn_alloc_aligned(gn_model_param_elements(m) * sizeof *params);
	assert_non_null(params);
	m->nodes[4].kind = (enum gn_layer)99;
	assert_int_equal(write_model(m, params, &len_bytes, &err), GN_ERR_UNSUPPORTED);
	assert_non_null(strstr(err.text, "layer 4, after conv2, is of kind 99"));
	assert_int_equal(access(path, F_OK), -1);
	free(params);
	gn_model_destroy(m);
}

/* Sizes are checked before any weight is read. */
static void test_too_large(void **state)
{
	struct gn_model *m;
	struct gn_err err;
	uint64_t len_bytes;
	float none = 0;

	(void)state;
	assert_ok(gn_model_create("vgg16", 200000, 0, 224, &m, &err));
	assert_int_equal(write_model(m, &none, &len_bytes, &err), GN_ERR_UNSUPPORTED);
	assert_non_null(strstr(err.text, "200000 classes takes 38"));
	assert_int_equal(access(path, F_OK), -1);
	gn_model_destroy(m);
}

static void test_file(void **state)
{
	struct gn_model *m;
	struct gn_err err;
	struct stat info;
	uint64_t len_bytes, again;
	float *params;

	(void)state;
	assert_ok(gn_model_create("lenet", 10, 0, 28, &m, &err));
	params = gn_alloc_aligned(gn_model_param_elements(m) * sizeof *params);
	assert_non_null(params);
	assert_ok(write_model(m, params, &len_bytes, &err));
	assert_int_equal(stat(path, &info), 0);
	assert_int_equal((uint64_t)info.st_size, len_bytes);
	assert_int_not_equal(write_model(m, params, &again, &err), GN_OK);
	assert_int_equal(access(path, F_OK), 0);
	unlink(path);
	free(params);
	gn_model_destroy(m);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_unknown_layer), cmocka_unit_test(test_too_large), cmocka_unit_test(test_file)};

	close(mkstemp(path));
	unlink(path);
	return cmocka_run_group_tests_name("train/onnx", tests, NULL, NULL);
}
