/* The plugin's functions, shared by the tables of all versions of NCCL's interface: those of the newest version, without what
 * differs in layout (versions.c). Arguments are NCCL's (abi.h); contexts, communicators and requests are checked where that is
 * possible.
 *
 * The interface calls devices() and getProperties() without a context, and has no contexts at all before version 11. So the table
 * of devices, and one context for all communicators of older versions, are global to the process. Both are created by the first
 * init() and live until the plugin is unloaded.
 *
 * Thread safety: any thread.
 */
#ifndef GN_TRANSPORT_NCCL_PLUGIN_API_H
#define GN_TRANSPORT_NCCL_PLUGIN_API_H

#include "transport/nccl/plugin/abi.h"
#include "transport/nccl/plugin/context.h"

extern const char gn_api_name[];

gn_nccl_init_v11 gn_api_init;
gn_nccl_finalize_v11 gn_api_finalize;
gn_nccl_set_attributes_v11 gn_api_set_attributes;
gn_nccl_devices gn_api_devices;
gn_nccl_listen_v11 gn_api_listen;
gn_nccl_connect_v11 gn_api_connect;
gn_nccl_accept gn_api_accept;
gn_nccl_reg_mr gn_api_reg_mr;
gn_nccl_dereg_mr gn_api_dereg_mr;
gn_nccl_isend_v10 gn_api_isend;
gn_nccl_irecv_v10 gn_api_irecv;
gn_nccl_iflush gn_api_iflush;
gn_nccl_test gn_api_test;
gn_nccl_close gn_api_close, gn_api_close_listen;

/* For versions before 11: creates the context of the process, and returns it. */
enum gn_nccl_result gn_api_init_shared(gn_nccl_logger *logger);
void *gn_api_shared(void);
/* The properties that are common to all versions. NULL: no such device. */
const struct gn_device *gn_api_device(int device);
int gn_api_pointers(void);

enum { GN_API_COMMS_MAX = 65536, GN_API_RECEIVES_MAX = 8 };
#define GN_API_BYTES_MAX ((size_t)1 << 30) /* of a message: test() returns its size as an int */

#endif
