/* Fields of a line of a metrics log, or of a run's status, as Jansson has read them. Thread safety: no state. */
#ifndef GN_TRAIN_METRICS_LOG_EVENT_H
#define GN_TRAIN_METRICS_LOG_EVENT_H

#include "src/base/text.h"

#include <jansson.h>
#include <math.h>
#include <string.h>
#include <time.h>

static inline int gn_event_is(const json_t *line, const char *event)
{
	const char *is = json_string_value(json_object_get(line, "event"));

	return is && !strcmp(is, event);
}

/* NaN if absent or no number. */
static inline double gn_event_number(const json_t *object, const char *key)
{
	const json_t *value = json_object_get(object, key);

	return json_is_number(value) ? json_number_value(value) : NAN;
}

/* Of the line, in seconds since 1970; NaN if absent. */
static inline double gn_event_time(const json_t *line)
{
	const char *text = json_string_value(json_object_get(line, "time"));
	struct tm tm = {0};

	return text && strptime(text, "%Y-%m-%dT%H:%M:%SZ", &tm) ? (double)timegm(&tm) : NAN;
}

/* As gn_text_visible(); "" if absent. */
static inline void gn_event_text(const json_t *object, const char *key, char *out, size_t size)
{
	const char *text = json_string_value(json_object_get(object, key));

	gn_text_visible(text ? text : "", out, size);
}

#endif
