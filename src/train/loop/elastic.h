/* --elastic MIN[:MAX]: how many ranks a run goes on with after losses, and grows to. Pure; any thread. Internal to src/train and its command. */
#ifndef GN_TRAIN_LOOP_ELASTIC_H
#define GN_TRAIN_LOOP_ELASTIC_H

#include "src/base/status.h"
#include "src/train/loop/options.h"

/* *least 0: a run ends with the first loss, as without the option (text NULL). *most 0: nobody may join it. GN_ERR_USAGE: neither. */
enum gn_status gn_elastic_parse(const char *text, int *least, int *most, struct gn_err *err);
/* *least and *most of options; 0 of those that are no such text. */
int gn_elastic_least(const struct gn_train_options *o);
int gn_elastic_most(const struct gn_train_options *o);

#endif
