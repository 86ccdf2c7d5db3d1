/* Copies a file from a web server to this node's disk: ranges in parallel, continued after any death, whole under its name or not there.
 *
 * For the target TO there are, beside it: TO.gannet-fetch, what has come so far, and TO.gannet-fetch.state, which ranges of which
 * version of the file that is; and TO.gannet-stage when TO is there (data/stage/staged.h). A lock on the first lets one process copy while others wait, and then find TO. Blocks.
 */
#ifndef GN_DATA_STAGE_FETCH_H
#define GN_DATA_STAGE_FETCH_H

#include "data/stage/http.h"
#include "src/base/progress_bar.h"

struct gn_fetch_options {
	struct gn_http_options from;
	const char *to;
	const char *sha256; /* 64 hexadecimal digits that the file must have; NULL: it is not known */
	int threads;	    /* >= 1 */
	uint64_t quota_bytes; /* of gn_staged_make_room(); 0: none */
	struct gn_progress_bar *progress; /* used exclusively */
};

struct gn_fetch_result {
	uint64_t bytes, kept_bytes; /* of the file; of it what an earlier run had */
	double seconds;
	int was_there; /* TO, of the same version: nothing was copied */
};

/* GN_ERR_EXISTS: TO is something else, which is not replaced. GN_ERR_DATA: sha256 differs, and nothing is kept. */
enum gn_status gn_fetch(const struct gn_fetch_options *o, struct gn_fetch_result *out, struct gn_err *err);

#endif
