/* What ranks find out before NCCL would, and what --comm takes. */
#include "tests/test.h"

#include "transport/coll/coll_device.h"
#include "transport/coll/comm.h"
#include "transport/nccl/nccl_record.h"

#include <stdio.h>
#include <string.h>

static const char *const hosts[] = {"n1", "n1", "n2", "n2"};

static void make_cards(struct gn_nccl_record *cards)
{
	memset(cards, 0, 4 * sizeof *cards);
	for (int r = 0; r < 4; r++) {
		cards[r].version = 22809;
		/* the same slots on both nodes */
		snprintf(cards[r].gpu, sizeof cards[r].gpu, "0000:%02x:00.0", 0x10 + r % 2);
	}
}

static void expect(const struct gn_nccl_record *cards, enum gn_status status, const char *words)
{
	struct gn_err err = {.status = GN_OK};

	assert_int_equal(gn_nccl_records_check(cards, hosts, 4, &err), status);
	assert_non_null(strstr(err.text, words));
}

static void test_cards(void **state)
{
	struct gn_nccl_record cards[4];

	(void)state;
	make_cards(cards);
	expect(cards, GN_OK, "");
	cards[2].status = GN_ERR_NOT_FOUND;
	memset(cards[2].why, 'x', sizeof cards[2].why);
	expect(cards, GN_ERR_NOT_FOUND, "rank 2 on n2: xxx");
	make_cards(cards);
	cards[3].version = 22703;
	expect(cards, GN_ERR_MISMATCH, "rank 0 on n1 has version 22809, rank 3 on n2 has 22703");
	make_cards(cards);
	memcpy(cards[3].gpu, cards[2].gpu, sizeof cards[3].gpu);
	expect(cards, GN_ERR_UNSUPPORTED, "ranks 2 and 3 on n2 share one GPU, 0000:10:00.0");
}

static void test_names(void **state)
{
	struct gn_err err;

	(void)state;
	assert_ok(gn_coll_backend_check("auto", "host", 0, &err));
	assert_ok(gn_coll_backend_check("ucx", "host", 1, &err));
	assert_ok(gn_coll_backend_check("nccl", "cuda", 1, &err));
	assert_int_equal(gn_coll_backend_check("nccl", "host", 1, &err), GN_ERR_USAGE);
	assert_non_null(strstr(err.text, "--device host uses host memory"));
	assert_int_equal(gn_coll_backend_check("nccl", "cuda", 0, &err), GN_ERR_UNSUPPORTED);
	assert_non_null(strstr(err.text, "no CUDA and no NCCL"));
	assert_int_equal(gn_coll_backend_check("nccl", "host", 0, &err), GN_ERR_USAGE);
}

/* As at the end of a function that failed before it had either. */
static void test_free_nothing(void **state)
{
	(void)state;
	gn_comm_free(NULL, NULL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_cards), cmocka_unit_test(test_names), cmocka_unit_test(test_free_nothing)};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
