#include "src/train/loop/predict.h"

#include "data/shard/manifest.h"
#include "src/base/crc32c.h"
#include "src/base/json.h"
#include "src/base/text.h"
#include "src/train/loop/input.h"
#include "src/train/loop/predict_round.h"
#include "src/train/plan/contention.h"
#include "src/train/plan/device.h"
#include "src/train/plan/plan.h"
#include "transport/coll/agree.h"

#include <inttypes.h>
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* What a rank tells of its round, followed by its slots and their logits. */
struct head {
	uint32_t seen; /* images of the round on all ranks: the same everywhere */
};

struct predictor {
	const struct gn_predict_options *options;
	const struct gn_predict_sink *sink;
	struct gn_comm *comm;
	struct gn_checkpoint_info info;
	struct gn_network network;
	struct gn_plan *plan;
	struct gn_loader_options loader;
	struct gn_predict_decoder *decoder;
	struct gn_predict_round rounds[2]; /* one is filled while the other is computed */
	uint32_t seen[2];
	char **names[2]; /* rank 0: [ranks x batch], of all images of the round */
	int current, waiting; /* waiting: the other round is decoded and not computed */
	struct gn_err failure; /* of this rank; the next agreement tells it */
	int agreed;	      /* the last failure is known to all */
	char *mine, *all;     /* records of the gather */
	size_t record_bytes;
	uint64_t images, bad, oriented;
};

static uint32_t round_size(const struct predictor *p)
{
	return (uint32_t)gn_comm_size(p->comm) * p->loader.batch;
}

static float *logits_of(const struct predictor *p, char *record)
{
	return (float *)(void *)(record + sizeof(struct head) + p->loader.batch * sizeof(struct gn_predict_slot));
}

static struct gn_predict_slot *slots_of(char *record)
{
	return (struct gn_predict_slot *)(void *)(record + sizeof(struct head));
}

static enum gn_status forward(struct predictor *p, int which, struct gn_err *err)
{
	const struct gn_predict_round *r = &p->rounds[which];
	const struct head head = {p->seen[which]};
	const float *logits;
	enum gn_status status = GN_OK;

	memcpy(p->mine, &head, sizeof head);
	memcpy(slots_of(p->mine), r->slots, r->count * sizeof *r->slots);
	if (r->count)
		status = gn_plan_forward(p->plan, r->images, 0, &logits, err);
	if (!status && r->count)
		memcpy(logits_of(p, p->mine), logits, r->count * (size_t)p->info.classes * sizeof *logits);
	return status;
}

static int all_finite(const float *x, int count)
{
	int finite = 1;

	for (int k = 0; k < count; k++)
		finite &= isfinite(x[k]) != 0;
	return finite;
}

/* Rank 0: image number i of a round, from its rank's record. */
static enum gn_status tell(struct predictor *p, int which, uint32_t i, struct gn_err *err)
{
	int ranks = gn_comm_size(p->comm), rank = (int)i % ranks;
	char *record = p->all + (size_t)rank * p->record_bytes;
	const struct gn_predict_slot *slot = &slots_of(record)[i / (uint32_t)ranks];
	struct gn_prediction image = {.name = p->names[which][i],
				      .logits = logits_of(p, record) + (size_t)(i / (uint32_t)ranks) * (size_t)p->info.classes};

	if (slot->name_crc32c != gn_crc32c(0, image.name, strlen(image.name)))
		return gn_err_set(err, GN_ERR_MISMATCH, "rank %d sees another image than rank 0, where it is %s: all ranks need the same "
				  "sources", rank, image.name);
	if (slot->why[0])
		image.problem = slot->why;
	else if (!all_finite(image.logits, (int)p->info.classes))
		image.problem = "the network's answer is not finite: it has diverged, or its weights are damaged";
	p->images++;
	p->bad += image.problem != NULL;
	p->oriented += (uint64_t)slot->is_oriented;
	return p->sink->image(p->sink->context, &image, err);
}

/* Collective: computes a decoded round, gathers it, and on rank 0 passes it on. A failure of that is told at the next one. */
static enum gn_status compute(struct predictor *p, int which, struct gn_err *err)
{
	enum gn_status status = p->failure.status;

	if (status)
		*err = p->failure;
	else
		status = forward(p, which, err);
	status = gn_agree_status(p->comm, status, err);
	if (!status)
		status = gn_agree_gather(p->comm, p->mine, p->record_bytes, p->all, err);
	for (int r = 0; r < gn_comm_size(p->comm) && !status; r++) {
		struct head head;

		memcpy(&head, p->all + (size_t)r * p->record_bytes, sizeof head);
		if (head.seen != p->seen[which])
			status = gn_err_set(err, GN_ERR_MISMATCH, "rank %d sees more or fewer images than rank %d: all ranks need the same "
					    "sources", r, gn_comm_rank(p->comm));
	}
	p->agreed = status != GN_OK;
	for (uint32_t i = 0; gn_comm_rank(p->comm) == 0 && i < p->seen[which] && !status && !p->failure.status; i++)
		tell(p, which, i, &p->failure);
	return status;
}

static void empty(struct predictor *p, int which)
{
	for (uint32_t i = 0; p->names[which] && i < p->seen[which]; i++)
		free(p->names[which][i]);
	p->seen[which] = p->rounds[which].count = 0;
}

/* The current round is full: computes the other one while this is decoded, then exchanges them. */
static enum gn_status turn(struct predictor *p, struct gn_err *err)
{
	int other = !p->current;
	enum gn_status status = p->waiting ? compute(p, other, err) : GN_OK;

	if (status)
		return status;
	if (!p->failure.status)
		gn_predict_decoder_wait(p->decoder, &p->failure);
	empty(p, other);
	p->waiting = 1;
	p->current = other;
	return GN_OK;
}

static int wants(void *context)
{
	const struct predictor *p = context;

	return (int)(p->seen[p->current] % (uint32_t)gn_comm_size(p->comm)) == gn_comm_rank(p->comm);
}

static enum gn_status take(void *context, const struct gn_picture *picture, struct gn_err *err)
{
	struct predictor *p = context;
	enum gn_status status = GN_OK;
	char *name = gn_comm_rank(p->comm) == 0 ? strdup(picture->name) : NULL;

	if (gn_comm_rank(p->comm) == 0 && !name) {
		free(picture->bytes);
		return gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for %s", picture->name);
	}
	if (wants(p))
		status = gn_predict_decoder_add(p->decoder, &p->rounds[p->current], picture, err);
	if (name)
		p->names[p->current][p->seen[p->current]] = name;
	p->seen[p->current]++;
	if (!status && p->seen[p->current] == round_size(p))
		status = turn(p, err);
	return status;
}

/* Collective. What is left after the walk, which ended with `walked` on this rank. */
static enum gn_status finish(struct predictor *p, enum gn_status walked, struct gn_err *err)
{
	enum gn_status status;

	if (walked && p->agreed)
		return walked;
	if (walked)
		p->failure = *err;
	else if (!p->failure.status)
		gn_predict_decoder_wait(p->decoder, &p->failure);
	status = p->waiting || walked ? compute(p, !p->current, err) : GN_OK;
	/* also an empty one: the others may have more images */
	if (!status)
		status = compute(p, p->current, err);
	if (status)
		return status;
	*err = p->failure;
	return gn_agree_status(p->comm, p->failure.status, err);
}

static enum gn_status prepare(struct predictor *p, struct gn_err *err)
{
	const struct gn_predict_options *o = p->options;
	struct gn_world *world = gn_comm_world(p->comm);
	struct gn_plan_options po = {.batch = (int)o->batch, .frozen = 1};
	size_t classes = (size_t)p->info.classes, batch = (size_t)o->batch;
	enum gn_status status = gn_device_choose(o->device, o->precision, gn_world_local_rank(world), &po, err);

	p->loader = (struct gn_loader_options){.ranks = 1, .batch = (uint32_t)o->batch, .augment = GN_AUGMENT_NONE,
					       .threads = (int)o->loader_threads};
	if (!status)
		status = gn_network_create(&p->info, &p->network, err);
	if (status)
		return status;
	gn_input_loader_options(&p->info.input, gn_model_channels(p->network.model), gn_model_side(p->network.model), &p->loader);
	p->record_bytes = sizeof(struct head) + batch * (sizeof(struct gn_predict_slot) + classes * sizeof(float));
	p->mine = calloc(1, p->record_bytes);
	p->all = calloc((size_t)gn_comm_size(p->comm), p->record_bytes);
	for (int k = 0; k < 2 && gn_comm_rank(p->comm) == 0; k++)
		p->names[k] = calloc(round_size(p), sizeof(char *));
	if (!p->mine || !p->all || (gn_comm_rank(p->comm) == 0 && (!p->names[0] || !p->names[1])))
		return gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for the predictions of %zu images a rank", batch);
	for (int k = 0; k < 2 && !status; k++)
		status = gn_predict_round_init(&p->rounds[k], &p->loader, err);
	if (!status)
		status = gn_predict_decoder_create(&p->loader, p->info.input.exif_rotate > 0, &p->decoder, err);
	if (!status)
		status = gn_plan_create(p->network.model, &po, p->network.params, NULL, p->network.buffers, &p->plan, err);
	return status;
}

static void release(struct predictor *p)
{
	gn_contention_watch(1, NULL);
	gn_predict_decoder_destroy(p->decoder);
	for (int k = 0; k < 2; k++) {
		empty(p, k);
		free(p->names[k]);
		gn_predict_round_release(&p->rounds[k]);
	}
	gn_plan_destroy(p->plan);
	gn_network_release(&p->network);
	free(p->mine);
	free(p->all);
}

/* The class names of the first source that is a dataset of as many classes; NULL: none. The caller frees it. Warns of datasets whose
 * images were not turned as those of training. */
static char *read_sources(const struct predictor *p, const struct gn_text_list *sources, struct gn_log *log)
{
	struct gn_manifest m;
	struct gn_json j;
	char *names = NULL;

	for (size_t i = 0; i < sources->count; i++) {
		if (gn_manifest_load(sources->items[i], &m, NULL))
			continue;
		gn_input_compare_turned(&p->info.input, sources->items[i], m.exif_rotate, log);
		gn_json_init(&j);
		gn_json_array(&j, NULL);
		for (uint32_t k = 0; k < m.class_count; k++)
			gn_json_string(&j, NULL, m.classes[k].name);
		gn_json_end(&j);
		if (!names && m.class_count == p->info.classes && !gn_json_failed(&j))
			names = strdup(gn_json_text(&j));
		gn_json_release(&j);
		gn_manifest_release(&m);
	}
	return names;
}

static enum gn_status begin(struct predictor *p, const struct gn_text_list *sources, const char *folder, struct gn_log *log, struct gn_err *err)
{
	char *names, *others;
	enum gn_status status = gn_network_class_names(&p->options->network, folder, &names, err);

	if (status)
		return status;
	others = read_sources(p, sources, log);
	if (!names && !others)
		gn_log_warn(log, "neither the network nor a source says what the classes are called: their numbers are printed");
	status = p->sink->begin(p->sink->context, (int)p->info.classes, names ? names : others, err);
	free(names);
	free(others);
	return status;
}

enum gn_status gn_predict(const struct gn_predict_options *options, const struct gn_text_list *sources, const struct gn_predict_sink *sink,
			  struct gn_comm *comm, struct gn_log *log, uint64_t *images, uint64_t *bad, struct gn_err *err)
{
	struct predictor p = {.options = options, .sink = sink, .comm = comm};
	const struct gn_picture_sink pictures = {&p, wants, take};
	char folder[PATH_MAX] = "";
	enum gn_status status = gn_network_find(&options->network, comm, log, folder, &p.info, err);

	gn_input_threads(options->threads, gn_comm_world(comm), log);
	if (!status)
		status = gn_agree_status(comm, prepare(&p, err), err);
	if (!status)
		status = gn_network_load(&options->network, folder, &p.info, &p.network, comm, log, err);
	if (!status) {
		status = gn_plan_freeze(p.plan, err);
		if (!status && gn_comm_rank(comm) == 0)
			status = begin(&p, sources, folder, log, err);
		status = gn_agree_status(comm, status, err);
	}
	if (!status) {
		status = gn_pictures_walk(sources->items, sources->count, &pictures, options->key_file, err);
		status = finish(&p, status, err);
	}
	if (!status && p.oriented)
		gn_log_info(log, "%" PRIu64 " image%s %s an EXIF orientation, which is %s", p.oriented, gn_text_plural(p.oriented), p.oriented == 1 ? "has" : "have",
			    p.info.input.exif_rotate < 0 ? "not applied: the weights do not say how images of training lay"
			    : p.info.input.exif_rotate   ? "applied, as in training" : "not applied, as in training");
	release(&p);
	if (!status) {
		*images = p.images;
		*bad = p.bad;
	}
	return status;
}
