/* What each process was started as: ranks that were not started alike are told so before they begin, whatever they would do first. */
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

/* name: of the command, which ends at a space. */
static enum gn_status tell_difference(const struct gn_world *w, size_t rank, const char *first, const char *other, struct gn_err *err)
{
	int first_len = (int)strcspn(first, " "), len = (int)strcspn(other, " ");
	const char *host = w->hosts[rank];
	struct gn_strbuf text = {0};

	if (first_len != len || strncmp(first, other, (size_t)len))
		return gn_err_set(err, GN_ERR_MISMATCH, "rank %zu on %s runs gannet %.*s, and rank 0 on %s gannet %.*s: start the same command everywhere",
				  rank, host, len, other, w->hosts[0], first_len, first);
	gn_options_compare(first + first_len + (first[first_len] != 0), other + len + (other[len] != 0), NULL, ", here ", &text);
	gn_err_set(err, GN_ERR_MISMATCH, "rank %zu on %s: its options are not those of rank 0: %s; start the same command everywhere", rank, host,
		   text.len ? gn_strbuf_text(&text) : "they are of another version");
	gn_strbuf_release(&text);
	return GN_ERR_MISMATCH;
}

enum gn_status gn_world_compare_commands(struct gn_world *w, struct gn_err *err)
{
	struct gn_gathered all = {0};
	enum gn_status status = w->bootstrap->ops->exchange(w->bootstrap, command, strlen(command) + 1, &all, err);

	for (size_t r = 0; !status && r < all.size; r++) {
		const char *first = all.items[0], *other = all.items[r];

		if (!all.lens[r] || first[all.lens[0] - 1] || other[all.lens[r] - 1])
			status = gn_err_set(err, GN_ERR_MISMATCH, "rank %zu runs another version of this program", r);
		else if (strcmp(first, other))
			status = tell_difference(w, r, first, other, err);
	}
	gn_gathered_release(&all);
	if (status == GN_ERR_MISMATCH && err)
		err->told = w->bootstrap->rank > 0;
	return status;
}
