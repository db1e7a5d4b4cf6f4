/*
 * base/json.h -- reads JSON with bounds; errors name the path of the value
 *
 *     td_json *doc;  TD_TRY(td_json_parse(text, n, "coco.json", &doc));
 *     const td_json *a = td_json_at(td_json_get(doc, "annotations"), 3);
 *     TD_OUT(td_json_number(a, "area", &area));      -> "coco.json: annotations[3].area: found a
 *     td_json_free(doc);                                 string, wanted a number"
 *
 * Depth is limited to 64, size by the caller's text; duplicate keys are an error.
 */
#ifndef TD_BASE_JSON_H
#define TD_BASE_JSON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

typedef struct td_json td_json; /* a node; children are borrowed from the document */

/** `what` names the source in messages.  TD_EFORMAT with line and column; TD_ENOMEM. */
TD_CHECKED td_status td_json_parse(const char *text, size_t n, const char *what, td_json **out);
void td_json_free(td_json *doc);

typedef enum {
    TD_JSON_NULL,
    TD_JSON_BOOL,
    TD_JSON_INT,
    TD_JSON_REAL,
    TD_JSON_TEXT,
    TD_JSON_ARRAY,
    TD_JSON_OBJECT
} td_json_kind;

td_json_kind td_json_kind_of(const td_json *j);
size_t td_json_count(const td_json *j);                        /* members or elements; or 0 */
const td_json *td_json_get(const td_json *j, const char *key); /* NULL: absent or not an object */
const td_json *td_json_at(const td_json *j, size_t i);
const char *td_json_key(const td_json *object, size_t i); /* in file order */
const td_json *td_json_member(const td_json *object, size_t i);

/* Typed readers of a member; TD_ENOTFOUND when absent, TD_EFORMAT when of another type. */
TD_CHECKED td_status td_json_int(const td_json *object, const char *key, int64_t *out);
TD_CHECKED td_status td_json_number(const td_json *object, const char *key, double *out);
TD_CHECKED td_status td_json_text(const td_json *object, const char *key, const char **out);
TD_CHECKED td_status td_json_bool(const td_json *object, const char *key, bool *out);

/* The value of a node itself. */
TD_CHECKED td_status td_json_as_int(const td_json *j, int64_t *out);
TD_CHECKED td_status td_json_as_number(const td_json *j, double *out);
TD_CHECKED td_status td_json_as_text(const td_json *j, const char **out);
TD_CHECKED td_status td_json_as_bool(const td_json *j, bool *out);

#endif
