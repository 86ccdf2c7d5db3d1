/* What a listing that comes from another rank may say: paths below the tree, within the lengths that it gives. */
#include "data/stage/stage_place.h"
#include "data/stage/tree.h"
#include "tests/test.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static size_t put(unsigned char *at, const char *path, size_t path_bytes, uint32_t mode)
{
	const struct gn_tree_record r = {.mode = mode, .links_to = GN_TREE_NO_LINK, .path_bytes = (uint32_t)path_bytes, .target_bytes = 1};

	memcpy(at, &r, sizeof r);
	memcpy(at + sizeof r, path, path_bytes);
	at[sizeof r + path_bytes] = 0;
	return sizeof r + path_bytes + 1;
}

/* A root and one entry; less: bytes that are cut off the end. */
static enum gn_status take(const char *path, size_t path_bytes, size_t less)
{
	unsigned char *block = calloc(1, 4096);
	struct gn_tree tree;
	size_t len = put(block, "", 1, S_IFDIR | 0755);
	enum gn_status status;

	len += put(block + len, path, path_bytes, S_IFREG | 0644);
	status = gn_tree_take(block, len - less, &tree, NULL);
	if (!status) {
		assert_int_equal(tree.count, 2);
		assert_string_equal(tree.entries[1].path, path);
		gn_tree_release(&tree);
	}
	return status;
}

static void paths(void **state)
{
	static const char *const good[] = {"/a", "/a/b", "/...", "/.a", "/..a/b", "/a\nb", "/\xff"};
	static const char *const bad[] = {"a", "/", "//a", "/a/", "/a//b", "/.", "/..", "/../a", "/a/..", "/a/./b", "/a/../../b"};

	(void)state;
	for (size_t i = 0; i < sizeof good / sizeof *good; i++)
		assert_int_equal(take(good[i], strlen(good[i]) + 1, 0), GN_OK);
	for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
		assert_int_equal(take(bad[i], strlen(bad[i]) + 1, 0), GN_ERR_MISMATCH);
	assert_int_equal(take("/a\0/..", 7, 0), GN_ERR_MISMATCH);
}

static void lengths(void **state)
{
	(void)state;
	for (size_t less = 1; less < sizeof(struct gn_tree_record) + 4; less++)
		assert_int_equal(take("/a", 3, less), GN_ERR_MISMATCH);
	assert_int_equal(take("/a", 2, 0), GN_ERR_MISMATCH);
}

static void places(void **state)
{
	const char *name;

	(void)state;
	assert_int_equal(gn_stage_place_of(0x6969, &name), GN_STAGE_PLACE_NETWORK);
	assert_string_equal(name, "NFS");
	assert_int_equal(gn_stage_place_of(0x0BD00BD0, &name), GN_STAGE_PLACE_NETWORK);
	/* f_type may be a signed number of 32 bits */
	assert_int_equal(gn_stage_place_of((unsigned long)(int)0xFF534D42, &name), GN_STAGE_PLACE_NETWORK);
	assert_int_equal(gn_stage_place_of(0x65735546, &name), GN_STAGE_PLACE_FUSE);
	assert_int_equal(gn_stage_place_of(0x01021994, &name), GN_STAGE_PLACE_MEMORY);
	assert_int_equal(gn_stage_place_of(0xEF53, &name), GN_STAGE_PLACE_DISK);
	assert_string_equal(name, "");
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(paths), cmocka_unit_test(lengths), cmocka_unit_test(places)};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
