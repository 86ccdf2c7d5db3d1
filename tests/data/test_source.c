/* The walk through a folder: what is handed over, in which order, and at what cost. stat and scandir are the ones below. */
#include "data/pack/source.h"
#include "tests/test.h"

#include <dirent.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { FOLDERS = 12, FILES = 40 };

static char root[] = "/tmp/gannet-source-XXXXXX";
static atomic_int stats;
static int hide_types;

int stat(const char *restrict path, struct stat *restrict info)
{
	atomic_fetch_add(&stats, 1);
	return fstatat(AT_FDCWD, path, info, 0);
}

typedef int scandir_function(const char *, struct dirent ***, int (*)(const struct dirent *),
			     int (*)(const struct dirent **, const struct dirent **));

/* A file system that gives no types, when hide_types is set. */
int scandir(const char *restrict path, struct dirent ***restrict list, int (*filter)(const struct dirent *),
	    int (*compare)(const struct dirent **, const struct dirent **))
{
	void *symbol = dlsym(RTLD_NEXT, "scandir");
	scandir_function *real;
	int count;

	memcpy(&real, &symbol, sizeof real);
	count = real(path, list, filter, compare);
	for (int i = 0; i < count && hide_types; i++)
		(*list)[i]->d_type = DT_UNKNOWN;
	return count;
}

struct seen {
	char last[256];
	int files, empty, problems, second;
	uint64_t passed;
};

static enum gn_status take_file(void *context, const struct gn_source_file *file, struct gn_err *err)
{
	struct seen *s = context;

	(void)err;
	assert_null(file->bytes);
	assert_true(strcmp(file->name, s->last) > 0);
	snprintf(s->last, sizeof s->last, "%s", file->name);
	assert_non_null(file->levels.first);
	assert_memory_equal(file->name, file->levels.first, strlen(file->levels.first));
	s->second += file->levels.second && !strcmp(file->levels.second, "below");
	s->problems += file->problem != NULL;
	s->files++;
	return GN_OK;
}

static enum gn_status take_empty(void *context, const char *name, const struct gn_source_levels *levels, struct gn_err *err)
{
	struct seen *s = context;

	(void)err;
	assert_string_equal(name, "void");
	assert_string_equal(levels->first, "void");
	assert_null(levels->second);
	s->empty++;
	return GN_OK;
}

static void touch(const char *name)
{
	char path[512];
	int fd;

	snprintf(path, sizeof path, "%s/%s", root, name);
	fd = open(path, O_WRONLY | O_CREAT, 0600);
	assert_true(fd >= 0);
	close(fd);
}

static void make_folder(const char *name)
{
	char path[512];

	snprintf(path, sizeof path, "%s/%s", root, name);
	assert_int_equal(mkdir(path, 0700), 0);
}

static int make_tree(void **state)
{
	char name[256], path[512];

	(void)state;
	assert_non_null(mkdtemp(root));
	for (int i = 0; i < FOLDERS; i++) {
		snprintf(name, sizeof name, "c%02d", i);
		make_folder(name);
		for (int k = 0; k < FILES; k++) {
			snprintf(name, sizeof name, "c%02d/%03d.jpg", i, k);
			touch(name);
		}
	}
	make_folder("c00/below");
	touch("c00/below/x.jpg");
	make_folder("void");
	touch("void/.hidden");
	make_folder("__MACOSX");
	touch("__MACOSX/y.jpg");
	touch("README.md");
	snprintf(path, sizeof path, "%s/c01/link.jpg", root);
	return symlink("nowhere", path);
}

static int remove_tree(void **state)
{
	char command[512];

	(void)state;
	snprintf(command, sizeof command, "rm -rf %s", root);
	return system(command);
}

static void walk(struct seen *s, int threads)
{
	const struct gn_source_sink sink = {s, take_file, take_empty, &s->passed};
	struct gn_thread_pool *pool;
	struct gn_err err;

	memset(s, 0, sizeof *s);
	assert_ok(gn_thread_pool_create(threads, 4, &pool, &err));
	atomic_store(&stats, 0);
	assert_ok(gn_source_walk(root, pool, &sink, &err));
	gn_thread_pool_destroy(pool);
	assert_int_equal(s->files, FOLDERS * FILES + 2);
	assert_int_equal(s->second, 1);
	assert_int_equal(s->problems, 1);
	assert_int_equal(s->empty, 1);
	assert_int_equal(s->passed, 3);
}

static void files_are_not_looked_at_one_by_one(void **state)
{
	struct seen s;

	(void)state;
	for (int threads = 1; threads < 5; threads++) {
		walk(&s, threads);
		/* each folder, the link, and the source itself twice */
		assert_in_range(atomic_load(&stats), 1, FOLDERS + 2 + 1 + 2);
	}
}

static void without_types_they_are(void **state)
{
	struct seen s;

	(void)state;
	hide_types = 1;
	walk(&s, 3);
	hide_types = 0;
	assert_in_range(atomic_load(&stats), FOLDERS * FILES, 2 * FOLDERS * FILES);
}

static enum gn_status stop_at_once(void *context, const struct gn_source_file *file, struct gn_err *err)
{
	(void)context;
	(void)file;
	return gn_err_set(err, GN_ERR_STOPPED, "enough");
}

static void an_end_waits_for_what_is_being_listed(void **state)
{
	struct seen s = {0};
	const struct gn_source_sink sink = {&s, stop_at_once, take_empty, &s.passed};
	struct gn_thread_pool *pool;
	struct gn_err err;

	(void)state;
	assert_ok(gn_thread_pool_create(2, 4, &pool, &err));
	assert_int_equal(gn_source_walk(root, pool, &sink, &err), GN_ERR_STOPPED);
	assert_string_equal(err.text, "enough");
	gn_thread_pool_destroy(pool);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(files_are_not_looked_at_one_by_one),
		cmocka_unit_test(without_types_they_are),
		cmocka_unit_test(an_end_waits_for_what_is_being_listed),
	};

	return cmocka_run_group_tests_name("source", tests, make_tree, remove_tree);
}
