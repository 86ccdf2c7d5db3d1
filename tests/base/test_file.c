#include "tests/test.h"

#include "src/base/file.h"
#include "src/base/process.h"
#include "src/base/strbuf.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static char root[64];

static int make_root(void **state)
{
	(void)state;
	memcpy(root, "/tmp/gannet-file.XXXXXX", 24);
	return mkdtemp(root) ? 0 : -1;
}

static int drop_root(void **state)
{
	(void)state;
	return gn_remove_tree(root, NULL) ? -1 : 0;
}

static void test_replace_and_load(void **state)
{
	char path[128], *text;
	struct gn_strbuf words = {0};
	struct stat info;
	size_t len;
	struct gn_err err;
	mode_t old;

	(void)state;
	assert_ok(gn_path_join(path, sizeof path, root, "file", &err));
	assert_ok(gn_file_replace(path, "first", 5, &err));
	assert_ok(gn_file_replace(path, "second", 6, &err));
	assert_ok(gn_file_load(path, 100, &text, &len, &err));
	assert_int_equal(len, 6);
	assert_string_equal(text, "second");
	free(text);
	old = umask(077);
	gn_strbuf_puts(&words, "third");
	assert_ok(gn_file_replace_text(path, &words, GN_REPLACE_PUBLIC, &err));
	assert_ok(gn_path_join(path, sizeof path, root, "private", &err));
	assert_ok(gn_file_replace_text(path, &words, GN_REPLACE_UNSYNCED, &err));
	words.failed = 1;
	assert_int_equal(gn_file_replace_text(path, &words, GN_REPLACE_SYNCED, &err), GN_ERR_NO_MEMORY);
	gn_strbuf_release(&words);
	umask(old);
	assert_int_equal(stat(path, &info) ? 0 : info.st_mode & 0777, 0600);
	assert_ok(gn_path_join(path, sizeof path, root, "file", &err));
	assert_int_equal(stat(path, &info) ? 0 : info.st_mode & 0777, 0644);
	assert_int_equal(gn_file_load(path, 4, &text, &len, &err), GN_ERR_DATA);
	assert_int_equal(gn_file_load(root, 5, &text, &len, &err), GN_ERR_DATA);
}

static void test_replace_leaves_nothing_on_failure(void **state)
{
	char path[128], text[160];
	struct gn_err err;

	(void)state;
	snprintf(path, sizeof path, "%s/folder", root);
	assert_int_equal(mkdir(path, 0777), 0);
	assert_int_equal(gn_file_replace(path, "x", 1, &err), GN_ERR_IO);
	snprintf(text, sizeof text, "%s.tmp.%ld", path, (long)getpid());
	assert_int_equal(access(text, F_OK), -1);
	assert_int_equal(gn_file_replace("/nonexistent/file", "x", 1, &err), GN_ERR_IO);
}

static void test_path_from_program(void **state)
{
	char self[PATH_MAX], path[PATH_MAX], folder[PATH_MAX];
	struct gn_err err;

	(void)state;
	assert_ok(gn_path_from_program(NULL, self, sizeof self, &err));
	assert_true(gn_file_is_same(self, "/proc/self/exe"));
	assert_ok(gn_path_from_program("x/y", path, sizeof path, &err));
	*strrchr(self, '/') = 0;
	assert_memory_equal(path, self, strlen(self));
	assert_string_equal(path + strlen(self), "/x/y");
	*strrchr(self, '/') = 0;
	assert_ok(gn_path_from_program("../y", path, sizeof path, &err));
	snprintf(folder, sizeof folder, "%.4000s/y", self);
	assert_string_equal(path, folder);
	assert_ok(gn_path_from_program("../../../../../../../../../../../../../../../../../../../../y", path, sizeof path, &err));
	assert_string_equal(path + strspn(path, "/."), "y");
	assert_int_equal(gn_path_from_program("y", path, 2, &err), GN_ERR_USAGE);
}

static void test_short_file(void **state)
{
	char path[128], buffer[16];
	struct gn_err err;
	int fd;

	(void)state;
	assert_ok(gn_path_join(path, sizeof path, root, "short", &err));
	assert_ok(gn_file_replace(path, "12345", 5, &err));
	fd = open(path, O_RDONLY);
	assert_ok(gn_pread_full(fd, buffer, 3, 2, path, &err));
	assert_memory_equal(buffer, "345", 3);
	assert_int_equal(gn_pread_full(fd, buffer, 4, 2, path, &err), GN_ERR_DATA);
	assert_non_null(strstr(err.text, "1 bytes early"));
	close(fd);
}

static void test_parents(void **state)
{
	static const char *const all[][2] = {{"name", "."}, {"/name", "/"}, {"/a/name", "/a"}, {"a/b/name", "a/b"}, {"a/", "a"}, {"", "."}};
	char parent[PATH_MAX];

	(void)state;
	for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
		gn_path_parent(all[i][0], parent);
		assert_string_equal(parent, all[i][1]);
	}
}

static void test_dirs_and_links(void **state)
{
	char path[160], outside[96], file[160];
	struct gn_err err;

	(void)state;
	snprintf(path, sizeof path, "%s/a/b/c", root);
	assert_ok(gn_make_dirs(path, &err));
	assert_ok(gn_make_dirs(path, &err));
	snprintf(outside, sizeof outside, "%s/outside", root);
	assert_ok(gn_file_replace(outside, "x", 1, &err));
	assert_int_equal(gn_make_dirs(outside, &err), GN_ERR_IO);
	snprintf(file, sizeof file, "%s/a/link", root);
	assert_int_equal(symlink(outside, file), 0);
	snprintf(path, sizeof path, "%s/a", root);
	assert_ok(gn_remove_tree(path, &err));
	assert_int_equal(access(path, F_OK), -1);
	assert_int_equal(access(outside, F_OK), 0);
	assert_ok(gn_remove_tree(path, &err));
}

static void test_start(void **state)
{
	char path[128], text[8] = "before";
	struct gn_err err;

	(void)state;
	assert_ok(gn_path_join(path, sizeof path, root, "start", &err));
	assert_int_equal(gn_file_read_start(path, text, sizeof text), -1);
	assert_int_equal(errno, ENOENT);
	assert_string_equal(text, "");
	assert_int_equal(gn_file_read_start(root, text, sizeof text), -1);
	assert_ok(gn_file_replace(path, "1234567890", 10, &err));
	assert_int_equal(gn_file_read_start(path, text, sizeof text), 7);
	assert_string_equal(text, "1234567");
	assert_int_equal(gn_file_read_start("/dev/null", text, sizeof text), 0);
	assert_string_equal(text, "");
}

/* Of this process under a name like the end of a name, of a child that is stopped, and of one that has ended. */
static void test_process(void **state)
{
	struct gn_process self, child;
	siginfo_t info;
	pid_t pid;

	(void)state;
	assert_int_equal(prctl(PR_SET_NAME, "a) Z 1 2"), 0);
	assert_true(gn_process_read(getpid(), &self));
	assert_false(gn_process_has_ended(&self));
	assert_int_equal(self.parent, getppid());
	assert_int_equal(self.group, getpgrp());
	assert_in_range(gn_process_age_s() * 1000, 0, 600000);
	pid = fork();
	if (!pid) {
		setpgid(0, 0);
		raise(SIGSTOP);
		_exit(0);
	}
	assert_int_equal(waitid(P_PID, (id_t)pid, &info, WSTOPPED), 0);
	assert_true(gn_process_read(pid, &child));
	assert_int_equal(child.state, 'T');
	assert_int_equal(child.parent, getpid());
	assert_int_equal(child.group, pid);
	assert_true(child.start >= self.start);
	assert_int_equal(kill(pid, SIGCONT), 0);
	assert_int_equal(waitid(P_PID, (id_t)pid, &info, WEXITED | WNOWAIT), 0);
	assert_true(gn_process_read(pid, &child));
	assert_true(gn_process_has_ended(&child));
	assert_int_equal(waitpid(pid, NULL, 0), pid);
	assert_false(gn_process_read(pid, &child));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_replace_and_load),
		cmocka_unit_test(test_replace_leaves_nothing_on_failure),
		cmocka_unit_test(test_path_from_program),
		cmocka_unit_test(test_short_file),
		cmocka_unit_test(test_parents),
		cmocka_unit_test(test_dirs_and_links),
		cmocka_unit_test(test_start),
		cmocka_unit_test(test_process),
	};

	return cmocka_run_group_tests_name("base/file", tests, make_root, drop_root);
}
