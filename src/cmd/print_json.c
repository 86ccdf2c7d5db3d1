#include "src/base/json.h"
#include "src/cmd/cmd.h"

#include <stdio.h>

void gn_cmd_print_json(struct gn_json *j)
{
	gn_json_end(j);
	puts(gn_json_text(j));
	fflush(stdout);
	gn_json_release(j);
}
