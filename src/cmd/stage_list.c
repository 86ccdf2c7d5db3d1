#include "src/cmd/stage_list.h"

#include "data/stage/staged.h"
#include "src/base/json.h"
#include "src/base/text.h"
#include "src/cmd/cmd.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

static enum gn_status remove_named(struct gn_staged_list *l, const char *name, struct gn_log *log, struct gn_err *err)
{
	enum gn_status status;
	size_t len = strlen(name);

	while (len > 1 && name[len - 1] == '/')
		len--;
	for (size_t i = 0; i < l->count; i++) {
		if (strncmp(l->items[i].name, name, len) != 0 || l->items[i].name[len])
			continue;
		if (l->items[i].state == GN_STAGED_REMOVED)
			return GN_OK;
		status = gn_staged_remove(l, &l->items[i], err);
		if (!status)
			gn_log_info(log, "%s/%s: removed (%.1f MB)", l->folder, l->items[i].name, (double)l->items[i].bytes * 1e-6);
		return status;
	}
	return gn_err_set(err, GN_ERR_NOT_FOUND, "%s is no copy of this user's in %s: gannet stage --list --to %s tells what is", name, l->folder,
			  l->folder);
}

/* Without a name what is in use or changed stays, which is no failure. */
static void remove_free(struct gn_staged_list *l, struct gn_log *log)
{
	struct gn_err err;

	for (size_t i = 0; i < l->count; i++)
		if (remove_named(l, l->items[i].name, log, &err))
			gn_log_info(log, "%s", err.text);
}

static enum gn_status change(const struct gn_stage_list_options *o, struct gn_staged_list *l, struct gn_log *log, struct gn_err *err)
{
	enum gn_status status = GN_OK;

	for (size_t i = 0; i < o->names->count && !status; i++)
		status = remove_named(l, o->names->items[i], log, err);
	if (o->remove && !o->names->count)
		remove_free(l, log);
	if (!status && o->quota_bytes)
		status = gn_staged_shrink(l, NULL, 0, o->quota_bytes, log, err);
	return status;
}

static void print_json(const struct gn_staged_list *l, const char *host)
{
	uint64_t bytes = 0;
	struct gn_json j;

	gn_json_begin(&j);
	gn_json_put(&j, "host %s folder %s copies [", host, l->folder);
	for (size_t i = 0; i < l->count; i++) {
		const struct gn_staged *s = &l->items[i];

		bytes += s->state == GN_STAGED_REMOVED ? 0 : s->bytes;
		gn_json_put(&j, "{ name %s kind %s state %s bytes %lu used_unix %ld }", s->name, s->kind, gn_staged_state_name(s->state),
			    s->bytes, s->used_s);
	}
	gn_json_put(&j, "] bytes %lu", bytes);
	gn_cmd_print_json(&j);
}

static void print_text(const struct gn_staged_list *l, const char *host)
{
	char name[PATH_MAX], used[32];

	if (!l->count)
		printf("%s: no copies of this user's in %s\n", host, l->folder);
	for (size_t i = 0; i < l->count; i++) {
		const struct gn_staged *s = &l->items[i];
		time_t at = (time_t)s->used_s;
		struct tm tm;

		if (s->state == GN_STAGED_REMOVED)
			continue;
		if (!localtime_r(&at, &tm) || !strftime(used, sizeof used, "%Y-%m-%d %H:%M", &tm))
			strcpy(used, "?");
		printf("%s: %12.1f MB  %-12s  %-7s  used %s  %s\n", host, (double)s->bytes * 1e-6, gn_staged_state_name(s->state), s->kind, used,
		       gn_text_visible(s->name, name, sizeof name));
	}
}

int gn_cmd_stage_list(const struct gn_stage_list_options *o)
{
	struct gn_log *log = gn_cmd_log();
	struct gn_staged_list l;
	char host[256];
	struct gn_err err;
	enum gn_status status = gn_staged_list_load(o->folder, &l, &err);

	gn_cmd_host(host, sizeof host);
	if (!status) {
		status = change(o, &l, log, &err);
		/* also after a failure: some may be removed */
		if (o->json)
			print_json(&l, host);
		else if (o->list)
			print_text(&l, host);
		gn_staged_list_release(&l);
	}
	gn_log_destroy(log);
	return status ? gn_cmd_fail_here("stage", &err) : GN_EXIT_DONE;
}
