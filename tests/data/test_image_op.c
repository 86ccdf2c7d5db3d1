/* Image operations against torchvision's results for Pillow images (tests/data/image_op_reference). */
#include "tests/data/reference.h"

#include "data/sample/image_op.h"

#include <string.h>

enum { BYTES_MAX = 64 * 64 * 3 };

struct record {
	enum gn_image_op op;
	double magnitude;
	uint32_t width, height, channels;
	uint8_t pixels[BYTES_MAX];
};

static size_t bytes_of(const struct record *r)
{
	return (size_t)r->width * r->height * r->channels;
}

/* Zero at the end of the file. */
static int read_record(FILE *f, struct record *out)
{
	char name[32];
	int op = 0;

	if (fscanf(f, "%31s %lf %u %u %u", name, &out->magnitude, &out->width, &out->height, &out->channels) != 5)
		return 0;
	assert_int_equal(fgetc(f), '\n');
	while (op < GN_OP_COUNT && strcmp(gn_image_op_name((enum gn_image_op)op), name))
		op++;
	assert_true(op < GN_OP_COUNT);
	out->op = (enum gn_image_op)op;
	assert_true(bytes_of(out) <= BYTES_MAX);
	assert_int_equal(fread(out->pixels, 1, bytes_of(out), f), bytes_of(out));
	return 1;
}

static void compare(const struct record *from, const struct record *wanted)
{
	static uint8_t pixels[BYTES_MAX], spare[BYTES_MAX];
	struct gn_bitmap b = {pixels, spare, from->width, from->height, from->channels};
	const size_t n = bytes_of(from);

	memcpy(pixels, from->pixels, n);
	gn_image_op_apply(wanted->op, wanted->magnitude, &b);
	for (size_t i = 0; i < n; i++)
		if (b.pixels[i] != wanted->pixels[i])
			fail_msg("%s %g of %ux%ux%u: byte %zu is %d, torchvision's %d", gn_image_op_name(wanted->op), wanted->magnitude,
				 from->width, from->height, from->channels, i, b.pixels[i], wanted->pixels[i]);
}

static void all_equal_torchvision(void **state)
{
	static struct record picture, wanted;
	int seen[GN_OP_COUNT] = {0}, records = 0;
	FILE *f;

	(void)state;
	f = open_reference("tests/data/image_op.bin");
	for (; read_record(f, &wanted); records++) {
		/* each picture starts with it; the policies' spaces repeat it */
		if (wanted.op == GN_OP_IDENTITY)
			picture = wanted;
		compare(&picture, &wanted);
		seen[wanted.op]++;
	}
	fclose(f);
	for (int op = 0; op < GN_OP_COUNT; op++)
		if (!seen[op])
			fail_msg("no record of %s", gn_image_op_name((enum gn_image_op)op));
	assert_true(records > 150);
}

/* What changes nothing. */
static void neutral_magnitudes(void **state)
{
	static struct record from, same;

	(void)state;
	from = (struct record){.width = 31, .height = 17, .channels = 3};
	for (size_t i = 0; i < bytes_of(&from); i++)
		from.pixels[i] = (uint8_t)(i * 37 % 251);
	same = from;
	for (int op = 0; op <= GN_OP_SHARPNESS; op++) {
		same.op = (enum gn_image_op)op;
		compare(&from, &same);
	}
	same.op = GN_OP_POSTERIZE;
	same.magnitude = 8;
	compare(&from, &same);
	same.op = GN_OP_SOLARIZE;
	same.magnitude = 256;
	compare(&from, &same);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(all_equal_torchvision), cmocka_unit_test(neutral_magnitudes)};

	return cmocka_run_group_tests_name("data/image_op", tests, NULL, NULL);
}
