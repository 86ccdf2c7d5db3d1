/* Whether sums of gradients overlap backward: what --overlap and --no-overlap ask for. */
#ifndef GN_TRAIN_PARALLEL_OVERLAP_H
#define GN_TRAIN_PARALLEL_OVERLAP_H

enum gn_overlap { GN_OVERLAP_NO, GN_OVERLAP_YES, GN_OVERLAP_MEASURE };

#endif
