/* The options of augmentation as the loader takes them.
 *
 * Thread safety: pure functions. Internal to src/train and its command.
 */
#ifndef GN_TRAIN_LOOP_AUGMENT_OPTIONS_H
#define GN_TRAIN_LOOP_AUGMENT_OPTIONS_H

#include "data/sample/options.h"
#include "src/train/loop/options.h"

/* Local. Sets out's auto_augment, erasing, mixup and cutmix and nothing else. GN_ERR_USAGE names the option: a text that is not as
 * --help says, numbers out of range, more than one policy. */
enum gn_status gn_augment_options_parse(const struct gn_train_options *o, struct gn_loader_options *out, struct gn_err *err);

#endif
