/*
 * class_list.c -- see class_list.h
 */
#include "checkpoint/class_list.h"

#include <string.h>

#include "base/arena.h"
#include "base/json.h"

td_status td_classes_to_json(int n, const char *const *names, td_text *out)
{
    td_text_add(out, "[");
    for (int i = 0; i < n; i++) {
        td_text_add(out, i ? ", \"" : "\"");
        td_text_add_json(out, names[i]);
        td_text_add(out, "\"");
    }
    td_text_add(out, "]");
    return td_text_status(out);
}

td_status td_classes_from_json(const char *json, const char *path, int *n, char ***names)
{
    td_json *doc = NULL;
    td_status st = TD_OK;
    *n = 0;
    *names = NULL;
    if (!json)
        return TD_OK;
    TD_OUT(td_json_parse(json, strlen(json), path, &doc));
    size_t count = td_json_count(doc);
    if (td_json_kind_of(doc) != TD_JSON_ARRAY || count > 1 << 24)
        TD_OUT(td_error(TD_EFORMAT, "'%s': its class names are not a list", path));
    *names = td_alloc(count + 1, sizeof **names);
    if (!*names)
        TD_OUT(TD_ENOMEM);
    for (size_t i = 0; i < count; i++) {
        const char *name;
        TD_OUT(td_json_as_text(td_json_at(doc, i), &name));
        (*names)[i] = td_copy_text(name);
        if (!(*names)[i])
            TD_OUT(TD_ENOMEM);
        *n = (int)i + 1;
    }
out:
    td_json_free(doc);
    if (st == TD_OK)
        return TD_OK;
    td_texts_free(*names, (size_t)*n);
    *names = NULL;
    *n = 0;
    return st;
}
