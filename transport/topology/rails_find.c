#include "transport/topology/rails.h"

#include "src/base/file.h"
#include "transport/topology/devices.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <ifaddrs.h>
#include <limits.h>
#include <linux/ethtool.h>
#include <linux/sockios.h>
#include <net/if.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

/* GID table entries that are read of a port. */
#define GIDS_MAX 64

struct candidate {
	struct gn_rail_device device;
	double gbit_per_s;
	int hardware;
};

struct candidates {
	struct candidate *items;
	size_t count;
	int failed; /* out of memory */
};

/* Whether word is in a comma-separated list. */
static int is_listed(const char *list, const char *word)
{
	size_t len = strlen(word);

	for (const char *at = list; *at; at += *at == ',') {
		size_t item = strcspn(at, ",");

		if (item == len && !strncmp(at, word, len))
			return 1;
		at += item;
	}
	return 0;
}

static void add_candidate(struct candidates *c, const struct candidate *one)
{
	struct candidate *more = realloc(c->items, sizeof *more * (c->count + 1));

	if (!more) {
		c->failed = 1;
		return;
	}
	c->items = more;
	more[c->count++] = *one;
}

/* --- network devices --- */

static int is_bridge(const char *name, int socket_fd)
{
	struct ethtool_drvinfo info = {.cmd = ETHTOOL_GDRVINFO};
	struct ifreq request = {.ifr_data = (char *)&info};

	memcpy(request.ifr_name, name, strnlen(name, IFNAMSIZ - 1));
	return !ioctl(socket_fd, SIOCETHTOOL, &request) && !strcmp(info.driver, "bridge");
}

/* The network of an address, "10.83.1.0/24". GN_ERR_NOT_FOUND: no IP address, or a link-local one. */
static enum gn_status network_of(const struct ifaddrs *a, char *out)
{
	const struct sockaddr_in *v4 = (const void *)a->ifa_addr, *m4 = (const void *)a->ifa_netmask;
	const struct sockaddr_in6 *v6 = (const void *)a->ifa_addr, *m6 = (const void *)a->ifa_netmask;
	unsigned char bytes[sizeof v6->sin6_addr];
	char text[INET6_ADDRSTRLEN];
	int bits = 0, family;
	size_t len;

	if (!a->ifa_addr || !a->ifa_netmask)
		return GN_ERR_NOT_FOUND;
	family = a->ifa_addr->sa_family;
	if ((family != AF_INET && family != AF_INET6) || (family == AF_INET6 && IN6_IS_ADDR_LINKLOCAL(&v6->sin6_addr)))
		return GN_ERR_NOT_FOUND;
	len = family == AF_INET ? sizeof v4->sin_addr : sizeof v6->sin6_addr;
	memcpy(bytes, family == AF_INET ? (const void *)&v4->sin_addr : (const void *)&v6->sin6_addr, len);
	for (size_t i = 0; i < len; i++) {
		unsigned char mask = ((const unsigned char *)(family == AF_INET ? (const void *)&m4->sin_addr
										 : (const void *)&m6->sin6_addr))[i];

		bytes[i] &= mask;
		bits += __builtin_popcount(mask);
	}
	if (!inet_ntop(family, bytes, text, sizeof text))
		return GN_ERR_NOT_FOUND;
	snprintf(out, GN_RAIL_NETWORK_MAX, "%.45s/%d", text, bits);
	return GN_OK;
}

/* The device's first IPv4 network, as UCX selects it, else its first IPv6 network. Returns 0: none. */
static int find_network(const struct ifaddrs *addresses, const char *name, char *out)
{
	int family = 0;

	for (const struct ifaddrs *a = addresses; a && family != AF_INET; a = a->ifa_next)
		if (!strcmp(a->ifa_name, name) && a->ifa_addr && (!family || a->ifa_addr->sa_family == AF_INET) &&
		    !network_of(a, out))
			family = a->ifa_addr->sa_family;
	return family != 0;
}

static enum gn_status add_net(const struct gn_devices *devices, const char *allowed, struct candidates *out,
			      struct gn_err *err)
{
	int socket_fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	struct ifaddrs *addresses = NULL;

	if (socket_fd < 0 || getifaddrs(&addresses)) {
		if (socket_fd >= 0)
			close(socket_fd);
		return gn_err_set(err, GN_ERR_FAILED, "cannot read the addresses of network devices");
	}
	for (int i = 0; i < devices->count; i++) {
		const struct gn_net_device *d = &devices->items[i];
		struct candidate c = {.gbit_per_s = d->gbit_per_s, .hardware = d->hardware};

		if (d->kind != GN_DEVICE_NET || !d->up || (allowed && !is_listed(allowed, d->name)) ||
		    !find_network(addresses, d->name, c.device.network) || is_bridge(d->name, socket_fd))
			continue;
		memcpy(c.device.name, d->name, sizeof d->name);
		add_candidate(out, &c);
	}
	freeifaddrs(addresses);
	close(socket_fd);
	return GN_OK;
}

/* --- RDMA devices --- */

static int read_port_text(const char *ports, const char *port, const char *file, char *text, size_t size)
{
	char path[PATH_MAX];

	if ((size_t)snprintf(path, sizeof path, "%s/%s/%s", ports, port, file) >= sizeof path || gn_file_read_start(path, text, size) < 0)
		return -1;
	text[strcspn(text, "\n")] = 0;
	return 0;
}

static int has_address(const struct ifaddrs *a, const struct in6_addr *wanted)
{
	const struct sockaddr_in *v4 = (const void *)a->ifa_addr;
	const struct sockaddr_in6 *v6 = (const void *)a->ifa_addr;

	if (!a->ifa_addr)
		return 0;
	if (IN6_IS_ADDR_V4MAPPED(wanted))
		return a->ifa_addr->sa_family == AF_INET && !memcmp(&wanted->s6_addr[12], &v4->sin_addr, sizeof v4->sin_addr);
	return a->ifa_addr->sa_family == AF_INET6 && IN6_ARE_ADDR_EQUAL(wanted, &v6->sin6_addr);
}

/* "Ethernet 10.83.1.0-24": the network of the port's first IPv4 GID that is an address of this host, else of the first IPv6 one;
 * without any "Ethernet". */
static void name_ethernet(const struct ifaddrs *addresses, const char *ports, const char *port, char *out)
{
	char file[32], gid[64], network[GN_RAIL_NETWORK_MAX], *slash;
	struct in6_addr address;
	int found = 0, v4 = 0;

	snprintf(out, GN_RAIL_NETWORK_MAX, "Ethernet");
	for (int i = 0; i < GIDS_MAX && !v4; i++) {
		snprintf(file, sizeof file, "gids/%d", i);
		if (read_port_text(ports, port, file, gid, sizeof gid) || inet_pton(AF_INET6, gid, &address) != 1 ||
		    (found && !IN6_IS_ADDR_V4MAPPED(&address)))
			continue;
		for (const struct ifaddrs *a = addresses; a; a = a->ifa_next) {
			if (!has_address(a, &address) || network_of(a, network))
				continue;
			slash = strchr(network, '/');
			*slash = '-';
			snprintf(out, GN_RAIL_NETWORK_MAX, "Ethernet %.50s", network);
			found = 1;
			v4 = IN6_IS_ADDR_V4MAPPED(&address);
			break;
		}
	}
}

/* The network of an InfiniBand port is the subnet prefix of its GID, that of an Ethernet port the IP network of its address. */
static void add_port(const char *name, const char *ports, const char *port, const char *allowed,
		     const struct ifaddrs *addresses, struct candidates *out)
{
	char state[64] = "", rate[64] = "", link[32] = "", gid[64] = "";
	struct candidate c = {.hardware = 1};

	read_port_text(ports, port, "state", state, sizeof state);
	read_port_text(ports, port, "rate", rate, sizeof rate);
	read_port_text(ports, port, "link_layer", link, sizeof link);
	read_port_text(ports, port, "gids/0", gid, sizeof gid);
	if (!strstr(state, "ACTIVE") ||
	    (size_t)snprintf(c.device.name, sizeof c.device.name, "%s:%s", name, port) >= sizeof c.device.name ||
	    (allowed && !is_listed(allowed, c.device.name) && !is_listed(allowed, name)))
		return;
	c.gbit_per_s = atof(rate);
	if (!strcmp(link, "Ethernet"))
		name_ethernet(addresses, ports, port, c.device.network);
	else
		snprintf(c.device.network, sizeof c.device.network, "%.20s %.19s", link, gid);
	add_candidate(out, &c);
}

static void add_rdma(const char *root, const struct gn_devices *devices, const char *allowed, struct candidates *out)
{
	struct ifaddrs *addresses = NULL;
	char path[PATH_MAX];
	struct dirent *entry;
	DIR *ports;

	if (getifaddrs(&addresses))
		addresses = NULL;
	for (int i = 0; i < devices->count; i++) {
		const struct gn_net_device *d = &devices->items[i];

		if ((d->kind != GN_DEVICE_RDMA && d->kind != GN_DEVICE_SOFT_RDMA) || !d->up ||
		    (size_t)snprintf(path, sizeof path, "%s/class/infiniband/%s/ports", root, d->name) >= sizeof path)
			continue;
		ports = opendir(path);
		while (ports && (entry = readdir(ports)))
			if (entry->d_name[0] != '.')
				add_port(d->name, path, entry->d_name, allowed, addresses, out);
		if (ports)
			closedir(ports);
	}
	if (addresses)
		freeifaddrs(addresses);
}

/* --- selection --- */

static int by_network(const void *a, const void *b)
{
	const struct gn_rail_device *x = &((const struct candidate *)a)->device, *y = &((const struct candidate *)b)->device;
	int order = strverscmp(x->network, y->network);

	return order ? order : strverscmp(x->name, y->name);
}

/* Candidates are sorted by network, so that only the last one selected needs comparing. */
static int in_selected_ip_network(const struct candidate *c, const struct gn_rails *selected)
{
	return selected->count && strchr(c->device.network, '/') &&
	       !strcmp(c->device.network, selected->items[selected->count - 1].network);
}

/* The fastest; virtual ones only if none of those is hardware. */
static void select_fastest(struct candidates *c, struct gn_rails *out)
{
	struct gn_rails r = {0};
	double fastest = 0;
	int hardware = 0;

	for (size_t i = 0; i < c->count; i++)
		fastest = c->items[i].gbit_per_s > fastest ? c->items[i].gbit_per_s : fastest;
	for (size_t i = 0; i < c->count; i++)
		hardware |= c->items[i].gbit_per_s >= fastest && c->items[i].hardware;
	if (c->count)
		qsort(c->items, c->count, sizeof *c->items, by_network);
	for (size_t i = 0; i < c->count && r.count < GN_RAILS_MAX; i++)
		if (c->items[i].gbit_per_s >= fastest && c->items[i].hardware >= hardware && !in_selected_ip_network(&c->items[i], &r))
			r.items[r.count++] = c->items[i].device;
	*out = r;
}

enum gn_status gn_rails_find(const char *root, unsigned kinds, const char *allowed, struct gn_rails *out,
			     struct gn_err *err)
{
	struct gn_devices devices = {0};
	struct candidates found = {0};
	enum gn_status status = gn_devices_read(root, &devices, err);

	if (!status && (kinds & GN_RAILS_RDMA))
		add_rdma(root, &devices, allowed, &found);
	/* UCX prefers RDMA */
	if (!status && !found.count && (kinds & GN_RAILS_TCP))
		status = add_net(&devices, allowed, &found, err);
	if (!status && found.failed)
		status = gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for network devices");
	if (!status)
		select_fastest(&found, out);
	free(found.items);
	gn_devices_release(&devices);
	return status;
}
