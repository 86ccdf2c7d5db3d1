/* Everyone to everyone, each block straight to where it belongs: one message a block and piece, the peers in turn so that no
 * rank is everybody's first. As many bytes as a ring and one round, at the cost of size - 1 connections: for a node's shared
 * memory, and for all-to-all, where nothing is saved by passing on. */
#include "transport/schedule/algo_part.h"

static int ahead(const struct gn_algo_args *a, int by)
{
	return (a->rank + by) % a->size;
}

void gn_write_direct_reduce_scatter(struct gn_schedule *s, const struct gn_algo_args *a)
{
	for (int i = 1; i < a->size; i++)
		for (uint32_t k = 0; k < a->pieces; k++) {
			gn_schedule_send(s, ahead(a, i), (uint32_t)ahead(a, i) * a->pieces + k, k);
			gn_schedule_recv_reduce(s, ahead(a, a->size - i), (uint32_t)a->rank * a->pieces + k, k, 0);
		}
}

void gn_write_direct_allgather(struct gn_schedule *s, const struct gn_algo_args *a)
{
	for (int i = 1; i < a->size; i++)
		for (uint32_t k = 0; k < a->pieces; k++) {
			gn_schedule_send(s, ahead(a, i), (uint32_t)a->rank * a->pieces + k, k);
			gn_schedule_recv(s, ahead(a, a->size - i), (uint32_t)ahead(a, a->size - i) * a->pieces + k, k);
		}
}

void gn_write_direct_all_to_all(struct gn_schedule *s, const struct gn_algo_args *a)
{
	for (uint32_t k = 0; k < a->pieces; k++)
		gn_schedule_copy(s, (uint32_t)a->rank * a->pieces + k);
	for (int i = 1; i < a->size; i++)
		for (uint32_t k = 0; k < a->pieces; k++) {
			gn_schedule_add(s, (struct gn_step){.op = GN_STEP_SEND, .from_input = 1, .peer = ahead(a, i),
							    .chunk = (uint32_t)ahead(a, i) * a->pieces + k,
							    .chunk_count = 1, .message = k});
			gn_schedule_recv(s, ahead(a, a->size - i), (uint32_t)ahead(a, a->size - i) * a->pieces + k, k);
		}
}
