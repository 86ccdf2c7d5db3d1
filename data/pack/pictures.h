/* The images of several sources one after the other, for prediction: image files, folders, tar archives and packed datasets.
 *
 * Folders and archives are walked as by source.h, whatever their levels; what is no image there by its name is ignored. A dataset's images
 * come in its own order. Only the images that the sink wants are read, so that several processes can share a walk: all see the same images
 * in the same order if the sources are the same.
 *
 * Thread safety: a walk belongs to one thread; gn_picture_to_jpeg() to any. Blocks on the file system and in the sink.
 */
#ifndef GN_DATA_PACK_PICTURES_H
#define GN_DATA_PACK_PICTURES_H

#include "src/base/status.h"

#include <stddef.h>

struct gn_picture {
	const char *name;     /* SOURCE, or SOURCE/NAME of what is inside it; borrowed during the call */
	int in_file;	      /* the bytes are those of the file of that name */
	unsigned char *bytes; /* else, if wanted: allocated by malloc, owned by the sink */
	size_t len_bytes;
	const char *problem;  /* why it cannot be an image; borrowed during the call; NULL */
};

struct gn_picture_sink {
	void *context;
	/* Whether the next call of picture needs bytes. */
	int (*wants)(void *context);
	enum gn_status (*picture)(void *context, const struct gn_picture *picture, struct gn_err *err);
};

/* Errors: a source that is missing, no archive or damaged (GN_ERR_NOT_FOUND, GN_ERR_DATA, GN_ERR_IO), and those of the sink, which end
 * the walk. key_file is that of datasets, gn_dataset_unlock(); may be NULL. */
enum gn_status gn_pictures_walk(const char *const *sources, size_t count, const struct gn_picture_sink *sink, const char *key_file,
				struct gn_err *err);

/* As gannet pack has it by default. */
#define GN_PICTURE_QUALITY 95

/* Makes an RGB or grey JPEG of an image: PNG and CMYK are converted at this quality, others unchanged;
 * exif_rotate turns those whose EXIF orientation says so. Takes *bytes and may replace it.
 * converted: whether it has; may be NULL. GN_ERR_DATA for what is neither. */
enum gn_status gn_picture_to_jpeg(unsigned char **bytes, size_t *len_bytes, int quality, int exif_rotate, int *converted,
				  struct gn_err *err);

#endif
