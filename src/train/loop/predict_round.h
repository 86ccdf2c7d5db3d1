/* The images of one rank between two gathers of a prediction: decoded by worker threads into one batch. Private to predict.c.
 *
 * Thread safety: one thread adds and waits; workers work inside.
 */
#ifndef GN_TRAIN_LOOP_PREDICT_ROUND_H
#define GN_TRAIN_LOOP_PREDICT_ROUND_H

#include "data/loader/sample_pipeline.h"
#include "data/pack/pictures.h"

enum { GN_PREDICT_WHY = 152 };

struct gn_predict_decoder;

/* The slots of a batch: images [batch][channels][side][side], zero where there is none. */
struct gn_predict_round {
	float *images;
	struct gn_predict_slot *slots; /* [batch] */
	uint32_t count;		       /* slots in use */
};

struct gn_predict_slot {
	uint32_t name_crc32c;
	int is_oriented; /* the file has an EXIF orientation */
	char why[GN_PREDICT_WHY]; /* why there is no image; "" */
};

/* threads workers. options is borrowed. exif_rotate: images are turned as their EXIF orientation says. */
enum gn_status gn_predict_decoder_create(const struct gn_loader_options *options, int exif_rotate, struct gn_predict_decoder **out,
					   struct gn_err *err);
void gn_predict_decoder_destroy(struct gn_predict_decoder *d);
enum gn_status gn_predict_round_init(struct gn_predict_round *r, const struct gn_loader_options *options, struct gn_err *err);
void gn_predict_round_release(struct gn_predict_round *r);
/* Gives the next slot of r to a picture, whose bytes it takes; it is decoded by a worker. */
enum gn_status gn_predict_decoder_add(struct gn_predict_decoder *d, struct gn_predict_round *r, const struct gn_picture *picture,
				      struct gn_err *err);
/* Until all pictures that were added are decoded. GN_OK, or a failure that is no fault of an image. */
enum gn_status gn_predict_decoder_wait(struct gn_predict_decoder *d, struct gn_err *err);

#endif
