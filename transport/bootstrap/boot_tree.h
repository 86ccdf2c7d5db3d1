/* A binomial tree of TCP connections over which ranks exchange small messages at start.
 *
 * The parent of a rank is its number with the lowest set bit cleared: the ranks of a subtree are contiguous, and a rank has at most
 * log2(size) children. An exchange is a gather to rank 0 and a broadcast, one message per connection and direction: 2 (size - 1)
 * messages in all, 2 log2(size) of them at rank 0, and each rank receives the whole result once.
 *
 * A rank with children listens from create until all of them are connected. They authenticate by a secret derived from the
 * bootstrap's and from a random number in the rank's contact info (transport/auth/handshake.h). The lengths of messages are
 * checked. Waits call gn_bootstrap_check_wait().
 *
 * Thread safety: one thread.
 */
#ifndef GN_TRANSPORT_BOOTSTRAP_BOOT_TREE_H
#define GN_TRANSPORT_BOOTSTRAP_BOOT_TREE_H

#include "transport/bootstrap/boot_message.h"
#include "transport/bootstrap/bootstrap.h"
#include "transport/bootstrap/gathered.h"
#include "transport/auth/handshake.h"

struct gn_boot_tree;

/* -1 for rank 0. */
int gn_boot_tree_parent(int rank);

/* Local. b and log (may be NULL) are borrowed and outlive the tree. Listens if `listens` is set and the rank has children: *contact
 * is then where, else its port is 0. */
enum gn_status gn_boot_tree_create(const struct gn_bootstrap *b, int listens, struct gn_log *log, struct gn_boot_tree **out,
				   struct gn_contact_info *contact, struct gn_err *err);
/* Uses an existing connection to the parent or to a child; takes c over. */
void gn_boot_tree_adopt(struct gn_boot_tree *t, int rank, struct gn_channel *c);
/* Collective, blocking: connects to the parent at its contact info (borrowed; NULL: there is none, or it is connected already),
 * then waits for all children. GN_ERR_FAILED when the parent is not reachable by until_ns (gn_clock_ns), with the first address's
 * error. */
enum gn_status gn_boot_tree_join(struct gn_boot_tree *t, const struct gn_contact_info *parent, uint64_t until_ns,
				 struct gn_err *err);
/* Collective, blocking: an allgather of messages of len_bytes, which may differ between ranks. *out is set only on success. */
enum gn_status gn_boot_tree_exchange(struct gn_boot_tree *t, const void *mine, size_t len_bytes, struct gn_gathered *out,
				     struct gn_err *err);
/* NULL is fine. */
void gn_boot_tree_destroy(struct gn_boot_tree *t);

#endif
