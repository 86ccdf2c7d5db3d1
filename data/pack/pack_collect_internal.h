/* The first pass: the walk over the sources (pack_collect.c) and its jobs, one per image (pack_job.c). Private to these two.
 */
#ifndef GN_DATA_PACK_PACK_COLLECT_INTERNAL_H
#define GN_DATA_PACK_PACK_COLLECT_INTERNAL_H

#include "data/pack/labels.h"
#include "data/pack/pack_parts_internal.h"
#include "src/base/status.h"

#include <pthread.h>
#include <stddef.h>
#include <stdint.h>

struct gn_pack_collector {
	struct gn_pack_set *set;
	const struct gn_pack_options *options;
	struct gn_thread_pool *pool;
	uint32_t source; /* index of the source being walked */
	uint32_t met;	 /* files so far */
	struct gn_pack_job **links; /* hard links of archives, which wait for what they name */
	size_t link_count;
	struct gn_pack_levels *levels; /* without labels */
	struct gn_labels *labels;      /* or NULL */
	unsigned char *labels_met;     /* by label: 1 when an image has it */
	pthread_mutex_t lock;
	pthread_cond_t landed;
	/* protected by lock: */
	uint64_t flight_bytes;
	uint64_t warnings;
	struct gn_err failure; /* the first failure that ends the pack */
	int failed;
};

/* One image. The worker frees it. */
struct gn_pack_job {
	struct gn_pack_collector *c;
	char *name;
	unsigned char *bytes; /* NULL: in a file, not read yet */
	int in_file;
	size_t len_bytes;
	size_t flight_bytes;
	uint32_t source, class_id;
	uint64_t synthetic; /* index + 1, or 0 */
	const char *problem;
	uint32_t number;  /* in the order of the walk */
	char *same_as;	  /* a hard link to this file of the source; NULL */
};

/* Creates a job for image name of the current source; NULL when out of memory. */
struct gn_pack_job *gn_pack_job_new(struct gn_pack_collector *c, const char *name);
void gn_pack_job_free(struct gn_pack_job *job);
/* Adds an image to the set, which takes its name. Any thread. */
enum gn_status gn_pack_append_item(struct gn_pack_collector *c, const struct gn_pack_item *item, struct gn_err *err);
/* Takes ownership of job. Blocks while too many bytes are in flight. GN_ERR_STOPPED, or the failure of an earlier job that ended
 * the pack. */
enum gn_status gn_pack_job_submit(struct gn_pack_collector *c, struct gn_pack_job *job, struct gn_err *err);

/* Synthetic images that a network can learn: each class has gratings of a certain direction, pitch and colour, each image a random
 * phase, brightness and noise. */

struct gn_synthetic_shape {
	uint32_t classes;	/* image index belongs to class index % classes */
	uint32_t height, width; /* pixels */
};

/* Encodes image number index (< 2^32) as a colour JPEG; the caller frees *jpeg. GN_ERR_NO_MEMORY. */
enum gn_status gn_synthetic_jpeg(const struct gn_synthetic_shape *shape, uint64_t seed, uint64_t index, int quality,
				 unsigned char **jpeg, size_t *jpeg_bytes, struct gn_err *err);

#endif
