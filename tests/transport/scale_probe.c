/* Many ranks on one machine that have a control plane and nothing else: world, heartbeat and bootstrap, no communicator.
 * usage: scale_probe fork RANKS IDLE_MS           processes that meet over MASTER_ADDR
 *        scale_probe launch RANKS GANNET          the same by PMIx, under GANNET launch
 *        scale_probe rank FILE                    what launch starts
 * Prints one line: ranks, seconds to start (until the last has been in an exchange behind the world's own), seconds to end (from
 * the time when all may, until the last has let go of its world), rank 0's largest resident memory in MB, and how much of a core
 * rank 0 takes while it does nothing, in % (fork; else -1).
 * PROBE_TIMEOUT_MS, PROBE_SILENT_MS: the world's limits. Exit codes as gannet's; of several failures the first rank's. */
#include "src/base/clock.h"
#include "src/base/log.h"
#include "tests/transport/exit_code.h"
#include "transport/bootstrap/world.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* What every rank sends in an exchange behind the world's own: as much as the addresses of a rail or two. */
#define ADDRESS_BYTES 256

struct times {
	uint64_t began_ns, started_ns, leaving_ns, left_ns;
};

/* Shared by all. */
struct board {
	double cpu_percent, resident_mb;
	struct times times[];
};

/* A rank waits for either to be closed by the parent; -1: it does not wait. */
struct gate {
	int ends[2];
};

static int limit(const char *name)
{
	return getenv(name) ? atoi(getenv(name)) : 0;
}

static size_t board_bytes(int ranks)
{
	return sizeof(struct board) + (size_t)ranks * sizeof(struct times);
}

static void open_gate(struct gate *g)
{
	if (pipe(g->ends)) {
		perror("pipe");
		exit(1);
	}
}

static void await_gate(const struct gate *g)
{
	char nothing;

	while (read(g->ends[0], &nothing, 1) < 0 && errno == EINTR)
		;
}

/* Of the whole process, whose other threads wait. */
static double idle_percent(int idle_ms)
{
	struct timespec before, after, pause = {idle_ms / 1000, idle_ms % 1000 * 1000000L};
	uint64_t began = gn_clock_ns();
	double cpu_ns;

	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &before);
	nanosleep(&pause, NULL);
	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &after);
	cpu_ns = (double)(after.tv_sec - before.tv_sec) * 1e9 + (double)(after.tv_nsec - before.tv_nsec);
	return 100 * cpu_ns / (double)(gn_clock_ns() - began);
}

static double resident_mb(void)
{
	struct rusage use;

	getrusage(RUSAGE_SELF, &use);
	return (double)use.ru_maxrss / 1e3;
}

static enum gn_status start(struct gn_log *log, struct gn_world **world, struct gn_err *err)
{
	struct gn_world_options limits = {.limits = {limit("PROBE_TIMEOUT_MS") / 1e3, limit("PROBE_SILENT_MS") / 1e3, 0}};
	char address[ADDRESS_BYTES] = "";
	struct gn_gathered all = {0};
	enum gn_status status = gn_world_create(&limits, log, world, err);

	if (status)
		return status;
	snprintf(address, sizeof address, "rank %d", gn_world_rank(*world));
	status = gn_world_exchange(*world, address, sizeof address, &all, err);
	for (int r = 0; !status && r < gn_world_size(*world); r++)
		if (all.lens[r] != sizeof address || atoi((char *)all.items[r] + 5) != r)
			status = gn_err_set(err, GN_ERR_DATA, "rank %d is said to have sent something else", r);
	gn_gathered_release(&all);
	return status;
}

/* ready: one byte is written to it once this rank has started; -1: nobody wants to know. */
static int be_rank(struct board *b, int ready, const struct gate *end, int idle_ms)
{
	struct gn_world *world = NULL;
	struct gn_log *log = NULL;
	uint64_t began = gn_clock_ns();
	struct times *t = NULL;
	struct gn_err err;
	int code = 0;

	gn_log_create(2, GN_LOG_WARN, &log, NULL);
	if (start(log, &world, &err)) {
		code = exit_code(&err);
	} else {
		t = &b->times[gn_world_rank(world)];
		t->began_ns = began;
		t->started_ns = gn_clock_ns();
		if (ready >= 0 && write(ready, "r", 1) != 1)
			code = 1;
		if (end && gn_world_rank(world) == 0)
			b->cpu_percent = idle_percent(idle_ms);
		if (end)
			await_gate(end);
		else if (gn_world_barrier(world, &err))
			code = exit_code(&err);
		if (gn_world_rank(world) == 0)
			b->resident_mb = resident_mb();
		t->leaving_ns = gn_clock_ns();
	}
	gn_world_destroy(world);
	if (t)
		t->left_ns = gn_clock_ns();
	gn_log_destroy(log);
	return code;
}

static uint64_t last(uint64_t a, uint64_t b)
{
	return a > b ? a : b;
}

static void print_row(const struct board *b, int ranks, uint64_t began, uint64_t ending)
{
	uint64_t started = 0, left = 0;

	for (int r = 0; r < ranks; r++) {
		started = last(started, b->times[r].started_ns);
		left = last(left, b->times[r].left_ns);
	}
	printf("%d %.2f %.2f %.1f %.2f\n", ranks, (double)(started - began) / 1e9, (double)(left - ending) / 1e9, b->resident_mb,
	       b->cpu_percent);
}

static int code_of(int status)
{
	return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

static void become_rank(struct board *b, int rank, int ready, const struct gate *begin, const struct gate *end, int idle_ms)
{
	char text[16];

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	close(begin->ends[1]);
	close(end->ends[1]);
	snprintf(text, sizeof text, "%d", rank);
	setenv("RANK", text, 1);
	await_gate(begin);
	_exit(be_rank(b, ready, end, idle_ms));
}

/* Until all have started, one of them ends, or nothing was heard for long; how many have. */
static int count_ready(int fd, int ranks)
{
	char bytes[256];
	ssize_t n;
	int count = 0;

	while (count < ranks && (n = read(fd, bytes, sizeof bytes)) > 0)
		count += (int)n;
	return count;
}

static int fork_ranks(int ranks, int idle_ms)
{
	struct board *b = mmap(NULL, board_bytes(ranks), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	struct gate ready, begin, end;
	struct timespec idle = {idle_ms / 1000, idle_ms % 1000 * 1000000L + 100000000};
	uint64_t began, ending;
	int status, code = 0;
	char size[16];

	if (b == MAP_FAILED)
		return perror("mmap"), 1;
	open_gate(&ready);
	open_gate(&begin);
	open_gate(&end);
	snprintf(size, sizeof size, "%d", ranks);
	setenv("WORLD_SIZE", size, 1);
	for (int r = 0; r < ranks; r++) {
		pid_t pid = fork();

		if (pid < 0)
			return perror("fork"), 1;
		if (pid == 0) {
			close(ready.ends[0]);
			become_rank(b, r, ready.ends[1], &begin, &end, idle_ms);
		}
	}
	close(ready.ends[1]);
	began = gn_clock_ns();
	close(begin.ends[1]);
	if (count_ready(ready.ends[0], ranks) == ranks)
		nanosleep(&idle, NULL);
	ending = gn_clock_ns();
	close(end.ends[1]);
	while (waitpid(-1, &status, 0) > 0)
		if (!code)
			code = code_of(status);
	if (!code)
		print_row(b, ranks, began, ending);
	return code;
}

static struct board *map_file(const char *path)
{
	int fd = open(path, O_RDWR | O_CLOEXEC);
	struct stat info;
	void *b = MAP_FAILED;

	if (fd >= 0 && !fstat(fd, &info))
		b = mmap(NULL, (size_t)info.st_size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (fd >= 0)
		close(fd);
	if (b == MAP_FAILED) {
		perror(path);
		exit(1);
	}
	return b;
}

/* The end begins when the first is through with the barrier before it. */
static int launch_ranks(char *self, int ranks, char *gannet)
{
	char path[] = "/tmp/gn-scale.XXXXXX", size[16];
	int fd = mkstemp(path), status = 0, code;
	uint64_t began = gn_clock_ns(), ending = UINT64_MAX;
	char *argv[] = {gannet, "launch", "-n", size, "--", self, "rank", path, NULL};
	struct board *b;
	pid_t pid;

	if (fd < 0 || ftruncate(fd, (off_t)board_bytes(ranks)))
		return perror(path), 1;
	close(fd);
	b = map_file(path);
	b->cpu_percent = -1;
	snprintf(size, sizeof size, "%d", ranks);
	pid = fork();
	if (pid == 0) {
		execvp(gannet, argv);
		perror(gannet);
		_exit(127);
	}
	while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
		;
	unlink(path);
	code = code_of(status);
	for (int r = 0; r < ranks; r++)
		ending = b->times[r].leaving_ns < ending ? b->times[r].leaving_ns : ending;
	if (!code)
		print_row(b, ranks, began, ending);
	return code;
}

int main(int argc, char **argv)
{
	const char *mode = argc > 1 ? argv[1] : "";

	if (!strcmp(mode, "fork") && argc == 4 && atoi(argv[2]) > 0)
		return fork_ranks(atoi(argv[2]), atoi(argv[3]));
	if (!strcmp(mode, "launch") && argc == 4 && atoi(argv[2]) > 0)
		return launch_ranks(argv[0], atoi(argv[2]), argv[3]);
	if (!strcmp(mode, "rank") && argc == 3)
		return be_rank(map_file(argv[2]), -1, NULL, 0);
	fprintf(stderr, "usage: see tests/transport/scale_probe.c\n");
	return 2;
}
