/* The host's network and RDMA devices as the kernel reports them: link state, rate, and traffic counters.
 *
 * Used for the log line at start ("using eth0 at 10 Gb/s; mlx5_0 is up and unused") and to check which device carried the traffic.
 * Nothing here is collective. Thread safety: any thread.
 */
#ifndef GN_TRANSPORT_TOPOLOGY_DEVICES_H
#define GN_TRANSPORT_TOPOLOGY_DEVICES_H

#include "src/base/status.h"
#include "src/base/strbuf.h"

#include <stdint.h>

#define GN_DEVICE_NAME_MAX 64

/* Soft RDMA (rxe) uses a network device, whose counters include its bytes. */
enum gn_device_kind { GN_DEVICE_NET, GN_DEVICE_LOOPBACK, GN_DEVICE_RDMA, GN_DEVICE_SOFT_RDMA };

struct gn_net_device {
	enum gn_device_kind kind;
	char name[GN_DEVICE_NAME_MAX]; /* eth0, lo, mlx5_0 */
	int up, hardware;	       /* hardware: not a bridge, a veth pair or loopback */
	double gbit_per_s;	       /* 0: unknown */
	uint64_t sent_bytes;	       /* since boot; of an RDMA device the sum over its ports */
	uint64_t received_bytes;
};

struct gn_devices {
	struct gn_net_device *items;
	int count;
};

/* Reads the devices of this process's network namespace and the RDMA devices under root/class/infiniband (root is "/sys"). Counters
 * include all traffic before the call. For soft RDMA the kernel caches counters for some milliseconds, and the call blocks until
 * they are fresh. The caller releases *out. */
enum gn_status gn_devices_read(const char *root, struct gn_devices *out, struct gn_err *err);
void gn_devices_release(struct gn_devices *d);

/* Whether the list of lanes names the device, as in "tcp/eth0" or "rc_verbs/mlx5_0:1". */
int gn_devices_in_lanes(const char *lanes, const char *device);
/* Appends "eth0 at 10 Gb/s, posix, cma; mlx5_0 is up and unused" for lanes such as "tcp/eth0 posix/memory cma/memory"
 * (gn_ucx_lanes). */
void gn_devices_describe(const struct gn_devices *d, const char *lanes, struct gn_strbuf *out);
/* Bytes sent through all devices of a kind between two readings. A counter that decreased counts as 0. */
uint64_t gn_devices_sent(const struct gn_devices *before, const struct gn_devices *after, enum gn_device_kind kind);

#endif
