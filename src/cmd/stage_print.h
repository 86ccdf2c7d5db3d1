/* The results of gannet stage: for people to stderr, with json as one JSON object to stdout. Private to src/cmd/stage.c. */
#ifndef GN_CMD_STAGE_PRINT_H
#define GN_CMD_STAGE_PRINT_H

#include "data/stage/fetch.h"
#include "data/stage/relay.h"
#include "data/stage/stage.h"

/* from: an address is printed without its query. check: --check, of what was there. */
void gn_cmd_stage_print_dataset(const struct gn_stage_result *r, const char *host, const char *from, const char *to, int check, int json);
void gn_cmd_stage_print_tree(const struct gn_relay_result *r, const char *from, const char *to, int check, int json);
void gn_cmd_stage_print_file(const struct gn_fetch_result *r, const char *from, const char *to, int json);

#endif
