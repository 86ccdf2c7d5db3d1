#include "transport/bootstrap/pmix_server.h"

#include <errno.h>
#include <pmix.h>
#include <pmix_server.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

struct gn_pmix_server {
	pmix_nspace_t name;
	int size, wake_fd;
	atomic_int abort_rank; /* + 1 */
	atomic_int abort_code;
};

/* Waits for the callback of an asynchronous PMIx call. */
struct reply {
	pthread_mutex_t lock;
	pthread_cond_t changed;
	int done;
	pmix_status_t result;
};

static void replied(pmix_status_t status, void *data)
{
	struct reply *r = data;

	pthread_mutex_lock(&r->lock);
	r->done = 1;
	r->result = status;
	pthread_cond_signal(&r->changed);
	pthread_mutex_unlock(&r->lock);
}

static pmix_status_t await_reply(struct reply *r, pmix_status_t rc)
{
	if (rc == PMIX_OPERATION_SUCCEEDED)
		return PMIX_SUCCESS;
	if (rc != PMIX_SUCCESS)
		return rc;
	pthread_mutex_lock(&r->lock);
	while (!r->done)
		pthread_cond_wait(&r->changed, &r->lock);
	pthread_mutex_unlock(&r->lock);
	return r->result;
}

#define REPLY {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER}

static enum gn_status pmix_fail(struct gn_err *err, const char *what, pmix_status_t rc)
{
	return gn_err_set(err, GN_ERR_FAILED, "%s failed: %s (%d)", what, PMIx_Error_string(rc), rc);
}

static pmix_status_t accept_client(const pmix_proc_t *proc, void *object, pmix_op_cbfunc_t done, void *data)
{
	(void)proc;
	(void)object;
	(void)done;
	(void)data;
	return PMIX_OPERATION_SUCCEEDED;
}

/* object: the server, as given when the client was registered. */
static pmix_status_t on_abort(const pmix_proc_t *proc, void *object, int status, const char message[],
			      pmix_proc_t procs[], size_t count, pmix_op_cbfunc_t done, void *data)
{
	struct gn_pmix_server *s = object;
	uint64_t one = 1;
	int none = 0;

	(void)message;
	(void)procs;
	(void)count;
	(void)done;
	(void)data;
	if (s) {
		atomic_store(&s->abort_code, status);
		atomic_compare_exchange_strong(&s->abort_rank, &none, (int)proc->rank + 1);
		if (write(s->wake_fd, &one, sizeof one) < 0)
			return PMIX_ERROR;
	}
	return PMIX_OPERATION_SUCCEEDED;
}

/* All ranks are local, so the data collected by this server is complete. */
static pmix_status_t on_fence(const pmix_proc_t procs[], size_t proc_count, const pmix_info_t info[], size_t info_count,
			      char *data, size_t len, pmix_modex_cbfunc_t done, void *argument)
{
	char *copy = NULL;

	(void)procs;
	(void)proc_count;
	(void)info;
	(void)info_count;
	if (len) {
		copy = malloc(len);
		if (!copy)
			return PMIX_ERR_NOMEM;
		memcpy(copy, data, len);
	}
	done(PMIX_SUCCESS, copy, len, argument, free, copy);
	return PMIX_SUCCESS;
}

/* A rank gets a value that has not been put: there is no other server that could have it. */
static pmix_status_t on_direct_modex(const pmix_proc_t *proc, const pmix_info_t info[], size_t count,
				     pmix_modex_cbfunc_t done, void *data)
{
	(void)proc;
	(void)info;
	(void)count;
	(void)done;
	(void)data;
	return PMIX_ERR_NOT_FOUND;
}

static enum gn_status register_job(struct gn_pmix_server *s, struct gn_err *err)
{
	char host[256] = {0}, *ranks = calloc((size_t)s->size, 12), *node_map = NULL, *process_map = NULL;
	uint32_t size = (uint32_t)s->size, one = 1;
	struct reply reply = REPLY;
	pmix_status_t rc = PMIX_ERR_NOMEM;
	pmix_info_t info[9];
	size_t len = 0;

	if (!ranks)
		return gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for %d ranks", s->size);
	for (int r = 0; r < s->size; r++)
		len += (size_t)snprintf(ranks + len, 12, "%s%d", r ? "," : "", r);
	if (gethostname(host, sizeof host - 1) || (rc = PMIx_generate_regex(host, &node_map)) != PMIX_SUCCESS ||
	    (rc = PMIx_generate_ppn(ranks, &process_map)) != PMIX_SUCCESS) {
		free(ranks);
		free(node_map);
		return pmix_fail(err, "describing the job to PMIx", rc);
	}
	PMIX_INFO_LOAD(&info[0], PMIX_UNIV_SIZE, &size, PMIX_UINT32);
	PMIX_INFO_LOAD(&info[1], PMIX_JOB_SIZE, &size, PMIX_UINT32);
	PMIX_INFO_LOAD(&info[2], PMIX_LOCAL_SIZE, &size, PMIX_UINT32);
	PMIX_INFO_LOAD(&info[3], PMIX_NODE_SIZE, &size, PMIX_UINT32);
	PMIX_INFO_LOAD(&info[4], PMIX_LOCAL_PEERS, ranks, PMIX_STRING);
	PMIX_INFO_LOAD(&info[5], PMIX_NODE_MAP, node_map, PMIX_REGEX);
	PMIX_INFO_LOAD(&info[6], PMIX_PROC_MAP, process_map, PMIX_REGEX);
	PMIX_INFO_LOAD(&info[7], PMIX_NUM_NODES, &one, PMIX_UINT32);
	PMIX_INFO_LOAD(&info[8], PMIX_JOB_NUM_APPS, &one, PMIX_UINT32);
	rc = await_reply(&reply, PMIx_server_register_nspace(s->name, s->size, info, 9, replied, &reply));
	for (int i = 0; i < 9; i++)
		PMIX_INFO_DESTRUCT(&info[i]);
	free(ranks);
	free(node_map);
	free(process_map);
	return rc == PMIX_SUCCESS ? GN_OK : pmix_fail(err, "registering the job with PMIx", rc);
}

static enum gn_status register_ranks(struct gn_pmix_server *s, struct gn_err *err)
{
	for (int r = 0; r < s->size; r++) {
		struct reply reply = REPLY;
		pmix_proc_t proc;
		pmix_status_t rc;

		PMIX_LOAD_PROCID(&proc, s->name, (pmix_rank_t)r);
		rc = await_reply(&reply, PMIx_server_register_client(&proc, getuid(), getgid(), s, replied, &reply));
		if (rc != PMIX_SUCCESS)
			return pmix_fail(err, "registering a rank with PMIx", rc);
	}
	return GN_OK;
}

static enum gn_status start(struct gn_pmix_server *s, const char *directory, struct gn_err *err)
{
	pmix_server_module_t module = {.client_connected = accept_client,
				       .client_finalized = accept_client,
				       .abort = on_abort,
				       .fence_nb = on_fence,
				       .direct_modex = on_direct_modex};
	pmix_info_t info[2];
	pmix_status_t rc;
	enum gn_status status;

	PMIX_INFO_LOAD(&info[0], PMIX_SERVER_TMPDIR, directory, PMIX_STRING);
	PMIX_INFO_LOAD(&info[1], PMIX_SYSTEM_TMPDIR, directory, PMIX_STRING);
	rc = PMIx_server_init(&module, info, 2);
	PMIX_INFO_DESTRUCT(&info[0]);
	PMIX_INFO_DESTRUCT(&info[1]);
	if (rc != PMIX_SUCCESS)
		return pmix_fail(err, "starting a PMIx server", rc);
	status = register_job(s, err);
	if (!status)
		status = register_ranks(s, err);
	if (status)
		PMIx_server_finalize();
	return status;
}

enum gn_status gn_pmix_server_create(int size, const char *directory, struct gn_pmix_server **out, struct gn_err *err)
{
	struct gn_pmix_server *s = calloc(1, sizeof *s);
	enum gn_status status = GN_OK;
	char name[64];

	if (!s)
		return gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for a PMIx server");
	snprintf(name, sizeof name, "gannet.%ld", (long)getpid());
	PMIX_LOAD_NSPACE(s->name, name);
	s->size = size;
	s->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (s->wake_fd < 0)
		status = gn_err_errno(err, errno, "cannot start a PMIx server");
	if (!status)
		status = start(s, directory, err);
	if (status) {
		if (s->wake_fd >= 0)
			close(s->wake_fd);
		free(s);
		return status;
	}
	*out = s;
	return GN_OK;
}

void gn_pmix_server_destroy(struct gn_pmix_server *s, int clean)
{
	/* not clean: PMIx's threads may still call back with s */
	if (!s || !clean)
		return;
	PMIx_server_finalize();
	close(s->wake_fd);
	free(s);
}

extern char **environ;

enum gn_status gn_pmix_server_environment(struct gn_pmix_server *s, int rank, char ***out, struct gn_err *err)
{
	char **copy = NULL;
	size_t count = 0;
	pmix_status_t rc;
	pmix_proc_t proc;

	while (environ[count])
		count++;
	copy = calloc(count + 1, sizeof *copy);
	for (size_t i = 0; copy && i < count; i++) {
		copy[i] = strdup(environ[i]);
		if (!copy[i]) {
			gn_pmix_server_environment_free(copy);
			copy = NULL;
		}
	}
	if (!copy)
		return gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for an environment");
	PMIX_LOAD_PROCID(&proc, s->name, (pmix_rank_t)rank);
	rc = PMIx_server_setup_fork(&proc, &copy);
	if (rc != PMIX_SUCCESS) {
		gn_pmix_server_environment_free(copy);
		return pmix_fail(err, "preparing a rank's environment", rc);
	}
	*out = copy;
	return GN_OK;
}

void gn_pmix_server_environment_free(char **environment)
{
	for (char **e = environment; e && *e; e++)
		free(*e);
	free(environment);
}

int gn_pmix_server_fd(const struct gn_pmix_server *s)
{
	return s->wake_fd;
}

int gn_pmix_server_aborted(struct gn_pmix_server *s, int *rank, int *code)
{
	int who = atomic_load(&s->abort_rank);
	uint64_t count;

	if (read(s->wake_fd, &count, sizeof count) < 0 && !who)
		return 0;
	*rank = who - 1;
	*code = atomic_load(&s->abort_code);
	return who != 0;
}
