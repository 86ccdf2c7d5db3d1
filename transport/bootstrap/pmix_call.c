#include "transport/bootstrap/pmix_call.h"

#include "src/base/clock.h"
#include "src/base/thread.h"

#include <errno.h>
#include <pwd.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#define ADDRESS_BYTES (256 << 20)

enum gn_status gn_pmix_fail(struct gn_err *err, const char *what, pmix_status_t rc)
{
	if (rc == PMIX_ERR_PARTIAL_SUCCESS)
		return gn_err_set(err, GN_ERR_PEER_LOST, "%s: a rank has ended before all had met; the launcher names it", what);
	return gn_err_set(err, GN_ERR_FAILED, "%s failed: %s (%d)", what, PMIx_Error_string(rc), rc);
}

struct gn_pmix_call *gn_pmix_call_create(struct gn_err *err)
{
	struct gn_pmix_call *p = calloc(1, sizeof *p);
	pthread_condattr_t attr;

	if (!p) {
		gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for a PMIx call");
		return NULL;
	}
	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_mutex_init(&p->lock, NULL);
	pthread_cond_init(&p->changed, &attr);
	pthread_condattr_destroy(&attr);
	PMIX_INFO_CONSTRUCT(&p->info);
	p->refs = 2;
	p->result = p->seen = PMIX_ERR_TIMEOUT;
	return p;
}

void gn_pmix_call_unref(struct gn_pmix_call *p)
{
	int left;

	pthread_mutex_lock(&p->lock);
	left = --p->refs;
	pthread_mutex_unlock(&p->lock);
	if (left)
		return;
	pthread_cond_destroy(&p->changed);
	pthread_mutex_destroy(&p->lock);
	PMIX_INFO_DESTRUCT(&p->info);
	free(p->bytes);
	free(p);
}

void gn_pmix_call_done(pmix_status_t status, void *data)
{
	struct gn_pmix_call *p = data;

	pthread_mutex_lock(&p->lock);
	p->done = 1;
	p->result = status;
	pthread_cond_signal(&p->changed);
	pthread_mutex_unlock(&p->lock);
	gn_pmix_call_unref(p);
}

/* The value belongs to PMIx and is valid only during this call. */
void gn_pmix_call_found(pmix_status_t status, pmix_value_t *value, void *data)
{
	struct gn_pmix_call *p = data;
	const pmix_byte_object_t *found = value && value->type == PMIX_BYTE_OBJECT ? &value->data.bo : NULL;

	if (status == PMIX_SUCCESS) {
		p->bytes = found && found->size ? malloc(found->size) : NULL;
		status = !found || !found->size ? PMIX_ERR_NOT_FOUND : p->bytes ? PMIX_SUCCESS : PMIX_ERR_NOMEM;
	}
	if (p->bytes) {
		p->len_bytes = found->size;
		memcpy(p->bytes, found->bytes, found->size);
	}
	gn_pmix_call_done(status, p);
}

enum gn_status gn_pmix_call_wait(const struct gn_bootstrap *b, struct gn_pmix_call *p, uint64_t until_ns, const char *what,
				 struct gn_err *err)
{
	uint64_t started = gn_clock_ns();
	enum gn_status status = GN_OK;
	struct timespec until;

	pthread_mutex_lock(&p->lock);
	while (!p->done && !status) {
		clock_gettime(CLOCK_MONOTONIC, &until);
		until.tv_nsec += gn_bootstrap_poll_ms(b) * 1000000L;
		if (until.tv_nsec >= 1000000000) {
			until.tv_nsec -= 1000000000;
			until.tv_sec++;
		}
		if (pthread_cond_timedwait(&p->changed, &p->lock, &until) == ETIMEDOUT)
			status = gn_bootstrap_check_wait(b, started, what, err);
		if (!status && !p->done && until_ns && gn_clock_ns() > until_ns)
			status = gn_pmix_fail(err, what, PMIX_ERR_TIMEOUT);
	}
	if (p->done) {
		p->seen = p->result;
		status = p->seen == PMIX_SUCCESS ? GN_OK : gn_pmix_fail(err, what, p->seen);
	}
	pthread_mutex_unlock(&p->lock);
	return status;
}

enum gn_status gn_pmix_call_finish(const struct gn_bootstrap *b, struct gn_pmix_call *p, pmix_status_t rc, const char *what,
				   struct gn_err *err)
{
	enum gn_status status = GN_OK;

	if (rc == PMIX_SUCCESS)
		status = gn_pmix_call_wait(b, p, 0, what, err);
	else
		gn_pmix_call_unref(p);
	gn_pmix_call_unref(p);
	return rc == PMIX_SUCCESS || rc == PMIX_OPERATION_SUCCEEDED ? status : gn_pmix_fail(err, what, rc);
}

/* Where there is less, PMIx 4.2.2 and its threads crash or hang, depending on where the kernel puts them. */
static enum gn_status check_addresses(struct gn_err *err)
{
	void *memory = mmap(NULL, ADDRESS_BYTES, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	if (memory == MAP_FAILED)
		return gn_err_errno(err, errno, "PMIx needs %d MB of addresses", ADDRESS_BYTES >> 20);
	munmap(memory, ADDRESS_BYTES);
	return GN_OK;
}

static void *run(void *argument)
{
	struct gn_pmix_call *p = argument;

	gn_pmix_call_done(p->call(p), p);
	return NULL;
}

enum gn_status gn_pmix_call_run(const struct gn_bootstrap *b, struct gn_pmix_call *p, pmix_status_t (*call)(struct gn_pmix_call *p),
				const char *what, struct gn_err *err)
{
	enum gn_status status = check_addresses(err);
	struct gn_err limited;
	pthread_t thread;

	if (!getenv("HOME") && !getpwuid(geteuid()))
		setenv("HOME", "/", 1);
	p->call = call;
	if (!status)
		status = gn_thread_create(&thread, run, p, "PMIx", err);
	if (status) {
		gn_pmix_call_unref(p);
		return status;
	}
	pthread_detach(thread);
	status = gn_pmix_call_wait(b, p, 0, what, err);
	/* PMIx says as little as "ERROR" when it cannot start one */
	return status == GN_ERR_FAILED && gn_thread_check("PMIx", &limited) ? gn_err_set(err, limited.status, "%s", limited.text) : status;
}
