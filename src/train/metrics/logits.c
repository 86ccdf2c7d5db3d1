#include "src/train/metrics/logits.h"

#include "src/base/alloc.h"
#include "src/base/file.h"
#include "transport/coll/agree.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* NumPy's format 1.0: magic, version, length of the header in two bytes, the header as a Python literal, padded with spaces to a
 * multiple of 64 and ended by a line break. https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html */
enum { HEADER = GN_NPY_HEADER_BYTES, LITERAL_AT = 10 };

struct gn_logits {
	char *path;
	char *bytes; /* as in the file; the header is written at the end */
	uint64_t rows;
	uint32_t classes;
};

enum gn_status gn_logits_create(const char *path, uint64_t rows, uint32_t classes, const struct gn_comm *comm,
				struct gn_logits **out, struct gn_err *err)
{
	struct gn_logits *l = calloc(1, sizeof *l);
	enum gn_status status = gn_comm_rank(comm) == 0 ? gn_file_check_folder(path, "logits", err) : GN_OK;

	if (!l)
		return gn_err_set(err, GN_ERR_NO_MEMORY, "no memory");
	l->rows = rows;
	l->classes = classes;
	l->path = strdup(path);
	if (!status && rows < SIZE_MAX / 8 / classes)
		l->bytes = gn_alloc_aligned(HEADER + rows * classes * sizeof(float));
	if (!status && (!l->path || !l->bytes))
		status = gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for the logits of %llu images and %u classes",
				    (unsigned long long)rows, classes);
	if (status) {
		gn_logits_destroy(l);
		return status;
	}
	memset(l->bytes, 0, HEADER + rows * classes * sizeof(float));
	*out = l;
	return GN_OK;
}

void gn_logits_destroy(struct gn_logits *l)
{
	if (!l)
		return;
	free(l->path);
	free(l->bytes);
	free(l);
}

float *gn_logits_rows(struct gn_logits *l)
{
	return (float *)(void *)(l->bytes + HEADER);
}

void gn_npy_header(uint64_t rows, uint32_t classes, char header[GN_NPY_HEADER_BYTES])
{
	char literal[HEADER - LITERAL_AT + 1];

	snprintf(literal, sizeof literal, "{'descr': '<f4', 'fortran_order': False, 'shape': (%llu, %u), }",
		 (unsigned long long)rows, classes);
	memset(header, ' ', HEADER);
	memcpy(header, "\x93NUMPY\x01\x00", 8);
	header[8] = HEADER - LITERAL_AT;
	header[9] = 0;
	memcpy(header + LITERAL_AT, literal, strlen(literal));
	header[HEADER - 1] = '\n';
}

enum gn_status gn_logits_write(struct gn_logits *l, struct gn_comm *comm, struct gn_err *err)
{
	size_t count = l->rows * l->classes;
	/* every row has one rank's numbers; the other ranks' are zero */
	enum gn_status status = gn_comm_allreduce(comm, gn_logits_rows(l), count, GN_F32, NULL, err);

	if (status)
		return status;
	if (gn_comm_rank(comm) == 0) {
		gn_npy_header(l->rows, l->classes, l->bytes);
		status = gn_file_replace(l->path, l->bytes, HEADER + count * sizeof(float), err);
	}
	return gn_agree_status(comm, status, err);
}
