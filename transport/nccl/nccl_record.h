/* What ranks exchange and check before they initialize NCCL, which would hang when they do not fit together.
 *
 * Thread safety: any thread, no shared state.
 */
#ifndef GN_TRANSPORT_NCCL_NCCL_RECORD_H
#define GN_TRANSPORT_NCCL_NCCL_RECORD_H

#include "src/base/status.h"

#include <stddef.h>
#include <stdint.h>

#define GN_NCCL_ID_BYTES 128

struct gn_nccl_record {
	int32_t status;	 /* enum gn_status: whether the rank has NCCL and a GPU */
	int32_t version; /* 22809 is 2.28.9 */
	char gpu[16];	 /* PCI address */
	char why[200];	 /* of status, unless GN_OK */
	unsigned char id[GN_NCCL_ID_BYTES]; /* from rank 0: NCCL's unique ID */
};

/* Whether the ranks can create a communicator; the same result on all ranks for the same records. hosts: [rank]. GN_OK; the status
 * of a rank that cannot; GN_ERR_MISMATCH for different versions of NCCL; GN_ERR_UNSUPPORTED for two ranks on one GPU. */
enum gn_status gn_nccl_records_check(const struct gn_nccl_record *records, const char *const *hosts, size_t count,
				     struct gn_err *err);

#endif
