/* The part of `gannet info` that tells what of a machine is near what, and how its ranks would share it out. */
#ifndef GN_CMD_INFO_TOPOLOGY_H
#define GN_CMD_INFO_TOPOLOGY_H

#include <stdint.h>

/* xml: a file that lstopo wrote; NULL: this machine. ranks 0: one for each GPU, or one. Returns an enum gn_exit. */
int gn_info_topology(const char *xml, int64_t ranks, int json);

#endif
