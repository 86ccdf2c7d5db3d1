/* The tuning table: communication costs measured by gannet tune, in a text file with one JSON object a line, one line for each
 * fabric.
 *
 * A fabric is identified by its signature: the transports within a node and between nodes, the devices' names and link rates, UCX's
 * version, and the number of nodes and of ranks on them; host names do not matter. An entry for another number of nodes of
 * otherwise the same fabric is used, too: its rates and latencies always, its fastest algorithms if the numbers differ by a factor
 * of up to GN_COST_NODES_APART and the cost model does not predict that they are much slower than the best here
 * (gn_select_keep_picks).
 *
 * The file is --tuning FILE, else $GANNET_TUNING, else $XDG_CONFIG_HOME/gannet/tuning.jsonl, else ~/.config/gannet/tuning.jsonl;
 * "none" means no file. Only rank 0 reads it and sends the entry to all ranks, so that all select the same algorithms.
 *
 * Thread safety: no state; any thread. Functions block on file input and output, or as said.
 */
#ifndef GN_TRANSPORT_SELECT_TUNING_TABLE_H
#define GN_TRANSPORT_SELECT_TUNING_TABLE_H

#include "src/base/json.h"
#include "src/base/log.h"
#include "transport/select/cost.h"
#include "transport/ucx/ucx.h"

#define GN_TUNE_SAMPLES 32

/* The median one-way time of messages of one length. */
struct gn_tune_sample {
	double bytes, one_way_s;
};

/* Residuals of the fit of one range, relative to the measured times. */
struct gn_tune_fit {
	double rms, worst;
	int samples;
};

/* Measurements of one kind of path: between ranks of one node, or of two. */
struct gn_tune_path {
	struct gn_tune_sample samples[GN_TUNE_SAMPLES]; /* medians over all pairs, by ascending length */
	int sample_count, pairs;
	double overheads[2][2]; /* [0] of a small message, [1] of a message of some KiB: send_s, receive_s */
	struct gn_tune_fit fits[GN_SIM_RANGES];
};

/* What gannet tune measured: one line of the table. */
struct gn_tune_result {
	struct gn_cost cost; /* a path that no two ranks have is guessed */
	struct gn_tune_path node, link;
	char signature[512]; /* of the fabric, see gn_tuning_table_signature() */
};

/* The path of the file; "": none. given: the value of --tuning, or NULL. *named: option or environment name the file, so that it
 * has to exist. GN_ERR_USAGE: the path is too long for out. */
enum gn_status gn_tuning_table_path(const char *given, char *out, size_t out_size, int *named, struct gn_err *err);

/* Local. Connects to a rank of this node and one of another, and appends the signature. */
enum gn_status gn_tuning_table_signature(struct gn_world *world, struct gn_ucx *ucx, struct gn_strbuf *out,
				   struct gn_err *err);

/* Finds the entry with this signature; without one, the entry that differs in the number of nodes only and whose number is nearest
 * by ratio (of two, the larger number), unchanged. Sets *found, and if so *out; out->tuned_nodes is the entry's number of nodes.
 * GN_ERR_NOT_FOUND: no such file. GN_ERR_DATA names file and line. */
enum gn_status gn_tuning_table_read(const char *path, const char *signature, int *found, struct gn_cost *out,
			      struct gn_err *err);
/* The entry whose signature contains `part`. GN_ERR_USAGE: several do, GN_ERR_NOT_FOUND: none does. */
enum gn_status gn_tuning_table_find(const char *path, const char *part, struct gn_cost *out, struct gn_err *err);
/* Writes the entry, replacing one of the same signature; other lines stay. The file is replaced atomically, and its folders are
 * created. GN_ERR_DATA: the file is not a tuning table; it is not changed. */
enum gn_status gn_tuning_table_write(const char *path, const struct gn_tune_result *r, struct gn_err *err);
/* Appends the entry as an object without a key. */
void gn_tuning_table_json(const struct gn_tune_result *r, struct gn_json *out);
/* For a world of one rank, which needs no costs: fails as gn_tuning_table_agree does when a named table cannot be read. */
enum gn_status gn_tuning_table_check(const char *given, struct gn_err *err);

/* Collective, over the bootstrap; blocks. Sets *out on all ranks to rank 0's entry for this fabric, or to an estimate; rank 0 logs
 * which. A table without an entry is not an error. An error of rank 0 is returned on all ranks. */
enum gn_status gn_tuning_table_agree(struct gn_world *world, struct gn_ucx *ucx, const char *given, struct gn_log *log,
			       struct gn_cost *out, struct gn_err *err);

/* The nodes of all ranks of the world. */
enum gn_status gn_node_map_of_world(const struct gn_world *world, struct gn_node_map **out, struct gn_err *err);

#endif
