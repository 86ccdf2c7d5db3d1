/* Pairwise exchange (--algo direct): each block is sent directly to its destination, one message per block and piece, with peers in
 * rotated order so that no rank receives from all others at once. It sends as many bytes as a ring in one round, over size - 1
 * connections: suited to shared memory, and to all-to-all, where forwarding saves nothing. */
#include "transport/schedule/algo_part.h"

static int peer_at(const struct gn_algo_args *a, int by)
{
	return (a->rank + by) % a->size;
}

void gn_write_pairwise_reduce_scatter(struct gn_schedule *s, const struct gn_algo_args *a)
{
	for (int i = 1; i < a->size; i++)
		for (uint32_t k = 0; k < a->pieces; k++) {
			gn_schedule_send(s, peer_at(a, i), (uint32_t)peer_at(a, i) * a->pieces + k, k);
			gn_schedule_recv_reduce(s, peer_at(a, a->size - i), (uint32_t)a->rank * a->pieces + k, k, 0);
		}
}

void gn_write_pairwise_allgather(struct gn_schedule *s, const struct gn_algo_args *a)
{
	for (int i = 1; i < a->size; i++)
		for (uint32_t k = 0; k < a->pieces; k++) {
			gn_schedule_send(s, peer_at(a, i), (uint32_t)a->rank * a->pieces + k, k);
			gn_schedule_recv(s, peer_at(a, a->size - i), (uint32_t)peer_at(a, a->size - i) * a->pieces + k, k);
		}
}

void gn_write_pairwise_all_to_all(struct gn_schedule *s, const struct gn_algo_args *a)
{
	for (uint32_t k = 0; k < a->pieces; k++)
		gn_schedule_copy(s, (uint32_t)a->rank * a->pieces + k);
	for (int i = 1; i < a->size; i++)
		for (uint32_t k = 0; k < a->pieces; k++) {
			gn_schedule_add(s, (struct gn_step){.op = GN_STEP_SEND, .from_input = 1, .peer = peer_at(a, i),
							    .chunk = (uint32_t)peer_at(a, i) * a->pieces + k,
							    .chunk_count = 1, .message = k});
			gn_schedule_recv(s, peer_at(a, a->size - i), (uint32_t)peer_at(a, a->size - i) * a->pieces + k, k);
		}
}
