/* What the nodes of a job are worth, measured before it starts: processors, memory, disk, network of every pair, clocks, software, mounts
 * and limits; and which node is not like the others.
 *
 * gn_preflight_host_measure() is local; gn_preflight_network() and gn_preflight_clocks() are collective; gn_preflight_judge() is a pure
 * function of what all have found. struct gn_preflight_host travels between ranks as it is: one build of one program.
 */
#ifndef GN_JOBS_PREFLIGHT_H
#define GN_JOBS_PREFLIGHT_H

#include "src/base/json.h"
#include "src/base/status.h"
#include "transport/coll/comm.h"

#include <stdint.h>

#define GN_PREFLIGHT_TEXT 80
#define GN_PREFLIGHT_MOUNTS 4096

/* As NVIDIA's management library tells. */
struct gn_preflight_gpus {
	int32_t count, lost; /* count -1: the library is not there; lost: of them cannot be asked */
	uint64_t ecc_errors; /* uncorrected, since the driver was loaded; of all */
	uint64_t throttle;   /* nvmlClocksThrottleReason bits of any */
	char why[100];	     /* of the first that is lost, or of the library; "": none */
};

struct gn_preflight_host {
	char host[64];
	double gflops, memory_gb_per_s; /* by all processors that the task may use, while it has them; 10^9 */
	double share; /* of these processors that it has had, 1: all */
	double write_mb_per_s, read_mb_per_s; /* of the disk; 10^6; 0: not measured */
	double free_gb; /* below 0: not measured */
	double ahead_s, uncertain_s; /* its clock, of the first node's; uncertain: at most so far off */
	double out_gbit_per_s, in_gbit_per_s, latency_us; /* medians over all other nodes; 0: not measured */
	int32_t processors, rank, local_errno; /* of opening a file in the measured folder; 0: it worked */
	uint64_t mounts_missing; /* bit i: the i-th that the options ask for; of the first 64 */
	uint64_t memory_bytes, memlock_bytes, nofile; /* UINT64_MAX: unlimited */
	char gannet[GN_PREFLIGHT_TEXT], binary[GN_PREFLIGHT_TEXT]; /* version and source digest; digest of the program's file */
	char ucx[GN_PREFLIGHT_TEXT], pmix[GN_PREFLIGHT_TEXT], libc[GN_PREFLIGHT_TEXT], kernel[GN_PREFLIGHT_TEXT];
	char model[GN_PREFLIGHT_TEXT], driver[GN_PREFLIGHT_TEXT]; /* of the processors; of NVIDIA, "" without */
	struct gn_preflight_gpus gpus;
	char mounts[GN_PREFLIGHT_MOUNTS]; /* where real file systems are mounted, each with a line break behind */
	char problem[256]; /* what could not be measured, and why */
};

struct gn_preflight_options {
	const char *local;		/* folder whose disk is measured; NULL: none */
	const char *const *mounts;	/* that each node must have */
	size_t mount_count;
	double window_s;		/* of each measurement; 0: 0.25 */
	double max_skew_s, min_free_gb;
};

/* Blocks for some seconds. What cannot be measured is a problem of the host, not an error. */
void gn_preflight_host_measure(const struct gn_preflight_options *options, struct gn_preflight_host *out);

/* The partner of node i in round r of n nodes: each pair meets once in n - 1 rounds (n even) or n; -1: none in this round. */
int gn_preflight_partner(int i, int r, int n);
/* Collective. Between the first ranks of all nodes; other ranks take part and measure nothing. out[node of a][node of b] at a * n + b:
 * rate from a to b in Gbit/s and one-way time in us, n = gn_world_nodes(); the same on all ranks. */
enum gn_status gn_preflight_network(struct gn_comm *comm, double window_s, double *rate, double *latency, struct gn_err *err);
/* Collective. ahead_s and uncertain_s of this rank's host. */
enum gn_status gn_preflight_clocks(struct gn_comm *comm, struct gn_preflight_host *host, struct gn_err *err);

/* What is wrong with a node: "network out 0.47 Gbit/s, others 0.94". */
struct gn_preflight_problem {
	int node;
	const char *what; /* a key: "processors", "clock", ... */
	char text[200];
};

#define GN_PREFLIGHT_PROBLEMS_MAX 1024

/* count hosts in order of node. rate, latency: as gn_preflight_network gives them, NULL for none; hosts get their medians. baseline: one
 * host's expected measurements, NULL: none. Returns how many problems were written, in order of node. */
size_t gn_preflight_judge(const struct gn_preflight_options *options, struct gn_preflight_host *hosts, int count, const double *rate,
			  const double *latency, const struct gn_preflight_host *baseline, struct gn_preflight_problem *out);

/* The whole result as one JSON object; what was not measured is null. */
void gn_preflight_write(const struct gn_preflight_host *hosts, int count, const double *rate, const double *latency,
			const struct gn_preflight_problem *problems, size_t problem_count, double seconds, struct gn_json *out);
/* Medians of the measurements in a file written before, as one host's. */
enum gn_status gn_preflight_baseline(const char *path, struct gn_preflight_host *out, struct gn_err *err);

#endif
