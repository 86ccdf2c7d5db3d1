#include "transport/select/tuning_table.h"

#include "src/base/file.h"
#include "transport/schedule/algo.h"

#include <jansson.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FILE_BYTES_MAX (1u << 20)
#define VERSION 1

/* --- writing --- */

static void write_path(struct gn_json *j, const char *key, const struct gn_cost_path *p, const struct gn_tune_path *t)
{
	gn_json_object(j, key);
	gn_json_put(j, "lanes %s bytes_per_s %g burst_bytes %g burst_bytes_per_s %g eager_bytes %g ranges [", p->lanes, p->bytes_per_s,
		    p->burst_bytes, p->burst_bytes_per_s, p->path.eager_bytes);
	for (int i = 0; i < p->path.count; i++) {
		const struct gn_sim_range *r = &p->path.ranges[i];

		gn_json_put(j, "{ from_bytes %g latency_s %g s_per_byte %g send_s %g receive_s %g", r->from_bytes, r->latency_s,
			    r->s_per_byte, r->send_s, r->receive_s);
		if (t->sample_count)
			gn_json_put(j, "residual_rms %g residual_worst %g samples %d", t->fits[i].rms, t->fits[i].worst,
				    t->fits[i].samples);
		gn_json_end(j);
	}
	gn_json_put(j, "] measured [");
	for (int i = 0; i < t->sample_count; i++)
		gn_json_put(j, "{ bytes %g one_way_s %g }", t->samples[i].bytes, t->samples[i].one_way_s);
	gn_json_put(j, "] }");
}

void gn_tuning_table_json(const struct gn_tune_result *r, struct gn_json *out)
{
	gn_json_put(out, "{ gannet_tuning %d signature %s reduce_bytes_per_s %g", VERSION, r->signature, r->cost.reduce_bytes_per_s);
	write_path(out, "node", &r->cost.node, &r->node);
	write_path(out, "link", &r->cost.link, &r->link);
	gn_json_array(out, "allreduce");
	for (int i = 0; i < r->cost.pick_count; i++)
		gn_json_put(out, "{ bytes %g algorithm %s seconds %g piece_bytes %g }", r->cost.picks[i].bytes, r->cost.picks[i].algorithm,
			    r->cost.picks[i].seconds, r->cost.picks[i].piece_bytes);
	gn_json_put(out, "] }");
}

/* --- reading --- */

static enum gn_status read_number(const json_t *object, const char *key, double *out, struct gn_err *err)
{
	const json_t *value = json_object_get(object, key);

	if (!json_is_number(value))
		return gn_err_set(err, GN_ERR_DATA, "%s is not a number", key);
	*out = json_number_value(value);
	return GN_OK;
}

static enum gn_status read_range(const json_t *object, struct gn_sim_range *r, struct gn_err *err)
{
	const struct {
		const char *key;
		double *out;
	} fields[] = {{"from_bytes", &r->from_bytes}, {"latency_s", &r->latency_s}, {"s_per_byte", &r->s_per_byte},
		      {"send_s", &r->send_s}, {"receive_s", &r->receive_s}};
	enum gn_status status = GN_OK;

	for (size_t i = 0; i < sizeof fields / sizeof *fields && !status; i++)
		status = read_number(object, fields[i].key, fields[i].out, err);
	return status;
}

static enum gn_status read_path(const json_t *root, const char *key, struct gn_cost_path *p, struct gn_err *err)
{
	const json_t *object = json_object_get(root, key), *ranges = json_object_get(object, "ranges");
	const char *lanes = json_string_value(json_object_get(object, "lanes"));
	const struct {
		const char *key;
		double *out;
	} fields[] = {{"bytes_per_s", &p->bytes_per_s}, {"burst_bytes", &p->burst_bytes},
		      {"burst_bytes_per_s", &p->burst_bytes_per_s}, {"eager_bytes", &p->path.eager_bytes}};
	enum gn_status status = GN_OK;

	if (!lanes || strlen(lanes) >= sizeof p->lanes || json_array_size(ranges) > GN_SIM_RANGES)
		return gn_err_set(err, GN_ERR_DATA, "%s is not an object with lanes and at most %d ranges", key, GN_SIM_RANGES);
	memcpy(p->lanes, lanes, strlen(lanes) + 1);
	p->connect_s = gn_cost_connect_s(*lanes || strcmp(key, "node") ? lanes : "posix/");
	p->path.count = (int)json_array_size(ranges);
	for (size_t i = 0; i < sizeof fields / sizeof *fields && !status; i++)
		status = read_number(object, fields[i].key, fields[i].out, err);
	for (int i = 0; i < p->path.count && !status; i++)
		status = read_range(json_array_get(ranges, (size_t)i), &p->path.ranges[i], err);
	return status ? gn_err_prefix(err, "%s", key) : GN_OK;
}

/* Tables written before algorithms were timed have none. */
static enum gn_status read_picks(const json_t *root, struct gn_cost *c, struct gn_err *err)
{
	const json_t *list = json_object_get(root, "allreduce");
	enum gn_status status = GN_OK;

	if (json_array_size(list) > GN_COST_PICKS)
		return gn_err_set(err, GN_ERR_DATA, "allreduce has %zu lengths; there are at most %d", json_array_size(list),
				  GN_COST_PICKS);
	c->pick_count = (int)json_array_size(list);
	for (int i = 0; i < c->pick_count && !status; i++) {
		const json_t *one = json_array_get(list, (size_t)i);
		const char *name = json_string_value(json_object_get(one, "algorithm"));

		if (!name || strlen(name) >= GN_COST_NAME_MAX || !gn_algorithm_find(GN_COLLECTIVE_ALLREDUCE, name))
			return gn_err_set(err, GN_ERR_DATA, "allreduce: unknown algorithm: run gannet tune again");
		snprintf(c->picks[i].algorithm, GN_COST_NAME_MAX, "%s", name);
		status = read_number(one, "bytes", &c->picks[i].bytes, err);
		if (!status)
			status = read_number(one, "seconds", &c->picks[i].seconds, err);
		/* not in older tables */
		if (!status && json_object_get(one, "piece_bytes"))
			status = read_number(one, "piece_bytes", &c->picks[i].piece_bytes, err);
	}
	return status;
}

static enum gn_status read_cost(const json_t *root, struct gn_cost *out, struct gn_err *err)
{
	struct gn_cost c = {.measured = 1};
	double version = 0;
	enum gn_status status = read_number(root, "gannet_tuning", &version, err);

	if (!status && version != VERSION)
		status = gn_err_set(err, GN_ERR_DATA, "table version %g, but this program reads version %d: run gannet tune again",
				    version, VERSION);
	if (!status)
		status = read_number(root, "reduce_bytes_per_s", &c.reduce_bytes_per_s, err);
	if (!status)
		status = read_path(root, "node", &c.node, err);
	if (!status)
		status = read_path(root, "link", &c.link, err);
	if (!status)
		status = read_picks(root, &c, err);
	if (!status)
		status = gn_cost_check(&c, err);
	if (!status)
		*out = c;
	return status;
}

/* The lines of a file, and the one that was read last. */
struct lines {
	const char *path, *at, *begin, *signature;
	char *text;
	size_t len;
	int number;
	json_t *root;
};

/* Reads the next line that is not empty. Returns 0 behind the last one, and on failure. */
static int next_line(struct lines *l, enum gn_status *status, struct gn_err *err)
{
	json_error_t why;

	json_decref(l->root);
	l->root = NULL;
	for (; *l->at == '\n' || *l->at == '\r'; l->at++)
		l->number += *l->at == '\n';
	if (*status || !*l->at)
		return 0;
	l->begin = l->at;
	l->len = strcspn(l->at, "\n");
	l->at += l->len;
	l->root = json_loadb(l->begin, l->len, JSON_REJECT_DUPLICATES, &why);
	l->signature = json_string_value(json_object_get(l->root, "signature"));
	if (!l->root)
		*status = gn_err_set(err, GN_ERR_DATA, "%s:%d: %s; remove the line, or run gannet tune with another --out", l->path,
				     l->number, why.text);
	else if (!l->signature)
		*status = gn_err_set(err, GN_ERR_DATA, "%s:%d: no signature: was it written by gannet tune?", l->path, l->number);
	return !*status;
}

static enum gn_status open_lines(const char *path, struct lines *l, size_t *len, struct gn_err *err)
{
	enum gn_status status;

	*l = (struct lines){.path = path, .number = 1};
	status = gn_file_load(path, FILE_BYTES_MAX, &l->text, len, err);
	l->at = l->text;
	return status;
}

static void close_lines(struct lines *l)
{
	json_decref(l->root);
	free(l->text);
}

/* The N of "N nodes of ...", and the rest after it. 0: the signature does not begin so. */
static int nodes_of(const char *signature, const char **rest)
{
	char *end;
	long nodes = strtol(signature, &end, 10);

	*rest = end;
	return end > signature && nodes > 0 && nodes < INT_MAX && !strncmp(end, " nodes of ", 10) ? (int)nodes : 0;
}

/* The line whose signature is nearest to the one looked for. distance: the ratio of their numbers of nodes; 1: the same
 * signature. */
struct nearest {
	json_t *root;
	double distance;
	int nodes, line;
};

static void keep_nearest(struct nearest *best, const struct lines *l, const char *signature)
{
	const char *rest, *mine;
	int wanted = nodes_of(signature, &mine), nodes = nodes_of(l->signature, &rest);
	double distance = 1;

	if (strcmp(l->signature, signature) != 0) {
		if (!nodes || !wanted || strcmp(rest, mine) != 0)
			return;
		distance = nodes > wanted ? (double)nodes / wanted : (double)wanted / nodes;
	}
	if (distance > best->distance || (best->root && distance >= best->distance && nodes <= best->nodes))
		return;
	json_decref(best->root);
	*best = (struct nearest){json_incref(l->root), distance, nodes, l->number};
}

enum gn_status gn_tuning_table_read(const char *path, const char *signature, int *found, struct gn_cost *out, struct gn_err *err)
{
	struct lines l;
	size_t len;
	struct nearest best = {.distance = INFINITY};
	enum gn_status status = open_lines(path, &l, &len, err);

	if (status)
		return status;
	if (strlen(l.text) != len)
		status = gn_err_set(err, GN_ERR_DATA, "%s:1: contains a zero byte: was it written by gannet tune?", path);
	while (next_line(&l, &status, err))
		keep_nearest(&best, &l, signature);
	close_lines(&l);
	if (!status && best.root) {
		status = read_cost(best.root, out, err);
		if (status)
			gn_err_prefix(err, "%s:%d", path, best.line);
		else
			out->tuned_nodes = best.nodes;
	}
	if (!status)
		*found = best.root != NULL;
	json_decref(best.root);
	return status;
}

enum gn_status gn_tuning_table_find(const char *path, const char *part, struct gn_cost *out, struct gn_err *err)
{
	struct lines l;
	struct gn_cost cost;
	int found = 0;
	enum gn_status status = open_lines(path, &l, NULL, err);

	if (status)
		return status;
	while (next_line(&l, &status, err)) {
		if (!strstr(l.signature, part))
			continue;
		found++;
		status = read_cost(l.root, &cost, err);
		if (status)
			gn_err_prefix(err, "%s:%d", path, l.number);
	}
	close_lines(&l);
	if (!status && !found)
		return gn_err_set(err, GN_ERR_NOT_FOUND, "%s has no entry with '%s' in its signature", path, part);
	if (!status && found > 1)
		return gn_err_set(err, GN_ERR_USAGE, "%s has %d entries with '%s' in their signatures: name one of them", path,
				  found, part);
	if (!status)
		*out = cost;
	return status;
}

/* Appends the lines with other signatures. */
static enum gn_status keep_others(const char *path, const char *signature, struct gn_strbuf *out, struct gn_err *err)
{
	struct lines l;
	struct gn_err why;
	enum gn_status status = open_lines(path, &l, NULL, &why);

	if (status == GN_ERR_NOT_FOUND)
		return GN_OK;
	if (status) {
		if (err)
			*err = why;
		return status;
	}
	while (next_line(&l, &status, err))
		if (strcmp(l.signature, signature) != 0) {
			gn_strbuf_append(out, l.begin, l.len);
			gn_strbuf_puts(out, "\n");
		}
	close_lines(&l);
	return status;
}

enum gn_status gn_tuning_table_write(const char *path, const struct gn_tune_result *r, struct gn_err *err)
{
	struct gn_strbuf text = {0};
	struct gn_json j;
	char folder[PATH_MAX];
	enum gn_status status;

	gn_path_parent(path, folder);
	status = gn_make_dirs(folder, err);
	gn_json_init(&j);
	if (!status)
		status = keep_others(path, r->signature, &text, err);
	if (!status) {
		gn_tuning_table_json(r, &j);
		gn_strbuf_puts(&text, gn_json_text(&j));
		gn_strbuf_puts(&text, "\n");
		text.failed |= gn_json_failed(&j);
		status = gn_file_replace_text(path, &text, GN_REPLACE_SYNCED, err);
	}
	gn_strbuf_release(&text);
	gn_json_release(&j);
	return status;
}
