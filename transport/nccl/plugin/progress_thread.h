/* A thread that takes an engine's turns while nobody else does.
 *
 * NCCL's proxy sleeps when all it asked for is done. Over TCP that is too early: UCX calls a message sent as soon as its last
 * part lies in its own queue, which leaves when the socket has room and somebody takes a turn; and UCX's flush, which would
 * tell, wants the receiver to take turns, too, who may sleep as well. So engines with a link over TCP have this thread. It
 * looks every 2 ms, takes turns only when none was taken since it last looked, and looks up to 32 ms apart when they move
 * nothing. Other transports hand what is done to hardware or to the receiver's memory, and have none.
 *
 * It ends with the context, so that the library may go then; connections that outlive it do without.
 *
 * While GPU memory is under way it does nothing: UCX's copies there want a thread with a CUDA context, which is NCCL's.
 */
#ifndef GN_TRANSPORT_NCCL_PLUGIN_PROGRESS_THREAD_H
#define GN_TRANSPORT_NCCL_PLUGIN_PROGRESS_THREAD_H

#include "transport/nccl/plugin/worker.h"

/* The engine's lock held; once more does nothing. */
enum gn_status gn_progress_thread_start(struct gn_worker *e, struct gn_err *err);
/* Waits until the thread has ended, which may be in the midst of its turns, but never waits for the engine's lock: at the end
 * of a process nobody may give it back. */
void gn_progress_thread_stop(struct gn_worker *e);

#endif
