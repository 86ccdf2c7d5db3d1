/* What ranks tell each other before any of them calls NCCL, whose own way of noticing that they do not fit is to wait.
 *
 * Thread safety: no state.
 */
#ifndef GN_TRANSPORT_NCCL_NCCL_RECORD_H
#define GN_TRANSPORT_NCCL_NCCL_RECORD_H

#include "src/base/status.h"

#include <stddef.h>
#include <stdint.h>

#define GN_NCCL_ID_BYTES 128

struct gn_nccl_record {
	int32_t status;	 /* enum gn_status: whether it has NCCL and a GPU */
	int32_t version; /* 22809 is 2.28.9 */
	char gpu[16];	 /* by PCI address */
	char why[200];	 /* when status is none of GN_OK */
	unsigned char id[GN_NCCL_ID_BYTES]; /* rank 0's: of the communicator to be */
};

/* The same on all ranks for the same cards; hosts names each rank's. GN_OK, or what keeps them from a communicator: a rank that
 * cannot (its own status), GN_ERR_MISMATCH for other versions of NCCL, GN_ERR_UNSUPPORTED for two ranks on one GPU. */
enum gn_status gn_nccl_records_judge(const struct gn_nccl_record *cards, const char *const *hosts, size_t count,
				   struct gn_err *err);

#endif
