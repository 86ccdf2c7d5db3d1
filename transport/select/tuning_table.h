/* The table of what gannet tune measured: a text file with one JSON object a line, one line for each fabric.
 *
 * A fabric is known by its signature: what carries messages within a node and between nodes, the devices' names and link
 * rates, UCX's version, the number of nodes and of ranks on them; host names do not matter. What was measured on another number of
 * nodes of otherwise the same fabric holds, too: rates and latencies for any, and what was the fastest for up to four times fewer or
 * more, unless the model says that it is half as slow again as another algorithm on as many as there are now (gn_select_keep_picks).
 * The file is --tuning FILE, else
 * $GANNET_TUNING, else $XDG_CONFIG_HOME/gannet/tuning.jsonl, else ~/.config/gannet/tuning.jsonl; "none" stands for no file.
 * Only rank 0 reads; what it found is every rank's, so that all choose alike.
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

/* Which file; given is the option or NULL. *named is set when somebody named it: then it has to be there. "" when there is
 * none. GN_ERR_USAGE when it does not fit. */
enum gn_status gn_tuning_table_path(const char *given, char *out, size_t out_size, int *named, struct gn_err *err);

/* Connects to a rank of this node and one of another, and appends the signature. */
enum gn_status gn_tuning_table_signature(struct gn_world *world, struct gn_ucx *fabric, struct gn_strbuf *out,
				   struct gn_err *err);

/* Looks a fabric up; *out is set when *found is. Where it has not been measured on as many nodes, the line that differs in nothing
 * else, and whose number of nodes is nearest by ratio (of two the larger), is taken as it is; out->tuned_nodes says how many they
 * were. GN_ERR_NOT_FOUND: no such file. GN_ERR_DATA names file and line. */
enum gn_status gn_tuning_table_read(const char *path, const char *signature, int *found, struct gn_cost *out,
			      struct gn_err *err);
/* The one line whose signature has part in it. GN_ERR_USAGE when there are several, GN_ERR_NOT_FOUND when there is none. */
enum gn_status gn_tuning_table_find(const char *path, const char *part, struct gn_cost *out, struct gn_err *err);
/* Puts the line in, instead of one of the same signature; other lines stay. The file appears whole or not at all, folders
 * are made. A file that is no table is GN_ERR_DATA and left alone. */
enum gn_status gn_tuning_table_write(const char *path, const struct gn_tune_result *r, struct gn_err *err);
/* The line, as an object without a key. */
void gn_tuning_table_json(const struct gn_tune_result *r, struct gn_json *out);
/* One process, which looks nothing up: what gn_tuning_table_agree says of a table that somebody named and that cannot be read. */
enum gn_status gn_tuning_table_check(const char *given, struct gn_err *err);

/* Collective: rank 0's table for this fabric, or its guess, on all ranks. Logs which on rank 0; a table without a line for
 * this fabric is passed over with a log line. What is wrong with the file is every rank's error. */
enum gn_status gn_tuning_table_agree(struct gn_world *world, struct gn_ucx *fabric, const char *given, struct gn_log *log,
			       struct gn_cost *out, struct gn_err *err);

#endif
