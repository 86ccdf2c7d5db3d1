/* Bootstrap over PMIx. Uses only what Slurm's PMIx plugin supports: init, put, commit, get of one rank's value (also before a
 * fence) and fence with data; no events, no publish. PMIx distributes rank 0's root info and each rank's contact info, with one
 * fence. Each rank gets two values, the root info and the contact info of its parent in the tree of boot_tree.h, which carries all
 * exchanges. */
#include "transport/bootstrap/bootstrap.h"

#include "src/base/clock.h"
#include "src/base/thread.h"
#include "transport/bootstrap/boot_tree.h"
#include "transport/auth/net.h"
#include "transport/bootstrap/limits.h"
#include "transport/bootstrap/pmix_call.h"

#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* One get: the timeout given to PMIx, the time after which it is abandoned, and the pause before the next attempt. */
#define GET_TIMEOUT_S 2
#define GET_NS 4000000000u
#define RETRY_NS 5000000
/* Between the end of this rank and that of its step: what the other ranks still write. Longer when rank 0, which would see them end, is lost. */
#define LAST_WORDS_NS 300000000
#define MORE_WORDS_NS 2000000000
/* For the server to end the step. */
#define END_MS 5000

struct pmix_bootstrap {
	struct gn_bootstrap base;
	pmix_proc_t me;
	struct gn_log *log;
	int generation; /* 1: the first program of this rank */
	struct gn_boot_tree *tree; /* from the first exchange on */
	int detached;
};

static enum gn_status fence(struct gn_bootstrap *b, struct gn_err *err)
{
	struct gn_pmix_call *p = gn_pmix_call_create(err);
	bool collect = true;

	if (!p)
		return GN_ERR_NO_MEMORY;
	PMIX_INFO_LOAD(&p->info, PMIX_COLLECT_DATA, &collect, PMIX_BOOL);
	return gn_pmix_call_finish(b, p, PMIx_Fence_nb(NULL, 0, &p->info, 1, gn_pmix_call_done, p), "the PMIx fence", err);
}

/* PMIx keeps what a rank has put until its step ends: keys of this program differ from those of the programs that the step has run
 * before it as the same rank (by generation), and from those of the gannet exec that started it (by depth). */
static void scope_key(const char *key, int generation, char out[GN_PMIX_KEY])
{
	const char *depth = getenv(GN_BOOTSTRAP_DEPTH);

	snprintf(out, GN_PMIX_KEY, "%s.%d.%.8s", key, generation, depth ? depth : "");
}

/* Prepends one byte, because some servers refuse empty values. */
static enum gn_status put(const struct pmix_bootstrap *b, const char *key, const void *data, size_t len_bytes, struct gn_err *err)
{
	pmix_value_t value = {.type = PMIX_BYTE_OBJECT};
	char *packed = malloc(len_bytes + 1);
	pmix_status_t rc;
	char scoped[GN_PMIX_KEY];

	if (!packed)
		return gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for %zu bytes", len_bytes);
	scope_key(key, b->generation, scoped);
	packed[0] = 'G';
	if (len_bytes)
		memcpy(packed + 1, data, len_bytes);
	value.data.bo.bytes = packed;
	value.data.bo.size = len_bytes + 1;
	rc = PMIx_Put(PMIX_GLOBAL, scoped, &value);
	if (rc == PMIX_SUCCESS)
		rc = PMIx_Commit();
	free(packed);
	return rc == PMIX_SUCCESS ? GN_OK : gn_pmix_fail(err, "PMIx put", rc);
}

static enum gn_status unpack(const struct gn_pmix_call *p, void **out, size_t *len_bytes, struct gn_err *err)
{
	char *copy = malloc(p->len_bytes);

	if (!copy)
		return gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for %zu bytes", p->len_bytes);
	*len_bytes = p->len_bytes - 1;
	memcpy(copy, p->bytes + 1, *len_bytes);
	*out = copy;
	return GN_OK;
}

/* One attempt. PMIx normally waits for a value that has not been put yet, but up to 4.2 at least it sometimes returns "not found"
 * at once, or keeps waiting for a value that has been put: so each attempt is short, and the caller retries. */
static enum gn_status get_once(const struct pmix_bootstrap *b, int rank, const char *key, struct gn_pmix_call **out,
			       struct gn_err *err)
{
	struct gn_pmix_call *p = *out = gn_pmix_call_create(err);
	int timeout_s = GET_TIMEOUT_S;
	pmix_status_t rc;
	char what[64];

	if (!p)
		return GN_ERR_NO_MEMORY;
	snprintf(what, sizeof what, "PMIx get from rank %d", rank);
	scope_key(key, b->generation, p->key);
	PMIX_LOAD_PROCID(&p->who, b->me.nspace, (pmix_rank_t)rank);
	PMIX_INFO_LOAD(&p->info, PMIX_TIMEOUT, &timeout_s, PMIX_INT);
	rc = PMIx_Get_nb(&p->who, p->key, &p->info, 1, gn_pmix_call_found, p);
	if (rc == PMIX_SUCCESS)
		return gn_pmix_call_wait(&b->base, p, gn_clock_ns() + GET_NS, what, err);
	p->seen = rc;
	gn_pmix_call_unref(p);
	return gn_pmix_fail(err, what, rc);
}

/* Retries until the rank has put the value; GN_ERR_FAILED when it has not by until_ns. */
static enum gn_status get(const struct pmix_bootstrap *b, int rank, const char *key, uint64_t until_ns, void **out,
			  size_t *len_bytes, struct gn_err *err)
{
	struct gn_pmix_call *p;
	enum gn_status status;
	int again;

	do {
		status = get_once(b, rank, key, &p, err);
		if (!p)
			return status;
		again = status == GN_ERR_FAILED && (p->seen == PMIX_ERR_NOT_FOUND || p->seen == PMIX_ERR_TIMEOUT) && gn_clock_ns() < until_ns;
		if (!status)
			status = unpack(p, out, len_bytes, err);
		gn_pmix_call_unref(p);
		if (again)
			gn_clock_sleep_ns(RETRY_NS);
	} while (again);
	return status;
}

/* A rank that does not get the root info early still takes part in the first exchange, and asks again after it. */
static enum gn_status pmix_root_info(struct gn_bootstrap *b, const void *mine, size_t len_bytes, void **out, size_t *len,
				     struct gn_err *err)
{
	const struct pmix_bootstrap *p = (const struct pmix_bootstrap *)b;
	enum gn_status status;

	if (b->rank == 0)
		return put(p, "gannet.word", mine, len_bytes, err);
	*out = NULL;
	if (p->tree)
		return get(p, 0, "gannet.word", gn_clock_ns() + p->base.timeout_ns, out, len, err);
	status = get(p, 0, "gannet.word", b->deadline_ns - p->base.timeout_ns / 2, out, len, err);
	return status == GN_ERR_NO_MEMORY ? status : GN_OK;
}

static enum gn_status publish(const struct pmix_bootstrap *p, const struct gn_contact_info *c, struct gn_err *err)
{
	struct gn_strbuf text = {0};
	enum gn_status status;

	gn_contact_info_write(c, &text);
	status = gn_strbuf_failed(&text) ? gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for an address")
					 : put(p, "gannet.contact", gn_strbuf_text(&text), text.len, err);
	gn_strbuf_release(&text);
	return status;
}

static enum gn_status parent_contact(const struct pmix_bootstrap *p, struct gn_contact_info *out, struct gn_err *err)
{
	void *data = NULL;
	size_t len;
	enum gn_status status = get(p, gn_boot_tree_parent(p->base.rank), "gannet.contact", gn_clock_ns() + p->base.timeout_ns,
				    &data, &len,
				    err);

	if (!status)
		status = gn_contact_info_read(data, len, out, err);
	free(data);
	return status;
}

/* Connects the tree: publishes this rank's contact info, runs the only fence, and connects to the parent. */
static enum gn_status join(struct pmix_bootstrap *p, struct gn_err *err)
{
	struct gn_bootstrap *b = &p->base;
	struct gn_contact_info mine, parent;
	struct gn_boot_tree *tree;
	enum gn_status status = gn_boot_tree_create(b, 1, p->log, &tree, &mine, err);

	if (status)
		return status;
	if (mine.port)
		status = publish(p, &mine, err);
	if (!status)
		status = fence(b, err);
	if (!status && b->rank)
		status = parent_contact(p, &parent, err);
	if (!status)
		status = gn_boot_tree_join(tree, b->rank ? &parent : NULL, gn_clock_ns() + p->base.timeout_ns, err);
	if (status)
		gn_boot_tree_destroy(tree);
	else
		p->tree = tree;
	return status;
}

static enum gn_status pmix_exchange(struct gn_bootstrap *b, const void *mine, size_t len_bytes, struct gn_gathered *out,
				    struct gn_err *err)
{
	struct pmix_bootstrap *p = (struct pmix_bootstrap *)b;
	enum gn_status status = p->tree ? GN_OK : join(p, err);

	return status ? status : gn_boot_tree_exchange(p->tree, mine, len_bytes, out, err);
}

/* Slurm's PMIx plugin kills the step when a task's connection to its PMIx server breaks, whatever --kill-on-bad-exit says. */
static void pmix_detach(struct gn_bootstrap *b)
{
	struct pmix_bootstrap *p = (struct pmix_bootstrap *)b;

	if (!p->detached)
		PMIx_Finalize(NULL, 0);
	p->detached = 1;
}

static struct {
	int wanted, rank; /* rank: + 1 of a world that a loss has ended, which has left PMIx open */
} end;

void gn_bootstrap_pmix_ends_job(void)
{
	/* gannet launch does it by itself */
	end.wanted = !getenv(GN_BOOTSTRAP_ENDS_ALL);
}

/* The code is in call->len_bytes. */
static pmix_status_t end_step(struct gn_pmix_call *call)
{
	return PMIx_Abort((int)call->len_bytes, "a rank is lost", NULL, 0);
}

void gn_bootstrap_pmix_end_job(int code)
{
	struct gn_pmix_call *call = end.rank ? gn_pmix_call_create(NULL) : NULL;
	struct gn_bootstrap waits = {.rank = 0};

	if (!call)
		return;
	gn_clock_sleep_ns(end.rank == 1 ? LAST_WORDS_NS : MORE_WORDS_NS);
	call->len_bytes = (size_t)code;
	gn_bootstrap_set_timeout(&waits, END_MS);
	gn_pmix_call_run(&waits, call, end_step, "PMIx_Abort", NULL);
	gn_pmix_call_unref(call);
}

static void pmix_destroy(struct gn_bootstrap *b, int clean)
{
	struct pmix_bootstrap *p = (struct pmix_bootstrap *)b;

	(void)clean;
	gn_boot_tree_destroy(p->tree);
	if (b->is_lost && end.wanted && !p->detached)
		end.rank = b->rank + 1;
	else
		pmix_detach(b);
	gn_secret_wipe(&b->secret);
	free(b);
}

static const struct gn_bootstrap_ops pmix_ops = {"pmix", pmix_root_info, gn_bootstrap_never_cancelled, pmix_exchange, pmix_detach,
						 pmix_destroy};

/* A number that PMIx knows for the whole job; 0 when it does not. local_only: without a request to its server. */
static int job_number(const pmix_proc_t *me, const char *key, int local_only, pmix_status_t *rc)
{
	pmix_value_t *value = NULL;
	pmix_proc_t all;
	pmix_info_t optional;
	int number;

	PMIX_LOAD_PROCID(&all, me->nspace, PMIX_RANK_WILDCARD);
	PMIX_INFO_LOAD(&optional, PMIX_OPTIONAL, NULL, PMIX_BOOL);
	*rc = PMIx_Get(&all, key, &optional, local_only != 0, &value);
	if (*rc != PMIX_SUCCESS)
		return 0;
	number = value->type == PMIX_UINT32 ? (int)value->data.uint32 : 0;
	PMIX_VALUE_RELEASE(value);
	return number;
}

static enum gn_status job_size(struct pmix_bootstrap *p, struct gn_err *err)
{
	pmix_status_t rc;

	p->base.size = job_number(&p->me, PMIX_JOB_SIZE, 0, &rc);
	if (rc != PMIX_SUCCESS)
		return gn_pmix_fail(err, "PMIx get of the number of ranks", rc);
	if (p->base.size <= 0)
		return gn_err_set(err, GN_ERR_FAILED, "PMIx returned an invalid number of ranks");
	if (job_number(&p->me, PMIX_LOCAL_SIZE, 1, &rc) == p->base.size)
		p->base.address = GN_NET_LOOPBACK;
	return GN_OK;
}

/* The step's folder for temporary files on this node, which its launcher removes: Slurm gives it by PMIx, Open MPI and gannet launch
 * by the environment. "": none. */
static void step_directory(const struct pmix_bootstrap *p, char *out, size_t size)
{
	const char *server = getenv("PMIX_SERVER_TMPDIR");
	pmix_value_t *value = NULL;
	pmix_proc_t all;

	PMIX_LOAD_PROCID(&all, p->me.nspace, PMIX_RANK_WILDCARD);
	if (PMIx_Get(&all, PMIX_NSDIR, NULL, 0, &value) == PMIX_SUCCESS) {
		snprintf(out, size, "%s", value->type == PMIX_STRING ? value->data.string : "");
		PMIX_VALUE_RELEASE(value);
	} else {
		snprintf(out, size, "%s", server ? server : "");
	}
}

/* Finds which of the programs that a step runs one after the other this is: the size of this rank's file in the step's folder, to
 * which each program adds one byte. PMIx itself cannot tell, because a client does not get what an earlier program put as the same
 * rank. All ranks agree because all run the same programs in the same order. Without a folder each program counts as the first. */
static void find_generation(struct pmix_bootstrap *p)
{
	const char *depth = getenv(GN_BOOTSTRAP_DEPTH);
	char directory[PATH_MAX - 128], path[PATH_MAX];
	struct stat st;
	int fd;

	p->generation = 1;
	step_directory(p, directory, sizeof directory);
	snprintf(path, sizeof path, "%s/gannet-%.64s-%d.%.8s", directory, p->me.nspace, p->base.rank, depth ? depth : "");
	fd = *directory ? open(path, O_WRONLY | O_CREAT | O_APPEND | O_NOFOLLOW | O_CLOEXEC, 0600) : -1;
	if (fd < 0)
		return;
	if (write(fd, "x", 1) == 1 && !fstat(fd, &st) && st.st_size > 0 && st.st_size < INT_MAX)
		p->generation = (int)st.st_size;
	close(fd);
}

/* PMIx's own answers to a process of another user than its server are UNREACHABLE and ERROR. */
static void explain_user(struct gn_err *err)
{
	const char *directory = getenv("PMIX_SERVER_TMPDIR");
	struct stat info;

	if (directory && !stat(directory, &info) && info.st_uid != geteuid())
		gn_err_prefix(err, "this process is one of user %u, and its launcher's PMIx server of user %u, which PMIx refuses", (unsigned)geteuid(),
			      (unsigned)info.st_uid);
}

static pmix_status_t init(struct gn_pmix_call *call)
{
	return PMIx_Init(&call->who, NULL, 0);
}

/* join_s: as of gn_bootstrap_pmix(). The number of ranks is what the launcher's variables say, because PMIx cannot be asked yet. */
static enum gn_status connect_server(struct pmix_bootstrap *p, const struct gn_launcher *d, double join_s, struct gn_err *err)
{
	const char *rank = getenv("PMIX_RANK");
	struct gn_limits limits = {.join_s = join_s};
	struct gn_pmix_call *call;
	char host[256] = "";
	enum gn_status status = gn_limits_resolve(&limits, d->size_count ? d->sizes[0].value : 1, err);

	call = status ? NULL : gn_pmix_call_create(err);
	if (!call)
		return status ? status : GN_ERR_NO_MEMORY;
	gn_bootstrap_set_timeout(&p->base, (int)(limits.join_s * 1e3));
	status = gn_pmix_call_run(&p->base, call, init, "PMIx_Init", err);
	gethostname(host, sizeof host - 1);
	if (!status) {
		p->me = call->who;
	} else if (status == GN_ERR_STALL) {
		gn_err_set(err, status, "rank %s on %s: PMIx_Init has waited for %g s (" GN_LIMITS_JOIN ") for the PMIx server of the launcher (srun's "
			   "slurmstepd, mpirun or gannet launch), which does not answer: is it stopped, is this host overloaded, or does PMIx "
			   "have another configuration here (PMIX_MCA_*, ~/.pmix/mca-params.conf)?", rank ? rank : "?", host, limits.join_s);
	} else if (call->seen != PMIX_ERR_TIMEOUT && !gn_thread_check("PMIx", NULL)) {
		gn_err_set(err, status, "PMIX_NAMESPACE is set but no PMIx server answers: %s (%d); was this process started by "
			   "srun --mpi=pmix, mpirun or gannet launch itself?", PMIx_Error_string(call->seen), call->seen);
		explain_user(err);
	}
	gn_pmix_call_unref(call);
	return status;
}

enum gn_status gn_bootstrap_pmix(const struct gn_launcher *d, double join_s, struct gn_log *log, struct gn_bootstrap **out,
				 struct gn_err *err)
{
	struct pmix_bootstrap *p = calloc(1, sizeof *p);
	const char *secret = getenv(GN_BOOTSTRAP_SECRET);
	enum gn_status status;

	if (!p)
		return gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for a bootstrap");
	status = connect_server(p, d, join_s, err);
	if (status) {
		free(p);
		return status;
	}
	p->base.ops = &pmix_ops;
	p->base.rank = (int)p->me.rank;
	p->log = log;
	/* an optional file, for sites whose PMIx servers may expose rank 0's root info to other users */
	if (secret && *secret)
		status = gn_secret_read(secret, &p->base.secret, err);
	if (!status)
		status = job_size(p, err);
	if (!status)
		status = gn_launcher_confirm(d, "PMIx", p->base.rank, p->base.size, err);
	if (!status)
		find_generation(p);
	if (status) {
		pmix_destroy(&p->base, 0);
		return status;
	}
	*out = &p->base;
	return GN_OK;
}
