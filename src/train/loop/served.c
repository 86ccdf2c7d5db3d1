#include "src/train/loop/served.h"

#include "src/base/text.h"
#include "src/train/loop/carried.h"
#include "src/train/loop/input.h"
#include "src/train/loop/session.h"
#include "src/train/parallel/mesh.h"
#include "src/train/parallel/server_client.h"
#include "transport/coll/agree.h"

/* What a rank has in such a run. */
struct served {
	const struct gn_train_options *options;
	struct gn_server_spec spec;
	struct gn_comm *world, *group; /* group: of the worker's session; NULL: it only serves */
	struct gn_messages *messages;
	struct gn_server *server;	 /* NULL: it only trains */
	struct gn_server_client *client; /* NULL: it only serves */
	struct gn_log *log, *quiet;	 /* quiet: of a session that writes nothing; NULL: there is none */
};

struct gn_server_spec gn_train_servers(const struct gn_train_options *o)
{
	struct gn_server_spec spec = {.mode = GN_UPDATE_ALLREDUCE};

	gn_server_parse(o->update, o->servers, &spec, NULL);
	return spec;
}

int gn_train_keeps_going(const struct gn_train_options *o)
{
	struct gn_server_spec spec = gn_train_servers(o);

	return gn_elastic_least(o) || (!spec.is_shared && (spec.mode == GN_UPDATE_ASYNC || spec.mode == GN_UPDATE_SSP));
}

int gn_train_workers(const struct gn_train_options *o, int ranks)
{
	struct gn_server_spec spec = gn_train_servers(o);
	struct gn_mesh_shape shape;

	if (o->parallel && !gn_mesh_parse(o->parallel, ranks, &shape, NULL))
		return shape.data;
	return gn_server_workers(&spec, ranks);
}

/* --- roles --- */

static enum gn_status check_ranks(const struct served *v, const char *agreed_text, struct gn_err *err)
{
	struct gn_agree_item program = gn_agree_program();
	int ranks = gn_comm_size(v->world);
	enum gn_status status = gn_agree_digests(v->world, &program, 1, err);

	if (!status)
		status = gn_agree_options(v->world, agreed_text, err);
	if (!status && gn_server_workers(&v->spec, ranks) < 1)
		status = gn_err_set(err, GN_ERR_USAGE, "--servers %s leaves none of %d rank%s to train: start more", v->options->servers, ranks,
				    gn_text_plural((uint64_t)ranks));
	return status;
}

static enum gn_status make_group(struct served *v, struct gn_err *err)
{
	int rank = gn_comm_rank(v->world), workers = gn_server_workers(&v->spec, gn_comm_size(v->world));
	int color = rank >= workers ? -1 : v->spec.mode == GN_UPDATE_SYNC ? 0 : rank;

	return gn_comm_split(v->world, color, rank, "workers", &v->group, err);
}

static enum gn_status make_server(struct served *v, struct gn_err *err)
{
	const struct gn_train_options *o = v->options;
	int index = gn_comm_rank(v->world) - gn_server_first(&v->spec, gn_comm_size(v->world));
	struct gn_server_options so = {.comm = v->world, .messages = v->messages, .spec = v->spec, .index = index, .model = o->model,
				       .optimizer = gn_session_optimizer_options(o)};
	enum gn_status status = GN_OK;

	if (index < 0)
		return GN_OK;
	gn_input_threads(o->threads, gn_comm_world(v->world), NULL);
	status = gn_device_choose(o->device, "fp32", 0, &so.device, err);
	return status ? status : gn_server_create(&so, &v->server, err);
}

static enum gn_status create(struct served *v, const char *agreed_text, struct gn_err *err)
{
	struct gn_server_client_options co;
	enum gn_status status = check_ranks(v, agreed_text, err);

	if (!status)
		status = make_group(v, err);
	if (!status)
		status = gn_messages_create(v->world, &v->messages, err);
	if (!status)
		status = make_server(v, err);
	co = (struct gn_server_client_options){.comm = v->world, .messages = v->messages, .own = v->server, .spec = v->spec};
	if (!status && v->group)
		status = gn_server_client_create(&co, &v->client, err);
	return gn_agree_status(v->world, status, err);
}

static void release(struct served *v)
{
	gn_server_destroy(v->server);
	gn_messages_destroy(v->messages);
	gn_server_client_destroy(v->client);
	gn_comm_destroy(v->group);
	gn_log_destroy(v->quiet);
}

/* --- what they do --- */

/* A session that writes nothing, and whose state comes from the servers. */
static enum gn_status be_quiet(struct served *v, struct gn_train_options *o, struct gn_err *err)
{
	enum gn_status status = gn_log_create(2, GN_LOG_ERROR, &v->quiet, err);

	if (status)
		return status;
	gn_log_set_rank(v->quiet, gn_comm_rank(v->world));
	o->val = o->checkpoint = o->log = o->metrics = o->trace = NULL;
	o->resume = o->keep_best = "none";
	o->init = NULL;
	o->patience = 0;
	return GN_OK;
}

static enum gn_status work(struct served *v, const char *agreed_text, const volatile sig_atomic_t *stop, int *told, struct gn_err *err)
{
	struct gn_train_options o = *v->options;
	struct gn_err left;
	enum gn_status status = GN_OK, leaves;

	o.served = v->client;
	if (v->spec.mode != GN_UPDATE_SYNC && gn_comm_rank(v->world))
		status = be_quiet(v, &o, err);
	if (!status)
		status = gn_train_run(&o, agreed_text, stop, v->group, v->quiet ? v->quiet : v->log, told, err);
	if (status == GN_ERR_STOPPED && v->quiet)
		*told = 1;
	if (status && status != GN_ERR_STOPPED)
		return status;
	/* the first one's end is that of the run */
	leaves = gn_server_client_leave(v->client, gn_comm_rank(v->world) == 0, &left);
	if (!leaves)
		return status;
	*err = left;
	*told = 0;
	return leaves;
}

static enum gn_status serve(struct served *v, struct gn_err *err)
{
	struct gn_world *world = gn_comm_world(v->world);

	gn_world_set_phase(world, "serving parameters", GN_TRAIN_STALL_MS);
	return gn_server_wait(v->server, err);
}

enum gn_status gn_train_served(const struct gn_train_options *options, const char *agreed_text, const volatile sig_atomic_t *stop,
			       struct gn_comm *comm, struct gn_log *log, int *told, struct gn_err *err)
{
	struct served v = {.options = options, .spec = gn_train_servers(options), .world = comm, .log = log};
	struct gn_world *world = gn_comm_world(comm);
	enum gn_status status;

	if (v.spec.mode == GN_UPDATE_ALLREDUCE)
		return gn_train_run(options, agreed_text, stop, comm, log, told, err);
	gn_world_set_phase(world, "starting to train", GN_TRAIN_STALL_MS);
	*told = 0;
	status = create(&v, agreed_text, err);
	if (status)
		*told = !gn_agree_is_over(comm, status) && gn_comm_rank(comm) > 0;
	else
		status = v.client ? work(&v, agreed_text, stop, told, err) : serve(&v, err);
	/* the others know of losses, and would wait for a rank that ends for anything else */
	if (status && status != GN_ERR_STOPPED && status != GN_ERR_PEER_LOST && !gn_world_aborted(world))
		gn_world_abort(world, status, err->text);
	release(&v);
	return status;
}
