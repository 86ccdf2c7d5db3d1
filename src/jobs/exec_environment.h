/* The environment of a program of N processes: which variables each framework reads to find its world, and their values.
 *
 * A function of the process's place and of what is set already. A variable that is set to something else keeps its value and is
 * marked, so that the caller can say so. Values that could only contradict the place (RANK under PMIx) never get here: the world is
 * not made then (transport/bootstrap/launcher_detect.h).
 *
 * Thread safety: no state; the look-up is the caller's.
 */
#ifndef GN_JOBS_EXEC_ENVIRONMENT_H
#define GN_JOBS_EXEC_ENVIRONMENT_H

#include "src/base/status.h"
#include "src/base/strbuf.h"
#include "transport/bootstrap/launcher_detect.h"

#include <stddef.h>

/* Bits: a program may use several. */
enum gn_exec_framework {
	GN_EXEC_TORCH = 1,
	GN_EXEC_TF = 2,
	GN_EXEC_HOROVOD = 4,
	GN_EXEC_DEEPSPEED = 8,
	GN_EXEC_MPI = 16,
	GN_EXEC_LIGHTNING = 32,
	GN_EXEC_ALL = 63
};

/* 0: no framework of that name. */
unsigned gn_exec_framework_find(const char *name);
/* Appends "torch, deepspeed". */
void gn_exec_framework_names(unsigned frameworks, struct gn_strbuf *out);
/* What the Python script among the program's arguments imports; all frameworks when there is none, or it imports none of them itself.
 * *script: which argument it is, -1 for none. Reads the first 256 KiB of the script. */
unsigned gn_exec_framework_guess(const char *const *argv, size_t count, int *script);

/* Texts are borrowed. */
struct gn_exec_place {
	int rank, size, local_rank, local_size, node, nodes;
	int per_node;		      /* the program is one launcher on each node, and starts the processes itself */
	const char *master_addr;      /* where all reach rank 0 */
	int master_port;	      /* free there */
	int horovod_port;	      /* where Horovod's key-value store listens on rank 0's host; 0: none */
	const char *address;	      /* of this rank's host, on the network of master_addr */
	const char *ifname;	      /* that has it; "": not known */
	const char *ucx_devices;      /* devices that connect the nodes, as UCX names them; "": not known, or one node */
	const char *gpus;	      /* indices of this node's GPUs, this rank's at its local rank; "": none */
	const char *const *endpoints; /* [size] "address:port", a free port of each */
	int ps;			      /* the last ps ranks are parameter servers of TensorFlow, rank 0 then is its chief */
};

struct gn_exec_variable {
	const char *name; /* a string constant */
	char *value;	  /* that it has in the program */
	char *computed;	  /* NULL unless another value was set before and is kept: what it would have been */
};

#define GN_EXEC_VARIABLES_MAX 64

struct gn_exec_environment {
	struct gn_exec_variable items[GN_EXEC_VARIABLES_MAX];
	size_t count;
};

/* GN_ERR_NO_MEMORY. *out is released by gn_exec_environment_release(). */
enum gn_status gn_exec_environment_create(const struct gn_exec_place *place, unsigned frameworks, gn_launcher_lookup lookup,
					  void *context, struct gn_exec_environment *out, struct gn_err *err);
void gn_exec_environment_release(struct gn_exec_environment *e);
/* Whether the program must not see a variable of exec's own processes: with a launcher on each node, PMIx's and Open MPI's, and those
 * that number processes, would be taken for the launcher's own (Lightning does so with SLURM_NTASKS). */
int gn_exec_environment_hides(const struct gn_exec_place *place, const char *name);

#endif
