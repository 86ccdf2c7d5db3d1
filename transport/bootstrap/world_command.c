/* What each process was started as: ranks that were not started alike are told so before they begin, whatever they would do first. What
 * defaults and recipes make of the options train compares later (gn_agree_options()). */
#include "src/base/option.h"
#include "src/base/sha256.h"
#include "transport/bootstrap/world_internal.h"

#include <string.h>

static const char *command = "";

void gn_world_set_command(const char *text)
{
	command = text;
}

enum gn_status gn_world_command_digest(char digest[GN_SHA256_HEX], struct gn_err *err)
{
	return gn_sha256_buffer(command, strlen(command), digest, err);
}

/* The name of a command ends at a space. What options that only one of two versions has do, is not for here: gn_agree_program(). */
static enum gn_status compare(const struct gn_world *w, size_t rank, const char *first, const char *other, struct gn_err *err)
{
	size_t first_len = strcspn(first, " "), len = strcspn(other, " ");
	enum gn_status status;

	if (first_len != len || strncmp(first, other, len))
		return gn_err_set(err, GN_ERR_MISMATCH, "rank %zu on %s runs gannet %.*s, and rank 0 on %s gannet %.*s: start the same command everywhere",
				  rank, w->hosts[rank], (int)len, other, w->hosts[0], (int)first_len, first);
	status = gn_options_agree(first + len + (first[len] != 0), other + len + (other[len] != 0), err);
	if (status)
		gn_err_prefix(err, "rank %zu on %s", rank, w->hosts[rank]);
	return status;
}

enum gn_status gn_world_compare_commands(struct gn_world *w, struct gn_err *err)
{
	struct gn_gathered all = {0};
	enum gn_status status = w->bootstrap->ops->exchange(w->bootstrap, command, strlen(command) + 1, &all, err);

	for (size_t r = 0; !status && r < all.size; r++) {
		const char *first = all.items[0], *other = all.items[r];

		if (!all.lens[r] || first[all.lens[0] - 1] || other[all.lens[r] - 1])
			status = gn_err_set(err, GN_ERR_MISMATCH, "rank %zu runs another version of this program", r);
		else
			status = compare(w, r, first, other, err);
	}
	gn_gathered_release(&all);
	if (status == GN_ERR_MISMATCH && err)
		err->told = w->bootstrap->rank > 0;
	return status;
}
