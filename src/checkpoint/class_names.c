/*
 * class_names.c -- finds and reads the names of a network's outputs
 */
#include "checkpoint/class_names.h"

#include <string.h>

#include "base/arena.h"
#include "base/file_io.h"
#include "base/json.h"
#include "base/log.h"
#include "base/text.h"
#include "checkpoint/class_list.h"
#include "data/known_classes.h"
#include "optim/training_graph.h"

#define FILE_BYTES ((size_t)16 << 20)
#define NAMES_MAX  (1 << 20)
#define SPACES     " \t\r\v\f"

void td_class_names_release(td_class_names *c)
{
    td_texts_free(c->names, (size_t)c->n);
    *c = (td_class_names){ 0 };
}

/* --- lines ------------------------------------------------------------------------------------ */

/* Check a name, which may be printed on a terminal. */
static td_status check_name(const char *name, const char *path, int i)
{
    for (const char *s = name; *s; s++)
        if ((*s >= 0 && *s < ' ' && *s != '\t') || *s == 127)
            return td_error(TD_EFORMAT, "'%s': class name %d has a control character, 0x%02x", path,
                            i, (unsigned)*s);
    return TD_OK;
}

static td_status check_names(const td_class_names *c, const char *path)
{
    for (int i = 0; i < c->n; i++)
        TD_TRY(check_name(c->names[i], path, i + 1));
    return TD_OK;
}

static td_status add_name(td_class_names *c, size_t *cap, const char *name)
{
    TD_TRY(td_reserve(&c->names, cap, (size_t)c->n + 1, sizeof *c->names));
    c->names[c->n] = td_copy_text(name);
    if (!c->names[c->n])
        return TD_ENOMEM;
    c->n++;
    return TD_OK;
}

static char *strip_spaces(char *line)
{
    line += strspn(line, SPACES);
    size_t n = strlen(line);
    while (n > 0 && strchr(SPACES, line[n - 1]))
        line[--n] = '\0';
    return line;
}

/*
 * Split the text in place.  Empty lines are allowed only at the end, since a line's number is its
 * class.
 */
static td_status read_lines(char *text, const char *path, td_class_names *c)
{
    size_t cap = 0;
    int n_lines = 0, first_empty = 0;
    for (char *line = text, *end; line; line = end) {
        end = strchr(line, '\n');
        if (end)
            *end++ = '\0';
        n_lines++;
        line = strip_spaces(line);
        if (!*line) {
            first_empty = first_empty ? first_empty : n_lines;
            continue;
        }
        if (first_empty)
            return td_error(TD_EFORMAT, "'%s': line %d is empty, wanted a class name on each line",
                            path, first_empty);
        if (c->n == NAMES_MAX)
            return td_error(TD_ELIMIT, "'%s' has more than %d class names", path, NAMES_MAX);
        TD_TRY(add_name(c, &cap, line));
    }
    return TD_OK;
}

/* --- JSON ------------------------------------------------------------------------------------- */

static td_status read_list(const td_json *doc, const char *path, td_class_names *c)
{
    size_t cap = 0;
    for (size_t i = 0; i < td_json_count(doc); i++) {
        const char *name;
        TD_TRY(td_json_as_text(td_json_at(doc, i), &name));
        if (!*name)
            return td_error(TD_EFORMAT, "'%s': name %zu of the list is empty", path, i);
        TD_TRY(add_name(c, &cap, name));
    }
    return TD_OK;
}

/* Read a member "7": "cat", "7": ["n02123045", "tabby"] or "cat": 7. */
static td_status read_member(const td_json *doc, size_t i, const char *path, int64_t *number,
                             const char **name)
{
    const char *key = td_json_key(doc, i);
    const td_json *value = td_json_member(doc, i);
    if (td_json_kind_of(value) == TD_JSON_INT) {
        *name = key;
        return td_json_as_int(value, number);
    }
    if (!td_text_to_int(key, number))
        return td_error(
            TD_EFORMAT,
            "'%s': '%.100s' is not a class number, wanted \"NUMBER\": \"NAME\" or \"NAME\": NUMBER",
            path, key);
    const bool is_pair = td_json_kind_of(value) == TD_JSON_ARRAY && td_json_count(value) == 2;
    return td_json_as_text(is_pair ? td_json_at(value, 1) : value, name);
}

static td_status read_object(const td_json *doc, const char *path, int first, td_class_names *c)
{
    const int n = (int)td_json_count(doc);
    TD_TRY(TD_ALLOC(c->names, (size_t)n + 1));
    c->n = n; /* td_texts_free skips NULL names */
    for (int i = 0; i < n; i++) {
        int64_t number;
        const char *name;
        TD_TRY(read_member(doc, (size_t)i, path, &number, &name));
        if (number < first || number >= (int64_t)first + n)
            return td_error(TD_EFORMAT,
                            "'%s' has %d classes, one of them numbered %lld: wanted %d .. %d", path,
                            n, (long long)number, first, first + n - 1);
        char **place = &c->names[number - first];
        if (*place || !*name)
            return td_error(TD_EFORMAT,
                            *place ? "'%s': two classes have the same number %lld"
                                   : "'%s': class %lld has an empty name",
                            path, (long long)number);
        *place = td_copy_text(name);
        if (!*place)
            return TD_ENOMEM;
    }
    return TD_OK; /* n different numbers below n: none is missing */
}

static td_status read_json(const char *text, size_t n, const char *path, int first,
                           td_class_names *c)
{
    td_json *doc;
    TD_TRY(td_json_parse(text, n, path, &doc));
    td_status st = TD_OK;
    if (td_json_count(doc) > NAMES_MAX)
        st = td_error(TD_ELIMIT, "'%s' has more than %d class names", path, NAMES_MAX);
    else if (td_json_kind_of(doc) == TD_JSON_ARRAY)
        st = read_list(doc, path, c);
    else
        st = read_object(doc, path, first, c);
    td_json_free(doc);
    return st;
}

/* --- a file ----------------------------------------------------------------------------------- */

static td_status check_text(const char *text, size_t n, const char *path)
{
    if (td_text_is_utf16(text, n))
        return td_error(TD_EFORMAT, "'%s' is UTF-16, wanted UTF-8", path);
    if (memchr(text, '\0', n))
        return td_error(TD_EFORMAT, "'%s' is not a text file, wanted class names", path);
    if (!td_text_is_utf8(text))
        return td_error(TD_EFORMAT, "'%s' is not UTF-8, wanted class names in UTF-8", path);
    return TD_OK;
}

td_status td_class_names_parse(char *text, size_t n, const char *path, int first,
                               td_class_names *out)
{
    static const char mark[] = "\xef\xbb\xbf"; /* UTF-8 byte order mark, written by some editors */
    *out = (td_class_names){ .source = TD_NAMES_FILE };
    td_status st = check_text(text, n, path);
    char *begin = text + (n >= 3 && memcmp(text, mark, 3) == 0 ? 3 : 0);
    const char *seen = begin + strspn(begin, SPACES "\n");
    if (st == TD_OK && (*seen == '[' || *seen == '{'))
        st = read_json(begin, n - (size_t)(begin - text), path, first, out);
    else if (st == TD_OK)
        st = read_lines(begin, path, out);
    if (st == TD_OK && out->n == 0)
        st = td_error(TD_EFORMAT, "'%s' contains no class names", path);
    if (st == TD_OK)
        st = check_names(out, path);
    if (st != TD_OK)
        td_class_names_release(out);
    return st;
}

td_status td_class_names_read(const char *path, int first, td_class_names *out)
{
    char *text;
    size_t n;
    *out = (td_class_names){ 0 };
    TD_TRY(td_file_read(path, FILE_BYTES, &text, &n));
    const td_status st = td_class_names_parse(text, n, path, first, out);
    td_free(text);
    return st;
}

td_status td_class_names_differ(const char *path, int n, const char *weights, int n_outputs)
{
    return td_error(TD_ESHAPE, "--classes: '%s' has %d names, the network of '%s' has %d classes",
                    path, n, weights, n_outputs);
}

/* --- the names of a network's outputs --------------------------------------------------------- */

int td_class_names_outputs(const td_model_opts *model)
{
    td_model_opts m = *model;
    if (td_model_resolve(&m) != TD_OK)
        td_error_clear(); /* building the network reports the error */
    return m.num_classes ? m.num_classes : td_model_default_classes(&m, TD_IMAGENET_CLASSES);
}

static bool is_tensorflow(const td_model_opts *model)
{
    return model && model->variant == TD_VARIANT_TENSORFLOW;
}

static td_status of_file(const td_class_names_opts *o, int first, td_class_names *out)
{
    TD_TRY(td_class_names_read(o->classes, first, out));
    if (!o->n_outputs || out->n == o->n_outputs ||
        (is_tensorflow(o->model) && out->n == o->n_outputs - 1))
        return TD_OK;
    const int n = out->n;
    td_class_names_release(out);
    return td_class_names_differ(o->classes, n, o->path, o->n_outputs);
}

static td_status of_imagenet(td_class_names *out)
{
    td_known_classes k;
    size_t cap = 0;
    TD_TRY(td_known_classes_open(TD_KNOWN_IMAGENET, &k));
    td_status st = TD_OK;
    for (int i = 0; i < k.n && st == TD_OK; i++)
        st = add_name(out, &cap, k.names[i]);
    td_known_classes_release(&k);
    if (st != TD_OK) {
        td_class_names_release(out);
        return st;
    }
    out->source = TD_NAMES_IMAGENET;
    return TD_OK;
}

void td_class_names_log(const td_class_names *c, const char *weights)
{
    if (c->source == TD_NAMES_IMAGENET)
        td_log(TD_LOG_INFO, "classes",
               "'%s' contains no class names: using the %d names of ImageNet; --classes FILE "
               "replaces them",
               weights, c->n);
}

td_status td_class_names_open(const td_class_names_opts *o, td_class_names *out)
{
    *out = (td_class_names){ 0 };
    if (o->classes)
        return of_file(o, 0, out);
    TD_TRY(td_classes_from_json(td_tensors_meta(o->weights, "tandem.classes"), o->path, &out->n,
                                &out->names));
    if (out->n)
        out->source = TD_NAMES_WEIGHTS;
    if (o->n_outputs && out->n > o->n_outputs) {
        const int n = out->n;
        td_class_names_release(out);
        return td_error(TD_ESHAPE, "'%s' contains %d class names, its network has %d classes",
                        o->path, n, o->n_outputs);
    }
    if (!out->n && (o->n_outputs == TD_IMAGENET_CLASSES ||
                    (is_tensorflow(o->model) && o->n_outputs == TD_IMAGENET_CLASSES + 1)))
        return of_imagenet(out);
    return TD_OK;
}

td_status td_class_names_put(const char *classes, const char *path, const td_model_opts *model,
                             int n_outputs, td_tensors *t)
{
    const td_class_names_opts o = {
        .path = path, .classes = classes, .model = model, .n_outputs = n_outputs
    };
    td_class_names c;
    td_text json = { 0 };
    if (!n_outputs)
        return td_error(TD_EUNSUPPORTED,
                        "--classes: '%s' does not contain the number of classes of its network",
                        path);
    TD_TRY(of_file(&o, td_model_detector(model) ? 1 : 0, &c));
    td_status st = td_classes_to_json(c.n, (const char *const *)c.names, &json);
    if (st == TD_OK)
        st = td_tensors_set_meta(t, "tandem.classes", td_text_get(&json));
    td_text_release(&json);
    td_class_names_release(&c);
    return st;
}
