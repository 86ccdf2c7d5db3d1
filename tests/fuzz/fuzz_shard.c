/* Any bytes as a shard: refused, or every sample it claims can be read or is refused. */
#include "data/shard/shard.h"
#include "tests/fuzz/scratch.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len_bytes);

static void read_all(const struct gn_shard *s, size_t len_bytes)
{
	const struct gn_shard_layout *l = gn_shard_layout(s);
	const struct gn_shard_row *rows = gn_shard_rows(s);

	for (uint64_t i = 0; i < l->count; i++) {
		char name[64];
		void *buffer;

		/* What was accepted must lie in the file. */
		if (l->data_offset + rows[i].offset + rows[i].length_bytes > len_bytes || rows[i].label >= l->classes)
			abort();
		buffer = malloc(rows[i].length_bytes);
		gn_shard_read(s, i, buffer, NULL);
		free(buffer);
		gn_shard_name(s, i, name, sizeof name);
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len_bytes)
{
	struct gn_shard *s;
	struct gn_err err;
	enum gn_status status = gn_shard_open(scratch_file(data, len_bytes), &s, &err);

	must_be_good(status, &err);
	if (!status) {
		read_all(s, len_bytes);
		gn_shard_close(s);
	}
	return 0;
}
