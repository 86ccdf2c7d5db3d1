#include "data/shard/shard.h"
#include "src/base/crc32c.h"
#include "src/base/file.h"
#include "tests/test.h"

#include <fcntl.h>
#include <hdf5.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define COUNT 200
#define CLASSES 7

static char folder[] = "/tmp/gannet-shard-XXXXXX";
static char path[64];
static struct gn_shard_row rows[COUNT];
static char name_text[COUNT][32];
static const char *names[COUNT];

static unsigned char byte_of(uint64_t i)
{
	return (unsigned char)(i * 31 + i / 256);
}

static void fill_rows(void)
{
	uint64_t offset = 0;

	for (uint32_t i = 0; i < COUNT; i++) {
		unsigned char bytes[1024];
		uint32_t len = 1 + i * 5;

		for (uint32_t k = 0; k < len; k++)
			bytes[k] = byte_of(offset + k);
		rows[i] = (struct gn_shard_row){offset, len, i % CLASSES, gn_crc32c(0, bytes, len),
						(uint16_t)(i + 1), (uint16_t)(65535 - i)};
		snprintf(name_text[i], sizeof name_text[i], "%u/%0*u.jpg", i % CLASSES, (int)(i % 9) + 1, i);
		names[i] = name_text[i];
		offset += len;
	}
}

/* A good shard at path, with its data. */
static struct gn_shard_layout make_shard(void)
{
	struct gn_shard_layout layout;
	struct gn_err err;
	unsigned char *data;
	int fd;

	unlink(path);
	assert_ok(gn_shard_write(path, rows, names, COUNT, CLASSES, &layout, &err));
	data = malloc(layout.data_bytes);
	assert_non_null(data);
	for (uint64_t i = 0; i < layout.data_bytes; i++)
		data[i] = byte_of(i);
	fd = open(path, O_WRONLY);
	assert_true(fd >= 0);
	assert_ok(gn_pwrite_full(fd, data, layout.data_bytes, layout.data_offset, path, &err));
	close(fd);
	free(data);
	return layout;
}

static void refused(const char *why)
{
	struct gn_shard *s;
	struct gn_err err = {0};

	if (gn_shard_open(path, &s, &err) != GN_ERR_DATA)
		fail_msg("not refused, although: %s (%s)", why, err.text);
	if (!strstr(err.text, why) || !strstr(err.text, path))
		fail_msg("'%s' does not say '%s' and '%s'", err.text, why, path);
}

static void what_is_written_is_read(void **state)
{
	struct gn_shard_layout layout = make_shard();
	unsigned char buffer[1024];
	struct gn_shard *s;
	char name[64];
	struct gn_err err;

	(void)state;
	assert_ok(gn_shard_open(path, &s, &err));
	assert_memory_equal(gn_shard_layout(s), &layout, sizeof layout);
	assert_memory_equal(gn_shard_rows(s), rows, sizeof rows);
	for (uint32_t i = 0; i < COUNT; i++) {
		assert_ok(gn_shard_read(s, i, buffer, &err));
		assert_int_equal(buffer[0], byte_of(rows[i].offset));
		gn_shard_name(s, i, name, sizeof name);
		assert_string_equal(name, names[i]);
	}
	gn_shard_name(s, 12, name, 4);
	assert_string_equal(name, "5/0");
	gn_shard_close(s);
}

static void damage_is_named(void **state)
{
	struct gn_shard_layout layout = make_shard();
	unsigned char buffer[1024];
	struct gn_shard *s;
	struct gn_err err;
	int fd = open(path, O_WRONLY);

	(void)state;
	assert_true(fd >= 0);
	assert_ok(gn_pwrite_full(fd, "?", 1, layout.data_offset + rows[17].offset + 3, path, &err));
	close(fd);
	assert_ok(gn_shard_open(path, &s, &err));
	assert_ok(gn_shard_read(s, 16, buffer, &err));
	assert_int_equal(gn_shard_read(s, 17, buffer, &err), GN_ERR_DATA);
	assert_non_null(strstr(err.text, "sample 17 (3/000000017.jpg) fails its checksum"));
	gn_shard_close(s);
}

static void digest_leaves_data_out(void **state)
{
	struct gn_shard_layout layout = make_shard();
	char before[GN_SHA256_HEX], after[GN_SHA256_HEX];
	struct gn_err err;
	int fd = open(path, O_WRONLY);

	(void)state;
	assert_true(fd >= 0);
	assert_ok(gn_shard_head_digest(path, layout.data_offset, layout.data_bytes, before, &err));
	assert_ok(gn_pwrite_full(fd, "?", 1, layout.data_offset, path, &err));
	assert_ok(gn_pwrite_full(fd, "?", 1, layout.data_offset + layout.data_bytes - 1, path, &err));
	assert_ok(gn_shard_head_digest(path, layout.data_offset, layout.data_bytes, after, &err));
	assert_string_equal(before, after);
	assert_ok(gn_pwrite_full(fd, "?", 1, layout.data_offset - 1, path, &err));
	assert_ok(gn_shard_head_digest(path, layout.data_offset, layout.data_bytes, after, &err));
	assert_string_not_equal(before, after);
	assert_int_equal(gn_shard_head_digest(path, layout.data_offset, layout.size_bytes, after, &err), GN_ERR_DATA);
	close(fd);
}

static void wrong_rows_are_not_written(void **state)
{
	struct gn_shard_layout layout;
	struct gn_shard_row bad[2] = {rows[0], rows[1]};
	struct gn_err err;

	(void)state;
	unlink(path);
	bad[1].offset++;
	assert_int_equal(gn_shard_write(path, bad, names, 2, CLASSES, &layout, &err), GN_ERR_USAGE);
	assert_int_equal(gn_shard_write(path, rows, names, 0, CLASSES, &layout, &err), GN_ERR_USAGE);
	assert_int_equal(gn_shard_write(path, rows, names, 2, 1, &layout, &err), GN_ERR_USAGE);
	assert_int_not_equal(access(path, F_OK), 0);
	make_shard();
	assert_int_not_equal(gn_shard_write(path, rows, names, 2, CLASSES, &layout, &err), GN_OK);
	assert_int_equal(access(path, F_OK), 0);
}

static hid_t edit(void)
{
	hid_t file;

	make_shard();
	file = H5Fopen(path, H5F_ACC_RDWR, H5P_DEFAULT);
	assert_true(file >= 0);
	return file;
}

/* Puts value into element i of a row dataset. */
static void poke(const char *dataset, hsize_t i, uint64_t value)
{
	hid_t file = edit(), d = H5Dopen2(file, dataset, H5P_DEFAULT), space = H5Dget_space(d);
	hid_t one = H5Screate(H5S_SCALAR);

	assert_true(H5Sselect_elements(space, H5S_SELECT_SET, 1, &i) >= 0);
	assert_true(H5Dwrite(d, H5T_NATIVE_UINT64, one, space, H5P_DEFAULT, &value) >= 0);
	H5Sclose(one);
	H5Sclose(space);
	H5Dclose(d);
	H5Fclose(file);
}

static void wrong_rows_are_refused(void **state)
{
	(void)state;
	poke("label", 100, CLASSES);
	refused("sample 100 has a label beyond");
	poke("length", COUNT - 1, rows[COUNT - 1].length_bytes + 1);
	refused("sample 199 extends beyond the end");
	poke("length", 50, UINT32_MAX);
	refused("sample 50 extends beyond the end");
	poke("length", 3, 0);
	refused("sample 3 is empty");
	poke("offset", 30, rows[30].offset - 1);
	refused("sample 30 overlaps");
	poke("offset", 31, UINT64_MAX);
	refused("sample 31 extends beyond the end");
	poke("width", 0, 0);
	refused("sample 0 is empty");
}

/* Takes a dataset away and, when type is valid, puts another in its place. */
static void exchange(const char *dataset, hid_t type, hsize_t count, hid_t creation)
{
	hid_t file = edit(), space, d;

	assert_true(H5Ldelete(file, dataset, H5P_DEFAULT) >= 0);
	if (type >= 0) {
		space = H5Screate_simple(1, &count, NULL);
		d = H5Dcreate2(file, dataset, type, space, H5P_DEFAULT, creation, H5P_DEFAULT);
		assert_true(d >= 0);
		H5Dclose(d);
		H5Sclose(space);
	}
	H5Fclose(file);
}

static void wrong_datasets_are_refused(void **state)
{
	hid_t early = H5Pcreate(H5P_DATASET_CREATE), chunked = H5Pcreate(H5P_DATASET_CREATE);
	hid_t external = H5Pcreate(H5P_DATASET_CREATE), text = H5Tcopy(H5T_C_S1);
	hsize_t chunk = 16;

	(void)state;
	H5Pset_alloc_time(early, H5D_ALLOC_TIME_EARLY);
	H5Pset_chunk(chunked, 1, &chunk);
	H5Pset_alloc_time(chunked, H5D_ALLOC_TIME_EARLY);
	H5Pset_external(external, "/etc/passwd", 0, 1 << 20);
	H5Tset_size(text, H5T_VARIABLE);
	exchange("label", -1, 0, H5P_DEFAULT);
	refused("'label' is missing");
	exchange("label", H5T_STD_I32LE, COUNT, early);
	refused("'label' has another type");
	exchange("label", H5T_STD_U64LE, COUNT, early);
	refused("'label' has another type");
	exchange("crc32c", H5T_STD_U32LE, COUNT - 1, early);
	refused("'crc32c' has 199 elements for 200");
	exchange("offset", H5T_IEEE_F64LE, COUNT, early);
	refused("'offset' has another type");
	exchange("width", H5T_STD_U16LE, COUNT, chunked);
	refused("'width' is not stored in one contiguous piece");
	exchange("name", text, COUNT, early);
	refused("'name' has another type");
	exchange("data", H5T_STD_U8LE, 1000, H5P_DEFAULT); /* late allocation: nowhere in the file */
	refused("'data' lies beyond the end");
	exchange("data", H5T_STD_U8LE, 1000, external);
	refused("'data' is not stored in one contiguous piece");
	exchange("data", H5T_STD_U8LE, 1000, chunked);
	refused("'data' is not stored in one contiguous piece");
	exchange("data", H5T_STD_U8LE, 10, early);
	refused("extends beyond the end of the data");
	H5Tclose(text);
	H5Pclose(external);
	H5Pclose(chunked);
	H5Pclose(early);
}

static void links_are_refused(void **state)
{
	hid_t file = edit();

	(void)state;
	assert_true(H5Lmove(file, "label", H5L_SAME_LOC, "elsewhere", H5P_DEFAULT, H5P_DEFAULT) >= 0);
	assert_true(H5Lcreate_soft("/elsewhere", file, "label", H5P_DEFAULT, H5P_DEFAULT) >= 0);
	H5Fclose(file);
	refused("'label' is missing");
	file = edit();
	H5Ldelete(file, "data", H5P_DEFAULT);
	assert_true(H5Lcreate_external("other.h5", "/data", file, "data", H5P_DEFAULT, H5P_DEFAULT) >= 0);
	H5Fclose(file);
	refused("'data' is missing");
}

static void set_attribute(const char *name, hid_t type, const void *value)
{
	hid_t file = edit(), space = H5Screate(H5S_SCALAR), a;

	H5Adelete(file, name);
	if (value) {
		a = H5Acreate2(file, name, type, space, H5P_DEFAULT, H5P_DEFAULT);
		assert_true(a >= 0 && H5Awrite(a, type, value) >= 0);
		H5Aclose(a);
	}
	H5Sclose(space);
	H5Fclose(file);
}

static void foreign_files_are_refused(void **state)
{
	uint32_t two = 2, zero = 0;
	hid_t file, text = H5Tcopy(H5T_C_S1);
	struct gn_shard *s;
	struct gn_err err;

	(void)state;
	H5Tset_size(text, 5);
	set_attribute("format", -1, NULL);
	refused("'format' is missing");
	set_attribute("format", text, "other");
	refused("its format is 'other'");
	set_attribute("format", H5T_STD_U32LE, &two);
	refused("'format' has another type");
	set_attribute("version", H5T_STD_U32LE, &two);
	refused("version 2");
	set_attribute("classes", H5T_STD_U32LE, &zero);
	refused("no classes");
	H5Tclose(text);
	unlink(path);
	file = H5Fcreate(path, H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT);
	assert_true(file >= 0);
	H5Fclose(file);
	refused("no Gannet shard");
	assert_ok(gn_file_replace(path, "\x89HDF\r\n\x1a\n and nothing", 20, &err));
	refused("truncated or damaged");
	assert_ok(gn_file_replace(path, "plain text", 10, &err));
	refused("not an HDF5 file");
	assert_ok(gn_file_replace(path, "", 0, &err));
	refused("only 0 bytes");
	unlink(path);
	assert_int_equal(gn_shard_open(path, &s, &err), GN_ERR_NOT_FOUND);
	assert_int_equal(gn_shard_open(folder, &s, &err), GN_ERR_DATA);
}

static void every_cut_is_found(void **state)
{
	struct gn_shard_layout layout = make_shard();

	(void)state;
	for (uint64_t cut = layout.size_bytes - 1; cut > 0; cut = cut * 9 / 10) {
		assert_int_equal(truncate(path, (off_t)cut), 0);
		refused("");
	}
}

static int make_folder(void **state)
{
	(void)state;
	if (!mkdtemp(folder))
		return -1;
	snprintf(path, sizeof path, "%s/shard.h5", folder);
	H5Eset_auto2(H5E_DEFAULT, NULL, NULL);
	fill_rows();
	return 0;
}

static int remove_folder(void **state)
{
	(void)state;
	return gn_remove_tree(folder, NULL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(what_is_written_is_read),
		cmocka_unit_test(damage_is_named),
		cmocka_unit_test(digest_leaves_data_out),
		cmocka_unit_test(wrong_rows_are_not_written),
		cmocka_unit_test(wrong_rows_are_refused),
		cmocka_unit_test(wrong_datasets_are_refused),
		cmocka_unit_test(links_are_refused),
		cmocka_unit_test(foreign_files_are_refused),
		cmocka_unit_test(every_cut_is_found),
	};

	return cmocka_run_group_tests_name("shard", tests, make_folder, remove_folder);
}
