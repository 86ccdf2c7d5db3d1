/* Why UCX could not create a worker, which its status does not say. */
#include "transport/ucx/ucx_internal.h"

#include "src/base/clock.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <unistd.h>

/* Of each rank in /dev/shm, with the defaults of UCX 1.13. */
#define SHM_BYTES 4400000

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
