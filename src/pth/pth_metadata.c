/*
 * pth_metadata.c -- writes and reads the dict "tandem"
 *
 * Values come from an untrusted file.  Their kinds, ranges and lengths are checked here; their
 * meaning (a network's name, a graph) is checked by the code that reads the same metadata from
 * .safetensors files.
 */
#include "pth/pth_metadata.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/arena.h"
#include "base/json.h"
#include "base/text.h"

#define PREFIX "tandem."

enum {
    NUMBER_MAX = 1 << 24, /* as in td_weight_metadata_apply */
    LIST_MAX = 1 << 20,
    BYTES_MAX = 64 << 20, /* total of all texts; a pickle may refer to one text many times */
    KEY_ROOM = 64
};

typedef enum { A_TEXT, A_NUMBER, A_LIST_OF_TEXTS, A_LIST_OF_NUMBERS } value_kind;

/* clang-format off */
static const struct {
    const char *key;
    value_kind kind;
} rows[] = {
    { "arch", A_TEXT },
    { "num_classes", A_NUMBER },
    { "image_size", A_NUMBER },
    { "channels", A_NUMBER },
    { "multi_label", A_NUMBER },
    { "se_form", A_NUMBER },
    { "variant", A_TEXT },
    { "image_mean", A_TEXT },
    { "image_std", A_TEXT },
    { "backbone", A_TEXT },
    { "bn_epsilon", A_TEXT },
    { "classes", A_LIST_OF_TEXTS },
    { "categories", A_LIST_OF_NUMBERS },
    { "graph", A_TEXT },
};
/* clang-format on */

enum { N_ROWS = sizeof rows / sizeof *rows };

static const char *meta(const td_tensors *t, size_t row)
{
    char key[KEY_ROOM];
    snprintf(key, sizeof key, PREFIX "%s", rows[row].key);
    return td_tensors_meta(t, key);
}

bool td_pth_metadata_is_there(const td_tensors *t)
{
    for (size_t i = 0; i < N_ROWS; i++)
        if (meta(t, i))
            return true;
    return false;
}

bool td_pth_metadata_holds(const char *key)
{
    for (size_t i = 0; i < N_ROWS && td_text_starts(key, PREFIX); i++)
        if (strcmp(key + strlen(PREFIX), rows[i].key) == 0)
            return true;
    return false;
}

/* --- writing ---------------------------------------------------------------------------------- */

static td_status put_number(const td_json *j, td_pth_writer *w)
{
    int64_t n;
    TD_TRY(td_json_as_int(j, &n));
    td_pth_int(w, n);
    return TD_OK;
}

static td_status put_text(const td_json *j, td_pth_writer *w)
{
    const char *text;
    TD_TRY(td_json_as_text(j, &text));
    td_pth_text(w, text);
    return TD_OK;
}

static td_status put_list(const char *json, value_kind kind, td_pth_writer *w)
{
    td_json *doc = NULL;
    td_status st = TD_OK;
    TD_TRY(td_json_parse(json, strlen(json), "its list", &doc));
    if (td_json_kind_of(doc) != TD_JSON_ARRAY)
        TD_OUT(td_error(TD_EFORMAT, "no list"));
    td_pth_list(w);
    for (size_t i = 0; i < td_json_count(doc); i++)
        TD_OUT(kind == A_LIST_OF_TEXTS ? put_text(td_json_at(doc, i), w)
                                       : put_number(td_json_at(doc, i), w));
    td_pth_end_list(w);
out:
    td_json_free(doc);
    return st;
}

static td_status put_value(const char *value, value_kind kind, td_pth_writer *w)
{
    int64_t n;
    if (kind == A_TEXT) {
        td_pth_text(w, value);
        return TD_OK;
    }
    if (kind != A_NUMBER)
        return put_list(value, kind, w);
    if (!td_text_to_int(value, &n))
        return td_error(TD_EFORMAT, "found '%.40s', wanted an integer", value);
    td_pth_int(w, n);
    return TD_OK;
}

td_status td_pth_metadata_write(const td_tensors *t, const char *what, td_pth_writer *w)
{
    td_pth_dict(w);
    for (size_t i = 0; i < N_ROWS; i++) {
        const char *value = meta(t, i);
        if (!value)
            continue;
        td_pth_text(w, rows[i].key);
        TD_TRY_MSG(put_value(value, rows[i].kind, w), "'%s': its metadata " PREFIX "%s", what,
                   rows[i].key);
    }
    td_pth_end_dict(w);
    return TD_OK;
}

/* --- read ------------------------------------------------------------------------------------- */

typedef struct {
    const char *what, *key;
    size_t n_bytes; /* bytes of texts copied so far */
} source;

static td_status refuse(const source *s, const td_pvalue *v, const char *wanted)
{
    return td_error(TD_EFORMAT,
                    "'%s': its entry '" TD_PTH_METADATA_KEY "' has %s as '%s', wanted %s", s->what,
                    td_pickle_kind_name(v->kind), s->key, wanted);
}

/* copies a text with a terminating NUL, to be released with td_free; *out is NULL after a
   failure */
static td_status copy_text(source *s, const td_pvalue *v, char **out)
{
    *out = NULL;
    if (v->kind != TD_PICKLE_TEXT || memchr(v->text.bytes, 0, v->text.len))
        return refuse(s, v, "a text");
    s->n_bytes += v->text.len;
    if (s->n_bytes > BYTES_MAX)
        return td_error(TD_ELIMIT,
                        "'%s': its entry '" TD_PTH_METADATA_KEY "' has more than %d bytes of text",
                        s->what, BYTES_MAX);
    *out = td_alloc(v->text.len + 1, 1);
    if (!*out)
        return TD_ENOMEM;
    memcpy(*out, v->text.bytes, v->text.len);
    (*out)[v->text.len] = '\0';
    if (td_text_is_utf8(*out))
        return TD_OK;
    td_free(*out);
    *out = NULL;
    return refuse(s, v, "a text in UTF-8");
}

static td_status add_text(source *s, const td_pvalue *v, td_text *out)
{
    char *text;
    TD_TRY(copy_text(s, v, &text));
    td_text_add(out, "%s", text);
    td_free(text);
    return TD_OK;
}

static td_status add_number(const source *s, const td_pvalue *v, td_text *out)
{
    if (v->kind != TD_PICKLE_INT || v->whole < 0 || v->whole > NUMBER_MAX)
        return refuse(s, v, "an integer of 0 or more to 16777216");
    td_text_add(out, "%" PRId64, v->whole);
    return TD_OK;
}

static td_status add_quoted(source *s, const td_pvalue *v, td_text *out)
{
    char *text;
    TD_TRY(copy_text(s, v, &text));
    td_text_add(out, "\"");
    td_text_add_json(out, text);
    td_text_add(out, "\"");
    td_free(text);
    return TD_OK;
}

static td_status add_list(source *s, const td_pvalue *v, value_kind kind, td_text *out)
{
    if (v->kind != TD_PICKLE_LIST && v->kind != TD_PICKLE_TUPLE)
        return refuse(s, v, "a list");
    if (v->list.n > LIST_MAX)
        return td_error(TD_ELIMIT,
                        "'%s': '%s' of its entry '" TD_PTH_METADATA_KEY
                        "' has %zu elements, at most %d are read",
                        s->what, s->key, v->list.n, LIST_MAX);
    td_text_add(out, "[");
    for (size_t i = 0; i < v->list.n; i++) {
        td_text_add(out, i ? ", " : "");
        TD_TRY(kind == A_LIST_OF_TEXTS ? add_quoted(s, v->list.at[i], out)
                                       : add_number(s, v->list.at[i], out));
    }
    td_text_add(out, "]");
    return TD_OK;
}

static td_status add_value(source *s, const td_pvalue *v, value_kind kind, td_text *out)
{
    switch (kind) {
    case A_TEXT:
        return add_text(s, v, out);
    case A_NUMBER:
        return add_number(s, v, out);
    default:
        return add_list(s, v, kind, out);
    }
}

td_status td_pth_metadata_read(const td_pvalue *dict, const char *what, td_tensors *t)
{
    td_status st = TD_OK;
    td_text value = { 0 };
    source s = { .what = what };
    for (size_t i = 0; dict && i < N_ROWS; i++) {
        char key[KEY_ROOM];
        const td_pvalue *v = td_pickle_get(dict, rows[i].key);
        if (!v)
            continue;
        s.key = rows[i].key;
        snprintf(key, sizeof key, PREFIX "%s", s.key);
        td_text_release(&value);
        TD_OUT(add_value(&s, v, rows[i].kind, &value));
        TD_OUT(td_text_status(&value));
        TD_OUT(td_tensors_set_meta(t, key, td_text_get(&value)));
    }
out:
    td_text_release(&value);
    return st;
}
