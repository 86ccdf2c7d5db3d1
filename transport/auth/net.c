#include "transport/auth/net.h"

#include "src/base/clock.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* After a link was cut for D seconds TCP would repeat what was lost up to D seconds later: what it has reaches the other side within a second
 * where the kernel can (6.15). */
#ifndef TCP_RTO_MAX_MS
#define TCP_RTO_MAX_MS 44
#endif

/* Linux gives a connection up after 15 repetitions: after 924 s, but 15 s with the above. Who waits has a limit of its own. */
#define GIVE_UP_MS 924000

static void set_options(int fd)
{
	int yes = 1, most_ms = 1000, give_up_ms = GIVE_UP_MS;

	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
	setsockopt(fd, IPPROTO_TCP, TCP_RTO_MAX_MS, &most_ms, sizeof most_ms);
	setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &give_up_ms, sizeof give_up_ms);
}

static int bind_to(const struct sockaddr *to, socklen_t len)
{
	int fd = socket(to->sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0), yes = 1, no = 0, failure;

	if (fd < 0)
		return -1;
	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
	if (to->sa_family == AF_INET6)
		setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &no, sizeof no);
	if (!bind(fd, to, len) && !listen(fd, SOMAXCONN))
		return fd;
	failure = errno;
	close(fd);
	errno = failure;
	return -1;
}

/* address: numeric; NULL: all addresses. */
static int bind_any(const char *address, int port)
{
	struct sockaddr_in6 ipv6 = {.sin6_family = AF_INET6, .sin6_port = htons((uint16_t)port)};
	struct sockaddr_in ipv4 = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
	int is_ipv4 = address && inet_pton(AF_INET, address, &ipv4.sin_addr) == 1, fd = -1;

	if (address && !is_ipv4 && inet_pton(AF_INET6, address, &ipv6.sin6_addr) != 1) {
		errno = EINVAL;
		return -1;
	}
	if (!is_ipv4)
		fd = bind_to((struct sockaddr *)&ipv6, sizeof ipv6);
	/* fall back to IPv4 on a host without IPv6 */
	if (is_ipv4 || (!address && fd < 0 && errno != EADDRINUSE))
		fd = bind_to((struct sockaddr *)&ipv4, sizeof ipv4);
	return fd;
}

enum gn_status gn_net_listen(const char *address, int *port, int *fd, struct gn_err *err)
{
	struct sockaddr_storage bound;
	socklen_t len = sizeof bound;
	int s = bind_any(address, *port);

	if (s < 0)
		return gn_err_errno(err, errno, "cannot listen on port %d%s%s", *port, address ? " of " : "",
				    address ? address : "");
	if (getsockname(s, (struct sockaddr *)&bound, &len)) {
		close(s);
		return gn_err_errno(err, errno, "cannot listen");
	}
	*port = ntohs(bound.ss_family == AF_INET6 ? ((struct sockaddr_in6 *)&bound)->sin6_port
						  : ((struct sockaddr_in *)&bound)->sin_port);
	*fd = s;
	return GN_OK;
}

/* The order of preference, lower first; -1: not usable. */
static int address_class(const struct ifaddrs *a)
{
	const struct sockaddr_in6 *ipv6 = (const struct sockaddr_in6 *)a->ifa_addr;
	int loopback = (a->ifa_flags & IFF_LOOPBACK) != 0;

	if (!a->ifa_addr || !(a->ifa_flags & IFF_UP))
		return -1;
	if (a->ifa_addr->sa_family == AF_INET)
		return loopback ? 2 : 0;
	if (a->ifa_addr->sa_family == AF_INET6 && !IN6_IS_ADDR_LINKLOCAL(&ipv6->sin6_addr))
		return loopback ? 3 : 1;
	return -1;
}

int gn_net_ifname_matches(const char *list, const char *name)
{
	int excludes = list && *list == '^', all_whole, found = 0;

	if (!list || !*list)
		return 1;
	list += excludes;
	all_whole = *list == '=';
	list += all_whole;
	for (size_t len; *list && !found; list += len + (list[len] == ',')) {
		int whole = all_whole || *list == '=';

		list += *list == '=';
		len = strcspn(list, ",");
		found = len && !strncmp(name, list, len) && (!whole || !name[len]);
	}
	return found != excludes;
}

static int to_text(const struct ifaddrs *a, char *out)
{
	socklen_t len = a->ifa_addr->sa_family == AF_INET6 ? sizeof(struct sockaddr_in6) : sizeof(struct sockaddr_in);

	return !getnameinfo(a->ifa_addr, len, out, GN_NET_ADDRESS_MAX, NULL, 0, NI_NUMERICHOST);
}

void gn_net_addresses(struct gn_net_addresses *out)
{
	struct ifaddrs *all = NULL;

	memset(out, 0, sizeof *out);
	if (getifaddrs(&all))
		return;
	for (int class = 0; class < 4; class++)
		for (const struct ifaddrs *a = all; a && out->count < GN_NET_ADDRESSES_MAX; a = a->ifa_next)
			if (address_class(a) == class && to_text(a, out->text[out->count]))
				out->count++;
	freeifaddrs(all);
}

/* Whether a is the first address of the most preferred class on its interface. */
static int is_best(const struct ifaddrs *all, const struct ifaddrs *a)
{
	int class = address_class(a), before = 1;

	for (const struct ifaddrs *b = all; b; b = b->ifa_next) {
		int other = address_class(b);

		before &= b != a;
		if (other >= 0 && (other < class || (other == class && before)) && !strcmp(a->ifa_name, b->ifa_name))
			return 0;
	}
	return class >= 0;
}

/* "lo (127.0.0.1), eth0 (10.1.0.1), ib0 (down, or no address)" */
static void list_interfaces(const struct ifaddrs *all, char *text, size_t size)
{
	struct if_nameindex *names = if_nameindex();
	size_t len = 0;

	snprintf(text, size, "none");
	for (const struct if_nameindex *i = names; i && i->if_index && len < size; i++) {
		char address[GN_NET_ADDRESS_MAX] = "down, or no address";

		for (const struct ifaddrs *a = all; a; a = a->ifa_next)
			if (!strcmp(a->ifa_name, i->if_name) && is_best(all, a))
				to_text(a, address);
		len += (size_t)snprintf(text + len, size - len, "%s%s (%s)", len ? ", " : "", i->if_name, address);
	}
	if (names)
		if_freenameindex(names);
}

enum gn_status gn_net_choose(const char *list, struct gn_net_addresses *out, struct gn_err *err)
{
	char interfaces[512], host[256] = "";
	struct ifaddrs *all = NULL;

	memset(out, 0, sizeof *out);
	if (getifaddrs(&all))
		return gn_err_errno(err, errno, "cannot list this host's interfaces");
	for (int loopback = 0; loopback < 2 && !out->count; loopback++)
		for (const struct ifaddrs *a = all; a && out->count < GN_NET_ADDRESSES_MAX; a = a->ifa_next)
			if (is_best(all, a) && address_class(a) / 2 == loopback && gn_net_ifname_matches(list, a->ifa_name) &&
			    to_text(a, out->text[out->count]))
				out->count++;
	if (!out->count)
		list_interfaces(all, interfaces, sizeof interfaces);
	freeifaddrs(all);
	if (out->count)
		return GN_OK;
	gethostname(host, sizeof host - 1);
	return gn_err_set(err, GN_ERR_USAGE, "no interface of %s that is up and has an address matches '%.128s'; there are: %s",
			  host, list ? list : "", interfaces);
}

static int connect_one(const struct addrinfo *a, int timeout_ms, int *fd)
{
	int s = socket(a->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0), failure = 0;
	socklen_t len = sizeof failure;
	struct pollfd p = {.fd = s, .events = POLLOUT};

	if (s < 0)
		return errno;
	if (connect(s, a->ai_addr, a->ai_addrlen)) {
		failure = errno;
		if (failure == EINPROGRESS) {
			failure = poll(&p, 1, timeout_ms) == 1 ? 0 : ETIMEDOUT;
			if (!failure)
				getsockopt(s, SOL_SOCKET, SO_ERROR, &failure, &len);
		}
	}
	if (failure) {
		close(s);
		return failure;
	}
	fcntl(s, F_SETFL, fcntl(s, F_GETFL) & ~O_NONBLOCK);
	set_options(s);
	*fd = s;
	return 0;
}

static enum gn_status resolve(const char *host, const char *service, struct addrinfo **all, struct gn_err *err)
{
	const struct addrinfo hints = {.ai_socktype = SOCK_STREAM};
	int failure = getaddrinfo(host, service, &hints, all);

	return failure ? gn_err_set(err, GN_ERR_NOT_FOUND, "cannot find the address of '%s': %s", host, gai_strerror(failure)) : GN_OK;
}

enum gn_status gn_net_check_host(const char *host, struct gn_err *err)
{
	struct addrinfo *all = NULL;
	enum gn_status status = resolve(host, NULL, &all, err);

	if (!status)
		freeaddrinfo(all);
	return status;
}

enum gn_status gn_net_connect(const char *host, int port, int timeout_ms, int *fd, struct gn_err *err)
{
	struct addrinfo *all = NULL;
	char service[16];
	int failure = EHOSTUNREACH;

	snprintf(service, sizeof service, "%d", port);
	if (resolve(host, service, &all, err))
		return GN_ERR_NOT_FOUND;
	for (const struct addrinfo *a = all; a && failure; a = a->ai_next)
		failure = connect_one(a, timeout_ms, fd);
	freeaddrinfo(all);
	if (failure == ECONNREFUSED)
		return gn_err_set(err, GN_ERR_PEER_LOST, "cannot connect to %s port %d: %s", host, port, strerror(failure));
	return failure ? gn_err_errno(err, failure, "cannot connect to %s port %d", host, port) : GN_OK;
}

int gn_net_accept(int listener)
{
	int fd;

	do
		fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
	while (fd < 0 && errno == EINTR);
	if (fd >= 0)
		set_options(fd);
	return fd;
}

void gn_net_peer(int fd, char text[GN_NET_ADDRESS_MAX])
{
	struct sockaddr_storage peer;
	socklen_t len = sizeof peer;

	if (getpeername(fd, (struct sockaddr *)&peer, &len) ||
	    getnameinfo((struct sockaddr *)&peer, len, text, GN_NET_ADDRESS_MAX, NULL, 0, NI_NUMERICHOST))
		snprintf(text, GN_NET_ADDRESS_MAX, "?");
	/* an IPv4 address on a dual-stack socket */
	if (!strncmp(text, "::ffff:", 7) && strchr(text, '.'))
		memmove(text, text + 7, strlen(text + 7) + 1);
}

static int wait_for(int fd, short events, int timeout_ms)
{
	struct pollfd p = {.fd = fd, .events = events};
	int n = poll(&p, 1, timeout_ms);

	if (n < 0)
		return errno == EINTR ? 0 : -1;
	return n;
}

int gn_net_readable(int fd, int timeout_ms)
{
	return wait_for(fd, POLLIN, timeout_ms);
}

int gn_net_writable(int fd, int timeout_ms)
{
	return wait_for(fd, POLLOUT, timeout_ms);
}

int gn_net_left_ms(uint64_t deadline_ns, int most_ms)
{
	uint64_t now = gn_clock_ns(), left = now >= deadline_ns ? 0 : (deadline_ns - now) / 1000000 + 1;

	return left < (uint64_t)most_ms ? (int)left : most_ms;
}

ssize_t gn_net_send_some(int fd, const void *data, size_t len_bytes)
{
	ssize_t n = send(fd, data, len_bytes, MSG_NOSIGNAL | MSG_DONTWAIT);

	return n < 0 && (errno == EINTR || errno == EAGAIN) ? 0 : n;
}

int gn_net_send_all(int fd, const void *data, size_t len_bytes, int timeout_ms)
{
	uint64_t deadline = gn_clock_ns() + (uint64_t)timeout_ms * 1000000;

	for (size_t done = 0; done < len_bytes;) {
		ssize_t n = gn_net_send_some(fd, (const char *)data + done, len_bytes - done);

		if (n < 0)
			return -1;
		done += (size_t)n;
		if (n > 0)
			continue;
		if (!gn_net_left_ms(deadline, timeout_ms)) {
			errno = ETIMEDOUT;
			return -1;
		}
		wait_for(fd, POLLOUT, gn_net_left_ms(deadline, timeout_ms));
	}
	return 0;
}

int gn_net_receive_all(int fd, void *data, size_t len_bytes, int timeout_ms)
{
	uint64_t deadline = gn_clock_ns() + (uint64_t)timeout_ms * 1000000;

	for (size_t done = 0; done < len_bytes;) {
		ssize_t n = recv(fd, (char *)data + done, len_bytes - done, MSG_DONTWAIT);

		if (n > 0) {
			done += (size_t)n;
			continue;
		}
		if (n == 0) {
			errno = 0;
			return -1;
		}
		if (errno != EINTR && errno != EAGAIN)
			return -1;
		if (!gn_net_left_ms(deadline, timeout_ms)) {
			errno = ETIMEDOUT;
			return -1;
		}
		wait_for(fd, POLLIN, gn_net_left_ms(deadline, timeout_ms));
	}
	return 0;
}
