#include "tests/test.h"

#include "transport/nccl/plugin/flush.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* To be closed. */
static void *load_driver(int **asked, int **answer)
{
	const char *build = getenv("GN_BUILD");
	char path[4096];
	void *driver;

	assert_null(dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD));
	snprintf(path, sizeof path, "%s/tests/transport/plugin/driver.so", build ? build : ".");
	driver = dlopen(path, RTLD_NOW | RTLD_LOCAL);
	assert_non_null(driver);
	*asked = (int *)dlsym(driver, "asked");
	*answer = (int *)dlsym(driver, "answer");
	assert_non_null(*asked);
	assert_non_null(*answer);
	return driver;
}

static void test_flushes_for_the_memory_s_owner(void **state)
{
	int *asked, *answer;
	void *driver = load_driver(&asked, &answer);

	(void)state;
	assert_int_equal(gn_flush_gpu(NULL), GN_OK);
	/* <cuda.h>: CU_FLUSH_GPU_DIRECT_RDMA_WRITES_TARGET_CURRENT_CTX, CU_FLUSH_GPU_DIRECT_RDMA_WRITES_TO_OWNER */
	assert_int_equal(asked[0], 0);
	assert_int_equal(asked[1], 100);
	dlclose(driver);
}

static void test_an_error_says_what_to_do(void **state)
{
	int *asked, *answer;
	void *driver = load_driver(&asked, &answer);
	struct gn_err err;

	(void)state;
	*answer = 801; /* CUDA_ERROR_NOT_SUPPORTED */
	assert_int_equal(gn_flush_gpu(&err), GN_ERR_FAILED);
	assert_non_null(strstr(err.text, "cuFlushGPUDirectRDMAWrites: 801"));
	assert_non_null(strstr(err.text, "NCCL_NET_GDR_LEVEL=LOC"));
	dlclose(driver);
}

static void test_no_driver_is_an_error(void **state)
{
	struct gn_err err;

	(void)state;
	assert_null(dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD));
	assert_int_equal(gn_flush_gpu(&err), GN_ERR_FAILED);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_no_driver_is_an_error),
		cmocka_unit_test(test_flushes_for_the_memory_s_owner),
		cmocka_unit_test(test_an_error_says_what_to_do),
	};

	return cmocka_run_group_tests_name("ncclnet/flush", tests, NULL, NULL);
}
