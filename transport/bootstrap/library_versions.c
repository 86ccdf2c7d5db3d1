#include "transport/bootstrap/library_versions.h"

#include "src/base/text.h"

#include <pmix.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <ucp/api/ucp.h>

const char *gn_library_versions_ucx(void)
{
	return ucp_get_version_string();
}

/* PMIx returns "OpenPMIx 4.2.2 (PMIx Standard: 4.1, ...), repo: ...". */
void gn_library_versions_pmix(struct gn_strbuf *out)
{
	const char *text = PMIx_Get_version();
	size_t len = strcspn(text, ",(");

	while (len && text[len - 1] == ' ')
		len--;
	gn_strbuf_append(out, text, len);
}

const char *gn_library_versions_job(char text[64])
{
	const char *job = getenv("SLURM_JOB_ID"), *array = getenv("SLURM_ARRAY_JOB_ID"), *task = getenv("SLURM_ARRAY_TASK_ID");

	if (array && *array && task && *task)
		snprintf(text, 64, "%s_%s", array, task);
	else if (job && *job)
		snprintf(text, 64, "%s", job);
	else
		return NULL;
	return text;
}

void gn_library_versions_hosts(const struct gn_world *world, struct gn_strbuf *out)
{
	int nodes = gn_world_nodes(world), seen = 0;
	const char **names = calloc((size_t)nodes, sizeof *names);

	if (!names)
		return;
	/* nodes are numbered in the order of their lowest ranks */
	for (int r = 0; r < gn_world_size(world) && seen < nodes; r++)
		if (gn_world_node_of(world, r) == seen)
			names[seen++] = gn_world_host_of(world, r);
	gn_hostlist_append(out, names, (size_t)seen);
	free(names);
}
