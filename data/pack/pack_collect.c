/* The first pass: walks the sources, submits every image to the workers, and determines its class. */
#include "data/pack/pack_collect_internal.h"

#include "data/pack/source.h"
#include "data/sample/image.h"
#include "data/shard/shard.h"
#include "src/base/philox.h"
#include "src/base/text.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Reports an image without a line. If its name without the extension has a line, all names of the file may lack extensions: this is
 * reported once instead of for every image. */
static enum gn_status note_unlabelled(const struct gn_pack_collector *c, const char *file, struct gn_pack_job *job,
				      struct gn_err *err)
{
	const char *dot = strrchr(file, '.');
	char stem[GN_SHARD_NAME_MAX + 1];
	uint32_t index;

	snprintf(stem, sizeof stem, "%.*s", dot ? (int)(dot - file) : 0, file);
	if (!gn_labels_find(c->labels, stem, &index) || c->labels_met[index]) {
		job->problem = "has no line in the labels file";
		return GN_OK;
	}
	job->problem = "has no line in the labels file, but its name without the extension has";
	if (c->options->skip_bad)
		return GN_OK;
	return gn_err_set(err, GN_ERR_DATA, "%s, line %u: no image '%s': the image is called %s; a line names the image with its "
			  "ending", c->options->labels_file, gn_labels_line(c->labels, index), stem, file);
}

/* The class by the image's line in the labels file, independent of its folder. */
static enum gn_status label_class(struct gn_pack_collector *c, const char *file, struct gn_pack_job *job, struct gn_err *err)
{
	const struct gn_pack_options *o = c->options;
	char name[GN_SHARD_NAME_MAX];
	uint32_t index;

	if (!gn_labels_find(c->labels, file, &index))
		return job->problem ? GN_OK : note_unlabelled(c, file, job, err);
	c->labels_met[index] = 1;
	gn_text_valid(gn_labels_class(c->labels, index), name, sizeof name);
	if (o->classes_file && !gn_names_find(c->set->classes, name, NULL))
		return gn_err_set(err, GN_ERR_DATA, "%s, line %u: class '%s' is not in %s", o->labels_file,
				  gn_labels_line(c->labels, index), name, o->classes_file);
	return gn_names_add(c->set->classes, name, &job->class_id, err);
}

/* Takes the job of a hard link, for resolve_links(). */
static enum gn_status keep_link(struct gn_pack_collector *c, struct gn_pack_job *job, const char *same_as, struct gn_err *err)
{
	struct gn_pack_job **links = realloc(c->links, (c->link_count + 1) * sizeof *links);

	c->links = links ? links : c->links;
	job->same_as = strdup(same_as);
	if (links && job->same_as) {
		c->links[c->link_count++] = job;
		return GN_OK;
	}
	gn_pack_job_free(job);
	return gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for a hard link to %s", same_as);
}

static void key_of(char key[GN_SHARD_NAME_MAX + 16], uint32_t source, const char *name)
{
	snprintf(key, GN_SHARD_NAME_MAX + 16, "%u/%s", source, name);
}

/* A hard link is another image with the bytes of the file that it names, or as bad as that. found: items by number in names. */
static enum gn_status resolve_link(struct gn_pack_collector *c, const struct gn_names *names, uint64_t *found, struct gn_pack_job *job,
				   struct gn_err *err)
{
	char key[GN_SHARD_NAME_MAX + 16];
	struct gn_pack_item item;
	enum gn_status status;
	uint32_t id;

	key_of(key, job->source, job->same_as);
	if (!gn_names_find(names, key, &id) || found[id] == UINT64_MAX) {
		job->problem = "a hard link to a file that is no image of the archive";
		return gn_pack_job_submit(c, job, err);
	}
	item = c->set->items[found[id]];
	item.name = job->name;
	item.number = job->number;
	item.class_id = job->class_id;
	key_of(key, job->source, job->name);
	if (gn_names_find(names, key, &id))
		found[id] = c->set->count;
	status = gn_pack_append_item(c, &item, err);
	if (!status)
		job->name = NULL;
	gn_pack_job_free(job);
	return status;
}

/* After the walk and its jobs. */
static enum gn_status resolve_links(struct gn_pack_collector *c, struct gn_err *err)
{
	uint64_t *found = malloc((c->link_count + 1) * sizeof *found);
	char key[GN_SHARD_NAME_MAX + 16];
	struct gn_names *names = NULL;
	uint32_t id;
	enum gn_status status = found ? gn_names_create(&names, err) : gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for hard links");

	for (size_t i = 0; i < c->link_count && !status; i++) {
		found[i] = UINT64_MAX;
		key_of(key, c->links[i]->source, c->links[i]->same_as);
		status = gn_names_add(names, key, NULL, err);
	}
	for (uint64_t i = 0; i < c->set->count && !status && c->link_count; i++) {
		key_of(key, c->set->items[i].source, c->set->items[i].name);
		if (gn_names_find(names, key, &id))
			found[id] = i;
	}
	for (size_t i = 0; i < c->link_count && !status; i++) {
		status = resolve_link(c, names, found, c->links[i], err);
		c->links[i] = NULL;
	}
	gn_names_destroy(names);
	free(found);
	return status;
}

static enum gn_status take_file(void *context, const struct gn_source_file *file, struct gn_err *err)
{
	struct gn_pack_collector *c = context;
	struct gn_pack_job *job = gn_pack_job_new(c, file->name);
	enum gn_status status = GN_OK;

	if (!job) {
		free(file->bytes);
		return gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for %s", file->name);
	}
	job->bytes = file->bytes;
	job->in_file = !file->bytes;
	job->len_bytes = job->flight_bytes = file->len_bytes;
	job->problem = file->problem;
	job->number = c->met++;
	if (c->labels)
		status = label_class(c, file->name, job, err);
	else if (!file->levels.first && !job->problem)
		job->problem = gn_text_ends_with(file->name, ".cls") ? "a label of a webdataset: unpack its tars, and give the classes with --labels"
								    : "lies in no class folder";
	else if (file->levels.first && !file->is_link)
		status = gn_pack_levels_note(c->levels, c->set, c->source, file->name, &file->levels, 0, &job->class_id, err);
	if (status) {
		gn_pack_job_free(job);
		return status;
	}
	return file->same_as && !job->problem ? keep_link(c, job, file->same_as, err) : gn_pack_job_submit(c, job, err);
}

static enum gn_status take_empty(void *context, const char *name, const struct gn_source_levels *levels, struct gn_err *err)
{
	struct gn_pack_collector *c = context;
	uint32_t id;

	return c->labels ? GN_OK : gn_pack_levels_note(c->levels, c->set, c->source, name, levels, 1, &id, err);
}

/* Lines without an image indicate a wrong labels file or an incomplete source. */
static enum gn_status check_labels(const struct gn_pack_collector *c, struct gn_err *err)
{
	uint32_t missing = 0, first = 0, count = gn_labels_count(c->labels);
	char shown[512];
	int heading;

	for (uint32_t i = count; i-- > 0;)
		if (!c->labels_met[i]) {
			missing++;
			first = i;
		}
	if (!missing)
		return GN_OK;
	heading = gn_labels_line(c->labels, first) == 1 && missing < count;
	gn_err_set(err, GN_ERR_DATA, "%s, line %u: no source has an image %s; %u such line%s%s", c->options->labels_file,
		   gn_labels_line(c->labels, first), gn_text_exact(gn_labels_image(c->labels, first), shown, sizeof shown), missing, missing == 1 ? "" : "s",
		   heading ? "; if the first line is a heading, it must be name,class" : "");
	if (!c->options->skip_bad)
		return GN_ERR_DATA;
	gn_log_warn(c->options->log, "%s", err->text);
	return GN_OK;
}

static enum gn_status walk_sources(struct gn_pack_collector *c, struct gn_err *err)
{
	const struct gn_source_sink sink = {c, take_file, take_empty, &c->set->passed};
	enum gn_status status = GN_OK;

	for (; c->source < c->options->source_count && !status; c->source++)
		status = gn_source_walk(c->options->sources[c->source], c->pool, &sink, err);
	if (!status && c->labels)
		status = check_labels(c, err);
	return status;
}

/* "c00042". */
static void synthetic_class_name(uint32_t class_id, char *out, size_t size)
{
	snprintf(out, size, "c%05u", class_id);
}

static enum gn_status make_synthetic(struct gn_pack_collector *c, struct gn_err *err)
{
	const struct gn_pack_options *o = c->options;
	char name[64];
	enum gn_status status = GN_OK;

	for (uint32_t i = 0; i < o->synthetic_classes && !status; i++) {
		synthetic_class_name(i, name, sizeof name);
		status = gn_names_add(c->set->classes, name, NULL, err);
	}
	for (uint64_t i = 0; i < o->synthetic_count && !status; i++) {
		uint32_t class_id = (uint32_t)(i % o->synthetic_classes);
		char class_name[32];
		struct gn_pack_job *job;

		synthetic_class_name(class_id, class_name, sizeof class_name);
		snprintf(name, sizeof name, "%s/%08llu.jpg", class_name, (unsigned long long)i);
		job = gn_pack_job_new(c, name);
		if (!job)
			return gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for %s", name);
		job->class_id = class_id;
		job->synthetic = i + 1;
		job->flight_bytes = (size_t)o->synthetic_height * o->synthetic_width * 4;
		status = gn_pack_job_submit(c, job, err);
	}
	return status;
}

static enum gn_status verdict(const struct gn_pack_collector *c, struct gn_err *err)
{
	if (c->failed)
		return gn_err_set(err, c->failure.status, "%s", c->failure.text);
	if (c->set->bad && !c->options->skip_bad)
		return gn_err_set(err, GN_ERR_DATA, "%llu bad image%s: repair %s, or skip %s with --skip-bad",
				  (unsigned long long)c->set->bad, c->set->bad == 1 ? "" : "s",
				  c->set->bad == 1 ? "it" : "them", c->set->bad == 1 ? "it" : "them");
	return GN_OK;
}

static enum gn_status collect_init(struct gn_pack_collector *c, struct gn_err *err)
{
	const struct gn_pack_options *o = c->options;
	enum gn_status status = GN_OK;

	if (o->labels_file)
		status = gn_labels_load(o->labels_file, &c->labels, err);
	else
		status = gn_pack_levels_create(&c->levels, o, err);
	if (!status && c->labels && !(c->labels_met = calloc(gn_labels_count(c->labels), 1)))
		status = gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for %u labels", gn_labels_count(c->labels));
	if (!status)
		status = gn_thread_pool_create(o->threads, (size_t)o->threads * 4, &c->pool, err);
	return status;
}

static void collect_release(struct gn_pack_collector *c)
{
	gn_pack_levels_destroy(c->levels);
	gn_labels_destroy(c->labels);
	for (size_t i = 0; i < c->link_count; i++)
		if (c->links[i])
			gn_pack_job_free(c->links[i]);
	free(c->links);
	free(c->labels_met);
	pthread_cond_destroy(&c->landed);
	pthread_mutex_destroy(&c->lock);
}

enum gn_status gn_pack_collect(struct gn_pack_set *set, const struct gn_pack_options *options, struct gn_err *err)
{
	struct gn_pack_collector c = {.set = set, .options = options};
	enum gn_status status;

	pthread_mutex_init(&c.lock, NULL);
	pthread_cond_init(&c.landed, NULL);
	status = collect_init(&c, err);
	if (!status) {
		gn_progress_bar_begin(options->progress, "checking", "images", options->synthetic_count);
		status = options->synthetic_count ? make_synthetic(&c, err) : walk_sources(&c, err);
		gn_thread_pool_wait(c.pool);
		if (!status)
			status = resolve_links(&c, err);
		gn_thread_pool_wait(c.pool);
		gn_thread_pool_destroy(c.pool);
		gn_progress_bar_end(options->progress);
	}
	if (!status)
		status = verdict(&c, err);
	if (!status && !options->synthetic_count && !c.labels)
		status = gn_pack_levels_resolve(c.levels, set, err);
	for (uint64_t i = 0; i < set->count && !status; i++) {
		set->converted += set->items[i].converted;
		set->warned += set->items[i].warned;
		set->rotated += set->items[i].rotated;
	}
	collect_release(&c);
	return status;
}

#define GRATINGS 2
#define TWO_PI 6.283185307179586

/* Wave numbers in cycles per image, and the amplitude per colour. */
struct grating {
	double along, down, phase;
	double colour[3];
};

/* Independent of the seed: training and validation sets with different seeds have the same classes. */
static void class_gratings(uint32_t class_id, struct grating *g)
{
	struct gn_rng rng;

	gn_rng_init(&rng, 0, GN_RNG_SYNTHETIC, UINT32_MAX, class_id);
	for (int i = 0; i < GRATINGS; i++) {
		double angle = TWO_PI / 2 * gn_rng_uniform(&rng), cycles = 1.5 + 3.5 * gn_rng_uniform(&rng);

		g[i].along = cycles * cos(angle);
		g[i].down = cycles * sin(angle);
		for (int c = 0; c < 3; c++)
			g[i].colour[c] = 60 * gn_rng_uniform(&rng) - 30;
	}
}

static void draw(const struct gn_synthetic_shape *shape, struct grating *g, struct gn_rng *rng, unsigned char *pixels)
{
	double light = 118 + 20 * gn_rng_uniform(rng);

	for (int i = 0; i < GRATINGS; i++)
		g[i].phase = TWO_PI * gn_rng_uniform(rng);
	for (uint32_t y = 0; y < shape->height; y++) {
		for (uint32_t x = 0; x < shape->width; x++) {
			double wave[GRATINGS];
			uint32_t noise = gn_rng_u32(rng);

			for (int i = 0; i < GRATINGS; i++)
				wave[i] = sin(TWO_PI * (g[i].along * x / shape->width + g[i].down * y / shape->height) +
					      g[i].phase);
			for (int c = 0; c < 3; c++) {
				double value = light + ((noise >> (8 * c)) & 31) - 15.5;

				for (int i = 0; i < GRATINGS; i++)
					value += g[i].colour[c] * wave[i];
				*pixels++ = value <= 0 ? 0 : value >= 255 ? 255 : (unsigned char)(value + 0.5);
			}
		}
	}
}

enum gn_status gn_synthetic_jpeg(const struct gn_synthetic_shape *shape, uint64_t seed, uint64_t index, int quality,
				 unsigned char **jpeg, size_t *jpeg_bytes, struct gn_err *err)
{
	struct gn_image_info info = {.width = (uint16_t)shape->width, .height = (uint16_t)shape->height,
				     .components = 3};
	unsigned char *pixels = malloc((size_t)shape->height * shape->width * 3);
	struct grating gratings[GRATINGS];
	enum gn_status status;
	struct gn_rng rng;

	if (!pixels)
		return gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for %ux%u pixels", shape->width, shape->height);
	class_gratings((uint32_t)(index % shape->classes), gratings);
	gn_rng_init(&rng, seed, GN_RNG_SYNTHETIC, 0, (uint32_t)index);
	draw(shape, gratings, &rng, pixels);
	status = gn_image_encode_jpeg(pixels, &info, quality, 0, jpeg, jpeg_bytes, err);
	free(pixels);
	return status;
}
