/* A binomial tree of TCP connections over which ranks exchange small messages at start, once they know of each other.
 *
 * The parent of a rank is its number without the lowest bit, so the ranks below a rank follow it, and a rank has log2(size) children
 * at most. An exchange goes up as one message from each rank and down as one message to each: 2 (size - 1) messages in all,
 * 2 log2(size) of them at rank 0, and each rank receives the whole once.
 *
 * A rank with children listens from create until all of them have come, and lets in who proves to know a secret that is derived
 * from the bootstrap's and from what its contact says (transport/auth/handshake.h). Messages carry their lengths, which are checked.
 * Waits go by gn_bootstrap_may_wait(). Thread safety: one thread.
 */
#ifndef GN_TRANSPORT_BOOTSTRAP_BOOT_TREE_H
#define GN_TRANSPORT_BOOTSTRAP_BOOT_TREE_H

#include "transport/bootstrap/contact_info.h"
#include "transport/bootstrap/bootstrap.h"
#include "transport/bootstrap/gathered.h"

struct gn_boot_tree;

/* -1 for rank 0. */
int gn_boot_tree_parent(int rank);
/* Whether any rank has this one for its parent. */
int gn_boot_tree_has_children(int rank, int size);

/* Local. b and log (may be NULL) outlive the tree. Listens, where there are children and listens is not 0; then *contact is where. */
enum gn_status gn_boot_tree_create(const struct gn_bootstrap *b, int listens, struct gn_log *log, struct gn_boot_tree **out,
				   struct gn_contact_info *contact, struct gn_err *err);
/* Uses a connection that is there already, and owns it from here on: to a child, or to the parent. */
void gn_boot_tree_adopt(struct gn_boot_tree *t, int rank, int fd);
/* Connects to the parent by its contact (borrowed; NULL when there is none or it is connected already), then waits for all children.
 * Collective. GN_ERR_FAILED when the parent cannot be reached until_ns (gn_clock_ns), with what was seen at each address. */
enum gn_status gn_boot_tree_join(struct gn_boot_tree *t, const struct gn_contact_info *parent, uint64_t until_ns, struct gn_err *err);
/* Collective: everyone gives len_bytes, all get all. *out is set only on success. */
enum gn_status gn_boot_tree_exchange(struct gn_boot_tree *t, const void *mine, size_t len_bytes, struct gn_gathered *out,
				     struct gn_err *err);
/* NULL is fine. */
void gn_boot_tree_destroy(struct gn_boot_tree *t);

/* All len_bytes to or from a rank, as long as the wait may go on. */
enum gn_status gn_boot_receive(const struct gn_bootstrap *b, int rank, int fd, void *data, size_t len_bytes, struct gn_err *err);
enum gn_status gn_boot_send(const struct gn_bootstrap *b, int rank, int fd, const void *data, size_t len_bytes, struct gn_err *err);

#endif
