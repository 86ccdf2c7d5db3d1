#include "src/train/metrics/usage.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

/* What each rank tells. */
struct own {
	double cpu_s, max_rss_bytes;
	cpu_set_t cpus;
};

static double seconds(struct timeval t)
{
	return (double)t.tv_sec + (double)t.tv_usec / 1e6;
}

/* Field 22 of /proc/self/stat, in ticks since boot; it follows the program's name, which may hold anything. */
static double process_age_s(void)
{
	FILE *file = fopen("/proc/self/stat", "re");
	char text[1024] = "", *at;
	unsigned long long started = 0;
	struct timespec now;

	if (!file)
		return 0;
	at = fgets(text, sizeof text, file) ? strrchr(text, ')') : NULL;
	fclose(file);
	if (!at || sscanf(at, ") %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d %*d %*d %*d %*d %*d %llu", &started) != 1 ||
	    clock_gettime(CLOCK_BOOTTIME, &now))
		return 0;
	return (double)now.tv_sec + (double)now.tv_nsec / 1e9 - (double)started / (double)sysconf(_SC_CLK_TCK);
}

/* One node after the other: the union of what its ranks may run on. */
static int count_processors(const struct gn_world *w, const struct gn_gathered *all)
{
	int count = 0;

	for (int node = 0; node < gn_world_nodes(w); node++) {
		cpu_set_t cpus;

		CPU_ZERO(&cpus);
		for (size_t r = 0; r < all->size; r++)
			if (gn_world_node_of(w, (int)r) == node)
				CPU_OR(&cpus, &cpus, &((const struct own *)all->items[r])->cpus);
		count += CPU_COUNT(&cpus);
	}
	return count;
}

enum gn_status gn_usage_gather(struct gn_world *w, struct gn_usage *out, struct gn_err *err)
{
	struct gn_usage u = {.age_s = process_age_s()};
	struct gn_gathered all = {0};
	struct rusage used;
	struct own mine;
	enum gn_status status;

	memset(&mine, 0, sizeof mine);
	getrusage(RUSAGE_SELF, &used);
	mine.cpu_s = seconds(used.ru_utime) + seconds(used.ru_stime);
	mine.max_rss_bytes = (double)used.ru_maxrss * 1024;
	sched_getaffinity(0, sizeof mine.cpus, &mine.cpus);
	status = gn_world_exchange(w, &mine, sizeof mine, &all, err);
	if (status)
		return status;
	for (size_t r = 0; r < all.size; r++) {
		const struct own *o = all.items[r];

		u.cpu_s += o->cpu_s;
		if (o->max_rss_bytes > u.max_rss_bytes) {
			u.max_rss_bytes = o->max_rss_bytes;
			u.max_rss_rank = (int)r;
		}
	}
	u.processors = count_processors(w, &all);
	gn_gathered_release(&all);
	*out = u;
	return GN_OK;
}

void gn_usage_write(const struct gn_usage *u, struct gn_json *j)
{
	gn_json_object(j, "usage");
	gn_json_fixed(j, "cpu_s", u->cpu_s, 3);
	gn_json_fixed(j, "age_s", u->age_s, 3);
	gn_json_int(j, "processors", u->processors);
	gn_json_fixed(j, "max_rss_bytes", u->max_rss_bytes, 0);
	gn_json_int(j, "max_rss_rank", u->max_rss_rank);
	gn_json_end(j);
}
