#include "transport/bootstrap/pmix_server.h"

#include "transport/bootstrap/limits.h"
#include "transport/bootstrap/pmix_call.h"

#include <errno.h>
#include <inttypes.h>
#include <netinet/in.h>
#include <pmix_server.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define FINALIZE_MS 2000

struct gn_pmix_server {
	struct gn_bootstrap waits; /* for its limit */
	pmix_nspace_t name;
	int size, wake_fd;
	atomic_int abort_rank; /* + 1 */
	atomic_int abort_code;
};

/* Who may connect to the PMIx server of this process: the processes of its user.
 *
 * PMIx 4.2.2 listens on a TCP port of the loopback interface, which all users of the host reach, and reads what comes before it asks who sends
 * it: some bytes crash it, others make it print "PMIX ERROR" each time. The program's accept(2), which libpmix calls, closes what comes from
 * others before PMIx sees it, and warns once a minute on standard error.
 */

#define QUIET_S 60

static atomic_int is_guarded;

/* Before PMIx_server_init(). For the whole process, until it ends. */
static void pmix_accept_guard(void)
{
	atomic_store(&is_guarded, 1);
}

/* The user of the other end of a TCP connection within this host, as the kernel's table has it; -1: it is closed, which the table has as user 0
 * without an inode. */
static int64_t user_of(const struct sockaddr_in *peer, const struct sockaddr_in *own)
{
	FILE *table = fopen("/proc/net/tcp", "re");
	char line[512], ends[64], found[64];
	int64_t user = -1;
	unsigned long inode;
	unsigned uid;

	snprintf(ends, sizeof ends, "%08" PRIX32 ":%04X %08" PRIX32 ":%04X", peer->sin_addr.s_addr, ntohs(peer->sin_port), own->sin_addr.s_addr,
		 ntohs(own->sin_port));
	while (table && user < 0 && fgets(line, sizeof line, table))
		if (sscanf(line, " %*[^:]: %27[0-9A-F: ] %*s %*s %*s %*s %u %*s %lu", found, &uid, &inode) == 3 && !strcmp(found, ends) && inode)
			user = uid;
	if (table)
		fclose(table);
	return user;
}

/* A line a minute. Called by one thread, PMIx's. */
static void tell(const struct sockaddr_in *own, int64_t user)
{
	static time_t told;
	static unsigned long others;
	char who[64] = "that is gone again", more[64] = "";
	time_t now = time(NULL);

	if (told && now - told < QUIET_S) {
		others++;
		return;
	}
	if (user >= 0)
		snprintf(who, sizeof who, "of user %" PRId64, user);
	if (others)
		snprintf(more, sizeof more, " (and %lu more before)", others);
	fprintf(stderr, "gannet launch: warning: refused a connection to PMIx's port %u from a process %s%s; the job goes on\n", ntohs(own->sin_port),
		who, more);
	told = now;
	others = 0;
}

static int is_own(int fd)
{
	struct sockaddr_in peer, own;
	socklen_t peer_len = sizeof peer, own_len = sizeof own;
	int64_t user;

	if (getpeername(fd, (struct sockaddr *)&peer, &peer_len) || getsockname(fd, (struct sockaddr *)&own, &own_len) || peer.sin_family != AF_INET)
		return 1;
	user = user_of(&peer, &own);
	if (user == (int64_t)geteuid())
		return 1;
	tell(&own, user);
	return 0;
}

/* Instead of the C library's, which libpmix calls in its listening thread. */
__attribute__((visibility("default"))) int accept(int fd, __SOCKADDR_ARG address, socklen_t *restrict len)
{
	int got = (int)syscall(SYS_accept4, fd, address.__sockaddr__, len, 0);

	if (got < 0 || !atomic_load(&is_guarded) || is_own(got))
		return got;
	close(got);
	errno = EAGAIN;
	return -1;
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
	struct gn_pmix_call *call;
	pmix_status_t rc = PMIX_ERR_NOMEM;
	enum gn_status status = GN_ERR_NO_MEMORY;
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
		return gn_pmix_fail(err, "describing the job to PMIx", rc);
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
	call = gn_pmix_call_create(err);
	if (call) {
		rc = PMIx_server_register_nspace(s->name, s->size, info, 9, gn_pmix_call_done, call);
		status = gn_pmix_call_finish(&s->waits, call, rc, "registering the job with PMIx", err);
	}
	for (int i = 0; i < 9; i++)
		PMIX_INFO_DESTRUCT(&info[i]);
	free(ranks);
	free(node_map);
	free(process_map);
	return status;
}

static enum gn_status register_ranks(struct gn_pmix_server *s, struct gn_err *err)
{
	enum gn_status status = GN_OK;

	for (int r = 0; r < s->size && !status; r++) {
		struct gn_pmix_call *call = gn_pmix_call_create(err);
		pmix_status_t rc;

		if (!call)
			return GN_ERR_NO_MEMORY;
		PMIX_LOAD_PROCID(&call->who, s->name, (pmix_rank_t)r);
		rc = PMIx_server_register_client(&call->who, getuid(), getgid(), s, gn_pmix_call_done, call);
		status = gn_pmix_call_finish(&s->waits, call, rc, "registering a rank with PMIx", err);
	}
	return status;
}

/* The folder is in call->bytes. */
static pmix_status_t init(struct gn_pmix_call *call)
{
	pmix_server_module_t module = {.client_connected = accept_client,
				       .client_finalized = accept_client,
				       .abort = on_abort,
				       .fence_nb = on_fence,
				       .direct_modex = on_direct_modex};
	pmix_info_t info[2];
	pmix_status_t rc;

	PMIX_INFO_LOAD(&info[0], PMIX_SERVER_TMPDIR, call->bytes, PMIX_STRING);
	PMIX_INFO_LOAD(&info[1], PMIX_SYSTEM_TMPDIR, call->bytes, PMIX_STRING);
	pmix_accept_guard();
	rc = PMIx_server_init(&module, info, 2);
	PMIX_INFO_DESTRUCT(&info[0]);
	PMIX_INFO_DESTRUCT(&info[1]);
	return rc;
}

static enum gn_status start(struct gn_pmix_server *s, const char *directory, struct gn_err *err)
{
	struct gn_pmix_call *call = gn_pmix_call_create(err);
	enum gn_status status;
	struct rlimit file;

	if (!call)
		return GN_ERR_NO_MEMORY;
	/* the default stores what ranks get in files of some MB, for ranks that may be many */
	if (!getrlimit(RLIMIT_FSIZE, &file) && file.rlim_cur != RLIM_INFINITY)
		setenv("PMIX_MCA_gds", "hash", 0);
	call->bytes = strdup(directory);
	status = call->bytes ? gn_pmix_call_run(&s->waits, call, init, "PMIx_server_init", err)
			     : gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for a PMIx server");
	gn_pmix_call_unref(call);
	if (status)
		return status;
	status = register_job(s, err);
	return status ? status : register_ranks(s, err);
}

/* Within the limit of limits.h: PMIx 4.2.2 waits for ever when it is configured in a way that it cannot work with. */
static enum gn_status start_in_time(struct gn_pmix_server *s, const char *directory, struct gn_err *err)
{
	struct gn_limits limits = {.join_s = 0};
	char host[256] = "";
	enum gn_status status = gn_limits_resolve(&limits, s->size, err);

	if (status)
		return status;
	gn_bootstrap_set_timeout(&s->waits, (int)(limits.join_s * 1e3));
	status = start(s, directory, err);
	gethostname(host, sizeof host - 1);
	if (status == GN_ERR_STALL)
		return gn_err_set(err, GN_ERR_FAILED, "PMIx did not start a server on %s for %d ranks within %g s (" GN_LIMITS_JOIN "): look for what "
				  "configures it, variables PMIX_MCA_*, ~/.pmix/mca-params.conf and pmix-mca-params.conf in /etc", host,
				  s->size, limits.join_s);
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
		status = start_in_time(s, directory, err);
	if (status) {
		if (s->wake_fd >= 0)
			close(s->wake_fd);
		free(s);
		return status;
	}
	*out = s;
	return GN_OK;
}

static pmix_status_t finalize(struct gn_pmix_call *call)
{
	(void)call;
	return PMIx_server_finalize();
}

void gn_pmix_server_destroy(struct gn_pmix_server *s, int clean)
{
	struct gn_pmix_call *call = s && clean ? gn_pmix_call_create(NULL) : NULL;
	enum gn_status status;

	/* not clean: PMIx's threads may still call back with s */
	if (!call)
		return;
	gn_bootstrap_set_timeout(&s->waits, FINALIZE_MS);
	status = gn_pmix_call_run(&s->waits, call, finalize, "PMIx_server_finalize", NULL);
	gn_pmix_call_unref(call);
	if (status)
		return;
	close(s->wake_fd);
	free(s);
}

extern char **environ;

/* Frameworks of PMIx that a server and its clients must agree on. The others of a client's are the user's. */
static int is_of_server(const char *name)
{
	static const char *const frameworks[] = {"bfrops", "gds", "preg", "psec", "pshmem", "psquash", "ptl"};
	const char *end = name + strcspn(name, "_=");
	int found = 0;

	for (size_t i = 0; i < sizeof frameworks / sizeof *frameworks; i++)
		found |= strlen(frameworks[i]) == (size_t)(end - name) && !strncmp(frameworks[i], name, (size_t)(end - name));
	/* what PMIx writes is no matter of agreement */
	if (!found || strstr(end, "_verbose="))
		return 0;
	/* hash alone stores what a server needs for itself: a list that has it works, as many sites set it */
	if (!strncmp(name, "gds=", 4))
		return (strstr(name, "hash") == NULL) != (name[4] == '^');
	return 1;
}

void gn_pmix_server_clean_environment(struct gn_strbuf *dropped)
{
	static const char prefix[] = "PMIX_MCA_";
	char name[256];

	for (char **e = environ; *e;) {
		if (strncmp(*e, prefix, strlen(prefix)) || !is_of_server(*e + strlen(prefix)) || strcspn(*e, "=") >= sizeof name) {
			e++;
			continue;
		}
		gn_strbuf_printf(dropped, "%s%s", dropped->len ? ", " : "", *e);
		snprintf(name, sizeof name, "%.*s", (int)strcspn(*e, "="), *e);
		/* unsetenv moves the next one here */
		unsetenv(name);
	}
}

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
		return gn_pmix_fail(err, "preparing a rank's environment", rc);
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
