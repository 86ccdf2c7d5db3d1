/* JPEG files for tests: a made-up picture (gradients, edges and fine texture) in the layout a test asks for. */
#ifndef GN_TESTS_DATA_PICTURE_H
#define GN_TESTS_DATA_PICTURE_H

#include <stddef.h>
#include <stdint.h>

struct picture {
	uint32_t width, height;
	int components;	  /* 1, 3, or 4 (CMYK) */
	int across, down; /* sampling factors of the first component */
	int progressive;
	int many_scans;	  /* 694 of them, each one bit of one coefficient: legal, for one component */
	int restart_rows; /* 0: no restart markers */
	int quality;
	int ycck;	     /* four components as YCCK */
	const uint8_t *flat; /* not NULL: the samples of every pixel */
	int wrong_adobe; /* an Adobe marker with a transform nobody knows: libjpeg only warns */
};

/* The file, the caller's to free. Fails the running test when it cannot be made. */
uint8_t *picture_encode(const struct picture *p, size_t *len_bytes);

#endif
