/* The logits of an evaluation as a file for other programs: NumPy's .npy, float32 [samples of the dataset][classes], rows in the
 * dataset's order. All ranks fill in their rows; rank 0 writes. Internal to src/train.
 */
#ifndef GN_TRAIN_METRICS_LOGITS_H
#define GN_TRAIN_METRICS_LOGITS_H

#include "transport/coll/comm.h"

struct gn_logits;

enum { GN_NPY_HEADER_BYTES = 128 };
/* The header of such a file with `rows` rows. */
void gn_npy_header(uint64_t rows, uint32_t classes, char header[GN_NPY_HEADER_BYTES]);

/* GN_ERR_USAGE on rank 0 when path is not writable. */
enum gn_status gn_logits_create(const char *path, uint64_t rows, uint32_t classes, const struct gn_comm *comm,
				struct gn_logits **out, struct gn_err *err);
void gn_logits_destroy(struct gn_logits *l);
/* [rows][classes], initially zero; each rank writes its own rows. */
float *gn_logits_rows(struct gn_logits *l);
/* Collective. The file is written atomically; all ranks agree on failure. */
enum gn_status gn_logits_write(struct gn_logits *l, struct gn_comm *comm, struct gn_err *err);

#endif
