/* The first pass from inside: what walks the sources (pack_collect.c) and the jobs it makes, one an image (pack_job.c).
 * Private to those two.
 */
#ifndef GN_DATA_PACK_PACK_COLLECT_INTERNAL_H
#define GN_DATA_PACK_PACK_COLLECT_INTERNAL_H

#include "data/pack/labels.h"
#include "data/pack/pack_parts_internal.h"

#include <pthread.h>

struct gn_pack_collector {
	struct gn_pack_set *set;
	const struct gn_pack_options *options;
	struct gn_thread_pool *pool;
	uint32_t source; /* being walked */
	struct gn_pack_levels *levels; /* without labels */
	struct gn_labels *labels;      /* or NULL */
	unsigned char *labels_met;     /* by label */
	pthread_mutex_t lock;
	pthread_cond_t landed;
	/* under lock: */
	uint64_t flight_bytes;
	uint64_t warnings;
	struct gn_err failure; /* the first that ends the pack */
	int failed;
};

/* One image on its way through a worker, which frees it. */
struct gn_pack_job {
	struct gn_pack_collector *c;
	char *name;
	unsigned char *bytes; /* NULL: in the file, not read yet */
	int in_file;
	size_t len_bytes;
	size_t flight_bytes;
	uint32_t source, class_id;
	uint64_t synthetic; /* index + 1, or 0 */
	const char *problem;
};

/* A job for the image name of the source being walked; NULL without memory. */
struct gn_pack_job *gn_pack_job_new(struct gn_pack_collector *c, const char *name);
void gn_pack_job_free(struct gn_pack_job *job);
/* Takes job over; waits while too many bytes are in flight. GN_ERR_STOPPED, and what an earlier job ended the pack with. */
enum gn_status gn_pack_job_submit(struct gn_pack_collector *c, struct gn_pack_job *job, struct gn_err *err);

#endif
