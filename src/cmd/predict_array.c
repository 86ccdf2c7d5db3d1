#include "src/cmd/predict_array.h"

#include "src/base/file.h"
#include "src/train/metrics/logits.h"

#include <errno.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct part {
	char path[PATH_MAX], temporary[PATH_MAX];
	FILE *file;
};

struct gn_predict_array {
	struct part rows, names;
	uint64_t count;
	int classes;
	float *none; /* [classes] NaN */
};

static enum gn_status open_part(struct part *p, struct gn_err *err)
{
	enum gn_status status = gn_file_check_replaceable(p->path, err);

	if (status)
		return status;
	if ((size_t)snprintf(p->temporary, sizeof p->temporary, "%s.tmp-%ld", p->path, (long)getpid()) >= sizeof p->temporary)
		return gn_err_set(err, GN_ERR_USAGE, "path too long: %s", p->path);
	p->file = fopen(p->temporary, "wxe");
	return p->file ? GN_OK : gn_err_errno(err, errno, "cannot create %s", p->temporary);
}

enum gn_status gn_predict_array_create(const char *path, int classes, struct gn_predict_array **out, struct gn_err *err)
{
	struct gn_predict_array *a = calloc(1, sizeof *a);
	size_t len = strlen(path), stem = len > 4 && !strcmp(path + len - 4, ".npy") ? len - 4 : len;
	char header[GN_NPY_HEADER_BYTES] = {0};
	enum gn_status status = GN_OK;

	if (a)
		a->none = calloc((size_t)classes, sizeof *a->none);
	if (!a || !a->none) {
		free(a);
		return gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for %d classes", classes);
	}
	a->classes = classes;
	for (int k = 0; k < classes; k++)
		a->none[k] = NAN;
	if (len + 16 >= sizeof a->names.path)
		status = gn_err_set(err, GN_ERR_USAGE, "path too long: %s", path);
	snprintf(a->rows.path, sizeof a->rows.path, "%s", path);
	snprintf(a->names.path, sizeof a->names.path, "%.*s.names.txt", (int)(stem < PATH_MAX - 16 ? stem : 0), path);
	if (!status)
		status = gn_file_check_folder(path, "npy", err);
	if (!status)
		status = open_part(&a->rows, err);
	if (!status)
		status = open_part(&a->names, err);
	if (!status && fwrite(header, sizeof header, 1, a->rows.file) != 1)
		status = gn_err_errno(err, errno, "cannot write %s", a->rows.temporary);
	if (status)
		gn_predict_array_destroy(a);
	else
		*out = a;
	return status;
}

static void drop(struct part *p)
{
	if (!p->file)
		return;
	fclose(p->file);
	unlink(p->temporary);
}

void gn_predict_array_destroy(struct gn_predict_array *a)
{
	if (!a)
		return;
	drop(&a->rows);
	drop(&a->names);
	free(a->none);
	free(a);
}

enum gn_status gn_predict_array_add(struct gn_predict_array *a, const struct gn_prediction *image, struct gn_err *err)
{
	const float *row = image->problem ? a->none : image->logits;

	if (fwrite(row, sizeof *row, (size_t)a->classes, a->rows.file) != (size_t)a->classes)
		return gn_err_errno(err, errno, "cannot write %s", a->rows.temporary);
	for (const char *c = image->name; *c; c++)
		putc(*c == '\n' || *c == '\r' ? ' ' : *c, a->names.file);
	putc('\n', a->names.file);
	a->count++;
	return ferror(a->names.file) ? gn_err_errno(err, errno, "cannot write %s", a->names.temporary) : GN_OK;
}

static enum gn_status finish_part(struct part *p, struct gn_err *err)
{
	FILE *file = p->file;
	int failed = fflush(file) || fsync(fileno(file));

	if (failed)
		return gn_err_errno(err, errno, "cannot write %s", p->temporary);
	if (rename(p->temporary, p->path))
		return gn_err_errno(err, errno, "cannot rename %s to %s", p->temporary, p->path);
	p->file = NULL;
	fclose(file);
	return gn_sync_parent(p->path, err);
}

enum gn_status gn_predict_array_finish(struct gn_predict_array *a, struct gn_err *err)
{
	char header[GN_NPY_HEADER_BYTES];
	enum gn_status status = finish_part(&a->names, err);

	gn_npy_header(a->count, (uint32_t)a->classes, header);
	if (!status && (fseek(a->rows.file, 0, SEEK_SET) || fwrite(header, sizeof header, 1, a->rows.file) != 1))
		status = gn_err_errno(err, errno, "cannot write %s", a->rows.temporary);
	return status ? status : finish_part(&a->rows, err);
}
