/* Endpoints that break, ranks that are lost, and requests that nobody waits for any more. */
#include "transport/ucx/ucx_internal.h"

#include "src/base/clock.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <unistd.h>

/* Delay before a transport timeout is an error while this rank still sends to other peers: the failed link carried no message. Rank 0
 * tells of a loss once it has asked the others for their states, 0.3 s after it noticed, and may be asleep before. */
#define IDLE_LINK_NS 2000000000u
/* The same while this rank sends nothing: the heartbeat compares all ranks and is about to report more. */
#define STALLED_NS 3500000000u
/* UCX needs several progress calls to tear down a connection; events within this time may be part of that. */
#define DISCONNECTING_NS 100000000u

struct gn_ucx_kept {
	struct gn_ucx_kept *next;
	void *memory;
};

/* Of each rank in /dev/shm, with the defaults of UCX 1.13. */
#define SHM_BYTES 4400000

void gn_ucx_abandon(struct gn_ucx *f)
{
	/* callbacks run only inside of progress calls, so without them requests may be freed */
	f->abandoned = 1;
}

/* --- broken endpoints --- */

static uint64_t sent_bytes(const struct gn_ucx *f)
{
	return f->traffic.same_node_bytes + f->traffic.other_node_bytes;
}

void gn_ucx_note_disconnect(struct gn_ucx_endpoint *e, ucs_status_t rc)
{
	struct gn_ucx *f = e->rail->ucx;

	if (f->probing) {
		f->probe_failed |= 1u << (e->rail - f->rails);
		return;
	}
	/* an endpoint dropped after probing, or after the loss of its rank, may report its end at any time */
	if (!e->ep && (f->groups || gn_world_losses(f->world)))
		return;
	f->disconnected_ns = gn_clock_ns();
	if (e->broken)
		return;
	e->broken = 1;
	e->broken_status = rc;
	e->broken_ns = f->disconnected_ns;
	e->broken_sent = sent_bytes(f);
	f->broken++;
}

int gn_ucx_is_disconnecting(const struct gn_ucx *f)
{
	return f->disconnected_ns && gn_clock_ns() - f->disconnected_ns < DISCONNECTING_NS;
}

static enum gn_status check_endpoint(const struct gn_ucx_endpoint *e, int rank, uint64_t after_ns, struct gn_err *err)
{
	const struct gn_ucx *f = e->rail->ucx;
	uint64_t delay_ns = UINT64_MAX;

	if (!e->broken)
		return GN_OK;
	/* The heartbeat reports a peer whose process ended at once, one whose link failed when the transport does, and one that
	 * left in good order a little later. */
	if (e->broken_status == UCS_ERR_ENDPOINT_TIMEOUT && !gn_world_anyone_left(f->world))
		delay_ns = sent_bytes(f) > e->broken_sent ? IDLE_LINK_NS : STALLED_NS;
	if (delay_ns < after_ns)
		after_ns = delay_ns;
	if (gn_clock_ns() - e->broken_ns < after_ns)
		return GN_OK;
	/* which of the two is cut off is known to neither */
	return gn_err_set(err, GN_ERR_PEER_LOST, "rank %d on %s is lost: the connection to it%s%s broke (%s at rank %d on %s)", rank,
			  gn_world_host_of(f->world, rank), *e->rail->device ? " by " : "", e->rail->device,
			  ucs_status_string(e->broken_status), gn_world_rank(f->world), gn_world_host_of(f->world, gn_world_rank(f->world)));
}

enum gn_status gn_ucx_check(const struct gn_ucx *f, const int *ranks, int count, uint64_t after_ns, struct gn_err *err)
{
	enum gn_status status = gn_ucx_cipher_check(f, err);

	for (int i = 0; f->broken && i < count && !status; i++) {
		int rank = ranks ? ranks[i] : i;

		for (int k = 0; k < f->rail_count && !status; k++)
			status = check_endpoint(&f->rails[k].endpoints[rank], rank, after_ns, err);
	}
	return status;
}

/* --- lost ranks --- */

void gn_ucx_drop(struct gn_ucx *f, int rank)
{
	for (int i = 0; i < f->rail_count && !f->abandoned; i++)
		if (f->rails[i].endpoints[rank].ep && f->rails[i].endpoints[rank].reports_errors)
			gn_ucx_rail_drop(&f->rails[i], rank);
}

int gn_ucx_sends_eagerly(const struct gn_ucx *f, int rank)
{
	return f->rails[0].endpoints[rank].send_flags != 0;
}

/* --- requests that nobody waits for --- */

void gn_ucx_cancel(struct gn_ucx *f, struct gn_ucx_request *r)
{
	if (f->abandoned || !r->active || !r->handle)
		return;
	if (r->striped)
		gn_ucx_cancel_stripe(r);
	else
		ucp_request_cancel(f->rails[0].worker, r->handle);
}

static void ignore(struct gn_ucx_request *r)
{
	(void)r;
}

void gn_ucx_disown(struct gn_ucx *f, struct gn_ucx_request *r)
{
	f->disowned = 1;
	if (r->active && r->striped)
		gn_ucx_disown_stripe(r);
	else if (r->sealed)
		gn_ucx_disown_sealed(r->sealed);
	r->complete = ignore;
}

int gn_ucx_keep(struct gn_ucx *f, void *memory)
{
	struct gn_ucx_kept *k = malloc(sizeof *k);

	if (!k)
		return 0;
	*k = (struct gn_ucx_kept){f->kept, memory};
	f->kept = k;
	return 1;
}

void gn_ucx_free_kept(struct gn_ucx *f)
{
	for (struct gn_ucx_kept *k = f->kept, *next; k; k = next) {
		next = k->next;
		free(k->memory);
		free(k);
	}
	f->kept = NULL;
}

/* --- why UCX could not create a worker, which its status does not say --- */

/* Makes, fills and maps a segment as UCX does. Returns the step that failed and its errno, or NULL. */
static const char *find_fault(int *errnum)
{
	const char *step = "be written";
	void *memory = MAP_FAILED;
	char name[64];
	int fd;

	snprintf(name, sizeof name, "/gannet-%ld-%llu", (long)getpid(), (unsigned long long)gn_clock_ns());
	fd = shm_open(name, O_RDWR | O_CREAT | O_EXCL, 0600);
	*errnum = errno;
	if (fd >= 0) {
		shm_unlink(name);
		step = "hold what UCX needs";
		*errnum = posix_fallocate(fd, 0, SHM_BYTES);
		if (!*errnum) {
			step = "be mapped";
			memory = mmap(NULL, SHM_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
			*errnum = errno;
		}
		close(fd);
	}
	if (memory == MAP_FAILED)
		return step;
	munmap(memory, SHM_BYTES);
	return NULL;
}

static int address_space_is_limited(void)
{
	struct rlimit limit;

	return !getrlimit(RLIMIT_AS, &limit) && limit.rlim_cur != RLIM_INFINITY;
}

enum gn_status gn_ucx_explain_worker(const char *tls, ucs_status_t rc, struct gn_err *err)
{
	enum gn_status status = gn_ucx_fail(err, "cannot create a UCX worker", rc);
	int memory = rc == UCS_ERR_NO_MEMORY || rc == UCS_ERR_NO_RESOURCE, errnum;
	const char *step = gn_ucx_tls_has_shm(tls) ? find_fault(&errnum) : NULL;
	struct statvfs room;

	if (step && errnum != ENOSPC)
		gn_err_prefix(err, "/dev/shm cannot %s: %s%s", step, gn_errno_text(errnum), errnum == EACCES || errnum == EPERM || errnum == EROFS
			      ? "; UCX needs a tmpfs there that all users can write (mount -t tmpfs -o mode=1777 tmpfs /dev/shm)" : "");
	else if (memory && address_space_is_limited())
		gn_err_prefix(err, "%s", gn_errno_text(ENOMEM));
	else if ((step || (memory && gn_ucx_tls_has_shm(tls))) && !statvfs("/dev/shm", &room))
		gn_err_prefix(err, "UCX needs 4.4 MB of /dev/shm for each rank, and %.1f of its %.1f MB are free; enlarge it (docker or podman "
			      "run --shm-size), or set UCX_POSIX_RX_BUFS_GROW=128, with which UCX needs 1.1 MB",
			      (double)room.f_bavail * (double)room.f_frsize / 1e6, (double)room.f_blocks * (double)room.f_frsize / 1e6);
	return status;
}
