#include "tests/data/picture.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <jpeglib.h>

static uint8_t value(uint32_t x, uint32_t y, int c)
{
	uint32_t smooth = x * (3 + (uint32_t)c) + y * (5 - (uint32_t)c);
	uint32_t edge = ((x / 13 + y / 9) & 1) * 90;
	uint32_t texture = (x * x * 7 + y * y * 3 + x * y + (uint32_t)c * 31) % 47;

	return (uint8_t)(smooth / 6 % 120 + edge + texture);
}

/* Every coefficient by itself, from its highest bits to its lowest, as finely as the format allows. */
static int write_scans(jpeg_scan_info *scans)
{
	int n = 0;

	scans[n++] = (jpeg_scan_info){.comps_in_scan = 1};
	for (int k = 1; k < 64; k++)
		for (int low = 10; low >= 0; low--)
			scans[n++] = (jpeg_scan_info){
				.comps_in_scan = 1, .Ss = k, .Se = k, .Ah = low < 10 ? low + 1 : 0, .Al = low};
	return n;
}

uint8_t *picture_encode(const struct picture *p, size_t *len_bytes)
{
	static const uint8_t adobe[12] = {'A', 'd', 'o', 'b', 'e', 0, 100, 0, 0, 0, 0, 77};
	struct jpeg_compress_struct jpeg;
	struct jpeg_error_mgr errors;
	jpeg_scan_info scans[1 + 63 * 11];
	unsigned char *file = NULL;
	unsigned long file_bytes = 0;
	uint8_t *row = calloc(p->width, (size_t)p->components);

	assert_non_null(row);
	jpeg.err = jpeg_std_error(&errors);
	jpeg_create_compress(&jpeg);
	jpeg_mem_dest(&jpeg, &file, &file_bytes);
	jpeg.image_width = p->width;
	jpeg.image_height = p->height;
	jpeg.input_components = p->components;
	jpeg.in_color_space = p->components == 1 ? JCS_GRAYSCALE : p->components == 3 ? JCS_RGB : JCS_CMYK;
	jpeg_set_defaults(&jpeg);
	if (p->ycck)
		jpeg_set_colorspace(&jpeg, JCS_YCCK);
	jpeg_set_quality(&jpeg, p->quality ? p->quality : 90, TRUE);
	jpeg.comp_info[0].h_samp_factor = p->across ? p->across : 1;
	jpeg.comp_info[0].v_samp_factor = p->down ? p->down : 1;
	jpeg.restart_in_rows = p->restart_rows;
	if (p->wrong_adobe)
		jpeg.write_JFIF_header = FALSE;
	if (p->progressive)
		jpeg_simple_progression(&jpeg);
	if (p->many_scans) {
		jpeg.num_scans = write_scans(scans);
		jpeg.scan_info = scans;
	}
	jpeg_start_compress(&jpeg, TRUE);
	if (p->wrong_adobe)
		jpeg_write_marker(&jpeg, JPEG_APP0 + 14, adobe, sizeof adobe);
	for (uint32_t y = 0; y < p->height; y++) {
		JSAMPROW rows[1] = {row};

		for (uint32_t x = 0; x < p->width; x++)
			for (int c = 0; c < p->components; c++)
				row[x * (uint32_t)p->components + (uint32_t)c] =
					p->flat ? p->flat[c] : value(x, y, c);
		jpeg_write_scanlines(&jpeg, rows, 1);
	}
	jpeg_finish_compress(&jpeg);
	jpeg_destroy_compress(&jpeg);
	free(row);
	*len_bytes = file_bytes;
	return file;
}
