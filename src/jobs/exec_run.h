/* The programs of all ranks while they run: the first that fails ends the others, and rank 0 says which it was.
 *
 * A rank whose program fails tells rank 0 through the world's heartbeat, which tells all; their programs get SIGTERM, and SIGKILL
 * after a while. A rank that is lost itself (its node died, it was killed) ends the others, too. Collective.
 */
#ifndef GN_JOBS_EXEC_RUN_H
#define GN_JOBS_EXEC_RUN_H

#include "src/base/status.h"
#include "src/base/strbuf.h"
#include "src/jobs/exec_environment.h"
#include "transport/bootstrap/world.h"
#include "transport/topology/topology.h"

#include <sched.h>
#include <stddef.h>
#include <stdint.h>

/* The program that gannet exec starts in its own place: output passed on line by line, with its last lines remembered; signals; why it
 * ended.
 *
 * The child is the leader of a process group, unless standard input is a terminal, which then stays its own; it is killed when this
 * process dies, with all that it has started (exec_guard.h), and so is all that it leaves behind when it ends. One in a process, which takes SIGTERM, SIGINT, SIGHUP, SIGUSR1, SIGUSR2 and
 * SIGCHLD over for good; those that were ignored stay so, for the program, too. Thread safety: one thread. */

struct gn_exec_child;

struct gn_exec_child_options {
	char *const *argv;
	const struct gn_exec_place *place;
	const struct gn_exec_environment *environment;
	const cpu_set_t *cores; /* to bind to; an empty set: as this process */
	int label;		/* lines begin with the rank */
};

/* Until this is called signals do what they do to any process: end it. */
enum gn_status gn_exec_child_start(const struct gn_exec_child_options *options, struct gn_exec_child **out, struct gn_err *err);
/* Waits at most timeout_ms for output, signals or the end; passes them on. 0 once the program has ended and its output is through. */
int gn_exec_child_turn(struct gn_exec_child *c, int timeout_ms);
/* For the group: SIGTERM, SIGKILL. */
void gn_exec_child_signal(struct gn_exec_child *c, int number);
/* Once it has ended: its exit code, 128 and the signal's number if a signal ended it, 1 if it succeeded and its output was lost. */
int gn_exec_child_code(const struct gn_exec_child *c);
/* The signal that was passed on last; 0: none. */
int gn_exec_child_passed_on(const struct gn_exec_child *c);
/* Appends "exit code 7", "killed by signal 9 (Killed): out of memory, the limit of its cgroup is 2.0 GiB". */
void gn_exec_child_reason(const struct gn_exec_child *c, struct gn_strbuf *out);
/* What it wrote to standard error at last, at most 2,000 characters, "" if that is a terminal. Borrowed. */
const char *gn_exec_child_last_lines(const struct gn_exec_child *c);
/* Kills what is left. NULL is fine. */
void gn_exec_child_destroy(struct gn_exec_child *c);

struct gn_exec_run_options {
	struct gn_exec_child_options child;
	int starts;   /* this rank starts a program; without, it waits for the others' end */
	int grace_s;  /* between SIGTERM and SIGKILL */
};

struct gn_exec_outcome {
	int code;  /* to end with: 0, of the program that failed first, 4 for a lost rank */
	int rank;  /* that failed first, -1: none */
	int lost;  /* the rank itself is lost: reason tells how */
	double seconds; /* from the start of this rank's program to when the failure was known here */
	struct gn_strbuf reason, last_lines;
};

/* Blocks until all programs have ended. Of a failure every rank has an outcome of its own, rank 0's is the one to report. *out is
 * released by gn_exec_outcome_release(), after a failure, too. */
enum gn_status gn_exec_run(struct gn_world *world, const struct gn_exec_run_options *options, struct gn_exec_outcome *out,
			   struct gn_err *err);
void gn_exec_outcome_release(struct gn_exec_outcome *o);

/* A failure as it travels: at most 400 characters in one line. Appends it to out. */
void gn_exec_failure_write(int code, const char *reason, const char *last_lines, struct gn_strbuf *out);
/* From the text of an error that has one in it; 0 when it has none. */
int gn_exec_failure_read(const char *text, int *code, struct gn_strbuf *reason, struct gn_strbuf *last_lines);

/* What one process finds out about its own machine before the program starts, and how the processes of a node share it.
 *
 * struct gn_exec_local travels between ranks as it is. Thread safety: any thread. */

struct gn_exec_local {
	cpu_set_t cpus;		   /* that this process may run on */
};

/* A port that is free and that the system gives to no connection by itself (outside of net.ipv4.ip_local_port_range), drawn at
 * random; it is held by *listener until that is closed. */
enum gn_status gn_exec_local_port(int32_t *port, int *listener, struct gn_err *err);
/* This host's address and interface on the way to master; known: the address, when it is known already. Empty when there is no way. */
void gn_exec_local_address(const char *known, const char *master, int port, char address[64], char ifname[64]);
/* cores: of `count` processes of this node the share of number `rank`, near its GPU; none where they were bound before (their sets
 * differ) or there are fewer processors than processes. gpus: indices in order of PCI address, so that number `rank` has its own at
 * that place; "" without GPUs. */
void gn_exec_local_share(const struct gn_exec_local *const *all, int count, int rank, cpu_set_t *cores, char *gpus, size_t gpus_size);

/* For each of count processes a GPU that no other has, of its own NUMA node where there is one; several share where there are fewer
 * GPUs. own[count]: which; order[m->gpu_count]: the processes' GPUs in their order, then those that are left. Returns how many. */
int gn_exec_local_order_gpus(const struct gn_topology *m, const cpu_set_t *cpus, int count, int *order, int *own);

#endif
