/* One check of the conformance program: a few processes that load the plugin, talk to each other by pipes beside it, and are
 * all ended when the time is over.
 *
 * A check is a function that runs in every process. It returns when all is well; fail() ends it. What must not be left
 * standing (a crash, a hang, an exit) is seen by the parent.
 */
#ifndef GN_TESTS_TRANSPORT_PLUGIN_CLUSTER_H
#define GN_TESTS_TRANSPORT_PLUGIN_CLUSTER_H

#include "tests/transport/plugin/plug.h"

#include <stdint.h>

#define LAB_PROCESSES_MAX 4

/* How its processes end. */
enum { CODE_OK = 0, CODE_FAILED = 81, CODE_SKIPPED = 82 };

struct cluster_options {
	const char *path;
	int version, limit_s, connections, verbose;
};

struct cluster {
	const struct cluster_options *options;
	int rank, size;
	int wires[LAB_PROCESSES_MAX]; /* to the other processes */
	int result;		      /* where fail() writes */
	struct plug plug;
	void *context;
	int device;
	struct plug_properties properties;
};

struct cluster_check {
	const char *name, *promise;
	int processes, strict, seconds; /* seconds: 0 is the usual */
	void (*run)(struct cluster *cluster);
};

/* Runs the check in processes of its own. 0: it held; 1: it did not, text says why; 2: skipped, text says why. */
int cluster_run(const struct cluster_check *check, const struct cluster_options *options, char *text, size_t room);

void fail(struct cluster *cluster, const char *format, ...) __attribute__((format(printf, 2, 3), noreturn));
void skip(struct cluster *cluster, const char *format, ...) __attribute__((format(printf, 2, 3), noreturn));
/* fail() when rc is not 0. */
void must(struct cluster *cluster, int rc, const char *what);

double now_s(void);
void nap(int milliseconds);
/* Through the pipes. */
void tell(struct cluster *cluster, int rank, const void *data, size_t bytes);
void hear(struct cluster *cluster, int rank, void *data, size_t bytes);
void meet(struct cluster *cluster); /* all of them */

/* Loads the plugin and initialises it, once. */
void cluster_load(struct cluster *cluster);
void cluster_unload(struct cluster *cluster);
gn_nccl_logger cluster_logger;

/* A connection from rank `from` to rank `to`, both of which call it; the comm of this end. */
void *cluster_pair(struct cluster *cluster, int from, int to);
void *cluster_listen(struct cluster *cluster, void *handle);
void *cluster_connect(struct cluster *cluster, void *handle);
void *cluster_accept(struct cluster *cluster, void *listen_comm);
void cluster_close(struct cluster *cluster, int sends, void *comm);

/* Contents that tell which message it is. */
void fill(void *data, size_t bytes, uint64_t seed);
/* Position of the first byte that is wrong, or -1. */
long wrong(const void *data, size_t bytes, uint64_t seed);

/* Retried until there is a request. */
void *send_one(struct cluster *cluster, void *comm, void *data, size_t bytes, int tag, void *mhandle);
void *receive_one(struct cluster *cluster, void *comm, void *data, size_t bytes, int tag, void *mhandle);
/* Until done; sizes may be NULL. */
void await(struct cluster *cluster, void *request, int *sizes);
void *reg(struct cluster *cluster, void *comm, void *data, size_t bytes);
void dereg(struct cluster *cluster, void *comm, void *mhandle);
/* One message over a connection, both ends of which call it. */
void one_message(struct cluster *cluster, int sends, void *comm, size_t bytes, uint64_t seed);
int count_descriptors(void);
/* fail() when it has taken longer than closing may: 6 s with the default limit, more where --limit says that the machine is slow. */
void within(struct cluster *cluster, double began_s, const char *what);
/* After all that, does a new connection between 0 and 1 work? Ends with cluster_unload(). */
void still_works(struct cluster *cluster);

extern const struct cluster_check checks_basic[], checks_life[], checks_hard[], checks_stop[];

#endif
