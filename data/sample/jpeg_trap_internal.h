/* libjpeg's errors, warnings and progress for one codec object. Private to data/sample/.
 *
 * libjpeg reports errors by a callback that must not return: the trap keeps the text and longjmps. Warnings that mean lost or
 * corrupt pixels (data that ends early, bad codes) count as errors; after the others every pixel is still decoded from the
 * file's own data (extraneous bytes, unknown JFIF revision or Adobe transform, bad ICC profile, odd scan parameters), and only
 * the first text is kept. A progressive file can repeat scans of a few bytes each, every one a pass over the whole image: more
 * scans than any encoder writes are an error.
 *
 * Usage: gn_jpeg_trap_init(&trap); codec.err = &trap.manager; then, in a function whose locals are not needed afterwards,
 * if (setjmp(trap.back)) return -1; jpeg_create_decompress(&codec); gn_jpeg_trap_limit(&trap, &codec); ...
 * Thread safety: a trap belongs to one codec object and one thread.
 */
#ifndef GN_DATA_SAMPLE_JPEG_TRAP_INTERNAL_H
#define GN_DATA_SAMPLE_JPEG_TRAP_INTERNAL_H

#include <setjmp.h>
#include <stddef.h>
#include <stdio.h>

#include <jpeglib.h>

struct gn_jpeg_trap {
	struct jpeg_error_mgr manager; /* first: codec.err points here */
	struct jpeg_progress_mgr progress;
	jmp_buf back;
	char text[JMSG_LENGTH_MAX];
	char warning[JMSG_LENGTH_MAX]; /* the first harmless warning, or "" */
};

void gn_jpeg_trap_init(struct gn_jpeg_trap *trap);
/* After jpeg_create_decompress(), which clears all but err and client_data: limits memory and the number of scans. */
void gn_jpeg_trap_limit(struct gn_jpeg_trap *trap, struct jpeg_decompress_struct *codec);

#endif
