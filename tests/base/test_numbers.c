/* Checksums, digests, random numbers, arenas: against published vectors. */
#include "tests/test.h"

#include "src/base/alloc.h"
#include "src/base/crc32c.h"
#include "src/base/philox.h"
#include "src/base/sha256.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static void test_crc32c_vectors(void **state)
{
	unsigned char block[32];

	(void)state;
	/* RFC 3720, appendix B.4. */
	memset(block, 0, sizeof block);
	assert_int_equal(gn_crc32c(0, block, sizeof block), 0x8a9136aa);
	memset(block, 0xff, sizeof block);
	assert_int_equal(gn_crc32c(0, block, sizeof block), 0x62a8ab43);
	for (int i = 0; i < 32; i++)
		block[i] = (unsigned char)i;
	assert_int_equal(gn_crc32c(0, block, sizeof block), 0x46dd794e);
	assert_int_equal(gn_crc32c(0, "123456789", 9), 0xe3069283);
}

static void test_crc32c_paths_agree(void **state)
{
	unsigned char data[300];

	(void)state;
	srand(2);
	for (size_t i = 0; i < sizeof data; i++)
		data[i] = (unsigned char)rand();
	for (size_t from = 0; from < 9; from++) {
		for (size_t len = 0; from + len <= sizeof data; len += 7) {
			size_t cut = len / 3;
			uint32_t whole = gn_crc32c_portable(0, data + from, len);

			assert_int_equal(gn_crc32c(0, data + from, len), whole);
			assert_int_equal(gn_crc32c(gn_crc32c(0, data + from, cut), data + from + cut, len - cut), whole);
		}
	}
}

static void test_sha256(void **state)
{
	char hex[GN_SHA256_HEX];
	struct gn_err err;

	(void)state;
	assert_ok(gn_sha256_buffer("abc", 3, hex, &err));
	assert_string_equal(hex, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
	assert_int_equal(gn_sha256_file("/nonexistent/x", hex, NULL, &err), GN_ERR_NOT_FOUND);
}

/* Known answers of the authors' Random123 distribution (kat_vectors, philox 4x32 10). */
static void test_philox_vectors(void **state)
{
	static const uint32_t cases[3][10] = {
		{0, 0, 0, 0, 0, 0, 0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8},
		{~0u, ~0u, ~0u, ~0u, ~0u, ~0u, 0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd},
		{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344, 0xa4093822, 0x299f31d0, 0xd16cfe09, 0x94fdcceb,
		 0x5001e420, 0x24126ea1},
	};

	(void)state;
	for (size_t i = 0; i < 3; i++) {
		uint32_t out[4];

		gn_philox(cases[i], cases[i] + 4, out);
		assert_memory_equal(out, cases[i] + 6, sizeof out);
	}
}

static void test_rng_distributions(void **state)
{
	enum { DRAWS = 200000 };
	unsigned bins[7] = {0};
	double sum = 0, squares = 0;
	struct gn_rng r;

	(void)state;
	gn_rng_init(&r, 5, GN_RNG_TEST, 0, 0);
	for (int i = 0; i < DRAWS; i++) {
		double x = gn_rng_normal(&r);

		bins[gn_rng_below(&r, 7)]++;
		sum += x;
		squares += x * x;
	}
	for (int i = 0; i < 7; i++)
		assert_true(fabs(bins[i] - DRAWS / 7.0) < 6 * sqrt(DRAWS / 7.0));
	assert_true(fabs(sum / DRAWS) < 0.02);
	assert_true(fabs(squares / DRAWS - 1) < 0.03);
}

/* Also where the count is no multiple of anything, within a block, and where the counter of blocks starts over. */
static void test_rng_many_normals(void **state)
{
	enum { DRAWS = 100003 };
	static double many[DRAWS];
	struct gn_rng one, all;

	(void)state;
	for (int within = 0; within < 3; within++) {
		gn_rng_init(&one, 77, GN_RNG_TEST, 1, 2);
		if (within == 2)
			one.counter[0] = UINT32_MAX - 1000;
		for (int i = 0; i < (within == 1 ? 3 : 0); i++)
			gn_rng_u32(&one);
		all = one;
		gn_rng_normals(&all, DRAWS, many);
		for (int i = 0; i < DRAWS; i++) {
			double want = gn_rng_normal(&one);

			if (!(fabs(many[i] - want) <= 4e-15))
				fail_msg("normal number %d is %.17g and ought to be %.17g", i, many[i], want);
		}
		assert_int_equal(gn_rng_u32(&all), gn_rng_u32(&one));
	}
}

static void test_rng_streams_differ(void **state)
{
	struct gn_rng a, b, again;

	(void)state;
	gn_rng_init(&a, 1, GN_RNG_SHUFFLE, 2, 3);
	gn_rng_init(&again, 1, GN_RNG_SHUFFLE, 2, 3);
	gn_rng_init(&b, 1, GN_RNG_AUGMENT, 2, 3);
	for (int i = 0; i < 10; i++) {
		uint32_t x = gn_rng_u32(&a);

		assert_int_equal(x, gn_rng_u32(&again));
		assert_int_not_equal(x, gn_rng_u32(&b));
	}
}

/* Pages come zeroed and aligned, at sizes around that of a huge one, and can be written to their end. */
static void test_pages(void **state)
{
	static const size_t sizes[] = {0, 1, 4096, (2 << 20) - 1, 2 << 20, (2 << 20) + 1, 9 << 20, 9 << 20, (9 << 20) + 5};

	(void)state;
	for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
		unsigned char *p = gn_pages_map(sizes[i]), *q = gn_alloc_aligned(sizes[i]);
		size_t bits = 0;

		assert_non_null(p);
		assert_non_null(q);
		assert_int_equal((uintptr_t)p % (2 << 20), 0);
		assert_int_equal((uintptr_t)q % GN_ALIGN_BYTES, 0);
		for (size_t k = 0; k < sizes[i]; k++)
			bits |= p[k] | q[k];
		assert_int_equal(bits, 0);
		memset(p, 1, sizes[i]);
		memset(q, 1, sizes[i]);
		gn_pages_unmap(p, sizes[i]);
		free(q);
	}
	gn_pages_unmap(NULL, 1);
	assert_null(gn_pages_map(SIZE_MAX));
	assert_null(gn_pages_map(SIZE_MAX / 2));
}

/* Elements stay where the array moves; what cannot be had changes nothing. */
static void test_array(void **state)
{
	size_t room = 0, before;
	uint64_t *items = NULL, *kept;

	(void)state;
	for (size_t count = 0; count < 1000; count++) {
		assert_int_equal(gn_array_grow(&items, &room, count, sizeof *items), 0);
		assert_true(room > count && room <= (count < 64 ? 64 : 2 * count));
		items[count] = count;
	}
	for (size_t i = 0; i < 1000; i++)
		assert_int_equal(items[i], i);
	before = room;
	kept = items;
	assert_int_equal(gn_array_grow(&items, &room, room, SIZE_MAX / before), -1);
	assert_true(items == kept && room == before);
	free(items);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_crc32c_vectors),
		cmocka_unit_test(test_crc32c_paths_agree),
		cmocka_unit_test(test_sha256),
		cmocka_unit_test(test_philox_vectors),
		cmocka_unit_test(test_rng_distributions),
		cmocka_unit_test(test_rng_many_normals),
		cmocka_unit_test(test_rng_streams_differ),
		cmocka_unit_test(test_pages),
		cmocka_unit_test(test_array),
	};

	return cmocka_run_group_tests_name("base/numbers", tests, NULL, NULL);
}
