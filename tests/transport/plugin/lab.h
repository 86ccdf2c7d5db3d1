/* One check of the conformance program: a few processes that load the plugin, talk to each other by pipes beside it, and are
 * all ended when the time is over.
 *
 * A check is a function that runs in every process. It returns when all is well; fail() ends it. What must not be left
 * standing (a crash, a hang, an exit) is seen by the parent.
 */
#ifndef GN_TESTS_TRANSPORT_PLUGIN_LAB_H
#define GN_TESTS_TRANSPORT_PLUGIN_LAB_H

#include "tests/transport/plugin/plug.h"

#include <stdint.h>

#define LAB_PROCESSES_MAX 4

/* How its processes end. */
enum { CODE_OK = 0, CODE_FAILED = 81, CODE_SKIPPED = 82 };

struct lab_options {
	const char *path;
	int version, limit_s, connections, verbose;
};

struct lab {
	const struct lab_options *options;
	int rank, size;
	int wires[LAB_PROCESSES_MAX]; /* to the other processes */
	int result;		      /* where fail() writes */
	struct plug plug;
	void *context;
	int device;
	struct plug_properties properties;
};

struct lab_check {
	const char *name, *promise;
	int processes, strict, seconds; /* seconds: 0 is the usual */
	void (*run)(struct lab *lab);
};

/* Runs the check in processes of its own. 0: it held; 1: it did not, text says why; 2: skipped, text says why. */
int lab_run(const struct lab_check *check, const struct lab_options *options, char *text, size_t room);

void fail(struct lab *lab, const char *format, ...) __attribute__((format(printf, 2, 3), noreturn));
void skip(struct lab *lab, const char *format, ...) __attribute__((format(printf, 2, 3), noreturn));
/* fail() when rc is not 0. */
void must(struct lab *lab, int rc, const char *what);

double now_s(void);
void nap(int milliseconds);
/* Through the pipes. */
void tell(struct lab *lab, int rank, const void *data, size_t bytes);
void hear(struct lab *lab, int rank, void *data, size_t bytes);
void meet(struct lab *lab); /* all of them */

/* Loads the plugin and initialises it, once. */
void lab_load(struct lab *lab);
void lab_unload(struct lab *lab);
gn_nccl_logger lab_logger;

/* A connection from rank `from` to rank `to`, both of which call it; the comm of this end. */
void *lab_pair(struct lab *lab, int from, int to);
void *lab_listen(struct lab *lab, void *handle);
void *lab_connect(struct lab *lab, void *handle);
void *lab_accept(struct lab *lab, void *listen_comm);
void lab_close(struct lab *lab, int sends, void *comm);

/* Contents that tell which message it is. */
void fill(void *data, size_t bytes, uint64_t seed);
/* Position of the first byte that is wrong, or -1. */
long wrong(const void *data, size_t bytes, uint64_t seed);

/* Retried until there is a request. */
void *send_one(struct lab *lab, void *comm, void *data, size_t bytes, int tag, void *mhandle);
void *receive_one(struct lab *lab, void *comm, void *data, size_t bytes, int tag, void *mhandle);
/* Until done; sizes may be NULL. */
void await(struct lab *lab, void *request, int *sizes);
void *reg(struct lab *lab, void *comm, void *data, size_t bytes);
void dereg(struct lab *lab, void *comm, void *mhandle);
/* One message over a connection, both ends of which call it. */
void one_message(struct lab *lab, int sends, void *comm, size_t bytes, uint64_t seed);
int count_descriptors(void);
/* fail() when it has taken longer than closing may. */
void within(struct lab *lab, double began_s, const char *what);
/* After all that, does a new connection between 0 and 1 work? Ends with lab_unload(). */
void still_works(struct lab *lab);

extern const struct lab_check checks_basic[], checks_life[], checks_hard[], checks_stop[];

#endif
