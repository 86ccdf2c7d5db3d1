#include "tests/test.h"

#include "src/base/file.h"
#include "src/base/strbuf.h"
#include "src/train/loop/combine.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Examples of options that have a text. */
static const struct {
	const char *example, *value;
	size_t offset;
} texts[] = {
	{"--compress topk:0.1", "topk:0.1", offsetof(struct gn_train_options, compress)},
	{"--compress dgc:0.1", "dgc:0.1", offsetof(struct gn_train_options, compress)},
	{"--device cuda", "cuda", offsetof(struct gn_train_options, device)},
	{"--algo shared", "shared", offsetof(struct gn_train_options, algo)},
	{"--algo double-tree", "double-tree", offsetof(struct gn_train_options, algo)},
	{"--transport tcp", "tcp", offsetof(struct gn_train_options, transport)},
	{"--shard optimizer", "optimizer", offsetof(struct gn_train_options, shard)},
	{"--optimizer adamw", "adamw", offsetof(struct gn_train_options, optimizer)},
	{"--compress auto", "auto", offsetof(struct gn_train_options, compress)},
	{"--compress int8", "int8", offsetof(struct gn_train_options, compress)},
	{"--shard gradients", "gradients", offsetof(struct gn_train_options, shard)},
	{"--class-weights balanced", "balanced", offsetof(struct gn_train_options, class_weights)},
	{"--optimizer lars", "lars", offsetof(struct gn_train_options, optimizer)},
	{"--update sync --servers 1", "sync", offsetof(struct gn_train_options, update)},
	{"--update async --servers 1", "async", offsetof(struct gn_train_options, update)},
	{"--sync-bn all", "all", offsetof(struct gn_train_options, sync_bn)},
	{"--halving 2:2", "2:2", offsetof(struct gn_train_options, halving)},
	{"--checkpoint c --checkpoint-local l", "l", offsetof(struct gn_train_options, checkpoint_local)},
	{"--trace t.json", "t.json", offsetof(struct gn_train_options, trace)},
	{"--elastic 2:4 --checkpoint c", "2:4", offsetof(struct gn_train_options, elastic)},
	{"--parallel auto", "auto", offsetof(struct gn_train_options, parallel)},
	{"--parallel data=1,pipeline=2", "data=1,pipeline=2", offsetof(struct gn_train_options, parallel)},
	{"--parallel data=1,tensor=2", "data=1,tensor=2", offsetof(struct gn_train_options, parallel)},
	{"--pipe-schedule pipedream", "pipedream", offsetof(struct gn_train_options, pipe_schedule)},
	{"--resize-schedule 0:16,1:28", "0:16,1:28", offsetof(struct gn_train_options, resize_schedule)},
};

/* What an option's example asks for. */
static void ask(struct gn_train_options *o, const char *example)
{
	if (!strncmp(example, "--update ", 9))
		o->servers = "1";
	if (!strcmp(example, "--nesterov"))
		o->nesterov = 1;
	else if (!strcmp(example, "--local-steps 4"))
		o->local_steps = 4;
	else if (!strcmp(example, "--ema 0.99"))
		o->ema = 0.99;
	else if (!strcmp(example, "--elastic 2"))
		o->elastic = "2";
	else if (!strcmp(example, "--freeze conv1.*"))
		o->freeze.count = 1;
	else if (!strcmp(example, "--elastic 2 --elastic-batch scale"))
		o->elastic = "2", o->elastic_batch = "scale";
	else if (!strcmp(example, "--global-batch 64"))
		o->global_batch = 64;
	else if (!strcmp(example, "--parallel data=1,pipeline=2 --recompute"))
		o->parallel = "data=1,pipeline=2", o->recompute = 1;
	else if (!strcmp(example, "--clip 1"))
		o->clip = 1;
	else
		for (size_t i = 0; i <= sizeof texts / sizeof *texts; i++) {
			if (i == sizeof texts / sizeof *texts)
				fail_msg("no such example: %s", example);
			if (strcmp(texts[i].example, example))
				continue;
			memcpy((char *)o + texts[i].offset, &texts[i].value, sizeof texts[i].value);
			break;
		}
}

static const struct gn_train_options plain = {.compress = "none", .shard = "none", .device = "host", .algo = "auto", .transport = "auto", .optimizer = "sgd", .local_steps = 1};

static int is_refused(const char *one, const char *other, struct gn_err *err)
{
	struct gn_train_options o = plain;

	ask(&o, one);
	ask(&o, other);
	return gn_train_check_options(&o, err) != GN_OK;
}

/* As it was given, where an option has several values. */
static void assert_named(const struct gn_train_feature *f, const struct gn_train_options *o, const char *text)
{
	const char *value = f->value(o);
	char name[80];

	snprintf(name, sizeof name, "%.*s%s%s", (int)strcspn(f->name, value ? " " : ""), f->name, value ? " " : "", value ? value : "");
	assert_non_null(strstr(text, name));
}

/* Every pair: refused exactly if the table, with what an option implies, has it; and by name, with the reason. */
static void test_pairs(void **state)
{
	size_t features, conflicts;
	const struct gn_train_feature *f = gn_train_features(&features);
	const struct gn_train_conflict *c = gn_train_conflicts(&conflicts);

	(void)state;
	for (size_t a = 0; a < features; a++)
		for (size_t b = a; b < features; b++) {
			struct gn_train_options o = plain;
			struct gn_err err = {0};
			size_t found = conflicts;

			ask(&o, f[a].example);
			ask(&o, f[b].example);
			for (size_t i = conflicts; i-- > 0;)
				if (c[i].one->is_asked(&o) && c[i].other->is_asked(&o))
					found = i;
			assert_int_equal(is_refused(f[a].example, f[b].example, &err), found < conflicts);
			if (found == conflicts)
				continue;
			assert_int_equal(err.status, GN_ERR_USAGE);
			assert_named(c[found].one, &o, err.text);
			assert_named(c[found].other, &o, err.text);
			assert_non_null(strstr(err.text, c[found].reason));
		}
}

/* Each entry works: alone it is accepted, and nothing else asks for it. */
static void test_entries(void **state)
{
	size_t features, conflicts;
	const struct gn_train_feature *f = gn_train_features(&features);
	const struct gn_train_conflict *c = gn_train_conflicts(&conflicts);
	struct gn_err err;

	(void)state;
	for (size_t a = 0; a < features; a++) {
		struct gn_train_options o = plain;

		assert_false(f[a].is_asked(&o));
		ask(&o, f[a].example);
		assert_true(f[a].is_asked(&o));
		assert_ok(gn_train_check_options(&o, &err));
	}
	for (size_t i = 0; i < conflicts; i++)
		assert_true(is_refused(c[i].one->example, c[i].other->example, &err));
}

/* In Markdown: a row for each pair that is refused. */
static void put_conflicts(struct gn_strbuf *out)
{
	size_t count;
	const struct gn_train_conflict *c = gn_train_conflicts(&count);

	gn_strbuf_puts(out, "| option | not with | because |\n|---|---|---|\n");
	for (size_t i = 0; i < count; i++)
		gn_strbuf_printf(out, "| `%s` | `%s` | %s |\n", c[i].one->name, c[i].other->name, c[i].reason);
}

/* The page has the table. */
static void test_page(void **state)
{
	const char *source = getenv("GN_SOURCE");
	struct gn_strbuf table;
	char path[4096], *text;
	struct gn_err err;
	size_t len;

	(void)state;
	if (!source)
		skip();
	snprintf(path, sizeof path, "%s/src/man/training.md", source);
	assert_ok(gn_file_load(path, 1 << 20, &text, &len, &err));
	gn_strbuf_init(&table);
	put_conflicts(&table);
	if (!strstr(text, gn_strbuf_text(&table)))
		fail_msg("%s lacks this table, or has another:\n%s", path, gn_strbuf_text(&table));
	gn_strbuf_release(&table);
	free(text);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_pairs), cmocka_unit_test(test_entries), cmocka_unit_test(test_page)};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
