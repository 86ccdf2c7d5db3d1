/* Threads of a rank: those that compute, and with --loader-threads auto how many threads read and decode, from what the first steps take. */
#include "src/train/loop/session.h"

#include "src/base/thread_pool.h"
#include "src/train/loop/input.h"
#include "src/train/plan/contention.h"

#include <math.h>
#include <omp.h>
#include <unistd.h>

enum { FIRST_GUESS = 2, MOST = 64, FIRST_STEPS = 8, GROWTH = 4, DECISIONS = 3 };
/* decoding takes more of some steps than of others; a share of time that is worth another thread */
static const double reserve = 1.2, wait_share = 0.03;

int gn_loader_threads_most(const struct gn_session *s)
{
	int all = (int)sysconf(_SC_NPROCESSORS_ONLN), mine = gn_cpu_count();

	if (s->options->loader_threads)
		return (int)s->options->loader_threads;
	/* a rank that is not bound shares with the other ranks of its node */
	if (mine >= all)
		mine /= gn_world_local_size(gn_comm_world(s->comm));
	return mine < 1 ? 1 : mine > MOST ? MOST : mine;
}

int gn_loader_threads_choose(double decode_s, double step_s, double waited_s, int now, int most)
{
	double need = step_s > waited_s ? ceil(reserve * decode_s / (step_s - waited_s)) : most;
	int waits = waited_s > wait_share * step_s, count = need < most ? (int)need : most;

	/* threads that are enough stay few; those that are not become more, whatever the estimate says */
	if (!waits && count > now)
		count = now;
	if (waits && count <= now)
		count = now + 1;
	return count < 1 ? 1 : count > most ? most : count;
}

void gn_loader_threads_begin(struct gn_session *s)
{
	struct gn_session_threads *t = &s->loader_threads;

	if (s->options->loader_threads)
		return;
	if (!t->count)
		t->count = gn_loader_threads_most(s) < FIRST_GUESS ? gn_loader_threads_most(s) : FIRST_GUESS;
	gn_loader_set_threads(s->data.loader, t->count);
	gn_loader_effort(s->data.loader, &t->before);
	t->steps = 0;
	t->step_s = t->waited_s = 0;
	t->after = FIRST_STEPS;
	t->decisions = 0;
}

/* On the statistics of t->steps steps. */
static void decide(struct gn_session *s)
{
	struct gn_session_threads *t = &s->loader_threads;
	int most = gn_loader_threads_most(s), was = t->count;
	struct gn_loader_effort e;
	double samples, decode_s, step_s = t->step_s / t->steps, waited_s = t->waited_s / t->steps;

	gn_loader_effort(s->data.loader, &e);
	samples = (double)(e.samples - t->before.samples);
	/* all that is read ahead is there already: that says what is needed, too, but not how long it takes */
	if (samples <= 0)
		return;
	decode_s = (e.busy_s - t->before.busy_s) / samples * (double)(s->options->batch * s->schedule.own_batches);
	t->count = gn_loader_threads_choose(decode_s, step_s, waited_s, was, most);
	gn_loader_set_threads(s->data.loader, t->count);
	if (gn_comm_rank(s->comm) == 0 && (t->count != was || !t->decisions))
		gn_log_info(s->log, "loader threads: %d on rank 0 (%s %d; at most %d, its processors): the images of a step take one thread "
			    "%.1f ms to read and decode, a step %.1f ms, of which it waits %.1f ms for images", t->count,
			    t->count == was ? "as before," : "before", was, most, 1e3 * decode_s, 1e3 * step_s, 1e3 * waited_s);
	t->before = e;
}

void gn_loader_threads_note(struct gn_session *s, double step_s, double waited_s)
{
	struct gn_session_threads *t = &s->loader_threads;

	if (s->options->loader_threads || t->decisions == DECISIONS)
		return;
	t->steps++;
	t->step_s += step_s;
	t->waited_s += waited_s;
	if (t->steps < t->after)
		return;
	decide(s);
	t->decisions++;
	t->after *= GROWTH;
	t->steps = 0;
	t->step_s = t->waited_s = 0;
}

void gn_input_threads(int64_t threads, const struct gn_world *world, struct gn_log *log)
{
	int ranks = gn_world_local_size(world), share = gn_cpu_count() / ranks;

	omp_set_num_threads(threads > 0 ? (int)threads : share > 0 ? share : 1);
	gn_contention_watch(ranks, gn_world_local_rank(world) ? NULL : log);
}
