#include "transport/bootstrap/launcher_detect.h"

#include "src/base/option.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define AZURE_NODE "AZ_BATCH_MASTER_NODE"
#define ADVICE_SRUN "start it with 'srun --mpi=pmix'"

struct probe {
	gn_launcher_lookup lookup;
	void *context;
	struct gn_launcher *d;
	struct gn_err *err;
};

static const char *get(const struct probe *p, const char *name)
{
	const char *value = p->lookup(p->context, name);

	return value && *value ? value : NULL;
}

/* Reads a variable; *found: whether it is set. *out is unchanged when it is not. */
static enum gn_status read_number(const struct probe *p, const char *name, int min, int *out, int *found)
{
	const char *text = get(p, name);
	int64_t value;

	*found = text != NULL;
	if (!text)
		return GN_OK;
	if (gn_parse_int(text, &value, NULL) || value < min || value > INT_MAX)
		return gn_err_set(p->err, GN_ERR_USAGE, "%s=%s: not a whole number of at least %d; unset or correct it",
				  name, text, min);
	*out = (int)value;
	return GN_OK;
}

/* Reads a pair of variables for rank and size. One without the other is an error: the other would have to be guessed. */
static enum gn_status read_pair(const struct probe *p, const char *rank_name, const char *size_name, int *found)
{
	struct gn_launcher *d = p->d;
	int rank = 0, size = 0, has_rank, has_size;
	enum gn_status status = read_number(p, rank_name, 0, &rank, &has_rank);

	if (!status)
		status = read_number(p, size_name, 1, &size, &has_size);
	if (status)
		return status;
	*found = has_rank && has_size;
	if (has_rank != has_size)
		return gn_err_set(p->err, GN_ERR_USAGE, "%s is set but %s is not: set both or neither",
				  has_rank ? rank_name : size_name, has_rank ? size_name : rank_name);
	if (!*found)
		return GN_OK;
	if (rank >= size)
		return gn_err_set(p->err, GN_ERR_USAGE, "%s=%d is not below %s=%d", rank_name, rank, size_name, size);
	d->ranks[d->rank_count++] = (struct gn_launcher_claim){rank_name, rank};
	d->sizes[d->size_count++] = (struct gn_launcher_claim){size_name, size};
	return GN_OK;
}

/* Reads torchrun's variables for this host. */
static enum gn_status read_local(const struct probe *p)
{
	struct gn_launcher *d = p->d;
	int has_rank, has_size;
	enum gn_status status;

	d->local_rank = d->local_size = -1;
	status = read_number(p, "LOCAL_RANK", 0, &d->local_rank, &has_rank);
	if (!status)
		status = read_number(p, "LOCAL_WORLD_SIZE", 1, &d->local_size, &has_size);
	if (!status && has_rank && has_size && d->local_rank >= d->local_size)
		return gn_err_set(p->err, GN_ERR_USAGE, "LOCAL_RANK=%d is not below LOCAL_WORLD_SIZE=%d", d->local_rank,
				  d->local_size);
	return status;
}

/* The number of tasks of the Slurm step of this process; 0 outside of a step. The batch script itself is a step without
 * SLURM_STEP_ID: its SLURM_NTASKS is the default for steps that it starts. */
static enum gn_status slurm_tasks(const struct probe *p, int *tasks, const char **name)
{
	int found;
	enum gn_status status;

	*tasks = 0;
	if (!get(p, "SLURM_STEP_ID") && !get(p, "SLURM_STEPID"))
		return GN_OK;
	*name = "SLURM_STEP_NUM_TASKS";
	status = read_number(p, *name, 1, tasks, &found);
	if (status || found)
		return status;
	*name = "SLURM_NTASKS";
	return read_number(p, *name, 1, tasks, &found);
}

static enum gn_status read_slurm_under_pmix(const struct probe *p, const char *name, int tasks)
{
	struct gn_launcher *d = p->d;
	int rank, found;
	enum gn_status status;

	/* under mpirun or gannet launch Slurm's variables describe the launcher's step, not the ranks */
	if (strncmp(get(p, "PMIX_NAMESPACE"), "slurm.", 6) || !tasks)
		return GN_OK;
	d->sizes[d->size_count++] = (struct gn_launcher_claim){name, tasks};
	status = read_number(p, "SLURM_PROCID", 0, &rank, &found);
	if (!status && found)
		d->ranks[d->rank_count++] = (struct gn_launcher_claim){"SLURM_PROCID", rank};
	return status;
}

static enum gn_status from_pmix(const struct probe *p)
{
	int rank, found;
	enum gn_status status = read_number(p, "PMIX_RANK", 0, &rank, &found);

	if (status)
		return status;
	if (!get(p, "PMIX_NAMESPACE") || !found)
		return gn_err_set(p->err, GN_ERR_USAGE, "%s is set but %s is not: a broken PMIx environment; unset both or %s",
				  found ? "PMIX_RANK" : "PMIX_NAMESPACE", found ? "PMIX_NAMESPACE" : "PMIX_RANK",
				  ADVICE_SRUN);
	p->d->source = GN_LAUNCHER_PMIX;
	p->d->rank = rank;
	for (int i = 0; i < p->d->rank_count; i++)
		if (p->d->ranks[i].value != rank)
			return gn_err_set(p->err, GN_ERR_USAGE, "PMIX_RANK=%d but %s=%d: unset the one that is wrong", rank,
					  p->d->ranks[i].name, p->d->ranks[i].value);
	return GN_OK;
}

/* Reads the address of the first node from Azure Batch's variable, "host:port". *found is 0 when it is not set. */
static enum gn_status read_azure_node(const struct probe *p, struct gn_launcher *d, int *found)
{
	const char *text = get(p, AZURE_NODE), *colon = text ? strrchr(text, ':') : NULL;
	size_t len = colon ? (size_t)(colon - text) : 0;
	int64_t port;

	*found = text != NULL;
	if (!text)
		return GN_OK;
	/* an IPv6 address */
	if (len > 2 && text[0] == '[' && text[len - 1] == ']') {
		text++;
		len -= 2;
	}
	if (!len || len >= sizeof d->address || gn_parse_int(colon + 1, &port, NULL) || port < 1 || port > 65535)
		return gn_err_set(p->err, GN_ERR_USAGE, AZURE_NODE "=%.80s is not HOST:PORT; correct it, or set MASTER_ADDR and "
				  "MASTER_PORT",
				  get(p, AZURE_NODE));
	memcpy(d->address, text, len);
	d->address[len] = 0;
	d->port = (int)port;
	return GN_OK;
}

/* Reads where rank 0 listens. Under torchrun MASTER_PORT is the port of the agent's store: Gannet uses the next one. */
static enum gn_status read_master(const struct probe *p)
{
	const char *address = get(p, "MASTER_ADDR"), *agent = get(p, "TORCHELASTIC_USE_AGENT_STORE");
	int port, found, azure = 0;
	enum gn_status status = read_number(p, "MASTER_PORT", 1, &port, &found);

	if (!status && !address && !found)
		status = read_azure_node(p, p->d, &azure);
	if (status || azure)
		return status;
	if (!address || !found)
		return gn_err_set(p->err, GN_ERR_USAGE, "%s=%d but %s is not set: say where rank 0 listens, or %s",
				  p->d->sizes[0].name, p->d->sizes[0].value, address ? "MASTER_PORT" : "MASTER_ADDR",
				  ADVICE_SRUN);
	if (agent && !strcmp(agent, "True"))
		port++;
	if (port > 65535)
		return gn_err_set(p->err, GN_ERR_USAGE, "MASTER_PORT gives %d: above 65535", port);
	if ((size_t)snprintf(p->d->address, sizeof p->d->address, "%s", address) >= sizeof p->d->address)
		return gn_err_set(p->err, GN_ERR_USAGE, "MASTER_ADDR is longer than %zu characters",
				  sizeof p->d->address - 1);
	p->d->port = port;
	return GN_OK;
}

static enum gn_status from_environment(const struct probe *p, const char *slurm_name, int tasks)
{
	struct gn_launcher *d = p->d;

	d->source = GN_LAUNCHER_ENVIRONMENT;
	d->rank = d->ranks[0].value;
	d->size = d->sizes[0].value;
	/* a launcher per task (torchrun) starts more ranks than tasks; fewer ranks mean that the variables are left over */
	if (tasks > d->size)
		return gn_err_set(p->err, GN_ERR_USAGE,
				  "%s=%d but %s=%d: every task would run a job of its own; unset RANK and WORLD_SIZE and %s",
				  d->sizes[0].name, d->size, slurm_name, tasks, ADVICE_SRUN);
	return d->size > 1 ? read_master(p) : GN_OK;
}

/* A single process in a job of several tasks or nodes, outside of a step, is intended in some scripts and a forgotten srun in
 * others. */
static void find_job_size(const struct probe *p)
{
	static const char *const names[] = {"SLURM_NTASKS", "SLURM_NNODES"};
	struct gn_launcher *d = p->d;

	if (!get(p, "SLURM_JOB_ID") || get(p, "SLURM_STEP_ID") || get(p, "SLURM_STEPID"))
		return;
	for (size_t i = 0; i < sizeof names / sizeof *names && !d->job_name; i++) {
		const char *text = get(p, names[i]);
		int64_t value;

		if (text && !gn_parse_int(text, &value, NULL) && value > 1 && value <= INT_MAX) {
			d->job_name = names[i];
			d->job_count = (int)value;
		}
	}
}

static enum gn_status single_rank(const struct probe *p, const char *slurm_name, int tasks)
{
	int size, found;
	enum gn_status status = read_number(p, "PMI_SIZE", 1, &size, &found);

	if (status)
		return status;
	if (tasks > 1)
		return gn_err_set(p->err, GN_ERR_USAGE,
				  "%s=%d but there is no PMIx (PMIX_NAMESPACE is not set): each of the %d tasks would run as a "
				  "single rank; %s", slurm_name, tasks, tasks, ADVICE_SRUN);
	if (found && size > 1)
		return gn_err_set(p->err, GN_ERR_USAGE,
				  "PMI_SIZE=%d but there is no PMIx: PMI-1 and PMI-2 are not supported; %s, mpirun of Open MPI "
				  "or gannet launch", size, ADVICE_SRUN);
	p->d->source = GN_LAUNCHER_SINGLE;
	p->d->size = 1;
	find_job_size(p);
	return GN_OK;
}

const char *gn_launcher_environ(void *context, const char *name)
{
	(void)context;
	return getenv(name);
}

enum gn_status gn_launcher_detect(gn_launcher_lookup lookup, void *context, struct gn_launcher *out, struct gn_err *err)
{
	struct gn_launcher d = {0};
	struct probe p = {lookup, context, &d, err};
	const char *slurm_name = "";
	int tasks, torch, ompi;
	enum gn_status status = slurm_tasks(&p, &tasks, &slurm_name);

	if (!status)
		status = read_pair(&p, "RANK", "WORLD_SIZE", &torch);
	if (!status)
		status = read_pair(&p, "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", &ompi);
	if (!status)
		status = read_local(&p);
	if (!status)
		status = gn_launcher_confirm(&d, d.size_count ? d.sizes[0].name : "", d.ranks[0].value, d.sizes[0].value, err);
	if (status)
		return status;
	if (get(&p, "PMIX_NAMESPACE") || get(&p, "PMIX_RANK")) {
		status = from_pmix(&p);
		if (!status)
			status = read_slurm_under_pmix(&p, slurm_name, tasks);
	} else if (d.size_count) {
		status = from_environment(&p, slurm_name, tasks);
	} else {
		status = single_rank(&p, slurm_name, tasks);
	}
	if (!status)
		*out = d;
	return status;
}

enum gn_status gn_launcher_confirm(const struct gn_launcher *d, const char *who, int rank, int size, struct gn_err *err)
{
	for (int i = 0; i < d->size_count; i++)
		if (d->sizes[i].value != size)
			return gn_err_set(err, GN_ERR_USAGE,
					  "%s says there are %d ranks but %s=%d: unset the one that is wrong", who, size,
					  d->sizes[i].name, d->sizes[i].value);
	for (int i = 0; i < d->rank_count; i++)
		if (d->ranks[i].value != rank)
			return gn_err_set(err, GN_ERR_USAGE,
					  "%s says this is rank %d but %s=%d: unset the one that is wrong", who, rank,
					  d->ranks[i].name, d->ranks[i].value);
	return GN_OK;
}

enum gn_status gn_launcher_confirm_local(const struct gn_launcher *d, const char *host, int rank, int local_rank, int local_size,
					 struct gn_err *err)
{
	if (d->local_rank >= 0 && d->local_rank != local_rank)
		return gn_err_set(err, GN_ERR_USAGE, "LOCAL_RANK=%d but rank %d has local rank %d of %d on %s: unset or correct it",
				  d->local_rank, rank, local_rank, local_size, host);
	if (d->local_size >= 0 && d->local_size != local_size)
		return gn_err_set(err, GN_ERR_USAGE,
				  "LOCAL_WORLD_SIZE=%d but rank %d is one of %d ranks on %s: unset or correct it",
				  d->local_size, rank, local_size, host);
	return GN_OK;
}
