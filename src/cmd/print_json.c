#include "src/base/json.h"
#include "src/cmd/cmd.h"

#include <stdio.h>

int gn_cmd_print_json(struct gn_json *j)
{
	int failed;

	gn_json_end(j);
	failed = gn_json_failed(j);
	if (!failed)
		puts(gn_json_text(j));
	fflush(stdout);
	gn_json_release(j);
	return failed ? GN_EXIT_FAILED : GN_EXIT_DONE;
}
