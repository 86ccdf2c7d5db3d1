/* How far the parts of a segment lie apart: that no two of them take each other's place in the cache. */
#include "tests/test.h"

#include "transport/shm/shm_internal.h"

#include <string.h>
#include <unistd.h>

#define PAGES ((uint64_t)1 << 16)
#define SLACK_PAGES 64
/* Places where parts meet all the same: one in 4096. */
#define FEW (PAGES / 4096)
/* Of parts in a row so many are kept apart. */
#define ROW 8

/* "Take A Way", figure 2: each bit of the hash is a pair of bits of the address, here of its page. */
static unsigned hash_of(uint64_t page)
{
	return (unsigned)((page ^ page >> 15) & 1) | (unsigned)((page >> 1 ^ page >> 14) & 1) << 1 |
	       (unsigned)((page >> 2 ^ page >> 13) & 1) << 2 | (unsigned)((page >> 3 ^ page >> 8) & 1) << 3 |
	       (unsigned)((page >> 4 ^ page >> 9) & 1) << 4 | (unsigned)((page >> 5 ^ page >> 10) & 1) << 5 |
	       (unsigned)((page >> 6 ^ page >> 11) & 1) << 6 | (unsigned)((page >> 7 ^ page >> 12) & 1) << 7;
}

/* Pages that share their hash with the one so far on, of all there are. */
static unsigned shared(uint64_t distance_pages)
{
	unsigned count = 0;

	for (uint64_t at = 0; at < PAGES; at++)
		count += hash_of(at) == hash_of(at + distance_pages);
	return count;
}

static const size_t lengths[] = {
	1, 4096, 4097, 65536, 1 << 20, (1 << 20) + 64, 25557032u * 4, 0x4002000, 1 << 26, (1 << 26) + 4096, 1 << 28, 1u << 30, 12345678,
};
#define LENGTHS (sizeof lengths / sizeof *lengths)

static void test_whole_pages(void **state)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE);

	(void)state;
	for (size_t i = 0; i < LENGTHS; i++) {
		for (int parts = 1; parts <= 128; parts *= 2) {
			size_t stride = gn_segment_stride(lengths[i], parts);

			assert_int_equal(stride % page, 0);
			assert_true(stride >= lengths[i]);
			assert_true(stride - lengths[i] < SLACK_PAGES * page);
		}
	}
}

static void test_no_conflicts(void **state)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE);

	(void)state;
	if (page != 4096)
		skip();
	/* what was found slow is what this hash says is in conflict: the check can fail */
	assert_true(shared(0x4002000 / page) > FEW);
	for (size_t i = 0; i < LENGTHS; i++) {
		for (int parts = 2; parts <= 2 * ROW; parts *= 2) {
			uint64_t stride = gn_segment_stride(lengths[i], parts) / page;

			for (int k = 1; k < parts && k < ROW; k++)
				if (shared(stride * (uint64_t)k) > FEW)
					fail_msg("of %d parts of %zu bytes, %llu pages apart, those %d apart share %u of %llu places", parts,
						 lengths[i], (unsigned long long)stride, k, shared(stride * (uint64_t)k),
						 (unsigned long long)PAGES);
		}
	}
}

/* No more room than it takes: without conflicts, or without neighbours, none at all. */
static void test_no_waste(void **state)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE), free = 0;

	(void)state;
	for (size_t i = 0; i < LENGTHS; i++) {
		uint64_t least = (lengths[i] + page - 1) / page;

		assert_int_equal(gn_segment_stride(lengths[i], 1), least * page);
		if (!shared(least)) {
			assert_int_equal(gn_segment_stride(lengths[i], 2), least * page);
			free++;
		}
	}
	assert_int_not_equal(free, 0);
}

static void test_alone(void **state)
{
	struct gn_world *world = NULL;
	struct gn_shm_members all;
	struct gn_segment *s = NULL;
	struct gn_err err;
	unsigned char *part;

	(void)state;
	assert_ok(gn_world_create(NULL, NULL, &world, &err));
	all = gn_shm_all_members(world);
	assert_ok(gn_segment_create(&all, 10000, 10000, &s, &err));
	part = gn_segment_part(s, 0);
	assert_int_equal((uintptr_t)part % (uintptr_t)sysconf(_SC_PAGESIZE), 0);
	assert_int_equal(gn_segment_len(s), 10000);
	assert_ptr_equal(gn_segment_part_of(s, 0), part);
	assert_null(gn_segment_part_of(s, 1));
	assert_true(gn_segment_id(s) != 0);
	for (int i = 0; i < 10000; i++)
		assert_int_equal(part[i], 0);
	memset(part, 1, 10000);
	gn_segment_destroy(s);
	gn_segment_destroy(NULL);
	gn_world_destroy(world);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_whole_pages),
		cmocka_unit_test(test_no_conflicts),
		cmocka_unit_test(test_no_waste),
		cmocka_unit_test(test_alone),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
