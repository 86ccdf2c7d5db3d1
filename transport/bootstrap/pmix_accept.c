#include "transport/bootstrap/pmix_accept.h"

#include <errno.h>
#include <inttypes.h>
#include <netinet/in.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define QUIET_S 60

static atomic_int is_guarded;

void gn_pmix_accept_guard(void)
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
