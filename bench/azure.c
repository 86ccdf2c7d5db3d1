/* Reproduces a published scaling table (images/s at 1, 4, 8, 16 and 32 GPUs, 4 a node) with the simulator: what is unknown
 * is fitted to the columns of 1, 4 and 8, the columns of 16 and 32 are predicted and compared.
 *
 * A step takes t1 + max(0, C - f t1): t1 is the step on one GPU, C the simulated allreduce of the gradient, f the share of
 * computing that hides it. Each row's rate within the node comes from its column of 4; each fabric's link rate and f come
 * from its rows' columns of 8 together. InfiniBand was staged through the host: within the node, then between nodes; Ethernet
 * used NCCL: one flat ring. A row that is slower at 4 than at 8 contradicts every such model: it says nothing of the fabric, and
 * its rate within the node is what leaves the least squares of relative errors in both of its columns. At least one row of each
 * fabric has to be another.
 * One size per point cannot tell latency from rate: latencies are given, 2 and 50 us, and matter little at 102 MB. */
#include "transport/sim/sim.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define BATCH 64
#define GRADIENT_BYTES 102228128u
#define ROWS_MAX 16

struct row {
	char gpu[16], fabric[16];
	double images[5]; /* a second at 1, 4, 8, 16, 32 */
	double node_rate, link_rate, hidden;
};

static double step_of(const struct row *r, int column)
{
	static const int gpus[] = {1, 4, 8, 16, 32};

	return BATCH * gpus[column] / r->images[column];
}

static int contradicts(const struct row *r)
{
	return step_of(r, 2) < step_of(r, 1);
}

/* The simulated allreduce over nodes of 4; below zero when the simulation fails. */
static double allreduce(const struct row *r, const char *algo, int nodes)
{
	struct gn_sim_topology t = {.nodes = nodes, .ranks_per_node = 4, .rails = 1, .link_bytes_per_s = r->link_rate,
				    .link_latency_s = strcmp(r->fabric, "ethernet") ? 2e-6 : 50e-6,
				    .node_bytes_per_s = r->node_rate, .node_latency_s = 5e-6, .oversubscription = 1,
				    .eager_bytes = 1e12, .send_overhead_s = 1e-6, .receive_overhead_s = 1e-6, .seed = 1};
	struct gn_sim_result result;

	if (gn_sim_run(&t, gn_algorithm_find(GN_COLLECTIVE_ALLREDUCE, algo), GRADIENT_BYTES, 1, 0, &result, NULL))
		return -1;
	return result.time_s;
}

static double predicted(const struct row *r, const char *algo, int nodes)
{
	return step_of(r, 0) + fmax(0, allreduce(r, algo, nodes) - r->hidden * step_of(r, 0));
}

/* The rate within the node, 10 MB/s .. 1 TB/s, that gives the column of 4; steps get shorter as rates grow. */
static void fit_node(struct row *r, const char *algo)
{
	double low = 1e7, high = 1e12;

	for (int i = 0; i < 40; i++) {
		r->node_rate = sqrt(low * high);
		*(predicted(r, algo, 1) > step_of(r, 1) ? &low : &high) = r->node_rate;
	}
}

/* Of one row, in its columns of 4 and 8. */
static double row_misfit(struct row *r, const char *algo, double node_rate)
{
	r->node_rate = node_rate;
	return pow(predicted(r, algo, 1) / step_of(r, 1) - 1, 2) + pow(predicted(r, algo, 2) / step_of(r, 2) - 1, 2);
}

/* By thirds; where two are alike the slower one, for beyond some rate all is hidden. */
static void fit_both(struct row *r, const char *algo)
{
	double low = log(1e7), high = log(1e12);

	for (int i = 0; i < 60; i++) {
		double a = low + (high - low) / 3, b = high - (high - low) / 3;

		if (row_misfit(r, algo, exp(a)) <= row_misfit(r, algo, exp(b)))
			high = b;
		else
			low = a;
	}
	r->node_rate = exp(low);
}

/* What the columns of 8 say against hidden and link_rate, summed squares of relative errors. */
static double misfit(struct row *rows, int count, const char *algo, double hidden, double rate)
{
	double sum = 0;

	for (int i = 0; i < count; i++) {
		if (contradicts(&rows[i]))
			continue;
		rows[i].hidden = hidden;
		rows[i].link_rate = rate;
		sum += pow(predicted(&rows[i], algo, 2) / step_of(&rows[i], 2) - 1, 2);
	}
	return sum;
}

static double best_rate(struct row *rows, int count, const char *algo, double hidden, double *least)
{
	double low = log(1e7), high = log(1e12);

	for (int i = 0; i < count; i++) {
		rows[i].hidden = hidden;
		fit_node(&rows[i], algo);
	}
	for (int i = 0; i < 40; i++) {
		double a = low + (high - low) / 3, b = high - (high - low) / 3;

		if (misfit(rows, count, algo, hidden, exp(a)) < misfit(rows, count, algo, hidden, exp(b)))
			high = b;
		else
			low = a;
	}
	*least = misfit(rows, count, algo, hidden, exp(low));
	return exp(low);
}

static void fit_fabric(struct row *rows, int count, const char *algo)
{
	double best = INFINITY, hidden = 0, rate, least;

	/* more hiding has to fit better, not just as well */
	for (int percent = 0; percent <= 66; percent += 3) {
		best_rate(rows, count, algo, percent / 100.0, &least);
		if (least < best * 0.99 - 1e-9) {
			best = least;
			hidden = percent / 100.0;
		}
	}
	rate = best_rate(rows, count, algo, hidden, &least);
	for (int i = 0; i < count; i++) {
		rows[i].link_rate = rate;
		if (contradicts(&rows[i]))
			fit_both(&rows[i], algo);
	}
}

static void report(struct row *rows, int count, const char *algo)
{
	fit_fabric(rows, count, algo);
	for (int i = 0; i < count; i++)
		for (int c = 1; c < 5; c++) {
			int nodes = 1 << (c - 1);
			double images = BATCH * 4.0 * nodes / predicted(&rows[i], algo, nodes);

			printf("%s\t%s\t%s\t%d\t%.0f\t%.0f\t%+.1f\t%s\t%.2f\t%.2f\t%.2f\n", rows[i].fabric, rows[i].gpu, algo,
			       4 * nodes, rows[i].images[c], images, (images / rows[i].images[c] - 1) * 100,
			       c > 2 ? "predicted" : "fitted", rows[i].node_rate / 1e9, rows[i].link_rate / 1e9, rows[i].hidden);
		}
}

int main(int argc, char **argv)
{
	struct row rows[ROWS_MAX];
	char line[256];
	int count = 0;
	FILE *f = argc == 2 ? fopen(argv[1], "re") : NULL;

	if (!f) {
		fprintf(stderr, "usage: azure FILE.tsv\n");
		return 2;
	}
	while (count < ROWS_MAX && fgets(line, sizeof line, f)) {
		struct row *r = &rows[count];

		*r = (struct row){.node_rate = 1e10, .link_rate = 1e9};
		if (*line != '#' && sscanf(line, "%15s %15s %lf %lf %lf %lf %lf", r->fabric, r->gpu, &r->images[0], &r->images[1],
					   &r->images[2], &r->images[3], &r->images[4]) == 7)
			count++;
	}
	fclose(f);
	printf("#fabric\tgpu\talgo\tgpus\tmeasured\tmodel\terror_%%\tcolumn\tnode_GB/s\tlink_GB/s\thidden\n");
	for (int first = 0, end; first < count; first = end) {
		for (end = first; end < count && !strcmp(rows[end].fabric, rows[first].fabric); end++)
			;
		/* the way that the fabric was used, then the other one, to show how much that matters */
		report(rows + first, end - first, strcmp(rows[first].fabric, "ethernet") ? "hierarchical" : "ring");
		report(rows + first, end - first, strcmp(rows[first].fabric, "ethernet") ? "ring" : "hierarchical");
	}
	return 0;
}
