#include "src/train/parallel/cuts.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* --- the best cuts --- */

double gn_cut_compute_s(const struct gn_cut_costs *c, int first, int end, int micro_batches)
{
	double seconds = 0;

	for (int i = first; i < end; i++)
		seconds += c->pieces[i].forward_s + c->pieces[i].backward_s + c->pieces[i].add_s * (micro_batches + 1) / micro_batches;
	return seconds;
}

struct search {
	const struct gn_cut_costs *c;
	int stages, micro_batches;
	const double *bytes_per_s;
	double *best; /* [stage * (count + 1) + end]: of stages 0 .. stage that end before piece `end` */
	int *from;    /* there: the piece that the last of these stages begins with */
};

static double send_s(const struct search *s, int stage, int first, int end)
{
	double seconds = 0;

	if (stage)
		seconds += s->c->pieces[first - 1].out_bytes / s->bytes_per_s[stage - 1];
	if (stage < s->stages - 1)
		seconds += s->c->pieces[end - 1].out_bytes / s->bytes_per_s[stage];
	return seconds;
}

/* The least value of one more stage that ends before piece `end`. limit INFINITY: of the slowest stage; else of all sending, where no
 * stage is slower than that. */
static void extend(struct search *s, int stage, int end, double limit)
{
	size_t width = (size_t)s->c->count + 1, at = (size_t)stage * width + (size_t)end;
	double compute = 0;

	s->best[at] = INFINITY;
	for (int first = end - 1; first >= stage; first--) {
		double before = stage ? s->best[at - width - (size_t)(end - first)] : first ? INFINITY : 0, send = send_s(s, stage, first, end);
		double value;

		compute += gn_cut_compute_s(s->c, first, first + 1, s->micro_batches);
		value = isinf(limit) ? fmax(before, compute + send) : compute + send > limit ? INFINITY : before + send;
		if (value < s->best[at]) {
			s->best[at] = value;
			s->from[at] = first;
		}
	}
}

static double search(struct search *s, double limit)
{
	for (int stage = 0; stage < s->stages; stage++)
		for (int end = stage + 1; end <= s->c->count; end++)
			extend(s, stage, end, limit);
	return s->best[(size_t)s->stages * ((size_t)s->c->count + 1) - 1];
}

static void take(const struct search *s, int *nodes)
{
	int end = s->c->count;

	for (int stage = s->stages - 1; stage > 0; stage--) {
		end = s->from[(size_t)stage * ((size_t)s->c->count + 1) + (size_t)end];
		nodes[stage - 1] = s->c->pieces[end].node;
	}
}

enum gn_status gn_cuts_choose(const struct gn_cut_costs *c, int stages, int micro_batches, const double *bytes_per_s, int *nodes, double *slowest_s,
			      struct gn_err *err)
{
	size_t room = (size_t)stages * ((size_t)c->count + 1);
	struct search s = {c, stages, micro_batches, bytes_per_s, NULL, NULL};
	double slowest;

	if (stages > c->count)
		return gn_err_set(err, GN_ERR_USAGE, "the network can be cut into %d stages at most, not %d", c->count, stages);
	s.best = calloc(room, sizeof *s.best);
	s.from = calloc(room, sizeof *s.from);
	if (s.best && s.from) {
		slowest = search(&s, INFINITY);
		take(&s, nodes);
		/* Sums in another order may round; and where nothing has a time there is nothing to choose by. */
		if (isfinite(search(&s, slowest * (1 + 1e-9))))
			take(&s, nodes);
		if (slowest_s)
			*slowest_s = slowest;
	}
	free(s.best);
	free(s.from);
	return s.best && s.from ? GN_OK : gn_err_set(err, GN_ERR_NO_MEMORY, "no memory to choose where to cut");
}

/* --- names --- */

/* The shortest name that gn_model_find_cut takes for this node. */
static void shortest_name(const struct gn_model *m, int node, char name[64])
{
	const char *full = gn_model_node(m, node)->name;

	for (size_t len = 0; len <= strlen(full); len++) {
		int found;

		if (full[len] && full[len] != '.')
			continue;
		memcpy(name, full, len);
		name[len] = 0;
		if (!gn_model_find_cut(m, name, &found, NULL) && found == node)
			return;
	}
}

void gn_cuts_text(const struct gn_model *m, const int *nodes, int count, struct gn_strbuf *out)
{
	char name[64];

	for (int i = 0; i < count; i++) {
		shortest_name(m, nodes[i], name);
		gn_strbuf_printf(out, "%s%s", i ? "," : "", name);
	}
}

static int common_prefix(const char *a, const char *b)
{
	int len = 0;

	while (a[len] && a[len] == b[len])
		len++;
	return len;
}

/* Places to cut around the layer whose name is most like this one: two before and two from it on. */
static void append_near(const struct gn_model *m, const char *name, struct gn_strbuf *out)
{
	int like = 1, around[4], count = 0, later = 0;

	for (int i = 2; i < gn_model_node_count(m); i++)
		if (common_prefix(gn_model_node(m, i)->name, name) > common_prefix(gn_model_node(m, like)->name, name))
			like = i;
	for (int i = 2; i < gn_model_node_count(m) && later < 2; i++) {
		if (!gn_model_can_cut(m, i))
			continue;
		if (count - later == 2 && i < like) {
			around[0] = around[1];
			count--;
		}
		later += i >= like;
		around[count++] = i;
	}
	gn_strbuf_puts(out, count ? "; places near it: " : "; there is no place to cut");
	gn_cuts_text(m, around, count, out);
}

static enum gn_status parse_name(const struct gn_model *m, const char *name, int after, int *node, struct gn_err *err)
{
	enum gn_status status = gn_model_find_cut(m, name, node, err);
	struct gn_strbuf near = {0};

	if (!status && *node <= after)
		return gn_err_set(err, GN_ERR_USAGE, "--cut: %s is not behind the name before it; stages follow each other in the network's order", name);
	if (!status || !err)
		return status;
	gn_strbuf_puts(&near, err->text);
	append_near(m, name, &near);
	gn_err_set(err, status, "--cut %s", gn_strbuf_text(&near));
	gn_strbuf_release(&near);
	return status;
}

enum gn_status gn_cuts_parse(const struct gn_model *m, const char *text, int stages, int *nodes, struct gn_err *err)
{
	int count = 1, node = 0;

	for (const char *c = text; *c; c++)
		count += *c == ',';
	if (count != stages - 1)
		return gn_err_set(err, GN_ERR_USAGE, "--cut %s: %d name%s for %d stage%s, which %d begin%s: of each stage but the first", text, count,
				  count == 1 ? "" : "s", stages, stages == 1 ? "" : "s", stages - 1, stages == 2 ? "s" : "");
	for (int i = 0; i < count; i++, text++) {
		size_t len = strcspn(text, ",");
		char name[64];
		enum gn_status status;

		if (len >= sizeof name)
			return gn_err_set(err, GN_ERR_USAGE, "--cut %.*s: no layer has so long a name", (int)len, text);
		memcpy(name, text, len);
		name[len] = 0;
		status = parse_name(m, name, node, &node, err);
		if (status)
			return status;
		nodes[i] = node;
		text += len;
	}
	return GN_OK;
}
