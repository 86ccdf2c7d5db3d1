/* Only what Slurm's PMIx plugin is known to do: init, put, commit, fence with data, get. No events, no publish. */
#include "transport/bootstrap.h"

#include "src/base/clock.h"

#include <errno.h>
#include <pmix.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

struct pmix_bootstrap {
	struct gn_bootstrap base;
	pmix_proc_t me;
	unsigned round;
	int lease_s; /* for single look-ups */
};

/* A fence that may outlive its caller, who gives up when a peer is lost: both sides hold it. */
struct fence {
	pthread_mutex_t lock;
	pthread_cond_t changed;
	int done, holders;
	pmix_status_t result;
};

static enum gn_status pmix_fail(struct gn_err *err, const char *what, pmix_status_t rc)
{
	return gn_err_set(err, GN_ERR_FAILED, "%s failed: %s (%d)", what, PMIx_Error_string(rc), rc);
}

static void fence_drop(struct fence *f)
{
	int left;

	pthread_mutex_lock(&f->lock);
	left = --f->holders;
	pthread_mutex_unlock(&f->lock);
	if (left)
		return;
	pthread_cond_destroy(&f->changed);
	pthread_mutex_destroy(&f->lock);
	free(f);
}

static void fence_done(pmix_status_t status, void *data)
{
	struct fence *f = data;

	pthread_mutex_lock(&f->lock);
	f->done = 1;
	f->result = status;
	pthread_cond_signal(&f->changed);
	pthread_mutex_unlock(&f->lock);
	fence_drop(f);
}

static struct fence *fence_new(void)
{
	struct fence *f = calloc(1, sizeof *f);
	pthread_condattr_t attr;

	if (!f)
		return NULL;
	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_mutex_init(&f->lock, NULL);
	pthread_cond_init(&f->changed, &attr);
	pthread_condattr_destroy(&attr);
	f->holders = 2;
	return f;
}

/* Waits in short slices, so that a loss seen by the watch ends it. */
static enum gn_status fence_wait(const struct gn_bootstrap *b, struct fence *f, struct gn_err *err)
{
	uint64_t started = gn_clock_ns();
	enum gn_status status = GN_OK;
	struct timespec until;

	pthread_mutex_lock(&f->lock);
	while (!f->done && !status) {
		clock_gettime(CLOCK_MONOTONIC, &until);
		until.tv_nsec += gn_bootstrap_nap_ms(b) * 1000000L;
		if (until.tv_nsec >= 1000000000) {
			until.tv_nsec -= 1000000000;
			until.tv_sec++;
		}
		if (pthread_cond_timedwait(&f->changed, &f->lock, &until) == ETIMEDOUT)
			status = gn_bootstrap_may_wait(b, started, "the exchange over PMIx", err);
	}
	if (f->done)
		status = f->result == PMIX_SUCCESS ? GN_OK : pmix_fail(err, "PMIx fence", f->result);
	pthread_mutex_unlock(&f->lock);
	return status;
}

static enum gn_status fence(struct gn_bootstrap *b, struct gn_err *err)
{
	struct fence *f = fence_new();
	enum gn_status status;
	pmix_status_t rc;
	pmix_info_t info;
	bool collect = true;

	if (!f)
		return gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for a fence");
	PMIX_INFO_CONSTRUCT(&info);
	PMIX_INFO_LOAD(&info, PMIX_COLLECT_DATA, &collect, PMIX_BOOL);
	rc = PMIx_Fence_nb(NULL, 0, &info, 1, fence_done, f);
	if (rc == PMIX_SUCCESS) {
		status = fence_wait(b, f, err);
	} else {
		fence_drop(f);
		status = rc == PMIX_OPERATION_SUCCEEDED ? GN_OK : pmix_fail(err, "PMIx fence", rc);
	}
	fence_drop(f);
	PMIX_INFO_DESTRUCT(&info);
	return status;
}

static enum gn_status put(const char *key, const void *data, size_t len_bytes, struct gn_err *err)
{
	pmix_value_t value = {.type = PMIX_BYTE_OBJECT};
	pmix_status_t rc;

	value.data.bo.bytes = (char *)(uintptr_t)data;
	value.data.bo.size = len_bytes;
	rc = PMIx_Put(PMIX_GLOBAL, key, &value);
	if (rc == PMIX_SUCCESS)
		rc = PMIx_Commit();
	return rc == PMIX_SUCCESS ? GN_OK : pmix_fail(err, "PMIx put", rc);
}

static enum gn_status get(const struct pmix_bootstrap *p, int rank, const char *key, void **out, size_t *len_bytes,
			  struct gn_err *err)
{
	pmix_value_t *value = NULL;
	enum gn_status status = GN_OK;
	pmix_proc_t who;
	pmix_info_t info;
	pmix_status_t rc;
	char *copy;

	PMIX_LOAD_PROCID(&who, p->me.nspace, (pmix_rank_t)rank);
	PMIX_INFO_CONSTRUCT(&info);
	PMIX_INFO_LOAD(&info, PMIX_TIMEOUT, &p->lease_s, PMIX_INT);
	rc = PMIx_Get(&who, key, &info, 1, &value);
	PMIX_INFO_DESTRUCT(&info);
	if (rc != PMIX_SUCCESS || !value || value->type != PMIX_BYTE_OBJECT || !value->data.bo.size) {
		status = rc == PMIX_SUCCESS
				 ? gn_err_set(err, GN_ERR_FAILED, "PMIx gave no bytes for rank %d", rank)
				 : gn_err_set(err, GN_ERR_FAILED, "PMIx has nothing from rank %d: %s (%d)", rank,
					      PMIx_Error_string(rc), rc);
	} else {
		/* the first byte is ours: some servers refuse empty values */
		copy = malloc(value->data.bo.size);
		if (copy) {
			*len_bytes = value->data.bo.size - 1;
			memcpy(copy, value->data.bo.bytes + 1, *len_bytes);
			*out = copy;
		} else {
			status = gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for %zu bytes", value->data.bo.size);
		}
	}
	if (value)
		PMIX_VALUE_RELEASE(value);
	return status;
}

static enum gn_status pmix_exchange(struct gn_bootstrap *b, const void *mine, size_t len_bytes, void **out,
				    size_t *lens, struct gn_err *err)
{
	struct pmix_bootstrap *p = (struct pmix_bootstrap *)b;
	char key[32], *packed = malloc(len_bytes + 1);
	enum gn_status status;
	int got = 0;

	if (!packed)
		return gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for %zu bytes", len_bytes);
	packed[0] = 'G';
	if (len_bytes)
		memcpy(packed + 1, mine, len_bytes);
	/* a new name each time: a value once put may be cached for good on other nodes */
	snprintf(key, sizeof key, "gannet.%u", p->round++);
	status = put(key, packed, len_bytes + 1, err);
	if (!status)
		status = fence(b, err);
	for (; !status && got < b->size; got += !status)
		status = get(p, got, key, &out[got], &lens[got], err);
	/* nothing set on failure: callers free what is */
	while (status && got > 0) {
		free(out[--got]);
		out[got] = NULL;
	}
	free(packed);
	return status;
}

static void pmix_destroy(struct gn_bootstrap *b, int clean)
{
	(void)clean;
	PMIx_Finalize(NULL, 0);
	gn_secret_wipe(&b->secret);
	free(b);
}

static const struct gn_bootstrap_ops pmix_ops = {"pmix", pmix_exchange, pmix_destroy};

static enum gn_status job_size(const pmix_proc_t *me, int *size, struct gn_err *err)
{
	pmix_value_t *value = NULL;
	pmix_proc_t all;
	pmix_status_t rc;

	PMIX_LOAD_PROCID(&all, me->nspace, PMIX_RANK_WILDCARD);
	rc = PMIx_Get(&all, PMIX_JOB_SIZE, NULL, 0, &value);
	if (rc != PMIX_SUCCESS)
		return pmix_fail(err, "asking PMIx for the number of ranks", rc);
	*size = value->type == PMIX_UINT32 ? (int)value->data.uint32 : 0;
	PMIX_VALUE_RELEASE(value);
	return *size > 0 ? GN_OK : gn_err_set(err, GN_ERR_FAILED, "PMIx told no usable number of ranks");
}

/* Besides what rank 0 publishes, for those who do not trust their PMIx servers to keep it from other users. */
static enum gn_status read_secret(struct pmix_bootstrap *p, struct gn_err *err)
{
	const char *path = getenv(GN_BOOTSTRAP_SECRET);

	return path && *path ? gn_secret_read(path, &p->base.secret, err) : GN_OK;
}

enum gn_status gn_bootstrap_pmix(const struct gn_detect *d, int timeout_ms, struct gn_bootstrap **out,
				 struct gn_err *err)
{
	struct pmix_bootstrap *p = calloc(1, sizeof *p);
	enum gn_status status;
	pmix_status_t rc;

	if (!p)
		return gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for a bootstrap");
	rc = PMIx_Init(&p->me, NULL, 0);
	if (rc != PMIX_SUCCESS) {
		free(p);
		return gn_err_set(err, GN_ERR_FAILED,
				  "PMIX_NAMESPACE is set but no PMIx server answers: %s (%d); was this process started by "
				  "srun --mpi=pmix, mpirun or gannet launch itself?", PMIx_Error_string(rc), rc);
	}
	p->base.ops = &pmix_ops;
	p->base.rank = (int)p->me.rank;
	p->base.deadline_ns = gn_clock_ns() + (uint64_t)timeout_ms * 1000000;
	p->lease_s = timeout_ms / 1000 + 1;
	status = read_secret(p, err);
	if (!status)
		status = job_size(&p->me, &p->base.size, err);
	if (!status)
		status = gn_detect_confirm(d, "PMIx", p->base.rank, p->base.size, err);
	if (status) {
		pmix_destroy(&p->base, 0);
		return status;
	}
	*out = &p->base;
	return GN_OK;
}
