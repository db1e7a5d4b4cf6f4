/*
 * base/yaml.h -- reads YAML into a bounded tree with line numbers; resolves aliases and merges
 *
 *     td_yaml *doc;  TD_TRY(td_yaml_parse(text, n, "configs.yml", &doc));
 *     const td_yaml *m = td_yaml_get(td_yaml_get(doc, "models"), "resnet50");
 *     for (size_t i = 0; i < td_yaml_count(m); i++)
 *         ... td_yaml_key(m, i), td_yaml_member(m, i), td_yaml_line(td_yaml_member(m, i)) ...
 *     td_yaml_free(doc);
 *
 * One document of maps, lists and scalars; JSON is a subset.  A scalar remains a text: the caller
 * knows its type.  Rejected: text that is not UTF-8, duplicate and composed keys, tags beyond the
 * core schema, an alias inside the node it names, a second document, nesting beyond 32, maps of
 * more than 1000 members, texts beyond 1 MiB, and aliases that expand to over 100000 nodes.
 */
#ifndef TD_BASE_YAML_H
#define TD_BASE_YAML_H

#include <stdbool.h>
#include <stddef.h>

#include "base/status.h"

typedef struct td_yaml td_yaml; /* a node; children are borrowed from the document */

typedef enum { TD_YAML_TEXT, TD_YAML_LIST, TD_YAML_MAP } td_yaml_kind;

/**
 * `what` names the source in messages.  An empty document is an empty map.  TD_EFORMAT with the
 * line; TD_ELIMIT: one of the limits above is exceeded; TD_ENOMEM.
 */
TD_CHECKED td_status td_yaml_parse(const char *text, size_t n, const char *what, td_yaml **out);
void td_yaml_free(td_yaml *doc);

td_yaml_kind td_yaml_kind_of(const td_yaml *y);
int td_yaml_line(const td_yaml *y);                        /* of its first character, from 1 */
size_t td_yaml_count(const td_yaml *y);                    /* members or elements; otherwise 0 */
const td_yaml *td_yaml_member(const td_yaml *y, size_t i); /* NULL past the end */
const char *td_yaml_key(const td_yaml *map, size_t i);     /* own keys before merged ones */
int td_yaml_key_line(const td_yaml *map, size_t i);
const td_yaml *td_yaml_get(const td_yaml *map, const char *key); /* NULL: absent, or no map */

/** A scalar's text; NULL for lists and maps. */
const char *td_yaml_text(const td_yaml *y);

/** Is it a null scalar: "", "~" or "null" without quotes? */
bool td_yaml_is_null(const td_yaml *y);

#endif
