#include "src/jobs/exec_local.h"

#include "src/jobs/program.h"
#include "transport/auth/net.h"
#include "transport/topology/affinity.h"

#include <errno.h>
#include <ifaddrs.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

/* --- ports and addresses --- */

#define PORT_MIN 10000
#define PORT_TRIES 200

static void ephemeral(int *first, int *last)
{
	FILE *file = fopen("/proc/sys/net/ipv4/ip_local_port_range", "re");

	*first = 32768;
	*last = 60999;
	if (!file)
		return;
	if (fscanf(file, "%d %d", first, last) != 2)
		*first = 32768, *last = 60999;
	fclose(file);
}

enum gn_status gn_exec_local_port(int32_t *port, int *listener, struct gn_err *err)
{
	enum gn_status status = GN_ERR_FAILED;
	int first, last;

	ephemeral(&first, &last);
	for (int i = 0; i < PORT_TRIES && status; i++) {
		uint16_t draw = 0;
		int wanted = 0;

		if (getrandom(&draw, sizeof draw, 0) != (ssize_t)sizeof draw)
			return gn_err_errno(err, errno, "cannot draw a port");
		/* the last tries take any */
		wanted = i < PORT_TRIES - 10 ? draw : 0;
		if (wanted && (wanted < PORT_MIN || (wanted >= first && wanted <= last)))
			continue;
		status = gn_net_listen(NULL, &wanted, listener, err);
		*port = wanted;
	}
	return status;
}

static int same_address(const struct sockaddr *a, const struct sockaddr *b)
{
	if (a->sa_family != b->sa_family)
		return 0;
	if (a->sa_family == AF_INET)
		return ((const struct sockaddr_in *)a)->sin_addr.s_addr == ((const struct sockaddr_in *)b)->sin_addr.s_addr;
	return a->sa_family == AF_INET6 && !memcmp(&((const struct sockaddr_in6 *)a)->sin6_addr,
						   &((const struct sockaddr_in6 *)b)->sin6_addr, sizeof(struct in6_addr));
}

static void name_interface(const struct sockaddr *address, char ifname[64])
{
	struct ifaddrs *all, *a;

	if (getifaddrs(&all))
		return;
	for (a = all; a; a = a->ifa_next)
		if (a->ifa_addr && same_address(a->ifa_addr, address)) {
			snprintf(ifname, 64, "%s", a->ifa_name);
			break;
		}
	freeifaddrs(all);
}

/* Connecting a datagram socket sends nothing, and tells the source address. */
static int source_address(const char *master, int port, struct sockaddr_storage *out)
{
	struct addrinfo hints = {.ai_socktype = SOCK_DGRAM}, *found = NULL;
	socklen_t len = sizeof *out;
	char service[16];
	int fd, ok;

	snprintf(service, sizeof service, "%d", port);
	if (getaddrinfo(master, service, &hints, &found) || !found)
		return 0;
	fd = socket(found->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	ok = fd >= 0 && !connect(fd, found->ai_addr, found->ai_addrlen) && !getsockname(fd, (struct sockaddr *)out, &len);
	freeaddrinfo(found);
	if (fd >= 0)
		close(fd);
	return ok;
}

void gn_exec_local_address(const char *known, const char *master, int port, char address[64], char ifname[64])
{
	struct sockaddr_storage source;

	*address = *ifname = 0;
	/* to itself rank 0 would go by loopback, unless that is its address */
	if (!source_address(known ? known : master, port, &source))
		return;
	if (getnameinfo((struct sockaddr *)&source, sizeof source, address, 64, NULL, 0, NI_NUMERICHOST))
		*address = 0;
	name_interface((struct sockaddr *)&source, ifname);
}

/* --- sharing --- */

int gn_exec_local_order_gpus(const struct gn_topology *m, const cpu_set_t *cpus, int count, int *order, int *own)
{
	unsigned char *taken = calloc((size_t)m->gpu_count + 1, 1);
	int left = 0;

	for (int i = 0; i < count && taken; i++) {
		int numa = gn_topology_numa_of(m, &cpus[i]), pick = -1;

		for (int g = m->gpu_count - 1; g >= 0; g--)
			if (!taken[g] && (pick < 0 || m->gpus[g].numa == numa || m->gpus[pick].numa != numa))
				pick = g;
		own[i] = pick >= 0 ? pick : i % m->gpu_count;
		if (pick >= 0)
			taken[order[left++] = pick] = 1;
	}
	for (int g = 0; g < m->gpu_count && taken; g++)
		if (!taken[g])
			order[left++] = g;
	free(taken);
	return left;
}

static void list_gpus(const int *order, int count, char *out, size_t size)
{
	size_t len = 0;

	*out = 0;
	for (int i = 0; i < count && len < size; i++)
		len += (size_t)snprintf(out + len, size - len, "%s%d", i ? "," : "", order[i]);
}

static int share_one_set(const struct gn_exec_local *const *all, int count)
{
	for (int i = 1; i < count; i++)
		if (!CPU_EQUAL(&all[i]->cpus, &all[0]->cpus))
			return 0;
	return CPU_COUNT(&all[0]->cpus) >= count;
}

void gn_exec_local_share(const struct gn_exec_local *const *all, int count, int rank, cpu_set_t *cores, char *gpus, size_t gpus_size)
{
	struct gn_affinity_rank *ranks = calloc((size_t)count, sizeof *ranks);
	struct gn_affinity *chosen = calloc((size_t)count, sizeof *chosen);
	cpu_set_t *cpus = calloc((size_t)count, sizeof *cpus);
	int *own = calloc((size_t)count, sizeof *own), *order = NULL;
	struct gn_topology m;

	CPU_ZERO(cores);
	*gpus = 0;
	if (ranks && chosen && cpus && own && !gn_topology_read(&m, NULL)) {
		for (int i = 0; i < count; i++)
			cpus[i] = all[i]->cpus;
		order = m.gpu_count ? calloc((size_t)m.gpu_count, sizeof *order) : NULL;
		if (order)
			list_gpus(order, gn_exec_local_order_gpus(&m, cpus, count, order, own), gpus, gpus_size);
		for (int i = 0; i < count; i++)
			ranks[i] = (struct gn_affinity_rank){.cpus = cpus[i], .gpu = order ? own[i] : -1};
		gn_affinity_choose(&m, NULL, ranks, count, chosen);
		if (count > 1 && share_one_set(all, count))
			*cores = chosen[rank].cores;
		gn_topology_release(&m);
	}
	free(order);
	free(own);
	free(cpus);
	free(ranks);
	free(chosen);
}
