#include "data/sample/jpeg_trap_internal.h"

#include <string.h>

#include <jerror.h>

enum { MAX_SCANS = 200 };
static const long MAX_MEMORY_BYTES = 1L << 30;

static int is_harmless(int message)
{
	switch (message) {
	case JWRN_ADOBE_XFORM:
	case JWRN_BOGUS_ICC:
	case JWRN_EXTRANEOUS_DATA:
	case JWRN_JFIF_MAJOR:
	case JWRN_NOT_SEQUENTIAL:
		return 1;
	default:
		return 0;
	}
}

static void on_error(j_common_ptr codec)
{
	struct gn_jpeg_trap *trap = (struct gn_jpeg_trap *)codec->err;

	codec->err->format_message(codec, trap->text);
	longjmp(trap->back, 1);
}

static void on_message(j_common_ptr codec, int level)
{
	struct gn_jpeg_trap *trap = (struct gn_jpeg_trap *)codec->err;

	if (level >= 0)
		return;
	if (!is_harmless(trap->manager.msg_code))
		on_error(codec);
	if (!trap->warning[0])
		codec->err->format_message(codec, trap->warning);
}

static void on_progress(j_common_ptr codec)
{
	struct gn_jpeg_trap *trap = (struct gn_jpeg_trap *)codec->err;

	if (((j_decompress_ptr)codec)->input_scan_number > MAX_SCANS) {
		snprintf(trap->text, sizeof trap->text, "more than %d scans", MAX_SCANS);
		longjmp(trap->back, 1);
	}
}

void gn_jpeg_trap_init(struct gn_jpeg_trap *trap)
{
	memset(trap, 0, sizeof *trap);
	jpeg_std_error(&trap->manager);
	trap->manager.error_exit = on_error;
	trap->manager.emit_message = on_message;
	trap->progress.progress_monitor = on_progress;
}

void gn_jpeg_trap_limit(struct gn_jpeg_trap *trap, struct jpeg_decompress_struct *codec)
{
	codec->progress = &trap->progress;
	codec->mem->max_memory_to_use = MAX_MEMORY_BYTES;
}
