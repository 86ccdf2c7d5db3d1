/* What the communicator's UCX layer (ucx.h) and the NCCL net plugin share: reading UCX_TLS, and the lanes of an endpoint. Each of
 * the two has its own contexts, workers and endpoints, which it makes by the UCP API.
 *
 * UCX calls a lane one transport on one device that an endpoint uses, such as rc_mlx5/mlx5_0:1.
 *
 * Thread safety: no state; an endpoint's worker must not be in use by another thread.
 */
#ifndef GN_TRANSPORT_UCX_UCX_COMMON_H
#define GN_TRANSPORT_UCX_UCX_COMMON_H

#include "src/base/strbuf.h"

#include <ucp/api/ucp.h>

/* Whether a UCX_TLS list allows shared memory, tcp. NULL: not set, all are allowed. */
int gn_ucx_tls_has_shm(const char *tls);
int gn_ucx_tls_has_tcp(const char *tls);
/* The same as bits of enum gn_rail_kind (transport/topology/rails.h). */
unsigned gn_ucx_tls_rail_kinds(const char *tls);

/* Appends the endpoint's lanes, "tcp/eth0 cma/memory", each of which `out` does not hold yet from byte `before` on. NULL: none. */
void gn_ucx_endpoint_lanes(ucp_ep_h ep, size_t before, struct gn_strbuf *out);

#endif
