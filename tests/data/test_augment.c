#include "data/sample/augment.h"

#include "data/sample/resize.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static struct gn_loader_options options(enum gn_augment augment, uint32_t height, uint32_t width)
{
	return (struct gn_loader_options){.seed = 42, .augment = augment, .height = height, .width = width};
}

static void assert_near(double a, double b)
{
	if (fabs(a - b) > 1e-9)
		fail_msg("%.12g is not %.12g", a, b);
}

static void assert_box(const struct gn_crop_params *v, double x, double y, double width, double height)
{
	assert_near(v->x, x);
	assert_near(v->y, y);
	assert_near(v->width, width);
	assert_near(v->height, height);
}

static void assert_to(const struct gn_crop_params *v, uint32_t x, uint32_t y, uint32_t width, uint32_t height)
{
	assert_int_equal(v->to_x, x);
	assert_int_equal(v->to_y, y);
	assert_int_equal(v->to_width, width);
	assert_int_equal(v->to_height, height);
}

/* What holds for every view of every image, and for the decoding it leads to. */
static void check_view(const struct gn_loader_options *o, const struct gn_crop_params *v, uint32_t width, uint32_t height)
{
	uint32_t d, scaled_width, scaled_height;
	struct gn_region r;

	assert_true(v->x >= 0 && v->y >= 0 && v->x + v->width <= width + 1e-6 && v->y + v->height <= height + 1e-6);
	assert_true(v->to_x + v->to_width <= o->width && v->to_y + v->to_height <= o->height);
	if (!v->to_width || !v->to_height)
		return;
	gn_crop_params_decoding(v, 8, &d, &r);
	scaled_width = (width + d - 1) / d;
	scaled_height = (height + d - 1) / d;
	assert_true(r.width >= 1 && r.height >= 1 && r.x + r.width <= scaled_width && r.y + r.height <= scaled_height);
	/* a random crop is an image of its own: nothing around it may leak in */
	assert_true(r.x >= v->bounds.x / d && r.x + r.width <= (v->bounds.x + v->bounds.width + d - 1) / d);
	assert_true(r.y >= v->bounds.y / d && r.y + r.height <= (v->bounds.y + v->bounds.height + d - 1) / d);
	assert_true(r.x <= v->x / d + 1e-9 && r.y <= v->y / d + 1e-9);
	assert_true(r.x + r.width >= (v->x + v->width) / d - 1e-9 && r.y + r.height >= (v->y + v->height) / d - 1e-9);
	assert_true(d == 1 || (v->width / d >= v->to_width && v->height / d >= v->to_height));
	if (d < 8)
		assert_true(v->width / (2 * d) < v->to_width || v->height / (2 * d) < v->to_height);
}

static void every_view_is_inside(void **state)
{
	static const uint32_t sides[] = {1, 2, 3, 7, 28, 29, 32, 100, 224, 256, 257, 375, 500, 3001, 65500};
	enum { count = sizeof sides / sizeof *sides };

	(void)state;
	for (int augment = GN_AUGMENT_NONE; augment <= GN_AUGMENT_SHIFT_FLIP; augment++) {
		for (uint64_t i = 0; i < count * count; i++) {
			struct gn_loader_options o = options((enum gn_augment)augment, 32, 28);
			struct gn_crop_params v;

			o.pad = 27;
			for (uint32_t e = 0; e < 8; e++) {
				o.resize_shorter = e == 7 ? 3 : 0;
				gn_crop_params_draw(&o, e, i, sides[i / count], sides[i % count], &v);
				check_view(&o, &v, sides[i / count], sides[i % count]);
			}
		}
	}
}

static void drawing_is_a_pure_function(void **state)
{
	struct gn_loader_options o = options(GN_AUGMENT_CROP_FLIP, 224, 224);
	struct gn_crop_params a, b;
	int same = 0;

	(void)state;
	for (uint64_t i = 0; i < 100; i++) {
		gn_crop_params_draw(&o, 1, i, 500, 375, &a);
		gn_crop_params_draw(&o, 1, 99 - i, 500, 375, &b);
		gn_crop_params_draw(&o, 1, i, 500, 375, &b);
		assert_memory_equal(&a, &b, sizeof a);
		gn_crop_params_draw(&o, 2, i, 500, 375, &b);
		same += !memcmp(&a, &b, sizeof a);
		gn_crop_params_draw(&o, 1, i + 1, 500, 375, &b);
		same += !memcmp(&a, &b, sizeof a);
		o.seed++;
		gn_crop_params_draw(&o, 1, i, 500, 375, &b);
		o.seed--;
		same += !memcmp(&a, &b, sizeof a);
	}
	assert_in_range(same, 0, 2);
}

/* Area A uniform in 0.08..1, log ratio uniform within ln 3/4..ln 4/3, redrawn when a side sticks out. In a square image
 * A fits with probability min(1, -ln A / ln 4/3); integrating A over that gives a mean of 0.478. Half are flipped. */
static void random_crops_have_the_right_distribution(void **state)
{
	struct gn_loader_options o = options(GN_AUGMENT_CROP_FLIP, 224, 224);
	double area = 0, ratio = 0, least = 1;
	enum { draws = 20000 };
	int flips = 0;

	(void)state;
	for (uint64_t i = 0; i < draws; i++) {
		struct gn_crop_params v;
		double part;

		gn_crop_params_draw(&o, 0, i, 1000, 1000, &v);
		part = v.width * v.height / 1e6;
		area += part;
		least = part < least ? part : least;
		ratio += log(v.width / v.height);
		flips += v.flip;
		assert_true(part > 0.0795 && part <= 1);
		assert_true(v.width / v.height > 0.745 && v.width / v.height < 1.34);
		assert_true(v.x == floor(v.x) && v.bounds.x == (uint32_t)v.x && v.bounds.width == (uint32_t)v.width);
		assert_to(&v, 0, 0, 224, 224);
	}
	assert_true(least < 0.082);
	assert_true(fabs(area / draws - 0.478) < 0.008);
	assert_true(fabs(ratio / draws) < 0.006);
	assert_in_range(flips, draws / 2 - 300, draws / 2 + 300);
}

/* No crop of a ratio up to 4/3 with 8 % of the area fits into a 20:1 image, so the tries end at the centre. */
static void extreme_images_get_their_centre(void **state)
{
	struct gn_loader_options o = options(GN_AUGMENT_CROP_FLIP, 32, 32);
	struct gn_crop_params v;

	(void)state;
	gn_crop_params_draw(&o, 0, 0, 600, 30, &v);
	assert_box(&v, 280, 0, 40, 30);
	gn_crop_params_draw(&o, 0, 0, 30, 600, &v);
	assert_box(&v, 0, 280, 30, 40);
}

static void evaluation_takes_the_centre(void **state)
{
	struct gn_loader_options o = options(GN_AUGMENT_NONE, 224, 224);
	struct gn_crop_params v;

	(void)state;
	/* 500x375 -> 341x256, cut at round_half_even(58.5) = 58 and 16 */
	gn_crop_params_draw(&o, 9, 9, 500, 375, &v);
	assert_box(&v, 58 * 500.0 / 341, 16 * 375.0 / 256, 224 * 500.0 / 341, 224 * 375.0 / 256);
	assert_to(&v, 0, 0, 224, 224);
	assert_int_equal(v.flip, 0);
	gn_crop_params_draw(&o, 9, 9, 256, 256, &v);
	assert_box(&v, 16, 16, 224, 224);
	/* whatever is smaller is scaled up to 256: 320x256, cut at 48 and 16 */
	gn_crop_params_draw(&o, 9, 9, 300, 240, &v);
	assert_box(&v, 48 * 300.0 / 320, 16 * 240.0 / 256, 224 * 300.0 / 320, 224 * 240.0 / 256);
	assert_int_equal(gn_crop_resize(&o), 256);
	gn_crop_params_draw(&o, 9, 9, 100, 100, &v);
	assert_box(&v, 6.25, 6.25, 87.5, 87.5);
	assert_to(&v, 0, 0, 224, 224);
	/* from a side of 64 on: 73 */
	o.height = o.width = 64;
	gn_crop_params_draw(&o, 9, 9, 52, 52, &v);
	assert_box(&v, 4 * 52.0 / 73, 4 * 52.0 / 73, 64 * 52.0 / 73, 64 * 52.0 / 73);
	/* below, and for shifts, what is between 3/4 and 8/7 keeps its pixels */
	o.height = o.width = 63;
	gn_crop_params_draw(&o, 9, 9, 52, 52, &v);
	assert_box(&v, 0, 0, 52, 52);
	assert_to(&v, 5, 5, 52, 52);
	assert_int_equal(gn_crop_resize(&o), 0);
	o.height = o.width = 224;
	o.augment = GN_AUGMENT_SHIFT;
	gn_crop_params_draw(&o, 9, 9, 300, 240, &v);
	assert_box(&v, 38, 8, 224, 224);
	/* asked for: always that */
	o.augment = GN_AUGMENT_NONE;
	o.resize_shorter = 448;
	gn_crop_params_draw(&o, 9, 9, 100, 200, &v);
	assert_box(&v, 25, 75, 50, 50);
}

static void digits_keep_their_pixels(void **state)
{
	struct gn_loader_options o = options(GN_AUGMENT_NONE, 28, 28);
	struct gn_region r;
	struct gn_crop_params v;
	uint32_t d;

	(void)state;
	gn_crop_params_draw(&o, 0, 0, 28, 28, &v);
	assert_box(&v, 0, 0, 28, 28);
	assert_to(&v, 0, 0, 28, 28);
	gn_crop_params_decoding(&v, 8, &d, &r);
	assert_int_equal(d, 1);
	assert_true(!r.x && !r.y && r.width == 28 && r.height == 28);
	o.height = o.width = 32;
	gn_crop_params_draw(&o, 0, 0, 28, 28, &v);
	assert_box(&v, 0, 0, 28, 28);
	assert_to(&v, 2, 2, 28, 28);
}

static void shifts_are_uniform(void **state)
{
	struct gn_loader_options o = options(GN_AUGMENT_SHIFT, 28, 28);
	int hits[5][5] = {{0}};
	enum { draws = 25000 };

	(void)state;
	o.pad = 2;
	for (uint64_t i = 0; i < draws; i++) {
		struct gn_crop_params v;
		int left, up;

		gn_crop_params_draw(&o, 0, i, 28, 28, &v);
		assert_int_equal(v.flip, 0);
		/* the window moved by k leaves k black at one side and cuts k off the other */
		left = (int)v.to_x - (int)v.x;
		up = (int)v.to_y - (int)v.y;
		assert_in_range(left + 2, 0, 4);
		assert_in_range(up + 2, 0, 4);
		assert_near(v.width, 28 - abs(left));
		assert_int_equal(v.to_width, 28 - abs(left));
		assert_int_equal(v.to_height, 28 - abs(up));
		hits[left + 2][up + 2]++;
	}
	for (int i = 0; i < 25; i++)
		assert_in_range(hits[i / 5][i % 5], 850, 1150);
}

static void shift_and_flip_are_independent(void **state)
{
	struct gn_loader_options o = options(GN_AUGMENT_SHIFT_FLIP, 32, 32);
	int flips = 0, flipped_left = 0, left = 0;

	(void)state;
	o.pad = 4;
	for (uint64_t i = 0; i < 9000; i++) {
		struct gn_crop_params v;

		gn_crop_params_draw(&o, 0, i, 32, 32, &v);
		flips += v.flip;
		left += v.to_x > 0;
		flipped_left += v.flip && v.to_x > 0;
	}
	assert_in_range(flips, 4300, 4700);
	assert_in_range(left, 3800, 4200);
	assert_in_range(flipped_left, 1850, 2150);
}

/* A window that leaves the image altogether is all black, not an error. */
static void views_can_be_empty(void **state)
{
	struct gn_loader_options o = options(GN_AUGMENT_SHIFT, 32, 32);
	int empty = 0;

	(void)state;
	o.pad = 31;
	o.resize_shorter = 2;
	for (uint64_t i = 0; i < 100; i++) {
		struct gn_crop_params v;

		gn_crop_params_draw(&o, 0, i, 28, 28, &v);
		check_view(&o, &v, 28, 28);
		empty += !v.to_width || !v.to_height;
	}
	assert_in_range(empty, 10, 100);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_view_is_inside),
		cmocka_unit_test(drawing_is_a_pure_function),
		cmocka_unit_test(random_crops_have_the_right_distribution),
		cmocka_unit_test(extreme_images_get_their_centre),
		cmocka_unit_test(evaluation_takes_the_centre),
		cmocka_unit_test(digits_keep_their_pixels),
		cmocka_unit_test(shifts_are_uniform),
		cmocka_unit_test(shift_and_flip_are_independent),
		cmocka_unit_test(views_can_be_empty),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
