/* gannet stage --list, --remove and --quota without --from: what is staged in a folder of this node. */
#ifndef GN_CMD_STAGE_LIST_H
#define GN_CMD_STAGE_LIST_H

#include "src/base/option.h"

struct gn_stage_list_options {
	const char *folder;
	const struct gn_text_list *names; /* of --remove; none: all that can be removed */
	uint64_t quota_bytes;		  /* 0: none */
	int list, remove, json;
};

/* Returns the exit code. */
int gn_cmd_stage_list(const struct gn_stage_list_options *o);

#endif
