/* Any bytes as a manifest: refused, or what it says hangs together. */
#include "data/shard/manifest.h"
#include "tests/fuzz/scratch.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len_bytes);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len_bytes)
{
	struct gn_manifest m;
	struct gn_err err;
	uint64_t samples = 0;
	enum gn_status status = gn_manifest_parse((const char *)data, len_bytes, "fuzz", &m, &err);

	must_be_good(status, &err);
	if (status)
		return 0;
	for (uint32_t i = 0; i < m.shard_count; i++) {
		samples += m.shards[i].samples;
		if (strchr(m.shards[i].file, '/') || m.shards[i].data_offset + m.shards[i].data_bytes > m.shards[i].size_bytes)
			abort();
	}
	if (!m.class_count || samples != m.samples)
		abort();
	gn_manifest_release(&m);
	return 0;
}
