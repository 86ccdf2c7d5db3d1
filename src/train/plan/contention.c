#include "src/train/plan/contention.h"

#include "src/base/clock.h"
#include "src/base/file.h"
#include "src/base/text.h"
#include "src/base/thread.h"

#include <inttypes.h>
#include <omp.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define LOOK_NS 100000000u
/* Of the time since the last look. */
#define CONTENDED(waited, wall) ((waited) > (wall) / 8)
#define CALM(waited, wall) ((waited) < (wall) / 25)
#define CALM_LOOKS 50
#define WARN_NS 3000000000u

static struct {
	int thread, ranks, calm, is_held;
	struct gn_log *log;
	uint64_t looked_ns, waited_ns; /* at the last look */
	uint64_t since_ns, before_ns;  /* of contention without a calm look: its start, and what had been waited by then; 0: there is none */
	pthread_t holder;
	sem_t release;
} watch;

static uint64_t read_waited(void)
{
	uint64_t waited = 0;
	char text[128];

	if (gn_file_read_start("/proc/thread-self/schedstat", text, sizeof text) <= 0 || sscanf(text, "%*u %" SCNu64, &waited) != 1)
		return 0;
	return waited;
}

/* Threads that libgomp counts until this one ends. */
static void *hold(void *threads)
{
#pragma omp parallel num_threads(*(int *)threads)
	__asm__ volatile(""); /* which is not nothing: the threads are started */
	free(threads);
	while (sem_wait(&watch.release))
		;
	return NULL;
}

static void spin_less(void)
{
	int *threads = getenv("OMP_WAIT_POLICY") || getenv("GOMP_SPINCOUNT") ? NULL : malloc(sizeof *threads);

	if (!threads)
		return;
	*threads = omp_get_num_procs() - omp_get_max_threads() + 2;
	*threads = *threads > 2 ? *threads : 2;
	watch.is_held = !sem_init(&watch.release, 0, 0) && !gn_thread_start(&watch.holder, hold, threads);
	if (!watch.is_held)
		free(threads);
}

static void spin_as_ever(void)
{
	sem_post(&watch.release);
	pthread_join(watch.holder, NULL);
	sem_destroy(&watch.release);
	watch.is_held = 0;
}

static void warn(uint64_t now, uint64_t waited)
{
	double share = 100.0 * (double)(waited - watch.before_ns) / (double)(now - watch.since_ns);
	int threads = omp_get_max_threads(), processors = omp_get_num_procs();

	gn_log_warn(watch.log, "for %.0f %% of the time there is no processor to compute on: this rank may use %d processor%s, and this host's %d rank%s "
		    "%s %d thread%s each; %s", share, processors, gn_text_plural((uint64_t)processors), watch.ranks,
		    gn_text_plural((uint64_t)watch.ranks), watch.ranks > 1 ? "have" : "has", threads, gn_text_plural((uint64_t)threads),
		    watch.ranks * threads <= processors ? "other programs use them: stop those, or ask for processors of your own (srun --exclusive)"
							: "give fewer --threads or ranks a node, unless other programs use them");
	watch.log = NULL;
}

void gn_contention_watch(int ranks, struct gn_log *log)
{
	watch.thread = gettid();
	watch.ranks = ranks;
	watch.log = log;
	watch.looked_ns = gn_clock_ns();
	watch.waited_ns = read_waited();
	watch.since_ns = 0;
}

void gn_contention_look(void)
{
	uint64_t now = gn_clock_ns(), wall = now - watch.looked_ns, before = watch.waited_ns, waited;

	if (wall < LOOK_NS || gettid() != watch.thread)
		return;
	waited = read_waited();
	if (waited < before)
		return;
	watch.calm = CALM(waited - before, wall) ? watch.calm + 1 : 0;
	if (CONTENDED(waited - before, wall)) {
		if (!watch.is_held)
			spin_less();
		if (!watch.since_ns) {
			watch.since_ns = watch.looked_ns;
			watch.before_ns = before;
		}
		if (watch.log && now - watch.since_ns > WARN_NS)
			warn(now, waited);
	} else if (watch.calm) {
		watch.since_ns = 0;
		if (watch.is_held && watch.calm > CALM_LOOKS)
			spin_as_ever();
	}
	watch.looked_ns = now;
	watch.waited_ns = waited;
}
