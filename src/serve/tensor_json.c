/*
 * tensor_json.c -- reads a tensor from JSON without building a tree
 *
 * An image of 224 x 224 is 150,528 numbers.  As nodes of a JSON document they would take a hundred
 * times the memory of the text, so one pass over the text extracts them as float32 and replaces
 * them by null; the rest is small, and base/json.h parses it.
 *
 *     {"inputs": [{"name": "images", "shape": [1,3,2,2], "data": [[1,2],[3,4], ...]}]}
 *     depth 1     2 3                                    ^ extracted if inside "inputs", at depth 3
 */
#include <float.h>
#include <math.h>
#include <string.h>

#include "base/arena.h"
#include "serve/api.h"

enum { ARRAYS_DEEP = 8, NUMBER_BYTES = 48 };

typedef struct {
    const char *text;
    size_t n, at;
    size_t max_numbers;
    td_text *rest;
    float *numbers;
    size_t n_numbers, cap;
    bool has_data;
} walk;

static td_status wrong(const walk *w, const char *wanted)
{
    if (w->at >= w->n)
        return td_error(TD_EFORMAT, "the JSON ends at byte %zu, wanted %s", w->n, wanted);
    return td_error(TD_EFORMAT, "byte %zu of the JSON is 0x%02x, wanted %s", w->at,
                    (unsigned char)w->text[w->at], wanted);
}

static void skip_blanks(walk *w)
{
    while (w->at < w->n && strchr(" \t\r\n", w->text[w->at]) && w->text[w->at])
        w->at++;
}

static td_status append_rest(walk *w, size_t from)
{
    if (w->rest->len + (w->at - from) > TD_JSON_BYTES)
        return td_error(TD_ELIMIT, "the JSON has more than %d bytes besides the tensor's data",
                        TD_JSON_BYTES);
    td_text_add_bytes(w->rest, w->text + from, w->at - from);
    return td_text_status(w->rest);
}

/* --- numbers ---------------------------------------------------------------------------------- */

static td_status read_number(walk *w)
{
    char token[NUMBER_BYTES];
    size_t len = 0;
    double value;
    bool begins = w->text[w->at] == '-' || (w->text[w->at] >= '0' && w->text[w->at] <= '9');
    while (begins && w->at + len < w->n && len < sizeof token &&
           memchr("+-.0123456789Ee", w->text[w->at + len], 15))
        len++;
    if (len == 0 || len == sizeof token)
        return wrong(w, "a number");
    memcpy(token, w->text + w->at, len);
    token[len] = '\0';
    if (!td_text_to_real(token, &value) || !(fabs(value) <= (double)FLT_MAX))
        return wrong(w, "a number that float32 can hold");
    if (w->n_numbers == w->max_numbers)
        return td_error(TD_ELIMIT, "the tensor has more than %zu numbers", w->max_numbers);
    TD_TRY(td_reserve(&w->numbers, &w->cap, w->n_numbers + 1, sizeof *w->numbers));
    w->numbers[w->n_numbers++] = (float)value;
    w->at += len;
    return TD_OK;
}

/* reads nested arrays of numbers, from the first '[' on */
static td_status read_numbers(walk *w)
{
    int depth = 0;
    bool wants_value = true, may_close = false;
    if (w->has_data)
        return td_error(TD_EFORMAT, "two inputs have data, wanted one");
    w->has_data = true;
    do {
        skip_blanks(w);
        if (w->at >= w->n)
            return wrong(w, "a number or the end of the array");
        char c = w->text[w->at];
        if (c == '[' && wants_value && depth < ARRAYS_DEEP) {
            depth++;
            w->at++;
            may_close = true;
        } else if (c == ']' && may_close) {
            depth--;
            w->at++;
            wants_value = false;
        } else if (c == ',' && !wants_value) {
            w->at++;
            wants_value = true;
            may_close = false;
        } else if (wants_value) {
            TD_TRY(read_number(w));
            wants_value = false;
            may_close = true;
        } else {
            return wrong(w, "a comma or the end of the array");
        }
    } while (depth > 0);
    return TD_OK;
}

/* --- the rest of the document ----------------------------------------------------------------- */

/* skips a string, from its first quote on */
static td_status pass_string(walk *w)
{
    for (w->at++; w->at < w->n && w->text[w->at] != '"'; w->at++)
        w->at += w->text[w->at] == '\\';
    if (w->at >= w->n)
        return wrong(w, "the end of a string");
    w->at++;
    return TD_OK;
}

static bool is_text(const walk *w, size_t from, const char *text)
{
    size_t n = strlen(text);
    return w->at - from == n + 2 && memcmp(w->text + from + 1, text, n) == 0;
}

/* reads a string; if it is the key of the numbers, reads them too */
static td_status read_string(walk *w, int depth, bool *in_inputs)
{
    size_t from = w->at;
    TD_TRY(pass_string(w));
    size_t end = w->at;
    skip_blanks(w);
    bool is_key = w->at < w->n && w->text[w->at] == ':';
    w->at = end;
    if (is_key && depth == 1)
        *in_inputs = is_text(w, from, "inputs");
    bool is_data = is_key && depth == 3 && *in_inputs && is_text(w, from, "data");
    TD_TRY(append_rest(w, from));
    if (!is_data)
        return TD_OK;
    from = w->at;
    skip_blanks(w);
    w->at++; /* skips the colon */
    skip_blanks(w);
    TD_TRY(append_rest(w, from));
    if (w->at >= w->n || w->text[w->at] != '[')
        return wrong(w, "an array of numbers");
    TD_TRY(read_numbers(w));
    td_text_add(w->rest, "null");
    return td_text_status(w->rest);
}

static td_status walk_text(walk *w)
{
    int depth = 0;
    bool in_inputs = false;
    while (w->at < w->n) {
        size_t from = w->at;
        char c = w->text[w->at];
        if (c == '"') {
            TD_TRY(read_string(w, depth, &in_inputs));
            continue;
        }
        depth += (c == '{' || c == '[') - (c == '}' || c == ']');
        w->at++;
        TD_TRY(append_rest(w, from));
    }
    return TD_OK;
}

td_status td_tensor_json_read(const char *text, size_t n, size_t max_numbers, td_text *rest,
                              float **numbers, size_t *n_numbers)
{
    walk w = { .text = text, .n = n, .max_numbers = max_numbers, .rest = rest };
    *numbers = NULL;
    *n_numbers = 0;
    td_status st = walk_text(&w);
    if (st != TD_OK) {
        td_free(w.numbers);
        return st;
    }
    *numbers = w.numbers;
    *n_numbers = w.n_numbers;
    return TD_OK;
}
