/* What eval --per-class wrote, as a part of a report: a heat map of the confusion matrix and the most frequent confusions. */
#ifndef GN_TRAIN_METRICS_REPORT_CONFUSION_H
#define GN_TRAIN_METRICS_REPORT_CONFUSION_H

#include "src/base/status.h"
#include "src/base/strbuf.h"

/* Appends a heading, an SVG and a table, all text escaped. A row is a class, a column what was predicted; the opacity of a cell is the square
 * root of its share of the row's images. Of more than 60 classes the 60 with the most errors are drawn. GN_ERR_DATA names the file and
 * what is wrong. */
enum gn_status gn_report_confusion(const char *path, struct gn_strbuf *out, struct gn_err *err);

#endif
