/* The machine's network devices as the kernel tells them: which are up, how fast, how many bytes went through each.
 *
 * For the line at start ("using eth0 at 10 Gb/s; mlx5_0 is up and unused") and for proving which device carried what.
 * Nothing here is collective; any thread.
 */
#ifndef GN_TRANSPORT_TOPOLOGY_DEVICES_H
#define GN_TRANSPORT_TOPOLOGY_DEVICES_H

#include "src/base/status.h"
#include "src/base/strbuf.h"

#include <stdint.h>

#define GN_DEVICE_NAME_MAX 64

/* Soft RDMA (rxe) goes through a network device, whose counters see its bytes, too. */
enum gn_device_kind { GN_DEVICE_NET, GN_DEVICE_LOOPBACK, GN_DEVICE_RDMA, GN_DEVICE_SOFT_RDMA };

struct gn_net_device {
	enum gn_device_kind kind;
	char name[GN_DEVICE_NAME_MAX]; /* eth0, lo, mlx5_0 */
	int up, hardware;	       /* hardware: not a bridge, a virtual pair, loopback */
	double gbit_per_s;	 /* 0: unknown */
	uint64_t sent_bytes;	 /* since boot; for RDMA the sum over ports */
	uint64_t received_bytes;
};

struct gn_devices {
	struct gn_net_device *items;
	int count;
};

/* This process's network devices, and the RDMA devices under root/class/infiniband (root is "/sys"; what is hardware is
 * looked up there, too). Counters hold all that had been sent and received when the call began; for soft RDMA, whose counters the
 * kernel keeps for some milliseconds, that takes as long. */
enum gn_status gn_devices_read(const char *root, struct gn_devices *out, struct gn_err *err);
void gn_devices_release(struct gn_devices *d);

/* Does the list of lanes name this device, as "tcp/eth0" or "rc_verbs/mlx5_0:1"? */
int gn_devices_in_lanes(const char *lanes, const char *device);
/* Appends "eth0 at 10 Gb/s, posix, cma; mlx5_0 is up and unused" for lanes such as "tcp/eth0 posix/memory cma/memory"
 * (gn_ucx_lanes). */
void gn_devices_describe(const struct gn_devices *d, const char *lanes, struct gn_strbuf *out);
/* Bytes sent through all devices of a kind between two readings. Counters that went back count as nothing. */
uint64_t gn_devices_sent(const struct gn_devices *before, const struct gn_devices *after, enum gn_device_kind kind);

#endif
