/*
 * fuzz_json.c -- any bytes: an error in words, or a tree that can be walked in every way
 */
#include "base/json.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes);

/* every reader on every node: the right one succeeds, the others fail and say so */
static void read_node(const td_json *j)
{
    int64_t whole;
    double real;
    const char *text;
    td_json_kind kind = td_json_kind_of(j);

    td_error_clear();
    TD_CHECK((td_json_as_int(j, &whole) == TD_OK) == (kind == TD_JSON_INT));
    TD_CHECK((td_json_as_number(j, &real) == TD_OK) ==
             (kind == TD_JSON_INT || kind == TD_JSON_REAL));
    TD_CHECK((td_json_as_text(j, &text) == TD_OK) == (kind == TD_JSON_TEXT));
    TD_CHECK(*td_error_message());
    if (kind == TD_JSON_TEXT)
        TD_CHECK(strlen(text) < SIZE_MAX);
}

static void read_member(const td_json *object, size_t i)
{
    const char *key = td_json_key(object, i);
    int64_t whole;
    double real;
    const char *text;
    bool flag;

    TD_CHECK(key && td_json_get(object, key) == td_json_member(object, i));
    TD_CHECK(td_json_int(object, key, &whole) != TD_ENOTFOUND);
    TD_CHECK(td_json_number(object, key, &real) != TD_ENOTFOUND);
    TD_CHECK(td_json_text(object, key, &text) != TD_ENOTFOUND);
    TD_CHECK(td_json_bool(object, key, &flag) != TD_ENOTFOUND);
}

/* as deep as the parser allows */
static void walk(const td_json *j, int depth)
{
    size_t n = td_json_count(j);
    bool is_object = td_json_kind_of(j) == TD_JSON_OBJECT;

    TD_CHECK(depth <= 64);
    read_node(j);
    for (size_t i = 0; i < n; i++) {
        if (is_object)
            read_member(j, i);
        walk(is_object ? td_json_member(j, i) : td_json_at(j, i), depth + 1);
    }
    TD_CHECK(!td_json_at(j, n) && !td_json_member(j, n) && !td_json_key(j, n));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes)
{
    td_json *doc;

    if (td_json_parse((const char *)data, n_bytes, "input", &doc) != TD_OK) {
        TD_CHECK(!doc && *td_error_message());
        return 0;
    }
    walk(doc, 0);
    td_json_free(doc);
    return 0;
}
