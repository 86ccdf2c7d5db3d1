/* The files of one copy, for listing and removal. Private to data/stage/staged*.c. */
#ifndef GN_DATA_STAGE_STAGED_INTERNAL_H
#define GN_DATA_STAGE_STAGED_INTERNAL_H

#include "data/stage/staged.h"

#include <limits.h>

struct gn_staged_paths {
	char root[PATH_MAX];
	char marker[PATH_MAX], part[PATH_MAX], lock[PATH_MAX];	/* beside it */
	char fetch[PATH_MAX], fetch_state[PATH_MAX];		/* of a download */
	char inner_marker[PATH_MAX], inner_lock[PATH_MAX];	/* of a dataset */
};

enum gn_staged_root { GN_STAGED_ROOT_NONE, GN_STAGED_ROOT_OURS, GN_STAGED_ROOT_UNFINISHED, GN_STAGED_ROOT_OTHER };

/* The folder and the name of a copy at `to`, each of PATH_MAX bytes; slashes at its end do not count. */
enum gn_status gn_staged_split(const char *to, char *folder, char *name, struct gn_err *err);
enum gn_status gn_staged_paths_of(const char *folder, const char *name, struct gn_staged_paths *out, struct gn_err *err);
/* What the root is: all of it staged by this user; a dataset without a manifest; anything else. *kind: as in struct gn_staged. */
enum gn_staged_root gn_staged_look(const struct gn_staged_paths *p, const char **kind);
/* Whether this user's part of a tree, or of a download, is there. */
int gn_staged_has_part(const struct gn_staged_paths *p);

#endif
