/* Datasets and loaders of the interface: the batches of gannet train and eval. */
#include "src/lib/lib_internal.h"

#include "data/loader/loader.h"
#include "data/sample/order.h"
#include "src/base/log.h"
#include "src/cmd/sample_options.h"
#include "src/train/loop/input.h"
#include "src/train/loop/staging.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct gannet_dataset {
	struct gn_dataset *data;
	struct gn_log *log;
	struct gn_staging *staging;
	char *stage;
};

struct gannet_loader {
	struct gn_loader *loader;
	struct gn_balance *balance;
	struct gn_loader_options options;
};

#define FIELD(name) offsetof(struct gn_train_options, name)

static const struct gn_option sample_options[] = {GN_CMD_SAMPLE_OPTIONS(FIELD)};
static const struct gn_command command = {.name = "train", GN_OPTIONS(sample_options)};

gannet_status gannet_dataset_open(const char *folder, const char *key_file, gannet_dataset **out)
{
	gannet_dataset *d = calloc(1, sizeof *d);
	struct gn_err err;
	enum gn_status status = d ? gn_lib_log(NULL, &d->log, &err) : gn_err_set(&err, GN_ERR_NO_MEMORY, "no memory for a dataset");

	if (!status)
		status = gn_dataset_open(folder, &d->data, &err);
	if (!status)
		status = gn_dataset_unlock(d->data, key_file, &err);
	if (!status)
		*out = d;
	else
		gannet_dataset_close(d);
	return gn_lib_result(status, &err);
}

void gannet_dataset_close(gannet_dataset *d)
{
	if (!d)
		return;
	gn_staging_end(d->staging);
	gn_dataset_close(d->data);
	gn_log_destroy(d->log);
	free(d->stage);
	free(d);
}

gannet_status gannet_dataset_stage(gannet_dataset *d, const char *folder, int tells)
{
	struct gn_staging_options o = {.datasets = {d->data}, .tells = tells, .log = d->log};
	struct gn_err err;
	enum gn_status status;

	if (d->staging)
		return gn_lib_usage("%s is staged already, to %s", gn_dataset_directory(d->data), d->stage);
	o.directory = d->stage = strdup(folder);
	status = d->stage ? gn_staging_check(&o, &err) : gn_err_set(&err, GN_ERR_NO_MEMORY, "no memory for a path");
	if (!status)
		status = gn_staging_begin(&o, &d->staging, &err);
	if (status) {
		free(d->stage);
		d->stage = NULL;
	}
	return gn_lib_result(status, &err);
}

uint64_t gannet_dataset_count(const gannet_dataset *d)
{
	return gn_dataset_count(d->data);
}

size_t gannet_dataset_max_bytes(const gannet_dataset *d)
{
	return gn_dataset_max_length(d->data);
}

const char *gannet_dataset_digest(const gannet_dataset *d)
{
	return gn_dataset_digest(d->data);
}

const char *gannet_dataset_class(const gannet_dataset *d, int label)
{
	return label >= 0 && (uint32_t)label < gn_dataset_classes(d->data) ? gn_dataset_class_name(d->data, (uint32_t)label) : NULL;
}

int gannet_dataset_label(const gannet_dataset *d, uint64_t index)
{
	struct gn_sample sample;

	if (index >= gn_dataset_count(d->data))
		return -1;
	gn_dataset_sample(d->data, index, &sample);
	return (int)sample.label;
}

gannet_status gannet_dataset_read(const gannet_dataset *d, uint64_t index, void *buffer, size_t *len_bytes)
{
	struct gn_sample sample;
	struct gn_err err;
	enum gn_status status;

	if (index >= gn_dataset_count(d->data))
		return gn_lib_usage("%s has %llu images, and no number %llu", gn_dataset_directory(d->data),
				    (unsigned long long)gn_dataset_count(d->data), (unsigned long long)index);
	gn_dataset_sample(d->data, index, &sample);
	status = gn_dataset_read(d->data, index, buffer, &err);
	*len_bytes = status ? 0 : sample.length_bytes;
	return gn_lib_result(status, &err);
}

/* What options of gannet train, words that end with NULL, say of images. */
static enum gn_status read_words(const gannet_dataset *d, const gannet_loader_options *o, struct gannet_loader *l, struct gn_err *err)
{
	char *words[66] = {(char *)"train"};
	struct gn_train_options t = {0};
	struct gn_input_spec input = {.exif_rotate = -1};
	struct gn_text_list none = {0};
	int count = 1, help = 0, side, channels;
	enum gn_status status;

	for (; o->words && o->words[count - 1]; count++) {
		if (count > 64)
			return gn_err_set(err, GN_ERR_USAGE, "more than 64 options of images");
		words[count] = (char *)(uintptr_t)o->words[count - 1];
	}
	status = gn_options_parse(&command, count, words, &t, &none, &help, err);
	if (!status && help)
		status = gn_err_set(err, GN_ERR_USAGE, "--help is not an option of images: see gannet train --help");
	if (status)
		return status;
	side = t.side ? (int)t.side : 224;
	channels = t.channels ? (int)t.channels : 3;
	status = gn_input_of_train(&t, channels, 1, &input, err);
	if (!status && o->evaluates)
		gn_input_loader_options(&input, channels, side, &l->options);
	else if (!status)
		status = gn_input_train_options(&t, &input, channels, side, side, &l->options, err);
	if (!status && !o->evaluates)
		status = gn_input_sampling(t.sampling, d->data, (uint64_t)t.seed, &l->balance, err);
	l->options.balance = l->balance;
	return status;
}

static enum gn_status create(const gannet_dataset *d, const gannet_loader_options *o, struct gannet_loader *l, struct gn_err *err)
{
	static const enum gn_sample_type types[] = {[GANNET_F32] = GN_SAMPLE_F32, [GANNET_BYTES] = GN_SAMPLE_U8, [GANNET_BF16] = GN_SAMPLE_BF16};
	uint32_t threads = o->threads > 0 ? (uint32_t)o->threads : 2;
	enum gn_status status;

	if (o->type != GANNET_F32 && o->type != GANNET_BYTES && o->type != GANNET_BF16)
		return gn_err_set(err, GN_ERR_USAGE, "images are GANNET_F32, GANNET_BF16 or GANNET_BYTES");
	if (o->rank < 0 || o->size < 0 || o->batch < 0 || o->threads < 0)
		return gn_err_set(err, GN_ERR_USAGE, "rank, size, batch and threads of a loader are not below 0");
	l->options = (struct gn_loader_options){
		.rank = (uint32_t)o->rank, .ranks = o->size ? (uint32_t)o->size : 1, .batch = (uint32_t)o->batch,
		.threads = threads, .prefetch_bytes = o->prefetch_bytes ? o->prefetch_bytes : (size_t)threads << 25,
		.in_order = o->in_order, .keeps_last = o->keeps_last, .type = types[o->type], .channels_last = o->channels_last};
	status = read_words(d, o, l, err);
	return status ? status : gn_loader_create(d->data, &l->options, &l->loader, err);
}

gannet_status gannet_loader_open(gannet_dataset *d, const gannet_loader_options *options, gannet_loader **out)
{
	gannet_loader_options o = {0};
	struct gannet_loader *l;
	struct gn_err err;
	enum gn_status status;

	if (gn_lib_check_size("gannet_loader_options", options->size_bytes, sizeof o))
		return GANNET_USAGE;
	memcpy(&o, options, options->size_bytes);
	l = calloc(1, sizeof *l);
	status = l ? create(d, &o, l, &err) : gn_err_set(&err, GN_ERR_NO_MEMORY, "no memory for a loader");
	if (!status)
		*out = l;
	else
		gannet_loader_close(l);
	return gn_lib_result(status, &err);
}

void gannet_loader_close(gannet_loader *l)
{
	if (!l)
		return;
	gn_loader_destroy(l->loader);
	gn_balance_destroy(l->balance);
	free(l);
}

gannet_status gannet_loader_shape(const gannet_loader *l, gannet_loader_facts *out)
{
	gannet_loader_facts f = {sizeof f, gn_loader_batches(l->loader), l->options.batch * gn_loader_sample_bytes(&l->options),
				 (int)gn_loader_slots(l->loader), (int)l->options.channels, (int)l->options.height, (int)l->options.width,
				 gn_loader_mixes(&l->options)};

	if (gn_lib_check_size("gannet_loader_facts", out->size_bytes, sizeof f))
		return GANNET_USAGE;
	f.size_bytes = out->size_bytes;
	memcpy(out, &f, f.size_bytes);
	return GANNET_OK;
}

void gannet_loader_lend(gannet_loader *l, int slot, void *memory)
{
	gn_loader_lend(l->loader, (uint32_t)slot, memory);
}

gannet_status gannet_loader_start(gannet_loader *l, uint32_t epoch, uint64_t samples_done)
{
	struct gn_err err;

	return gn_lib_result(gn_loader_start(l->loader, epoch, samples_done, &err), &err);
}

gannet_status gannet_loader_next(gannet_loader *l, void *memory, gannet_batch *out)
{
	gannet_batch batch = {0};
	struct gn_batch b;
	struct gn_err err;
	enum gn_status status;

	if (gn_lib_check_size("gannet_batch", out->size_bytes, sizeof batch))
		return GANNET_USAGE;
	status = gn_loader_next(l->loader, &b, &err);
	if (status && status != GN_ERR_NOT_FOUND)
		return gn_lib_result(status, &err);
	if (!status)
		batch = (gannet_batch){0, (void *)(uintptr_t)b.images, b.labels, b.pair_labels, b.lambdas, b.indices, (int)b.count, b.wait_s};
	if (!status && memory)
		gn_loader_swap(l->loader, memory);
	batch.size_bytes = out->size_bytes;
	memcpy(out, &batch, batch.size_bytes);
	return GANNET_OK;
}
