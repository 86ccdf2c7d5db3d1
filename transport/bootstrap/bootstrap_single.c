/* What all bootstraps share, and the bootstrap of a single rank. */
#include "transport/bootstrap/bootstrap.h"

#include "src/base/clock.h"
#include "transport/health/recorder.h"
#include "transport/health/heartbeat.h"

#include <stdlib.h>

void gn_bootstrap_set_timeout(struct gn_bootstrap *b, int timeout_ms)
{
	b->timeout_ns = (uint64_t)timeout_ms * 1000000;
	b->deadline_ns = gn_clock_ns() + b->timeout_ns;
}

enum gn_status gn_bootstrap_check_wait(const struct gn_bootstrap *b, uint64_t started_ns, const char *what,
				       struct gn_err *err)
{
	enum gn_status status = b->check ? b->check(b->check_context, err) : GN_OK;

	if (status)
		return status;
	if (b->progress)
		b->progress(b->progress_context);
	if (b->recorder)
		gn_recorder_waiting(b->recorder, 0);
	if (b->heartbeat)
		return gn_heartbeat_check_wait(b->heartbeat, started_ns, err);
	if (gn_clock_ns() < b->deadline_ns)
		return GN_OK;
	return gn_err_set(err, GN_ERR_STALL, "%s timed out: are all %d ranks started?", what, b->size);
}

int gn_bootstrap_poll_ms(const struct gn_bootstrap *b)
{
	return b->progress ? 1 : 100;
}

enum gn_status gn_bootstrap_never_cancelled(struct gn_bootstrap *b, struct gn_err *err)
{
	(void)b, (void)err;
	return GN_OK;
}

static enum gn_status single_root_info(struct gn_bootstrap *b, const void *mine, size_t len_bytes, void **out, size_t *len,
				       struct gn_err *err)
{
	(void)b, (void)mine, (void)len_bytes, (void)out, (void)len, (void)err;
	return GN_OK;
}

static enum gn_status single_exchange(struct gn_bootstrap *b, const void *mine, size_t len_bytes, struct gn_gathered *out,
				      struct gn_err *err)
{
	size_t bytes = gn_gathered_record_bytes(len_bytes);
	void *pack = malloc(bytes);

	(void)b;
	if (!pack)
		return gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for %zu bytes", len_bytes);
	gn_gathered_write(pack, mine, len_bytes);
	return gn_gathered_take(pack, bytes, 1, out, err);
}

static void single_destroy(struct gn_bootstrap *b, int clean)
{
	(void)clean;
	free(b);
}

static const struct gn_bootstrap_ops single_ops = {"alone", single_root_info, gn_bootstrap_never_cancelled, single_exchange, NULL,
						   single_destroy};

enum gn_status gn_bootstrap_single(struct gn_bootstrap **out, struct gn_err *err)
{
	struct gn_bootstrap *b = calloc(1, sizeof *b);

	if (!b)
		return gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for a bootstrap");
	b->ops = &single_ops;
	b->size = 1;
	*out = b;
	return GN_OK;
}
