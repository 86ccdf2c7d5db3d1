/* The key-value store over HTTP by which Horovod's Gloo processes find each other: what horovodrun would serve.
 *
 * PUT, GET and DELETE of /SCOPE/KEY; a key that is not there yet is 404, and Horovod asks again. Keys are kept until the end.
 * At most 64 MiB in all. A thread of its own. Like horovodrun's, it is open to whoever reaches the port.
 */
#ifndef GN_JOBS_EXEC_HOROVOD_H
#define GN_JOBS_EXEC_HOROVOD_H

#include "src/base/status.h"

struct gn_exec_horovod;

/* listener is borrowed, and listens. */
enum gn_status gn_exec_horovod_start(int listener, struct gn_exec_horovod **out, struct gn_err *err);
/* NULL is fine. */
void gn_exec_horovod_stop(struct gn_exec_horovod *h);

#endif
