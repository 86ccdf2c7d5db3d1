#include "transport/topology/devices.h"

#include "src/base/clock.h"
#include "src/base/file.h"

#include <dirent.h>
#include <limits.h>
#include <linux/ethtool.h>
#include <linux/sockios.h>
#include <net/if.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

/* The longest kernel timer tick. */
#define TICK_MS 10

/* Reads a small /sys file, without its newline. Returns 0, or -1. */
static int read_text(char *text, size_t size, const char *format, const char *a, const char *b, const char *c)
{
	char path[PATH_MAX];

	if ((size_t)snprintf(path, sizeof path, format, a, b, c) >= sizeof path || gn_file_read_start(path, text, size) < 0)
		return -1;
	text[strcspn(text, "\n")] = 0;
	return 0;
}

static uint64_t read_number(const char *format, const char *a, const char *b, const char *c)
{
	char text[64];

	return read_text(text, sizeof text, format, a, b, c) ? 0 : strtoull(text, NULL, 10);
}

/* By ioctl, because in a network namespace (a container, a virtual node) /sys/class/net may show another namespace's devices. */
static void query_link(struct gn_net_device *d, int socket_fd)
{
	struct ethtool_cmd link = {.cmd = ETHTOOL_GSET};
	struct ifreq request = {0};
	uint32_t mbit;

	memcpy(request.ifr_name, d->name, strnlen(d->name, IFNAMSIZ - 1));
	if (!ioctl(socket_fd, SIOCGIFFLAGS, &request)) {
		d->kind = request.ifr_flags & IFF_LOOPBACK ? GN_DEVICE_LOOPBACK : GN_DEVICE_NET;
		d->up = (request.ifr_flags & IFF_UP) && (request.ifr_flags & IFF_RUNNING);
	}
	request.ifr_data = (char *)&link;
	if (!ioctl(socket_fd, SIOCETHTOOL, &request)) {
		/* Not ethtool_cmd_speed(): it shifts a signed number out of its range. */
		mbit = (uint32_t)link.speed_hi << 16 | link.speed;
		if (mbit && mbit < 10000000)
			d->gbit_per_s = mbit / 1e3;
	}
}

static struct gn_net_device *append(struct gn_devices *out, const char *name, size_t len)
{
	struct gn_net_device *more = realloc(out->items, sizeof *more * ((size_t)out->count + 1));

	if (!more)
		return NULL;
	out->items = more;
	memset(&more[out->count], 0, sizeof *more);
	memcpy(more[out->count].name, name, len);
	return &more[out->count++];
}

/* A line of /proc/net/dev: "  eth0: rx_bytes packets errs drop fifo frame compressed multicast tx_bytes ..." */
static enum gn_status read_net_line(struct gn_devices *out, const char *root, char *line, int socket_fd,
				    struct gn_err *err)
{
	char path[PATH_MAX];
	unsigned long long received, sent;
	char *name = line + strspn(line, " "), *colon = strchr(name, ':');
	struct gn_net_device *d;

	if (!colon || (size_t)(colon - name) >= GN_DEVICE_NAME_MAX ||
	    sscanf(colon + 1, "%llu %*u %*u %*u %*u %*u %*u %*u %llu", &received, &sent) != 2)
		return GN_OK;
	d = append(out, name, (size_t)(colon - name));
	if (!d)
		return gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for network devices");
	d->received_bytes = received;
	d->sent_bytes = sent;
	query_link(d, socket_fd);
	/* bridges and veth pairs have no "device" link */
	d->hardware = (size_t)snprintf(path, sizeof path, "%s/class/net/%s/device", root, d->name) < sizeof path &&
		      !access(path, F_OK);
	return GN_OK;
}

static enum gn_status read_net(struct gn_devices *out, const char *root, struct gn_err *err)
{
	int socket_fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	FILE *file = fopen("/proc/self/net/dev", "re");
	enum gn_status status = GN_OK;
	char *line = NULL;
	size_t room = 0;

	while (file && !status && getline(&line, &room, file) > 0)
		status = read_net_line(out, root, line, socket_fd, err);
	free(line);
	if (file)
		fclose(file);
	if (socket_fd >= 0)
		close(socket_fd);
	return status;
}

/* Soft RoCE counts packets, not bytes. The largest payload of a packet, by the MTU of the network device that it uses. */
static uint64_t soft_payload(const char *root, const char *parent)
{
	uint64_t mtu = read_number("%s/class/net/%s/%s", root, parent, "mtu"), payload = 256;

	while (payload < 4096 && payload * 2 + 96 <= mtu)
		payload *= 2;
	return payload;
}

/* The kernel caches a port's hw_counters for "lifespan" ms. Blocks until the cache is newer than began_ns. */
static void wait_for_fresh_counters(const char *base, const char *port, uint64_t began_ns)
{
	uint64_t lifespan_ms = read_number("%s/ports/%s/%s", base, port, "hw_counters/lifespan");
	uint64_t until_ns = began_ns + (lifespan_ms + TICK_MS) * 1000000, now = gn_clock_ns();

	if (lifespan_ms && now < until_ns)
		gn_clock_sleep_ns(until_ns - now);
}

static void read_port(struct gn_net_device *d, const char *root, const char *port, uint64_t began_ns)
{
	char base[PATH_MAX], text[64];
	uint64_t payload;

	if ((size_t)snprintf(base, sizeof base, "%s/class/infiniband/%s", root, d->name) >= sizeof base)
		return;
	if (!read_text(text, sizeof text, "%s/ports/%s/%s", base, port, "state") && strstr(text, "ACTIVE"))
		d->up = 1;
	if (!read_text(text, sizeof text, "%s/ports/%s/%s", base, port, "rate") && atof(text) > d->gbit_per_s)
		d->gbit_per_s = atof(text);
	/* the unit is 4 bytes: InfiniBand specification, PortCounters */
	d->sent_bytes += 4 * read_number("%s/ports/%s/%s", base, port, "counters/port_xmit_data");
	d->received_bytes += 4 * read_number("%s/ports/%s/%s", base, port, "counters/port_rcv_data");
	if (!read_text(text, sizeof text, "%s/%s%s", base, "parent", "")) {
		d->kind = GN_DEVICE_SOFT_RDMA;
		d->hardware = 0;
		payload = soft_payload(root, text);
		wait_for_fresh_counters(base, port, began_ns);
		d->sent_bytes += payload * read_number("%s/ports/%s/%s", base, port, "hw_counters/sent_pkts");
		d->received_bytes += payload * read_number("%s/ports/%s/%s", base, port, "hw_counters/rcvd_pkts");
	}
}

static void read_rdma(struct gn_net_device *d, const char *root, uint64_t began_ns)
{
	char path[PATH_MAX];
	struct dirent *entry;
	DIR *ports;

	d->kind = GN_DEVICE_RDMA;
	d->hardware = 1;
	if ((size_t)snprintf(path, sizeof path, "%s/class/infiniband/%s/ports", root, d->name) >= sizeof path)
		return;
	ports = opendir(path);
	while (ports && (entry = readdir(ports)))
		if (entry->d_name[0] != '.')
			read_port(d, root, entry->d_name, began_ns);
	if (ports)
		closedir(ports);
}

static enum gn_status read_all_rdma(const char *root, struct gn_devices *out, struct gn_err *err)
{
	uint64_t began_ns = gn_clock_ns();
	enum gn_status status = GN_OK;
	struct gn_net_device *d;
	struct dirent *entry;
	char path[PATH_MAX];
	DIR *dir;

	if ((size_t)snprintf(path, sizeof path, "%s/class/infiniband", root) >= sizeof path)
		return gn_err_set(err, GN_ERR_USAGE, "path too long: %s", root);
	dir = opendir(path);
	while (dir && !status && (entry = readdir(dir))) {
		if (entry->d_name[0] == '.' || strlen(entry->d_name) >= GN_DEVICE_NAME_MAX)
			continue;
		d = append(out, entry->d_name, strlen(entry->d_name));
		if (d)
			read_rdma(d, root, began_ns);
		else
			status = gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for network devices");
	}
	if (dir)
		closedir(dir);
	return status;
}

enum gn_status gn_devices_read(const char *root, struct gn_devices *out, struct gn_err *err)
{
	struct gn_devices d = {0};
	enum gn_status status = read_net(&d, root, err);

	if (!status)
		status = read_all_rdma(root, &d, err);
	if (status)
		gn_devices_release(&d);
	else
		*out = d;
	return status;
}

void gn_devices_release(struct gn_devices *d)
{
	free(d->items);
	*d = (struct gn_devices){0};
}

int gn_devices_in_lanes(const char *lanes, const char *device)
{
	size_t len = strlen(device);

	for (const char *at = strchr(lanes, '/'); at; at = strchr(at + 1, '/'))
		if (!strncmp(at + 1, device, len) && strchr(" :", at[1 + len]))
			return 1;
	return 0;
}

void gn_devices_describe(const struct gn_devices *d, const char *lanes, struct gn_strbuf *out)
{
	static const char *const shared[] = {"posix", "sysv", "cma", "xpmem", "knem"};
	size_t before = out->len;

	for (int i = 0; i < d->count; i++)
		if (gn_devices_in_lanes(lanes, d->items[i].name)) {
			gn_strbuf_printf(out, "%s%s", out->len > before ? ", " : "", d->items[i].name);
			if (d->items[i].gbit_per_s > 0)
				gn_strbuf_printf(out, " at %g Gb/s", d->items[i].gbit_per_s);
		}
	for (size_t i = 0; i < sizeof shared / sizeof *shared; i++) {
		const char *at = strstr(lanes, shared[i]);

		if (at && at[strlen(shared[i])] == '/')
			gn_strbuf_printf(out, "%s%s", out->len > before ? ", " : "", shared[i]);
	}
	if (out->len == before)
		gn_strbuf_puts(out, "no device");
	for (int i = 0; i < d->count; i++)
		if (d->items[i].up && d->items[i].hardware && !gn_devices_in_lanes(lanes, d->items[i].name))
			gn_strbuf_printf(out, "; %s is up and unused", d->items[i].name);
}

uint64_t gn_devices_sent(const struct gn_devices *before, const struct gn_devices *after, enum gn_device_kind kind)
{
	uint64_t sum = 0;

	for (int i = 0; i < after->count; i++)
		for (int j = 0; j < before->count; j++)
			if (after->items[i].kind == kind && before->items[j].kind == kind &&
			    !strcmp(after->items[i].name, before->items[j].name) &&
			    after->items[i].sent_bytes > before->items[j].sent_bytes)
				sum += after->items[i].sent_bytes - before->items[j].sent_bytes;
	return sum;
}
