#include "src/jobs/run_view.h"

#include "src/base/file.h"
#include "src/train/metrics/log_event.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define STATUS_MAX (16u << 20)

struct gn_run_source {
	char log[4096], job[64]; /* "": not known */
	struct gn_account_log *account;
	struct gn_slurm_job said; /* what Slurm said at asked */
	int known;
	double asked;
};

/* --- status file --- */

static double number(const json_t *object, const char *key)
{
	double v = json_number_value(json_object_get(object, key));

	return isfinite(v) ? v : 0;
}

static void read_nodes(const json_t *nodes, struct gn_run_view *v)
{
	size_t count = json_array_size(nodes);

	for (size_t i = 0; i < count && i < GN_RUN_VIEW_NODES; i++) {
		const json_t *from = json_array_get(nodes, i);
		struct gn_run_view_node *n = &v->node[v->node_count++];

		gn_event_text(from, "host", n->host, sizeof n->host);
		n->load.cpu = number(from, "cpu");
		n->load.memory_bytes = number(from, "memory_bytes");
		n->load.memory_used_bytes = number(from, "memory_used_bytes");
		n->rss_bytes = number(from, "rss_bytes");
		n->load.receive_bytes_per_s = number(from, "receive_bytes_per_s");
		n->load.send_bytes_per_s = number(from, "send_bytes_per_s");
	}
	v->more_nodes = (int)(count - (size_t)v->node_count);
}

/* Of objects {"rank": 3, "host": "n2", KEY: value, ...}. Returns how many. */
static int read_ranks(const json_t *list, const char *key, struct gn_run_view_rank out[GN_RUN_VIEW_RANKS])
{
	size_t i = 0;

	for (; i < json_array_size(list) && i < GN_RUN_VIEW_RANKS; i++) {
		const json_t *from = json_array_get(list, i);
		double rank = number(from, "rank");

		out[i].rank = rank >= 0 && rank < 1e7 ? (int)rank : 0;
		gn_event_text(from, "host", out[i].host, sizeof out[i].host);
		out[i].value = number(from, key);
	}
	return (int)i;
}

/* A status of an earlier start than the log's last one is not looked at. */
static void read_status(struct gn_run_view *v)
{
	char path[4200], *text = NULL;
	json_t *status = NULL;
	double silent;
	size_t len;

	snprintf(path, sizeof path, "%s.status", v->log);
	if (gn_file_load(path, STATUS_MAX, &text, &len, NULL))
		return;
	status = json_loadb(text, len, 0, NULL);
	free(text);
	v->status_time = number(status, "time");
	if (json_is_object(status) && v->status_time + 1 >= v->a.last_start_time) {
		v->has_status = 1;
		gn_event_text(status, "doing", v->doing, sizeof v->doing);
		v->status_step = number(status, "step") >= 0 && number(status, "step") < 1e15 ? (uint64_t)number(status, "step") : 0;
		v->slow_count = read_ranks(json_object_get(status, "slow"), "compute_ms", v->slow);
		v->silent_count = read_ranks(json_object_get(status, "silent"), "since", v->silent);
		silent = number(status, "silent_count");
		v->more_silent = silent > v->silent_count && silent < 1e7 ? (int)silent - v->silent_count : 0;
		read_nodes(json_object_get(status, "nodes"), v);
	}
	json_decref(status);
}

/* --- source --- */

enum gn_status gn_run_source_open(const char *name, struct gn_run_source **out, struct gn_err *err)
{
	struct gn_run_source *s = calloc(1, sizeof *s);
	struct stat info;
	enum gn_status status = GN_OK;

	if (!s)
		return gn_err_set(err, GN_ERR_NO_MEMORY, "no memory to read %s", name);
	if (stat(name, &info) && gn_slurm_is_job(name)) {
		snprintf(s->job, sizeof s->job, "%s", name);
		status = gn_slurm_job_find(name, 0, &s->said, err);
		s->known = !status;
		if (!status)
			status = gn_slurm_job_log(&s->said, s->log, sizeof s->log, err);
		/* a job that waits can be looked at without its log */
		if (status && s->known && strcmp(s->said.state, "RUNNING"))
			status = GN_OK;
	} else if ((size_t)snprintf(s->log, sizeof s->log, "%s", name) >= sizeof s->log) {
		status = gn_err_set(err, GN_ERR_USAGE, "%.80s...: too long a path", name);
	} else {
		status = gn_account_open(s->log, &s->account, err);
	}
	if (status)
		gn_run_source_close(s);
	else
		*out = s;
	return status;
}

void gn_run_source_close(struct gn_run_source *s)
{
	if (!s)
		return;
	gn_account_close(s->account);
	free(s);
}

double gn_run_view_silent_s(const struct gn_run_view *v, double now)
{
	double last = v->has_status && v->status_time > v->a.last_time ? v->status_time : v->a.last_time;

	return now > last ? now - last : 0;
}

/* Of a run that is over or silent, Slurm may say that it waits to go on. */
static int wants_slurm(const struct gn_run_source *s, const struct gn_run_view *v, double now)
{
	if (!*s->job)
		return 0;
	if (v->has_log && (!strcmp(v->a.state, "end") || (!strcmp(v->a.state, "running") && gn_run_view_silent_s(v, now) < 60)))
		return 0;
	return now - s->asked >= GN_RUN_VIEW_SLURM_S || now < s->asked;
}

enum gn_status gn_run_source_read(struct gn_run_source *s, double now, struct gn_run_view *v, struct gn_err *err)
{
	enum gn_status status = GN_OK;

	memset(v, 0, sizeof *v);
	snprintf(v->log, sizeof v->log, "%s", s->log);
	if (!s->account && *s->log && gn_account_open(s->log, &s->account, err))
		s->account = NULL;
	if (s->account)
		status = gn_account_update(s->account, &v->a, err);
	/* a log that has been made and is still empty */
	if (status == GN_ERR_DATA && *s->job)
		status = GN_OK;
	else
		v->has_log = s->account && !status;
	if (status)
		return status;
	if (v->has_log) {
		read_status(v);
		if (!*s->job)
			snprintf(s->job, sizeof s->job, "%s", v->a.job);
	}
	if (wants_slurm(s, v, now)) {
		s->known = !gn_slurm_job_find(s->job, 0, &s->said, NULL);
		s->asked = now;
	}
	v->has_job = s->known;
	v->job = s->said;
	return GN_OK;
}
